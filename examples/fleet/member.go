package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/go-throttle/throttle/examples/internal/localredis"
	"github.com/go-throttle/throttle/fleet"
)

// A member is one process of the fleet, seen from the parent.
type member struct {
	job  job
	kill func()        // ends it at once, without a word to the store; waits until it is gone
	end  func()        // lets it end, and give back what it holds; does not wait
	done chan struct{} // is closed when it is gone

	from, to time.Duration // of the upstream's clock: when it was started and killed; the story sets them

	mu    sync.Mutex
	stats report // the latest
	known bool   // there is one
}

// report notes what the member says of itself.
func (m *member) report(s report) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats, m.known = s, true
}

// look returns the latest report; ok is false if there is none.
func (m *member) look() (s report, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stats, m.known
}

// gone reports whether the member has ended.
func (m *member) gone() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// A place is where members run: processes with a Redis, or goroutines with a store in memory.
type place interface {
	start(job) (*member, error)
	stall(bool) // lets the store hang, or go on
	close()
	String() string
}

// processes are copies of this program, each with a connection to Redis of its own, through one pipe.
type processes struct {
	*pipe
	url  string
	stop func() // ends the redis-server; nil: it is the user's
}

// newProcesses prepares to run members as processes, with the Redis of that URL, or one of its own if it is "".
func newProcesses(ctx context.Context, url string) (place, error) {
	p := &processes{url: url}
	if url == "" {
		var err error
		if p.url, p.stop, err = localredis.Start(); err != nil {
			return nil, err
		}
	}
	err := p.connect(ctx)
	if err != nil && p.stop != nil {
		p.stop()
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// connect looks whether Redis answers, and sets up the pipe.
func (p *processes) connect(ctx context.Context) error {
	client, err := connect(p.url, "")
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("-redis: %w", err)
	}
	p.pipe, err = newPipe(cmp.Or(client.Options().Network, "tcp"), client.Options().Addr)
	return err
}

func (p *processes) String() string {
	if p.stop == nil {
		return "each a process, with the Redis of -redis"
	}
	return "each a process, with a redis-server"
}

func (p *processes) close() {
	p.pipe.close()
	if p.stop != nil {
		p.stop()
	}
}

func (p *processes) start(j job) (*member, error) {
	j.Redis, j.Dial = p.url, p.addr()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	m := &member{job: j, done: make(chan struct{}), end: func() { in.Close() }}
	m.kill = func() { _ = cmd.Process.Kill(); <-m.done }
	go func() {
		defer close(m.done)
		for lines := json.NewDecoder(out); ; {
			var s report
			if lines.Decode(&s) != nil {
				break
			}
			m.report(s)
		}
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	}()
	return m, nil
}

// goroutines are members in this process, which share a store in memory.
type goroutines struct {
	gate
	store fleet.Memory
}

func (g *goroutines) String() string { return "all in this process, with a store in memory" }
func (g *goroutines) close()         {}

func (g *goroutines) start(j job) (*member, error) {
	ctx, cancel := context.WithCancel(context.Background())
	lim := j.limiter(&memory{gate: &g.gate, store: &g.store})
	m := &member{job: j, done: make(chan struct{})}
	give := true
	m.end = cancel
	m.kill = func() { give = false; cancel(); <-m.done }
	go func() {
		defer close(m.done)
		var wg sync.WaitGroup
		wg.Go(func() { j.work(ctx, lim) })
		for ctx.Err() == nil {
			m.report(reportOf(lim))
			rest(ctx, reportEvery)
		}
		wg.Wait()
		if give {
			_ = lim.Close()
		}
		m.report(reportOf(lim))
	}()
	return m, nil
}

// newPlace chooses where the members run. Without -redis and without a redis-server it is this process, and note
// says so.
func newPlace(ctx context.Context, redis string, inMemory bool) (p place, note string, err error) {
	if inMemory {
		return new(goroutines), "", nil
	}
	p, err = newProcesses(ctx, redis)
	if errors.Is(err, localredis.ErrNone) {
		return new(goroutines), err.Error() + ": the processes are goroutines, and share a store in memory", nil
	}
	return p, "", err
}
