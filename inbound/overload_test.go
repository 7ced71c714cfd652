package inbound

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/load"
)

// These tests run in virtual time. How busy the process is, is made up.

// A made is a source that a test sets, of two cores.
type made struct {
	runnable func() float64
	latency  time.Duration
	reads    atomic.Int64
}

func (m *made) Runnable() float64 { m.reads.Add(1); return m.runnable() }
func (m *made) Procs() int        { return 2 }
func (m *made) Cores() float64    { return 2 }
func (m *made) Use(time.Time) load.Use {
	return load.Use{CPU: 0.9, Periods: 10, Throttled: 4, Pressure: 0.3, Latency: m.latency}
}

// A machine is a handler on two cores that works for 5 ms on each request, with as many as there are in turns: an
// n-th request makes all of them take longer.
type machine struct {
	mu      sync.Mutex
	work    time.Duration // of one core, for each request
	running int
}

const slice = time.Millisecond

func (m *machine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.add(1)
	defer m.add(-1)
	for done := time.Duration(0); done < m.work; {
		n := m.add(0)
		time.Sleep(slice)
		done += time.Duration(float64(slice) * min(1, 2/float64(n)))
	}
}

func (m *machine) add(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running += n
	return m.running
}

// runnable is what a source would say of the machine: who works and has no core, and, behind each of these, those who are
// only looked at or woken up. They take no time here.
func (m *machine) runnable(o *Overload) func() float64 {
	var at time.Duration
	var done, side int64
	behind := 1.0
	return func() float64 {
		if now := o.core.now(); now-at > 200*time.Millisecond {
			d, s := o.core.ended.Load(), o.core.side.Load()
			behind = 1 + float64(s-side)/float64(max(1, d-done))
			at, done, side = now, d, s
		}
		return float64(max(0, m.add(0)-2)) * behind
	}
}

func newMachine() *machine { return &machine{work: 5 * time.Millisecond} }

// crowd sends requests of somebody at a rate, evenly but for chance, until the time is over, and counts what they get.
type crowd struct {
	who    string
	rate   float64
	prio   string
	header [2]string
	ctx    func() (context.Context, context.CancelFunc)

	from              time.Duration // those sent earlier are not counted: all are alike while requests that nobody held back are worked off
	sent, ok, refused atomic.Int64
	all               atomic.Int64
}

func (k *crowd) send(h http.Handler, until time.Duration, all *sync.WaitGroup, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	start := time.Now()
	for time.Since(start) < until {
		time.Sleep(time.Duration(rng.ExpFloat64() / k.rate * float64(time.Second)))
		k.all.Add(1)
		counts := time.Since(start) >= k.from
		if counts {
			k.sent.Add(1)
		}
		all.Go(func() {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Who", k.who)
			r.Header.Set("Prio", k.prio)
			if k.header[0] != "" {
				r.Header.Set(k.header[0], k.header[1])
			}
			if k.ctx != nil {
				ctx, cancel := k.ctx()
				defer cancel()
				r = r.WithContext(ctx)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			switch {
			case !counts:
			case w.Code == http.StatusOK:
				k.ok.Add(1)
			default:
				k.refused.Add(1)
			}
		})
	}
}

// run has crowds send to a machine behind o for so long.
func run(t *testing.T, o *Overload, m *machine, secs float64, crowds ...*crowd) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if o.source == nil {
			o.source = &made{runnable: m.runnable(o), latency: -1}
		}
		h := o.Handler(m)
		var all, senders sync.WaitGroup
		for i, k := range crowds {
			senders.Go(func() { k.send(h, time.Duration(secs*float64(time.Second)), &all, uint64(i)) })
		}
		senders.Wait()
		all.Wait()
		s := o.Stats()
		if s.InFlight != 0 || s.Waiting != 0 || s.Streams != 0 || s.Exempt != 0 {
			t.Errorf("at the end: %+v", s)
		}
		var sent int64
		for _, k := range crowds {
			sent += k.all.Load()
		}
		if n := s.Admitted + s.Refused + s.Left + s.Allowed; !o.Shadow && n != uint64(sent) {
			t.Errorf("%d requests of %d: %+v", n, sent, s)
		}
	})
}

