package throttle_test

import (
	"context"
	"errors"
	"fmt"

	"math/rand/v2"
	"net/http"
	"strings"

	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
)

// These tests are about what keys do to each other: each has many hosts that share a limit or the calls in flight.

// A town is the Base of a Transport with many hosts, and notes when each of them served a call.
type town struct {
	t     *testing.T
	tr    *throttle.Transport
	reply func(host string, n int) (trip time.Duration, ok bool) // the n-th attempt at a host, from 1
	start time.Time
	ctx   context.Context // ends with the test
	wg    sync.WaitGroup

	mu     sync.Mutex
	sent   map[string]int
	served map[string][]time.Duration // since start
}

var errDead = errors.New("no answer")

func (w *town) RoundTrip(req *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.sent[req.URL.Host]++
	n := w.sent[req.URL.Host]
	w.mu.Unlock()
	trip, ok := w.reply(req.URL.Host, n)
	select {
	case <-time.After(trip):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	if !ok {
		return nil, errDead
	}
	w.mu.Lock()
	w.served[req.URL.Host] = append(w.served[req.URL.Host], time.Since(w.start))
	w.mu.Unlock()
	return reply(req, 200), nil
}

// call sends one call to host, and reports whether it was served.
func (w *town) call(ctx context.Context, host string) bool {
	code, err := status(w.tr, ctx, "http://"+host+"/")
	return code == 200 && err == nil
}

// crowd puts n calls into the line of host. They need not be served.
func (w *town) crowd(ctx context.Context, n int, host string) {
	for range n {
		w.wg.Go(func() { w.call(ctx, host) })
	}
	synctest.Wait()
}

// work keeps n callers of host busy. After an error each waits for as long.
func (w *town) work(ctx context.Context, n int, host string, after time.Duration) {
	for range n {
		w.wg.Go(func() {
			for w.ctx.Err() == nil {
				if !w.call(ctx, host) {
					select {
					case <-time.After(after):
					case <-w.ctx.Done():
					}
				}
			}
		})
	}
}

// bursts sends n calls to host, some at once after each interval, and returns how many were served. limit bounds each call.
func (w *town) bursts(interval time.Duration, some, n int, host string, limit func(context.Context) (context.Context, context.CancelFunc)) int {
	var served atomic.Int64
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			ctx, cancel := limit(w.ctx)
			defer cancel()
			if w.call(ctx, host) {
				served.Add(1)
			}
		})
		if i%some == some-1 {
			time.Sleep(interval)
		}
	}
	wg.Wait()
	return int(served.Load())
}

// within is a deadline for each call.
func within(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
}

// maxWait is WithMaxWait for each call.
func maxWait(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) {
		return throttle.WithMaxWait(ctx, d), func() {}
	}
}

// between counts the calls that hosts have served in [from, to).
func (w *town) between(from, to time.Duration) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range w.served {
		for _, d := range at {
			if from <= d && d < to {
				n++
			}
		}
	}
	return n
}

// takes returns how long a call to host takes, or an hour if it is not served.
func (w *town) takes(ctx context.Context, host string) time.Duration {
	start := time.Now()
	if !w.call(ctx, host) {
		return time.Hour
	}
	return time.Since(start)
}

// inTown runs f in a bubble, with tr before hosts that answer as reply says.
func inTown(t *testing.T, tr *throttle.Transport, reply func(host string, n int) (time.Duration, bool), f func(*town)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &town{t: t, tr: tr, reply: reply, start: time.Now(), ctx: ctx, sent: map[string]int{}, served: map[string][]time.Duration{}}
		tr.Base = w
		f(w)
		cancel()
		w.wg.Wait()
	})
}

// healthy answers each call after trip.
func healthy(trip time.Duration) func(string, int) (time.Duration, bool) {
	return func(string, int) (time.Duration, bool) { return trip, true }
}

// chance is of host's n-th attempt, uniform in [0, 1), and the same in each run.
func chance(host string, n int) float64 {
	seed := uint64(n)
	for _, c := range []byte(host) {
		seed = seed*31 + uint64(c)
	}
	return rand.New(rand.NewPCG(seed, uint64(n))).Float64()
}

