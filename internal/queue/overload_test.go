package queue_test

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"sort"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
)

// An independent oracle for overload: random loads, and what a scheduler would serve that knows each
// call's round trip beforehand (earliest latest-start first; calls that cannot be in time are left out).

type ocall struct {
	at, trip, timeout time.Duration // timeout 0: none
	prio, key         int
	fails             bool // the first attempt gets a 503

	sent, done time.Duration
	n          int // attempts
	err        error
}

func (c *ocall) latest() time.Duration {
	if c.timeout == 0 {
		return math.MaxInt64
	}
	return c.at + c.timeout - c.trip
}

type oworld struct {
	seed             uint64
	limiter, api     string
	rate             float64
	burst            int
	load             float64
	slots            int
	keys             int
	trips, deadlines string
	mean             time.Duration
	timeout          time.Duration
	prios            int
	fails            float64
	calls            []*ocall
	run, warm        time.Duration
	stepAt           time.Duration
}

func pick[T any](r *rand.Rand, xs ...T) T { return xs[r.IntN(len(xs))] }

func newWorld(seed uint64) *oworld {
	r := rand.New(rand.NewPCG(seed, 99))
	w := &oworld{seed: seed}
	w.limiter = pick(r, "bucket", "bucket", "leaky", "fixed", "sliding", "all", "foreign")
	w.api = pick(r, "do", "do", "group", "transport", "transport", "shared")
	w.rate = pick(r, 2.0, 10, 50, 100)
	w.burst = pick(r, 1, 5, 10)
	w.load = pick(r, 0.6, 0.9, 1.05, 1.2, 1.5, 2, 4)
	w.keys = 1
	if w.api == "shared" {
		w.keys = 2 + r.IntN(4)
	}
	w.trips = pick(r, "constant", "exp", "exp", "lognormal", "bimodal", "stepup", "stepdown", "burst")
	w.mean = time.Duration(pick(r, 10, 50, 200, 500)) * time.Millisecond
	tight := pick(r, 1.1, 1.5, 2, 4, 4)
	w.deadlines = pick(r, "equal", "equal", "mixed", "somenone")
	w.timeout = max(time.Duration(pick(r, 1, 2, 5, 10))*time.Second, 4*w.mean)
	if os.Getenv("TIGHT") != "" {
		w.timeout = time.Duration(tight * float64(w.mean))
	}
	if r.IntN(4) == 0 && w.api != "shared" {
		w.slots = max(1, int(w.rate*w.mean.Seconds()*pick(r, 0.7, 1.5, 4)))
	}
	w.prios = pick(r, 1, 1, 3)
	if w.api == "transport" && r.IntN(4) == 0 {
		w.fails = 0.05
	}
	w.run, w.warm = 90*time.Second, 30*time.Second
	if w.rate <= 10 {
		w.run = 300 * time.Second
	}
	w.stepAt = w.run / 3
	w.warm = w.stepAt
	// calls
	for at := time.Duration(0); at < w.run; at += time.Duration(r.ExpFloat64() / (w.rate * w.load) * 1e9) {
		c := &ocall{at: at, prio: r.IntN(w.prios), key: r.IntN(w.keys), fails: r.Float64() < w.fails}
		m := w.mean.Seconds()
		switch w.trips {
		case "constant":
		case "exp":
			m *= r.ExpFloat64()
		case "lognormal":
			m *= math.Exp(r.NormFloat64()*1.2 - 0.72)
		case "bimodal":
			if m *= 0.8; r.IntN(20) == 0 {
				m *= 20
			}
		case "stepup":
			if at > w.stepAt {
				m = min(5*m, w.timeout.Seconds()/3)
			}
		case "stepdown":
			if at < w.stepAt {
				m = min(10*m, w.timeout.Seconds()*1.5)
			}
		case "burst": // a few seconds of slow answers each minute
			if s := at % time.Minute; s > 20*time.Second && s < 24*time.Second {
				m = w.timeout.Seconds() * 0.7
			}
		}
		c.trip = max(time.Duration(m*1e9), time.Microsecond)
		switch c.timeout = w.timeout; w.deadlines {
		case "mixed":
			c.timeout = time.Duration(float64(w.timeout) * pick(r, 0.3, 1, 3))
		case "somenone":
			if r.IntN(10) == 0 {
				c.timeout = 0
			}
		}
		w.calls = append(w.calls, c)
	}
	return w
}

