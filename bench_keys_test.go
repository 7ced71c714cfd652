package throttle_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
)

// What one event costs while n calls wait. Each figure is the smallest mean of several crowds: "µs" of one event, and "ns/logn",
// which stays the same if n events cost n log n. They are of processor time where the system tells it, so that they hold on a
// busy machine, but for the stall and the end of BenchmarkCrowd429. -benchtime 3x is enough.

// A benchMix says who waits: the key and the flow of the i-th call of n.
type benchMix struct {
	name  string
	calls int // for each of n
	own   bool
	prios bool // each call has a priority of its own
	of    func(i, n int) (host, flow string)
}

var (
	inKeys    = benchMix{"keys", 1, false, false, func(i, _ int) (string, string) { return benchName("h", i), "" }}
	inFlows   = benchMix{"flows", 1, false, false, func(i, _ int) (string, string) { return "h", benchName("f", i) }}
	inOneLine = benchMix{"waiters", 1, false, false, func(int, int) (string, string) { return "h", "" }}

	// each key has the same two flows; each of two keys, with limits of their own, the same n/2; each its own one
	inTwoFlows = benchMix{"keys-2flows", 2, false, false, func(i, _ int) (string, string) { return benchName("h", i/2), benchName("f", i%2) }}
	inTwoKeys  = benchMix{"2keys-flows", 1, true, false, func(i, _ int) (string, string) { return benchName("h", i%2), benchName("f", i/2) }}
	inOwnFlows = benchMix{"keys-ownflow", 1, false, false, func(i, _ int) (string, string) { return benchName("h", i), benchName("f", i) }}

	// one key, with a limit of its own, in which each call has another priority
	inPriorities = benchMix{"priorities", 1, true, true, func(int, int) (string, string) { return "h", "" }}

	benchMixes = []benchMix{inKeys, inFlows, inOneLine, inTwoFlows, inTwoKeys, inOwnFlows, inPriorities}
	benchSizes = []int{1000, 2000, 4000, 8000}
)

func benchName(prefix string, i int) string { return fmt.Sprintf("%s%05d", prefix, i) }

// By what the keys of a crowd share their limit.
const (
	byLimiter = "Limiter"
	byFor     = "LimiterFor"
	byMeter   = "meter"
)

// A benchCrowd are calls that wait for one limit.
type benchCrowd struct {
	tr     *throttle.Transport
	lim    *throttle.Bucket
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	served chan struct{}
	lineUp time.Duration // for each call
}

// newBenchCrowd puts a crowd into line. Nobody goes before the limit is raised by debt.
func newBenchCrowd(b *testing.B, by string, mix benchMix, n, debt int, before func(*benchCrowd)) *benchCrowd {
	const burst = 1 << 20
	c := &benchCrowd{lim: throttle.NewBucket(1e-3, burst), served: make(chan struct{}, n*mix.calls)}
	c.tr = &throttle.Transport{Base: newBenchStub(nil)}
	switch by {
	case byLimiter:
		if c.tr.Limiter = c.lim; mix.own {
			c.tr.LimiterFor = own(benchRate, benchBurst)
		}
	case byFor:
		c.tr.LimiterFor = same(c.lim)
	case byMeter:
		if c.tr.Meters = oneMeter(c.lim, nil); mix.own {
			c.tr.LimiterFor = own(benchRate, benchBurst)
		}
	}
	c.ctx, c.cancel = context.WithCancel(b.Context())
	if before != nil {
		before(c)
	}
	c.lim.Adjust(int(c.lim.Tokens()) + debt)
	start := begin()
	c.gather(b, mix, n)
	c.lineUp = mean(start, n*mix.calls)
	return c
}

