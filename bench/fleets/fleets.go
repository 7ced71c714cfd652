// Package fleets sets limits that many processes share side by side: this library's fleet, libraries that ask Redis
// for each call, and a limit that is divided by hand. The processes are copies of the command, each with a client of
// go-redis in its default settings, and the redis-server is a real one on the loopback interface.
//
// What a process has used it writes down with the machine's clock, and the parent judges it. There is no upstream: it
// would cost more than what is measured.
package fleets

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/bench/scenario"
)

// A stage is one run: a redis-server and processes.
type stage struct {
	terms  terms
	redis  *server
	loads  []load
	procs  []*exec.Cmd
	ins    []io.WriteCloser
	ready  chan error
	begun  time.Time
	mu     sync.Mutex
	ledger ledger
	wg     sync.WaitGroup // readers of the processes
	failed error          // why a process has ended badly
}

// rateOf is the rate at which the calls of a load come to a process. If they come unevenly, as many balancers hand
// them out, the first process has half of them.
func (l load) rateOf(number, members int) float64 {
	switch {
	case !l.Uneven || members == 1:
		return l.Rate / float64(members)
	case number == 0:
		return l.Rate / 2
	}
	return l.Rate / 2 / float64(members-1)
}

// begin starts all and waits until every process is ready. Rates in loads are of all processes together.
func begin(ctx context.Context, c client.Client, o scenario.Options, t terms, loads []load) (*stage, error) {
	srv, err := startRedis()
	if err != nil {
		return nil, err
	}
	s := &stage{terms: t, redis: srv, loads: loads, ready: make(chan error, t.Members)}
	s.ledger.trips = make([][]int64, t.Members)
	for i := range t.Members {
		if err := s.start(ctx, c, uint64(o.Seed), i); err != nil {
			s.close()
			return nil, err
		}
	}
	for range t.Members {
		select {
		case err = <-s.ready:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			s.close()
			return nil, err
		}
	}
	s.begun = time.Now().Add(50 * time.Millisecond)
	for _, in := range s.ins {
		fmt.Fprintln(in, s.begun.UnixNano())
	}
	return s, nil
}

// start starts a process, and a reader of what it writes.
func (s *stage) start(ctx context.Context, c client.Client, seed uint64, number int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	loads := slices.Clone(s.loads)
	for i := range loads {
		loads[i].Rate = loads[i].rateOf(number, s.terms.Members)
	}
	text, err := json.Marshal(order{c.Name, s.redis.addr(), number, s.terms, loads, seed})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), orderVariable+"="+string(text))
	cmd.Stderr = io.Discard // go-redis logs each broken connection
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.procs, s.ins = append(s.procs, cmd), append(s.ins, in)
	s.wg.Go(func() { s.read(cmd, json.NewDecoder(out), number) })
	return nil
}

// read takes in what a process writes, until it ends.
func (s *stage) read(cmd *exec.Cmd, out *json.Decoder, number int) {
	for {
		var b batch
		if out.Decode(&b) != nil {
			break
		}
		if b.Ready {
			s.ready <- nil
			continue
		}
		s.mu.Lock()
		s.ledger.add(number, b)
		s.mu.Unlock()
	}
	if err := cmd.Wait(); err != nil {
		s.mu.Lock()
		s.failed = fmt.Errorf("process %d: %w", number, err)
		s.mu.Unlock()
		select {
		case s.ready <- err: // it has never been ready
		default:
		}
	}
}

// at waits for a moment of the run.
func (s *stage) at(ctx context.Context, moment time.Duration) error {
	return sleep(ctx, time.Until(s.begun.Add(moment)))
}

// end waits for the processes, and returns the ledger.
func (s *stage) end() (*ledger, error) {
	s.wg.Wait()
	s.redis.close()
	s.ledger.sort()
	return &s.ledger, s.failed
}

// close ends all at once.
func (s *stage) close() {
	for _, p := range s.procs {
		_ = p.Process.Kill()
	}
	_, _ = s.end()
}
