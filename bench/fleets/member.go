package fleets

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file is one process of a fleet: a copy of the command, started with an order in its environment. It says on
// its standard output that it is ready, reads there when to begin, and then writes a batch now and then of what it
// has used, all as JSON. It judges nothing.

const orderVariable = "THROTTLE_BENCH_FLEET"

// An order is what a process has to do.
type order struct {
	Rival  string
	Redis  string // host and port
	Number int    // of the process, from 0
	Terms  terms
	Loads  []load
	Seed   uint64
}

// A load is what the processes want for a while. Times count from the beginning of the run.
type load struct {
	From, To time.Duration
	Workers  int     // of each process, which never stop asking; 0: none
	Rate     float64 // calls per second at random moments (Poisson), beside the workers
	Uneven   bool    // half of them come to one process; otherwise as many to each
}

// A batch is what a process has done since the last one.
type batch struct {
	Ready bool    `json:",omitempty"`
	Uses  []use   `json:",omitempty"`
	Lost  []use   `json:",omitempty"` // calls that were not served when their load ended
	Trips []int64 `json:",omitempty"` // to Redis, so far, at the end of each load that is over
}

// A use is one unit: when the call came and how long it waited, in microseconds.
type use [2]int64

// at is when the unit was used.
func (u use) at() time.Duration { return time.Duration(u[0]+u[1]) * time.Microsecond }

// came is when the call came.
func (u use) came() time.Duration { return time.Duration(u[0]) * time.Microsecond }

func (u use) waited() time.Duration { return time.Duration(u[1]) * time.Microsecond }

// Serve does what this process was started for and ends it; it returns if it was started for something else. A
// command that runs these scenarios calls it first of all in main.
func Serve() {
	text, ok := os.LookupEnv(orderVariable)
	if !ok {
		return
	}
	var o order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.serve(os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0) // what hangs is left hanging
}

// serve is Serve without the process.
func (o *order) serve(in io.Reader, out io.Writer) error {
	i := find(o.Rival)
	if i < 0 {
		return fmt.Errorf("no rival %q", o.Rival)
	}
	c := redis.NewClient(&redis.Options{Addr: o.Redis})
	m := &member{order: o, out: json.NewEncoder(out)}
	c.AddHook(&m.trips)
	if err := c.Ping(context.Background()).Err(); err != nil {
		return err
	}
	wait, err := rivals()[i].wait(o.Terms, c)
	if err != nil {
		return err
	}
	m.wait = wait
	if err := m.out.Encode(batch{Ready: true}); err != nil {
		return err
	}
	var begin int64 // nanoseconds since 1970: all processes are on one machine
	if err := json.NewDecoder(in).Decode(&begin); err != nil {
		return err
	}
	m.begun = time.Now().Add(-time.Duration(time.Now().UnixNano() - begin))
	return m.run()
}

// find is the index of a rival; -1: there is none of that name.
func find(name string) int {
	for i, r := range rivals() {
		if r.name == name {
			return i
		}
	}
	return -1
}

// A member is one process at work.
type member struct {
	*order
	wait  waiter
	trips hook
	begun time.Time
	out   *json.Encoder

	mu   sync.Mutex
	next batch
}

// run makes the loads, one after the other, and writes batches meanwhile.
func (m *member) run() error {
	var over []int64
	for _, l := range m.Loads {
		time.Sleep(time.Until(m.begun.Add(l.From)))
		ctx, cancel := context.WithCancel(context.Background()) // not a deadline: some fail early if they know one
		end := time.AfterFunc(time.Until(m.begun.Add(l.To)), cancel)
		for range l.Workers {
			go m.work(ctx)
		}
		if l.Rate > 0 {
			go m.arrive(ctx, l.Rate)
		}
		for ctx.Err() == nil {
			_ = sleep(ctx, 100*time.Millisecond)
			if err := m.flush(nil); err != nil {
				end.Stop()
				cancel()
				return err
			}
		}
		over = append(over, m.trips.n.Load())
	}
	time.Sleep(50 * time.Millisecond) // calls that are given up note it
	return m.flush(over)
}

// flush writes what there is.
func (m *member) flush(trips []int64) error {
	m.mu.Lock()
	b := m.next
	m.next = batch{}
	m.mu.Unlock()
	if b.Trips = trips; len(b.Uses)+len(b.Lost)+len(trips) == 0 {
		return nil
	}
	return m.out.Encode(b)
}

// work makes one call after the other.
func (m *member) work(ctx context.Context) {
	for ctx.Err() == nil {
		m.call(ctx)
	}
}

// arrive makes calls at random moments, so many a second on average.
func (m *member) arrive(ctx context.Context, rate float64) {
	r := rand.New(rand.NewPCG(m.Seed, uint64(m.Number)))
	for due := time.Now(); ; {
		due = due.Add(time.Duration(r.ExpFloat64() / rate * 1e9))
		if sleep(ctx, time.Until(due)) != nil {
			return
		}
		go m.call(ctx)
	}
}

// call waits for a unit and notes its use. A call that has no unit when its load ends is lost, even if its wait
// cannot be broken off then.
func (m *member) call(ctx context.Context) {
	came := time.Since(m.begun)
	stop := context.AfterFunc(ctx, func() { m.note(&m.next.Lost, came) })
	err := m.wait(ctx)
	if stop() && err == nil {
		m.note(&m.next.Uses, came)
	} else if err != nil {
		_ = sleep(ctx, time.Millisecond)
	}
}

func (m *member) note(list *[]use, came time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*list = append(*list, use{came.Microseconds(), (time.Since(m.begun) - came).Microseconds()})
}

// A hook counts round trips: a command that is sent, or a pipeline. Those that greet on a new connection are the
// client's own.
type hook struct{ n atomic.Int64 }

func (h *hook) count(first redis.Cmder) {
	switch first.Name() {
	case "ping", "hello", "client":
		return
	}
	h.n.Add(1)
}

func (h *hook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h *hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.count(cmd)
		return next(ctx, cmd)
	}
}

func (h *hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.count(cmds[0])
		return next(ctx, cmds)
	}
}