// own is a LimiterFor that makes each key a bucket of its own.
func own(limit rate.Limit, burst int) func(string) throttle.Limiter {
	return func(string) throttle.Limiter { return throttle.NewBucket(limit, burst) }
}

// same is a LimiterFor that returns one limiter for all keys.
func same(l throttle.Limiter) func(string) throttle.Limiter {
	return func(string) throttle.Limiter { return l }
}

// oneMeter are Meters that count each call of every key in one limiter.
func oneMeter(l throttle.Limiter, hold func(*http.Request) int) func(string) []throttle.Meter {
	return func(string) []throttle.Meter {
		return []throttle.Meter{{Name: "tokens", Limiter: l, Hold: hold, Failures: true}}
	}
}

// Attempts that fail now and then cost their own second and nothing else: with a bound on the calls in flight that is
// never reached for long, as many are served as without it.
func TestFailuresOfKeysLeaveNoSlotIdle(t *testing.T) {
	part := race.Pick(4, 1) // of the hosts
	type load struct {
		hosts, slots, callers int
		fail                  float64
		slow                  bool // one host takes 30 s to fail
		least                 float64
		tr                    throttle.Transport
		ctx                   func(context.Context, int) context.Context // of the i-th host's callers
	}
	flows := func(ctx context.Context, i int) context.Context { return throttle.WithFlow(ctx, fmt.Sprint("f", i%7)) }
	priorities := func(ctx context.Context, i int) context.Context { return throttle.WithPriority(ctx, i%3) }
	once := throttle.Retry{MaxAttempts: 1}
	for name, c := range map[string]*load{
		"no bound":       {hosts: 200, callers: 3, fail: 0.1, least: 175},
		"200 hosts":      {hosts: 200, slots: 50, callers: 3, fail: 0.1, least: 175},
		"no retry":       {hosts: 200, slots: 50, callers: 3, fail: 0.1, least: 175, tr: throttle.Transport{Retry: once}},
		"one caller":     {hosts: 200, slots: 50, callers: 1, fail: 0.1, least: 160},
		"20 hosts":       {hosts: 20, slots: 5, callers: 4, fail: 0.1, least: 17},
		"400 hosts":      {hosts: 400, slots: 100, callers: 3, fail: 0.1, least: 350},
		"half fail":      {hosts: 200, slots: 50, callers: 3, fail: 0.5, least: 80, tr: throttle.Transport{Retry: once}},
		"flows":          {hosts: 200, slots: 50, callers: 4, fail: 0.1, least: 175, ctx: flows},
		"priorities":     {hosts: 200, slots: 50, callers: 4, fail: 0.1, least: 175, ctx: priorities},
		"slots of keys":  {hosts: 200, slots: 50, callers: 4, fail: 0.1, least: 175, tr: throttle.Transport{Queue: throttle.QueueOptions{MaxInFlight: 2}}},
		"meters":         {hosts: 200, slots: 50, callers: 3, fail: 0.1, least: 175, tr: throttle.Transport{Meters: ownMeter(1, 1)}},
		"slow":           {hosts: 200, slots: 50, callers: 3, fail: 0.01, slow: true, least: 190},
		"slow, 4 times":  {hosts: 200, slots: 50, callers: 12, fail: 0.01, slow: true, least: 188},
		"slow, in flows": {hosts: 200, slots: 50, callers: 4, fail: 0.01, slow: true, least: 190, ctx: flows},
	} {
		t.Run(name, func(t *testing.T) {
			if !c.slow { // one host of them
				c.hosts, c.slots, c.least = c.hosts/part, c.slots/part, c.least/float64(part)
			} else if c.callers > 3 {
				race.Long(t)
			}
			tr := &throttle.Transport{MaxInFlight: c.slots, Retry: c.tr.Retry, Queue: c.tr.Queue, Meters: c.tr.Meters}
			if tr.Meters == nil {
				tr.LimiterFor = own(1, 1)
			}
			inTown(t, tr, func(host string, n int) (time.Duration, bool) {
				if c.slow && host == "h0" {
					return 30 * sec, false
				}
				return 200 * ms, chance(host, n) >= c.fail
			}, func(w *town) {
				for i := range c.hosts {
					ctx := w.ctx
					if c.ctx != nil {
						ctx = c.ctx(ctx, i)
					}
					w.work(ctx, c.callers, fmt.Sprint("h", i), 100*ms)
				}
				from := 10 * sec
				if c.slow {
					from = 30 * sec
				}
				time.Sleep(from + 30*sec)
				if got := float64(w.between(from, from+30*sec)) / 30; got < c.least {
					t.Errorf("%.1f calls a second are served, want %v", got, c.least)
				}
			})
		})
	}
}