func byWho(r *http.Request) string { return r.Header.Get("Who") }

func byPrio(r *http.Request) int {
	n := 0
	fmt.Sscan(r.Header.Get("Prio"), &n)
	return n
}

// TestOverload: what a machine that can do 400 requests a second serves of what comes.
func TestOverload(t *testing.T) {
	for _, c := range []struct {
		rate        float64
		least, most float64 // served in 4 s
	}{{40, 0.99, 1}, {300, 0.99, 1}, {1600, 0.18, 0.32}} {
		t.Run(fmt.Sprint(c.rate), func(t *testing.T) {
			k := &crowd{rate: c.rate}
			run(t, &Overload{}, newMachine(), 3, k)
			if got := float64(k.ok.Load()) / float64(k.sent.Load()); got < c.least || got > c.most {
				t.Errorf("%.3f of %d served, want from %.2f to %.2f", got, k.sent.Load(), c.least, c.most)
			}
		})
	}
}

// TestOverloadPriorities: at four times the capacity, the tenth that is more important is served, and the rest gets what is left.
func TestOverloadPriorities(t *testing.T) {
	high, low := &crowd{rate: 160, prio: "1", who: "high", from: 2 * time.Second}, &crowd{rate: 1440, prio: "0", who: "low"}
	o := &Overload{Priority: byPrio}
	run(t, o, newMachine(), 4, high, low)
	if got := float64(high.ok.Load()) / float64(high.sent.Load()); got < 0.99 {
		t.Errorf("%.3f of the important ones served", got)
	}
	if got := float64(low.ok.Load()) / float64(low.sent.Load()); got < 0.1 {
		t.Errorf("%.3f of the others served, want about 0.17", got)
	}
	if s := o.Stats(); s.Low == 0 || s.Low > s.Refused {
		t.Errorf("%+v", s)
	}
}

// TestOverloadShares: at four times the capacity one of 30 clients sends nine tenths. The others get all they want.
func TestOverloadShares(t *testing.T) {
	crowds := []*crowd{{rate: 1440, who: "greedy"}}
	for i := range 29 {
		crowds = append(crowds, &crowd{rate: 160. / 29, who: fmt.Sprint("client ", i), from: 2 * time.Second})
	}
	run(t, &Overload{Key: byWho}, newMachine(), 4, crowds...)
	var sent, ok int64
	for _, k := range crowds[1:] {
		sent, ok = sent+k.sent.Load(), ok+k.ok.Load()
	}
	if got := float64(ok) / float64(sent); got < 0.99 {
		t.Errorf("%.3f of the modest ones' requests served", got)
	}
	if got := crowds[0].ok.Load(); got < 4*240*7/10 {
		t.Errorf("the greedy one got %d, want what is left, about %d", got, 4*240)
	}
}

// TestOverloadSharesOfSlowRequests: two clients want more than all; the requests of one take ten times as long. Each has half of the
// places over time, so about ten times as many of the other's are served.
func TestOverloadSharesOfSlowRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &Overload{
			Key: byWho, source: &made{runnable: func() float64 { return 0 }},
			Adaptive: &throttle.Adaptive{Load: func() float64 { return 1 }, Target: 1, Most: 20}, // so it stays 20
		}
		took := map[string]time.Duration{"slow": 100 * time.Millisecond, "quick": 10 * time.Millisecond}
		h := o.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { time.Sleep(took[byWho(r)]) })
		var all, senders sync.WaitGroup
		slow, quick := &crowd{who: "slow", rate: 800}, &crowd{who: "quick", rate: 3000}
		for i, k := range []*crowd{slow, quick} {
			senders.Go(func() { k.send(h, 2*time.Second, &all, uint64(i)) })
		}
		senders.Wait()
		all.Wait()
		// 10 places each: 100 a second, and 1,000
		if got := float64(slow.ok.Load()) / 2; got < 70 || got > 140 {
			t.Errorf("%.0f slow ones a second, want about 100", got)
		}
		if got := float64(quick.ok.Load()) / 2; got < 600 || got > 1300 {
			t.Errorf("%.0f quick ones a second, want about 1000", got)
		}
	})
}
