package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/examples/internal/calls"
	"github.com/go-throttle/throttle/fleet"
	"github.com/go-throttle/throttle/fleet/store"
	"github.com/go-throttle/throttle/throttleredis"
)

// A job is what one process of the fleet has to do. It is all that the process knows.
type job struct {
	Process  string // for the upstream's ledger: "3", or "3 again" for the second one of that number
	Upstream string // URL
	Redis    string // URL
	Dial     string // where Redis is reached in place of the address in its URL: host and port
	Name     string // of the limit
	Limit    float64
	Burst    int

	base http.RoundTripper // of a member in this process that needs no sockets; nil: a pool of connections
}

// A report is what a process says of its limiter: a part of fleet.Stats that survives being sent as JSON.
type report struct {
	Mode          string // "shared", or "alone" while the store does not answer
	Members       int
	Trips         uint64 // to the store
	Used, Expired uint64 // units
	Alone         uint64 // of those used, without the store
}

func reportOf(lim *fleet.Limiter) report {
	s := lim.Stats()
	return report{s.Mode, s.Members, s.Trips, s.Used, s.Expired, s.Alone}
}

const (
	jobVariable = "THROTTLE_EXAMPLE_FLEET" // holds the job of a process
	workers     = 8                        // of a process; each makes one call after the other
	reportEvery = 100 * time.Millisecond
)

// work makes calls until ctx ends, as many as the limiter lets go.
func (j *job) work(ctx context.Context, lim *fleet.Limiter) {
	pool := calls.Pool(workers)
	defer pool.CloseIdleConnections()
	t := &throttle.Transport{Base: pool, Limiter: lim}
	if j.base != nil {
		t.Base = j.base
	}
	client := &http.Client{Transport: t}
	target := j.Upstream + "/?process=" + url.QueryEscape(j.Process)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := calls.Get(ctx, client, target); err != nil {
					rest(ctx, 50*time.Millisecond) // the upstream is gone, or the limit closed
				}
			}
		})
	}
	wg.Wait()
}

// limiter is this process's part in the limit.
func (j *job) limiter(s store.Store) *fleet.Limiter {
	return fleet.New(s, j.Name, rate.Limit(j.Limit), j.Burst, fleet.Options{})
}

// rest sleeps, or ends early with ctx.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// serve does the job that this process was started for, and reports whether there was one. It ends when its
// standard input does, so when its parent has gone too, gives back what it holds, and reports on its
// standard output now and then, a line of JSON each.
func serve() bool {
	text, ok := os.LookupEnv(jobVariable)
	if !ok {
		return false
	}
	signal.Ignore(os.Interrupt, syscall.SIGTERM) // they may reach all processes of a terminal; the parent says what follows
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	redis.SetLogger(quiet{})
	client, err := connect(j.Redis, j.Dial)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer client.Close()
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	lim := j.limiter(throttleredis.New(client))
	out := json.NewEncoder(os.Stdout)
	var wg sync.WaitGroup
	wg.Go(func() { j.work(ctx, lim) })
	for ctx.Err() == nil {
		if out.Encode(reportOf(lim)) != nil {
			break
		}
		rest(ctx, reportEvery)
	}
	stop()
	wg.Wait()
	_ = lim.Close() // Redis may be gone: what is held expires
	_ = out.Encode(reportOf(lim))
	return true
}

// quiet keeps go-redis from writing of each connection that breaks: that Redis hangs is part of the story.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// connect makes a client for the Redis of a URL, which is reached at dial if that is not "". The settings are those
// that package throttleredis advises.
func connect(address, dial string) (*redis.Client, error) {
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, fmt.Errorf("-redis: %w", err)
	}
	o.MaxRetries, o.ContextTimeoutEnabled = -1, true
	o.DialTimeout, o.ReadTimeout = time.Second, 200*time.Millisecond
	if dial != "" {
		o.Network, o.Addr = "tcp", dial // over TLS the name of the URL is still asked for
	}
	return redis.NewClient(o), nil
}