// A host that failed once and is well again has its next call in seconds, though others always could use its slot: those
// that are called for the first time, and those with a backlog.
func TestAHostThatFailedOnceIsServed(t *testing.T) {
	for name, c := range map[string]struct {
		slots, news, backlog int
		first                bool // it had served a call before it failed
		within               time.Duration
	}{
		"2 slots":                {2, 20, 20, true, 5 * sec},
		"10 slots":               {10, 20, 20, true, 5 * sec},
		"40 slots":               {40, 100, 100, true, 5 * sec},
		"one caller elsewhere":   {1, 20, 1, true, 5 * sec},
		"a backlog, no newcomer": {10, 0, 20, true, 5 * sec},
		"newcomers, no backlog":  {2, 30, 0, true, 5 * sec},
		"2 slots, new":           {2, 20, 20, false, 10 * sec},
		"10 slots, new":          {10, 20, 20, false, 10 * sec},
		"40 slots, new":          {40, 100, 100, false, 10 * sec},
	} {
		t.Run(name, func(t *testing.T) {
			tr := &throttle.Transport{MaxInFlight: c.slots, Retry: throttle.Retry{MaxAttempts: 1}}
			inTown(t, tr, failsOnce("once", c.first, 100*ms), func(w *town) {
				if c.first {
					w.call(w.ctx, "once")
				}
				w.call(w.ctx, "once")
				w.work(w.ctx, c.backlog, "elsewhere", ms)
				if c.news > 0 {
					w.wg.Go(func() { w.newcomers(c.news) })
				}
				time.Sleep(2 * sec)
				ctx, cancel := context.WithTimeout(w.ctx, 20*sec)
				defer cancel()
				if d := w.takes(ctx, "once"); d > c.within {
					t.Errorf("the next call took %v", d)
				}
			})
		})
	}
}

// newcomers calls so many hosts a second for the first time.
func (w *town) newcomers(perSecond int) {
	for i := 0; w.ctx.Err() == nil; i++ {
		w.wg.Go(func() { w.call(w.ctx, fmt.Sprint("new", i)) })
		time.Sleep(sec / time.Duration(perSecond))
	}
}

// failsOnce answers all calls, but for the first one to host, or if it is well at first the second one.
func failsOnce(host string, wellFirst bool, trip time.Duration) func(string, int) (time.Duration, bool) {
	bad := 1
	if wellFirst {
		bad = 2
	}
	return func(h string, n int) (time.Duration, bool) { return trip, h != host || n != bad }
}

