// Package sides lets the same calls run with and without throttle, each side against a fake of an API of its own, and
// prints a table of both. The fakes are reached without sockets, under the names of the real hosts.
package sides

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/examples/internal/calls"
	"github.com/go-throttle/throttle/examples/internal/console"
	"github.com/go-throttle/throttle/throttletest"
)

// A Story is what runs on both sides.
type Story struct {
	Calls, Workers int
	Columns        int           // that may be written; 0: 80
	Ideal          time.Duration // the shortest time in which the limit admits all calls
	Fake           func() Fake   // makes an upstream, one for each side
	User           User
}

// A User makes calls through a client. The names of both sides are those of the table.
type User func(client *http.Client, name string) Call

// A Call is the i-th call of a side; i begins with 0.
type Call func(ctx context.Context, i int) error

// The sides.
const (
	Without = "without"
	With    = "with throttle"
)

// A Fake is an upstream that enforces limits, and what stands before it to speak as an API does.
type Fake struct {
	*throttletest.Server
	Front func(base http.RoundTripper, req *http.Request) (*http.Response, error) // nil: the Server alone
}

// RoundTrip implements http.RoundTripper.
func (f Fake) RoundTrip(req *http.Request) (*http.Response, error) {
	if f.Front != nil {
		return f.Front(f.Server, req)
	}
	return f.Server.RoundTrip(req)
}

// A Side is one line of the table.
type Side struct {
	Name                       string
	Delivered, Sent, Throttled int
	Wall                       time.Duration
	Failure                    string // of the first call that failed; "": none did
}

// Main is the program of a story: it reads the flags, lets both sides run, and exits. The flag -brief asks for a story of fewer calls.
func Main(name, purpose string, story func(brief bool) Story) {
	p := console.New(name, purpose)
	brief := p.Flags.Bool("brief", false, "fewer calls")
	p.Main(func(ctx context.Context, out io.Writer) error {
		s := story(*brief)
		s.Columns = console.Columns()
		_, err := s.Run(ctx, out)
		return err
	})
}

// Run lets both sides run, prints the table, and returns its lines. After an interrupt there is what was done until then.
func (s Story) Run(ctx context.Context, out io.Writer) ([]Side, error) {
	rows := [][]string{{"client", "calls", "delivered", "sent", "throttled", "time", "ideal time"}}
	var done []Side
	for _, name := range []string{Without, With} {
		side := s.run(ctx, name)
		done = append(done, side)
		rows = append(rows, []string{name, strconv.Itoa(s.Calls), strconv.Itoa(side.Delivered), strconv.Itoa(side.Sent), strconv.Itoa(side.Throttled),
			fmt.Sprintf("%.1f s", side.Wall.Seconds()), fmt.Sprintf("%.1f s", s.Ideal.Seconds())})
	}
	if err := console.Print(out, s.Columns, true, rows); err != nil {
		return nil, err
	}
	for _, side := range done {
		if side.Failure != "" {
			fmt.Fprintln(out, console.Fill(side.Name+", the first failure: "+side.Failure, s.Columns, "  "))
		}
	}
	if with := done[len(done)-1]; with.Delivered < s.Calls && ctx.Err() == nil {
		return done, errors.New("not all calls were delivered with throttle")
	}
	return done, nil
}

// run lets one side run.
func (s Story) run(ctx context.Context, name string) Side {
	fake := s.Fake()
	client := &http.Client{Transport: fake}
	if name == With {
		client.Transport = &throttle.Transport{Base: fake} // the zero value: it knows no limit
	}
	call := s.User(client, name)
	var next, delivered atomic.Int64
	var first sync.Once
	var failure string
	start := time.Now()
	calls.Each(ctx, s.Calls, s.Workers, func() {
		if err := call(ctx, int(next.Add(1)-1)); err == nil {
			delivered.Add(1)
		} else if ctx.Err() == nil {
			first.Do(func() { failure = err.Error() }) // now: the text may say how long ago something was
		}
	})
	n := fake.Ledger().Tally()
	return Side{name, int(delivered.Load()), n.Total(), n.Throttled, time.Since(start), failure}
}