func (w *oworld) String() string {
	return fmt.Sprintf("seed %d %s/%s rate %v burst %d load %v slots %d keys %d trips %s %v deadlines %s %v prios %d fails %v",
		w.seed, w.limiter, w.api, w.rate, w.burst, w.load, w.slots, w.keys, w.trips, w.mean, w.deadlines, w.timeout, w.prios, w.fails)
}

func (w *oworld) make() throttle.Limiter {
	per := time.Second
	n := int(w.rate)
	switch w.limiter {
	case "leaky":
		return throttle.NewLeaky(rate.Limit(w.rate))
	case "fixed":
		return throttle.NewFixedWindow(n, per)
	case "sliding":
		return throttle.NewSlidingWindow(n, per)
	case "all":
		return throttle.All(throttle.NewBucket(rate.Limit(w.rate), w.burst), throttle.NewSlidingWindow(n*10, 10*per))
	case "foreign":
		return ownKind{throttle.NewBucket(rate.Limit(w.rate), w.burst)}
	}
	return throttle.NewBucket(rate.Limit(w.rate), w.burst)
}

// drive runs the library.
func (w *oworld) drive() {
	var wg sync.WaitGroup
	start := time.Now()
	work := func(ctx context.Context, c *ocall) error {
		c.n++
		c.sent = time.Since(start)
		timer := time.NewTimer(c.trip)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	opts := throttle.QueueOptions{MaxInFlight: w.slots}
	var one func(ctx context.Context, c *ocall)
	switch w.api {
	case "do":
		q := throttle.NewQueue(w.make(), opts)
		one = func(ctx context.Context, c *ocall) {
			c.err = q.Do(ctx, func(ctx context.Context) error { return work(ctx, c) })
			c.done = time.Since(start)
		}
	case "group":
		q := throttle.NewQueue(w.make(), opts)
		// a group of its own for each, because a refusal ends the group
		one = func(ctx context.Context, c *ocall) {
			g, _ := throttle.NewGroup(ctx, q)
			g.Go(ctx, func(ctx context.Context) error { return work(ctx, c) })
			c.err = g.Wait()
			c.done = time.Since(start)
		}
	default:
		tr := &throttle.Transport{Queue: opts, Base: roundTrip(func(r *http.Request) (*http.Response, error) {
			c := r.Context().Value(ckey{}).(*ocall)
			first := c.n == 0
			if err := work(r.Context(), c); err != nil {
				return nil, err
			}
			if first && c.fails {
				return answer(r, 503), nil
			}
			return answer(r, 200), nil
		})}
		lim := w.make()
		tr.Limiter = lim
		if w.api == "transport" {
			tr.Limiter, tr.LimiterFor = nil, func(string) throttle.Limiter { return lim }
		}
		one = func(ctx context.Context, c *ocall) {
			req, _ := http.NewRequestWithContext(context.WithValue(ctx, ckey{}, c), "GET", fmt.Sprintf("http://k%d/", c.key), nil)
			resp, err := tr.RoundTrip(req)
			if c.err = err; err == nil {
				resp.Body.Close()
				if resp.StatusCode != 200 {
					c.err = fmt.Errorf("status %d", resp.StatusCode)
				}
			}
			c.done = time.Since(start)
		}
	}
	for _, c := range w.calls {
		time.Sleep(c.at - time.Since(start))
		wg.Go(func() {
			ctx, cancel := context.Background(), func() {}
			if c.timeout > 0 {
				ctx, cancel = context.WithTimeout(ctx, c.timeout)
			}
			defer cancel()
			if c.prio > 0 {
				ctx = throttle.WithPriority(ctx, c.prio)
			}
			one(ctx, c)
		})
	}
	wg.Wait()
}

type ckey struct{}

type byLatest []*ocall

func (h byLatest) Len() int           { return len(h) }
func (h byLatest) Less(i, j int) bool { return h[i].latest() < h[j].latest() }
func (h byLatest) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byLatest) Push(x any)        { *h = append(*h, x.(*ocall)) }
func (h *byLatest) Pop() any {
	o := *h
	x := o[len(o)-1]
	*h = o[:len(o)-1]
	return x
}