// A crowd that waits for one host delays the call for another by no more than its turn, though that one has failed once.
func TestACrowdAtOneHostDelaysNoOther(t *testing.T) {
	for name, c := range map[string]struct {
		crowd, slots int
		first        bool
		flow         bool // the crowd is in 100 flows
		priority     int  // of the call
		meter        bool
		own          bool // the limiter is what LimiterFor returns for both
		within       time.Duration
	}{
		"10,000":               {crowd: race.Pick(2000, 10_000), slots: 100, first: true, within: 500 * ms},
		"1,000, no bound":      {crowd: 1000, first: true, within: 500 * ms},
		"10":                   {crowd: 10, slots: 100, first: true, within: 500 * ms},
		"1,000 by meter":       {crowd: 1000, slots: 100, first: true, meter: true, within: 500 * ms},
		"1,000 by LimiterFor":  {crowd: 1000, slots: 100, first: true, own: true, within: 500 * ms},
		"1,000 in flows":       {crowd: 1000, slots: 100, first: true, flow: true, within: 12 * sec},
		"priority":             {crowd: 1000, slots: 100, first: true, flow: true, priority: 1, within: 500 * ms},
		"1,000, new":           {crowd: 1000, slots: 100, within: 1500 * ms}, // it is dead: a tenth of 10/s
		"1,000, new, by meter": {crowd: 1000, slots: 100, meter: true, within: 1500 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			lim := throttle.NewBucket(10, 1)
			tr := &throttle.Transport{MaxInFlight: c.slots, Retry: throttle.Retry{MaxAttempts: 1}}
			switch {
			case c.meter:
				tr.Meters = oneMeter(lim, nil)
			case c.own:
				tr.LimiterFor = same(lim)
			default:
				tr.Limiter = lim
			}
			inTown(t, tr, failsOnce("once", c.first, 50*ms), func(w *town) {
				if c.first {
					w.call(w.ctx, "once")
				}
				w.call(w.ctx, "once")
				for i := range c.crowd {
					ctx := w.ctx
					if c.flow {
						ctx = throttle.WithFlow(ctx, fmt.Sprint("f", i%100))
					}
					w.wg.Go(func() { w.call(ctx, "crowd") })
				}
				time.Sleep(sec)
				if d := w.takes(throttle.WithPriority(w.ctx, c.priority), "once") - 50*ms; d > c.within {
					t.Errorf("the call waited for %v, want %v", d, c.within)
				}
			})
		})
	}
}

// Who waits for something of its own does not count as going before others: what they have time for is not refused.
func TestWhoCannotGoIsNotCountedBeforeOthers(t *testing.T) {
	patient := func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} }
	for name, c := range map[string]struct {
		held    string // by what the calls of ten hosts are
		waiting int    // at each
		by      string // who shares the 10/s
		limit   func(context.Context) (context.Context, context.CancelFunc)
		gap     time.Duration // between two times twenty calls
		high    int           // the priority of those that are held
	}{
		"pause":             {held: "pause", waiting: 1, limit: within(2 * sec), gap: 8 * sec},
		"pause, 20 each":    {held: "pause", waiting: 20, limit: within(2 * sec), gap: 8 * sec},
		"pause, MaxWait":    {held: "pause", waiting: 20, limit: maxWait(2 * sec), gap: 8 * sec},
		"pause, busy":       {held: "pause", waiting: 5, limit: within(2 * sec), gap: 2100 * ms},
		"pause, priority":   {held: "pause", waiting: 5, limit: within(2 * sec), gap: 8 * sec, high: 1},
		"pause, LimiterFor": {held: "pause", by: "LimiterFor", waiting: 5, limit: within(2 * sec), gap: 2100 * ms},
		"pause, meter":      {held: "pause", by: "meter", waiting: 5, limit: within(2 * sec), gap: 2100 * ms},
		"own":               {held: "own", waiting: 1, limit: within(2 * sec), gap: 8 * sec},
		"own, 20 each":      {held: "own", waiting: 20, limit: within(2 * sec), gap: 8 * sec},
		"own, MaxWait":      {held: "own", waiting: 20, limit: maxWait(2 * sec), gap: 8 * sec},
		"own, busy":         {held: "own", waiting: 5, limit: within(2 * sec), gap: 2100 * ms},
		"own, priority":     {held: "own", waiting: 5, limit: maxWait(2 * sec), gap: 8 * sec, high: 1},
		"own meter":         {held: "own meter", waiting: 5, limit: within(2 * sec), gap: 2100 * ms},
		"slot":              {held: "slot", waiting: 5, limit: within(2 * sec), gap: 2100 * ms},
		"slot, MaxWait":     {held: "slot", waiting: 5, limit: maxWait(2 * sec), gap: 2100 * ms},
		"nobody waits long": {held: "pause", waiting: 5, limit: patient, gap: 2 * sec},
	} {
		t.Run(name, func(t *testing.T) {
			lim, tr := throttle.NewBucket(10, 1), &throttle.Transport{}
			switch c.by {
			case "LimiterFor":
				tr.LimiterFor = same(lim)
			case "meter":
				tr.Meters = oneMeter(lim, nil)
			default:
				tr.Limiter = lim
			}
			used := func() *throttle.Bucket {
				b := throttle.NewBucket(0.001, 1)
				b.Adjust(1)
				return b
			}
			switch c.held {
			case "own":
				tr.LimiterFor = func(key string) throttle.Limiter {
					if key == "well" {
						return nil
					}
					return used()
				}
			case "own meter":
				tr.Meters = func(key string) []throttle.Meter {
					if key == "well" {
						return nil
					}
					return []throttle.Meter{{Name: "own", Limiter: used()}}
				}
			case "slot":
				tr.Queue.MaxInFlight = 1
			}
			inTown(t, tr, func(host string, _ int) (time.Duration, bool) {
				if host == "well" {
					return 50 * ms, true
				}
				return time.Hour, true
			}, func(w *town) {
				for i := range 10 {
					host := fmt.Sprint("h", i)
					if c.held == "pause" {
						tr.Pause(host, time.Hour)
					}
					w.crowd(throttle.WithPriority(w.ctx, c.high), c.waiting, host)
				}
				time.Sleep(10 * sec)
				if served := w.bursts(c.gap, 20, 200, "well", c.limit); served != 200 {
					t.Errorf("%d of 200 are served", served)
				}
			})
		})
	}
}