// gather returns when the calls of mix wait.
func (c *benchCrowd) gather(b *testing.B, mix benchMix, n int) {
	for i := range n * mix.calls {
		host, flow := mix.of(i, n)
		ctx := c.ctx
		if flow != "" {
			ctx = throttle.WithFlow(ctx, flow)
		}
		if mix.prios {
			ctx = throttle.WithPriority(ctx, i*7919%n)
		}
		req := request(ctx, http.MethodGet, "https://"+host+"/")
		c.wg.Go(func() {
			if resp, err := c.tr.RoundTrip(req); err == nil {
				resp.Body.Close()
				c.served <- struct{}{}
			}
		})
	}
	for c.tr.Totals().Waiting < n*mix.calls {
		time.Sleep(20 * time.Millisecond)
	}
	if s := len(c.served); s > 0 {
		b.Fatalf("%d calls did not wait", s)
	}
}

// goes waits until n more calls have gone.
func (c *benchCrowd) goes(n int) {
	for range n {
		<-c.served
	}
}

func (c *benchCrowd) end() { c.cancel(); c.wg.Wait() }

// benchEvents measures an event in crowds of all sizes. event makes a crowd, and may return more than one figure.
func benchEvents(b *testing.B, mixes []benchMix, kinds []string, event func(b *testing.B, by string, mix benchMix, n int) map[string]time.Duration) {
	for _, by := range kinds {
		for _, mix := range mixes {
			for _, n := range benchSizes {
				b.Run(fmt.Sprintf("%s/%s/%d", by, mix.name, n), func(b *testing.B) {
					least := map[string]time.Duration{}
					for b.Loop() {
						for what, d := range event(b, by, mix, n) {
							if old, ok := least[what]; !ok || d < old {
								least[what] = d
							}
						}
					}
					for what, d := range least {
						b.ReportMetric(float64(d)/1e3, what+"-µs")
						b.ReportMetric(float64(d)/math.Log2(float64(n)), what+"-ns/logn")
					}
					b.ReportMetric(0, "ns/op")
				})
			}
		}
	}
}

// begin is a moment in processor time from which mean counts.
func begin() time.Duration {
	runtime.GC()
	return cpuTime()
}

// mean is how long each of n took since start.
func mean(start time.Duration, n int) time.Duration { return (cpuTime() - start) / time.Duration(n) }

// BenchmarkCrowdGrant: a unit comes, and one call of the crowd goes; and so many come at once that all go.
func BenchmarkCrowdGrant(b *testing.B) {
	benchEvents(b, benchMixes, []string{byLimiter, byFor, byMeter}, func(b *testing.B, by string, mix benchMix, n int) map[string]time.Duration {
		c := newBenchCrowd(b, by, mix, n, 0, nil)
		defer c.end()
		const events = 100
		start := begin()
		for range events {
			c.lim.Adjust(-1)
			c.goes(1)
		}
		one, rest := mean(start, events), n*mix.calls-events
		start = begin()
		c.lim.Adjust(-rest)
		c.goes(rest)
		return map[string]time.Duration{"one": one, "all": mean(start, rest), "line": c.lineUp}
	})
}

// BenchmarkCrowdLeave: all calls of the crowd leave the line.
func BenchmarkCrowdLeave(b *testing.B) {
	benchEvents(b, benchMixes, []string{byLimiter, byMeter}, func(b *testing.B, by string, mix benchMix, n int) map[string]time.Duration {
		c := newBenchCrowd(b, by, mix, n, 0, nil)
		start := begin()
		c.end()
		return map[string]time.Duration{"leave": mean(start, n*mix.calls)}
	})
}

// BenchmarkCrowdSetLimit: the limit changes, and nobody can go.
func BenchmarkCrowdSetLimit(b *testing.B) {
	benchEvents(b, benchMixes, []string{byLimiter, byFor, byMeter}, func(b *testing.B, by string, mix benchMix, n int) map[string]time.Duration {
		c := newBenchCrowd(b, by, mix, n, 1<<18, nil)
		defer c.end()
		const events = 20
		start := begin()
		for i := range events {
			c.lim.SetLimit(1e-3 + 1e-5*rate.Limit(i))
		}
		return map[string]time.Duration{"set": mean(start, events)}
	})
}

