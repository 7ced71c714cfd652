package inbound

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
)

// A tripper is a handler as a RoundTripper, with a round trip of 4 ms, in virtual time. It counts.
type tripper struct {
	h  http.Handler
	of *callers
}

func (w tripper) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.of.counts() {
		w.of.sent.Add(1)
	}
	time.Sleep(2 * time.Millisecond)
	rec := httptest.NewRecorder()
	w.h.ServeHTTP(rec, r)
	time.Sleep(2 * time.Millisecond)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	resp := rec.Result()
	resp.Request = r
	return resp, nil
}

// A stubborn client sends up to four times what is answered 429 or 5xx, after a Retry-After or else 0.1 to 0.2 s, doubling.
type stubborn struct{ base http.RoundTripper }

func (s stubborn) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	for wait := 100 * time.Millisecond; ; wait *= 2 {
		resp, err = s.base.RoundTrip(r)
		if err != nil || resp.StatusCode < 429 || wait > 400*time.Millisecond {
			return resp, err
		}
		rest := wait + time.Duration(rand.Int64N(int64(wait)))
		if after, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
			rest = time.Duration(after) * time.Second
		}
		select {
		case <-time.After(rest):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

// callers are processes that call a machine that can do 400 requests a second, so many times as often as that after calm, and half
// as often until then.
type callers struct {
	client    string // of each process: a Transport, one that is stubborn, or a plain one
	processes int
	load      float64
	loop      bool // 84 workers × load, that rest for 0.2 s after each answer; otherwise calls come at random
	lasts     time.Duration

	start     time.Time
	sent      atomic.Int64    // from here on after calm
	came, got [2]atomic.Int64 // by priority; one call in ten is of the higher one
}

const calm = 4 * time.Second

// An outcome is what they have got.
type outcome struct {
	goodput float64 // answers within 1 s, of what the server can do, or of all calls if they are fewer
	high    float64 // of the calls of the higher priority that were answered so
	retries float64 // for each call; negative if calls have ended without being sent
}

// run has them call for some time.
func (c *callers) run(t *testing.T, refused http.Handler) (o outcome) {
	synctest.Test(t, func(t *testing.T) {
		m, busy := newMachine(), &Overload{Priority: byPrio, Refused: refused}
		busy.source = &made{runnable: m.runnable(busy), latency: -1}
		h := busy.Handler(m)
		var all sync.WaitGroup
		c.start = time.Now()
		for p := range c.processes {
			var tr http.RoundTripper = tripper{h, c}
			switch c.client {
			case "Transport":
				tr = &throttle.Transport{Base: tr}
			case "stubborn":
				tr = stubborn{tr}
			}
			all.Go(func() { c.process(tr, rand.New(rand.NewPCG(uint64(p), 77)), &all) })
		}
		all.Wait()
		good, came := float64(c.got[0].Load()+c.got[1].Load()), float64(c.came[0].Load()+c.came[1].Load())
		o = outcome{
			goodput: good / min(400*(c.lasts-calm).Seconds(), came), high: float64(c.got[1].Load()) / float64(c.came[1].Load()),
			retries: float64(c.sent.Load())/came - 1,
		}
		time.Sleep(time.Hour) // for what the Transports still have to end
	})
	return o
}

// process is one of the processes.
func (c *callers) process(tr http.RoundTripper, rng *rand.Rand, all *sync.WaitGroup) {
	if c.loop {
		for i := range int(84 * c.load / float64(c.processes)) {
			all.Go(func() {
				if i%8 > 0 {
					time.Sleep(calm)
				}
				for time.Sleep(time.Duration(i) * time.Millisecond); time.Since(c.start) < c.lasts; time.Sleep(200 * time.Millisecond) {
					c.call(tr, min(1, i%10/9))
				}
			})
		}
		return
	}
	for time.Since(c.start) < c.lasts {
		load := c.load
		if !c.counts() {
			load = 0.5
		}
		time.Sleep(time.Duration(rng.ExpFloat64() / (400 * load / float64(c.processes)) * float64(time.Second)))
		prio := min(1, rng.IntN(10)/9)
		all.Go(func() { c.call(tr, prio) })
	}
}

// counts reports whether the load is there.
func (c *callers) counts() bool { return time.Since(c.start) > calm }

// call makes one call, which is of no use to anybody after a second.
func (c *callers) call(tr http.RoundTripper, prio int) {
	counts := c.counts()
	ctx, cancel := context.WithTimeout(throttle.WithPriority(context.Background(), prio), time.Second)
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://a/", nil)
	r.Header.Set("Prio", strconv.Itoa(prio))
	resp, err := tr.RoundTrip(r)
	if err == nil {
		resp.Body.Close()
	}
	if !counts {
		return
	}
	c.came[prio].Add(1)
	if err == nil && resp.StatusCode == http.StatusOK {
		c.got[prio].Add(1)
	}
}

// TestOverloadTransport: a server that turns most requests away is not out for a Transport in front of it. Each call is
// answered or not as the server can, and those of a higher priority are; retries stay within their budget.
func TestOverloadTransport(t *testing.T) {
	for _, n := range race.Pick([]int{1}, []int{1, 4, 16}) {
		for _, load := range race.Pick([]float64{4}, []float64{1.2, 2, 4}) {
			for _, loop := range race.Pick([]bool{false}, []bool{false, true}) {
				c := &callers{client: "Transport", processes: n, load: load, loop: loop, lasts: race.Pick(8*time.Second, 20*time.Second)}
				o := c.run(t, nil)
				t.Logf("%v × from %d processes, loop %v: %+v", load, n, loop, o)
				if o.goodput < race.Pick(0.85, 0.94) || o.high < race.Pick(0.8, 0.9) || o.retries > 0.25 {
					t.Errorf("%v × from %d processes, loop %v: %+v", load, n, loop, o)
				}
			}
		}
	}
}

// TestOverloadAnswers compares the answers that clients may get: a Transport takes 503 for a failure, 529 for trouble of the moment,
// 429 for a limit to be found, and stops all calls, of every priority, until a time that is named.
func TestOverloadAnswers(t *testing.T) {
	race.Full(t)
	for _, client := range []string{"Transport", "stubborn", "plain"} {
		for _, a := range []struct {
			status int
			after  string
		}{{503, ""}, {529, ""}, {429, ""}, {503, "1"}} {
			refused := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if a.after != "" {
					w.Header().Set("Retry-After", a.after)
				}
				w.WriteHeader(a.status)
			})
			for _, n := range []int{1, 16} {
				for _, load := range []float64{1.2, 4} {
					o := (&callers{client: client, processes: n, load: load, lasts: 20 * time.Second}).run(t, refused)
					t.Logf("%s, %v × from %d processes, %d %s: %+v", client, load, n, a.status, a.after, o)
					if a.status == 503 && a.after == "" && o.goodput < 0.95 {
						t.Errorf("%s, %v × from %d processes: %+v", client, load, n, o)
					}
				}
			}
		}
	}
}