// Dead hosts cost a healthy one little: their attempts use up no limit that it shares with them.
func TestDeadHostsLeaveTheLimitToTheOthers(t *testing.T) {
	for name, c := range map[string]struct {
		hosts, callers int
		trip           time.Duration
		by             string
		once           bool // no retries
		slots          int
		least          int // of 300
	}{
		"50":               {hosts: 50, callers: 5, trip: 10 * ms, least: 290},
		"100":              {hosts: 100, callers: 5, trip: 10 * ms, least: 280},
		"50, no retries":   {hosts: 50, callers: 5, trip: 10 * ms, once: true, least: 290},
		"100, no retries":  {hosts: 100, callers: 5, trip: 10 * ms, once: true, least: 280},
		"50, one caller":   {hosts: 50, callers: 1, trip: 10 * ms, least: 290},
		"50, slow to fail": {hosts: 50, callers: 4, trip: 5 * sec, least: 290},
		"5":                {hosts: 5, callers: 5, trip: 10 * ms, once: true, least: 298},
		"50, LimiterFor":   {hosts: 50, callers: 5, trip: 10 * ms, by: "LimiterFor", least: 290},
		"50, meter":        {hosts: 50, callers: 5, trip: 10 * ms, by: "meter", least: 290},
		"50, slots":        {hosts: 50, callers: 5, trip: 200 * ms, slots: 2, least: 290},
	} {
		t.Run(name, func(t *testing.T) {
			if c.hosts > 50 {
				race.Long(t)
			}
			lim, tr := throttle.NewBucket(10, 1), &throttle.Transport{MaxInFlight: c.slots}
			if c.once {
				tr.Retry.MaxAttempts = 1
			}
			switch c.by {
			case "LimiterFor":
				tr.LimiterFor = same(lim)
			case "meter":
				tr.Meters = oneMeter(lim, nil)
			default:
				tr.Limiter = lim
			}
			inTown(t, tr, func(host string, _ int) (time.Duration, bool) {
				if host == "well" {
					return 50 * ms, true
				}
				return c.trip, false
			}, func(w *town) {
				w.call(w.ctx, "well")
				for i := range c.hosts {
					w.work(w.ctx, c.callers, fmt.Sprint("dead", i), 100*ms)
				}
				ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
				defer cancel()
				served := w.bursts(200*ms, 1, 300, "well", func(context.Context) (context.Context, context.CancelFunc) {
					return ctx, func() {}
				})
				if served < c.least {
					t.Errorf("%d of 300 are served in a minute, want %d", served, c.least)
				}
			})
		})
	}
}