// ideal counts the calls that the clairvoyant starts in the measured time.
func (w *oworld) ideal() (served int) {
	tokens, last := float64(w.burst), time.Duration(0)
	burst := float64(w.burst)
	switch w.limiter {
	case "leaky":
		tokens, burst = 1, 1
	case "fixed", "sliding":
		tokens, burst = 1, 1 // their rate, evenly: a little less than they may
	}
	var avail byLatest
	var flying []time.Duration // ends
	i := 0
	now := time.Duration(0)
	for i < len(w.calls) || len(avail) > 0 {
		for i < len(w.calls) && w.calls[i].at <= now {
			heap.Push(&avail, w.calls[i])
			i++
		}
		tokens = min(burst, tokens+(now-last).Seconds()*w.rate)
		last = now
		sort.Slice(flying, func(a, b int) bool { return flying[a] < flying[b] })
		for len(flying) > 0 && flying[0] <= now {
			flying = flying[1:]
		}
		for len(avail) > 0 && avail[0].latest() < now {
			heap.Pop(&avail)
		}
		if len(avail) > 0 && tokens >= 1-1e-9 && (w.slots == 0 || len(flying) < w.slots) {
			c := heap.Pop(&avail).(*ocall)
			tokens--
			if w.slots > 0 {
				flying = append(flying, now+c.trip)
			}
			if w.in(now) {
				served++
			}
			continue
		}
		next := time.Duration(math.MaxInt64)
		if i < len(w.calls) {
			next = w.calls[i].at
		}
		if len(avail) > 0 {
			if tokens < 1-1e-9 {
				next = min(next, now+time.Duration((1-tokens)/w.rate*1e9)+1)
			} else {
				next = min(next, flying[0])
			}
		}
		if next == math.MaxInt64 {
			break
		}
		now = max(next, now+1)
	}
	return served
}

func (w *oworld) in(at time.Duration) bool { return at >= w.warm && at < w.run-2*w.timeout }

type oresult struct {
	w                                *oworld
	calls, ideal, served, died, sent int
	refused, waste                   int // waste: refused although an idle upstream was to be had: predicted wait + own trip within half the deadline
	longest                          time.Duration
}

func (w *oworld) judge() oresult {
	r := oresult{w: w, ideal: w.ideal()}
	lastServed := w.warm
	for _, c := range w.calls {
		if c.err == nil && w.in(c.sent) {
			r.served++
		}
		if !w.in(c.at) {
			continue
		}
		r.calls++
		var e *throttle.Error
		switch {
		case c.err == nil:
		case errors.As(c.err, &e):
			r.refused++
			if errors.Is(c.err, throttle.ErrWaitTooLong) && c.n == 0 && c.done-c.at+e.Wait+c.trip < c.timeout/2 {
				r.waste++
			}
		default:
			r.died++
		}
		if c.n > 0 {
			r.sent++
		}
	}
	var done []time.Duration
	for _, c := range w.calls {
		if c.err == nil && c.done > w.warm && c.done < w.run {
			done = append(done, c.done)
		}
	}
	sort.Slice(done, func(a, b int) bool { return done[a] < done[b] })
	for _, d := range done {
		r.longest = max(r.longest, d-lastServed)
		lastServed = d
	}
	return r
}

func (r oresult) String() string {
	return fmt.Sprintf("%5.3f served %d of ideal %d (%d calls), died %d, refused %d, needlessly %d, longest gap %v | %v",
		float64(r.served)/float64(max(1, r.ideal)), r.served, r.ideal, r.calls, r.died, r.refused, r.waste, r.longest.Round(time.Millisecond), r.w)
}

func TestHostileOracle(t *testing.T) {
	from, n := uint64(1), race.Pick(2, 40)
	if s := os.Getenv("ORACLE"); s != "" {
		fmt.Sscanf(s, "%d,%d", &from, &n)
	}
	for seed := from; seed < from+uint64(n); seed++ {
		w := newWorld(seed)
		synctest.Test(t, func(t *testing.T) { w.drive() })
		r := w.judge()
		if os.Getenv("ORACLE") != "" {
			fmt.Println(r)
		}
		if r.waste > r.calls/5 && r.served < r.ideal*3/4 {
			t.Error(r)
		}
	}
}