// BenchmarkCrowdSettle: a call is settled that has cost less than it held, and nobody can go yet.
func BenchmarkCrowdSettle(b *testing.B) {
	benchEvents(b, benchMixes, []string{byMeter}, func(b *testing.B, by string, mix benchMix, n int) map[string]time.Duration {
		const events = 20
		var bills []*throttle.Bill
		c := newBenchCrowd(b, by, mix, n, 1<<18, func(c *benchCrowd) {
			for range events {
				ctx, bill := throttle.WithBill(throttle.WithHold(c.ctx, "tokens", 3))
				bills = append(bills, bill)
				benchSend(b, c.tr, request(ctx, http.MethodGet, "https://other/"))
			}
		})
		defer c.end()
		start := begin()
		for _, bill := range bills {
			bill.Settle("tokens", 1)
		}
		return map[string]time.Duration{"settle": mean(start, events)}
	})
}

// BenchmarkCrowdStats: all keys are shown, each for so long.
func BenchmarkCrowdStats(b *testing.B) {
	benchEvents(b, benchMixes, []string{byLimiter, byMeter}, func(b *testing.B, by string, mix benchMix, n int) map[string]time.Duration {
		c := newBenchCrowd(b, by, mix, n, 0, nil)
		defer c.end()
		start, keys := begin(), 0
		for range c.tr.Stats() {
			keys++
		}
		return map[string]time.Duration{"key": mean(start, keys), "call": mean(start, n*mix.calls)}
	})
}

// What the 429s of a crowd say.
const (
	saysLater = "later" // each names a later time
	saysQuota = "quota" // a quota is spent
)

// BenchmarkCrowd429: 200 calls of a host are throttled at once, while n more wait for it. "stall" is the longest call to
// another host meanwhile, which is how long the lock is held; "done" is when all 200 are back in line.
func BenchmarkCrowd429(b *testing.B) {
	half := benchMix{"half-flows", 1, false, false, func(i, n int) (string, string) { return "h", benchName("f", i%(n/2)) }}
	benchEvents(b, []benchMix{half, inOneLine}, []string{saysLater, saysQuota}, bench429)
}

func bench429(b *testing.B, says string, mix benchMix, n int) map[string]time.Duration {
	const refused = 200
	var sent, throttled atomic.Int64
	open := make(chan struct{})
	c := &benchCrowd{}
	c.tr = &throttle.Transport{
		Queue: throttle.QueueOptions{MaxInFlight: refused},
		Retry: throttle.Retry{MaxPause: -1, MaxAttempts: -1},
		Hooks: throttle.Hooks{Throttled: func(context.Context, throttle.Event) { throttled.Add(1) }},
		Base: baseFunc(func(req *http.Request) (*http.Response, error) {
			if req.URL.Host == "other" {
				return reply(req, 200), nil
			}
			sent.Add(1)
			<-open
			if says == saysQuota {
				return reply(req, 429, "Retry-After", "100", "RateLimit-Limit", "1000", "RateLimit-Remaining", "0", "RateLimit-Reset", "100"), nil
			}
			return reply(req, 429, "Retry-After", fmt.Sprint(100+throttled.Load())), nil
		}),
	}
	c.ctx, c.cancel = context.WithTimeout(b.Context(), time.Hour)
	defer c.end()
	for i := range refused {
		ctx := throttle.WithFlow(c.ctx, benchName("f", i))
		c.wg.Go(func() { status(c.tr, ctx, "https://h/") })
	}
	for sent.Load() < refused {
		time.Sleep(time.Millisecond)
	}
	c.gather(b, mix, n)

	var calls []time.Duration
	looked := make(chan struct{})
	start := time.Now()
	var done time.Duration
	go func() {
		defer close(looked)
		for more := 1000; more > 0; more-- {
			before := time.Now()
			status(c.tr, c.ctx, "https://other/")
			if calls = append(calls, time.Since(before)); throttled.Load() < refused {
				more = 1000 // and so many after the last
			} else if done == 0 {
				done = time.Since(start)
			}
		}
	}()
	close(open)
	<-looked
	return map[string]time.Duration{"stall": slices.Max(calls), "done": done}
}