// A costly call at a limiter that keys share is not passed by cheap ones for ever, and what Explain says of it comes true.
func TestACostlyCallAtASharedLimiter(t *testing.T) {
	for name, c := range map[string]struct {
		by          string
		callers     int // of the cheap key
		cheap, dear int
		rate, burst int
		within      time.Duration
		flow        bool
	}{
		"Limiter":               {"Limiter", 20, 10, 300, 200, 400, 4 * sec, false},
		"LimiterFor":            {"LimiterFor", 20, 10, 300, 200, 400, 4 * sec, false},
		"meter":                 {"meter", 20, 10, 300, 200, 400, 4 * sec, false},
		"LimiterFor, in a flow": {"LimiterFor", 20, 10, 300, 200, 400, 4 * sec, true},
		"meter, in a flow":      {"meter", 20, 10, 300, 200, 400, 4 * sec, true},
		"meter, four callers":   {"meter", 4, 10, 300, 200, 400, 4 * sec, false},
		"meter, 200 callers":    {"meter", 200, 10, 300, 200, 400, 4 * sec, false},
		"meter, all of it":      {"meter", 20, 10, 400, 200, 400, 6 * sec, false},
		"meter, above it":       {"meter", 20, 10, 500, 200, 400, 8 * sec, false},
		"meter, ten times":      {"meter", 20, 100, 3000, 2000, 4000, 4 * sec, false},
		"LimiterFor, ones":      {"LimiterFor", 20, 1, 300, 200, 400, 4 * sec, false},
	} {
		t.Run(name, func(t *testing.T) {
			cost := func(req *http.Request) int {
				if req.URL.Host == "dear" {
					return c.dear
				}
				return c.cheap
			}
			lim, tr := throttle.NewBucket(rate.Limit(c.rate), c.burst), &throttle.Transport{}
			switch c.by {
			case "LimiterFor":
				tr.LimiterFor, tr.Cost = same(lim), cost
			case "meter":
				tr.Meters = oneMeter(lim, cost)
			default:
				tr.Limiter, tr.Cost = lim, cost
			}
			inTown(t, tr, healthy(10*ms), func(w *town) {
				w.work(w.ctx, c.callers, "cheap", ms)
				time.Sleep(5 * sec)
				ctx := w.ctx
				if c.flow {
					ctx = throttle.WithFlow(ctx, "dear")
				}
				ctx, cancel := context.WithTimeout(ctx, 20*sec)
				defer cancel()
				start := time.Now()
				told := w.told("dear")
				if d := w.takes(ctx, "dear") - 10*ms; d > c.within {
					t.Errorf("it waited for %v, want %v", d, c.within)
				}
				gone := time.Since(start) - 10*ms
				for after, until := range told() {
					if off := until.Sub(start) - gone; off.Abs() > max(gone-after, sec)/20 {
						t.Errorf("%v after it came Explain said that it would go at %v; it went at %v", after, until.Sub(start), gone)
						break
					}
				}
			})
		})
	}
}

// told asks until when the first call of a key waits, ten times a second while it does. The func waits for the end of that.
func (w *town) told(key string) func() map[time.Duration]time.Time {
	told, start, done := map[time.Duration]time.Time{}, time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		for time.Sleep(ms); ; time.Sleep(100 * ms) {
			if s, _ := w.tr.Explain(key); s.Waiting == 0 {
				return
			} else if !s.Until.IsZero() {
				told[time.Since(start)] = s.Until
			}
		}
	}()
	return func() map[time.Duration]time.Time { <-done; return told }
}

// What Predict says of calls that name no flow comes true, whatever waits beside them, and whatever they share.
func TestPredictionsBesideFlowsAndKeys(t *testing.T) {
	flow := func(w *town, i int) context.Context { return throttle.WithFlow(w.ctx, fmt.Sprint("f", i)) }
	mixes := map[string]func(*town){
		"flows":              func(w *town) { each(40, func(i int) { w.crowd(flow(w, i), 1, "a") }) },
		"flows of three":     func(w *town) { each(10, func(i int) { w.crowd(flow(w, i), 3, "a") }) },
		"one flow":           func(w *town) { w.crowd(flow(w, 0), 40, "a") },
		"unnamed":            func(w *town) { w.crowd(w.ctx, 40, "a") },
		"unnamed and a flow": func(w *town) { w.crowd(w.ctx, 39, "a"); w.crowd(flow(w, 0), 1, "a") },
		"unnamed and flows":  func(w *town) { w.crowd(w.ctx, 20, "a"); each(20, func(i int) { w.crowd(flow(w, i), 2, "a") }) },
		"keys":               func(w *town) { each(40, func(i int) { w.crowd(w.ctx, 2, fmt.Sprint("k", i)) }) },
		"keys of one flow":   func(w *town) { each(40, func(i int) { w.crowd(flow(w, 0), 1, fmt.Sprint("k", i)) }) },
		"keys of four flows": func(w *town) { each(40, func(i int) { w.crowd(flow(w, i%4), 2, fmt.Sprint("k", i)) }) },
		"costs": func(w *town) {
			w.crowd(throttle.WithCost(w.ctx, 5), 8, "a")
			w.crowd(throttle.WithCost(w.ctx, 8), 2, "b")
		},
		"keys of their flows": func(w *town) { each(40, func(i int) { w.crowd(flow(w, i), 1, fmt.Sprint("k", i)) }) },
	}
	limits := map[string]func(*throttle.Transport){
		"LimiterFor":           func(tr *throttle.Transport) { tr.LimiterFor = own(1, 1) },
		"Limiter":              func(tr *throttle.Transport) { tr.Limiter = throttle.NewBucket(1, 1) },
		"Limiter and a faster": func(tr *throttle.Transport) { tr.Limiter, tr.LimiterFor = throttle.NewBucket(1, 1), own(100, 10) },
		"LimiterFor, Limiter":  func(tr *throttle.Transport) { tr.Limiter, tr.LimiterFor = throttle.NewBucket(100, 10), own(1, 1) },
		"one of LimiterFor":    func(tr *throttle.Transport) { tr.LimiterFor = same(throttle.NewBucket(1, 1)) },
		"meter":                func(tr *throttle.Transport) { tr.Meters = oneMeter(throttle.NewBucket(1, 1), nil) },
		"own meters":           func(tr *throttle.Transport) { tr.Meters = ownMeter(1, 1) },
	}
	for limit, set := range limits {
		for mix, crowd := range mixes {
			slack := func(took time.Duration) time.Duration { return max(took/20, sec) } // a unit
			switch {
			case mix == "costs":
				slack = func(time.Duration) time.Duration { return 8 * sec } // the largest cost
			case limit == "LimiterFor" || limit == "Limiter":
				slack = func(time.Duration) time.Duration { return ms }
			}
			t.Run(limit+"/"+mix, func(t *testing.T) {
				for _, key := range []string{"a", "b"} {
					for _, n := range []int{1, 3} {
						tr := &throttle.Transport{}
						set(tr)
						inTown(t, tr, healthy(0), func(w *town) {
							w.call(w.ctx, "a")
							crowd(w)
							said := tr.Predict(key, n)
							w.crowd(w.ctx, n-1, key)
							switch took := w.takes(w.ctx, key); {
							case said == -1 && key == "b" && strings.Contains(limit, "meter"): // what its calls hold is not known
							case said == -1 && mix == "costs": // nor whose turn comes before
							case (said - took).Abs() > slack(took):
								t.Errorf("%d calls of %s were to take %v, and took %v", n, key, said, took)
							}
						})
					}
				}
			})
		}
	}
}

// each calls f with 0 to n-1.
func each(n int, f func(i int)) {
	for i := range n {
		f(i)
	}
}

// ownMeter are Meters with a bucket for each key.
func ownMeter(limit rate.Limit, burst int) func(string) []throttle.Meter {
	return func(string) []throttle.Meter {
		return []throttle.Meter{{Name: "tokens", Limiter: throttle.NewBucket(limit, burst)}}
	}
}
