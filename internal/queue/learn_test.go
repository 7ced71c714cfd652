package queue

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/line"
)

// learning are the meters of a key that learns what calls cost of 1,000,000 tokens.
func learning(streams bool) (*Meters, *limit.Bucket) {
	b := bucket(1e-9, 1_000_000)
	return NewMeters([]Meter{{Name: "tokens", Limits: setOf(b), Learn: true, Streams: streams}}, nil, new(limit.Set), new(limit.Set)), b
}

// start makes an attempt that holds what is learned, with that cap.
func (m *Meters) start(limit int, given bool) *Holds {
	h := m.newHolds(0)
	h.Set(0, limit, given)
	h.renewLocked(time.Now())
	m.each[0].Limits.TakeBy(time.Now(), time.Now(), h.amounts[1])
	h.startLocked(time.Now())
	return h
}

// Calls hold their cap until 30 of that size are known, and then what 95 of 100 of the last 256 have cost, but never more than
// their cap. Calls of another size, answers that were cut and failures teach nothing.
func TestHoldsAreLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := learning(false)
		want := func(what string, limit, n int) {
			t.Helper()
			h := m.newHolds(0)
			if h.Set(0, limit, false); h.Held(0) != n {
				t.Errorf("%s: %d are held of at most %d, want %d", what, h.Held(0), limit, n)
			}
		}
		for i := range 29 {
			m.start(4096, false).Settle(0, i+1)
		}
		for range 50 {
			m.start(4096, false).Cut(0, 7)
			m.start(4096, false).Fail()
			m.start(4096, false).Settle(0, -1)
		}
		want("29 are known", 4096, 4096)
		m.start(4096, false).Settle(0, 1000)
		want("29 of 1 to 29, and one of 1,000", 4096, 29)
		want("the same power of two", 8191, 29)
		want("another size", 8192, 8192)
		want("nothing", 0, 0)
		for i := range 256 {
			m.start(4096, false).Settle(0, 5000+i)
		}
		want("never more than the cap", 4096, 4096)
		want("the last 256 alone, as of the 250th", 8191, 5237)
		h := m.newHolds(0)
		if h.Set(0, 5000, true); h.Held(0) != 5000 {
			t.Errorf("%d are held, want the 5000 that were given", h.Held(0))
		}
	})
}

// A stream holds what it uses in 10 s, is charged more as it passes, by the price of its bytes, and never more than its cap. Its last
// word corrects that; without one what was charged stays.
func TestStreamsAreCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := learning(true)
		used := func(what string, n int) {
			t.Helper()
			if got := 1_000_000 - int(b.Tokens()+0.5); got < n-3 || got > n+3 {
				t.Errorf("%s: %d are charged, want %d", what, got, n)
			}
		}
		for i := range 8 { // 10 events of 150 bytes and 4 for each unit, in 100 s
			h, n := m.start(4096, false), 100*(i+1)
			time.Sleep(100 * time.Second)
			h.Pass(10*150+4*n, 10)
			h.Settle(0, n)
		}
		used("streams that have ended", 3600)
		b.Adjust(-3600)
		h := m.start(4096, false)
		lead := h.Held(0)
		if lead < 40 || lead > 60 {
			t.Errorf("%d are held, want about what a stream uses in 10 s", lead)
		}
		used("a stream", lead)
		h.Pass(5*150+4*300, 5)
		used("and 300 of it", lead+300)
		h.Pass(2, 0) // less than an eighth of the lead
		used("and half a word", lead+300)
		h.Cut(0, 20)
		used("it was cut", lead+300)
		b.Adjust(-lead - 300)
		h = m.start(4096, false)
		h.Pass(5*150+4*300, 5)
		h.Fail()
		used("it has failed", 0)
		h = m.start(4096, false)
		h.Pass(1<<20, 1000)
		used("more than it may have", 4096)
		h.Settle(0, 500)
		used("it has ended", 500)
		h.Pass(1<<20, 1)
		used("nothing comes after it", 500)
	})
}

// A body that is read while its call is settled by another goroutine is charged what that has said, whatever comes first.
func TestStreamsAreSettledOnce(t *testing.T) {
	m, b := learning(true)
	for i := range 8 {
		h := m.start(1000, false)
		h.Pass(100*(i+1), i+1)
		h.Settle(0, 25*(i+1))
	}
	b.Adjust(-25 * 36)
	r, sum := rand.New(rand.NewPCG(1, 1)), 0
	for range 300 {
		h, n := m.start(1000, false), r.IntN(1000)
		var both sync.WaitGroup
		both.Go(func() {
			for range 20 {
				h.Pass(100, 1)
			}
		})
		both.Go(func() { h.Settle(0, n) })
		both.Wait()
		sum += n
	}
	if got := 1_000_000 - int(b.Tokens()+0.5); got != sum {
		t.Errorf("%d are charged, want %d", got, sum)
	}
	if held := m.held[0] - m.ended[0].held; held != 0 {
		t.Errorf("%d are held", held)
	}
}

// Those who wait hold what is known when their turn comes, and not what was known when they came.
func TestWaitingCallsHoldWhatWasLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := newMetered(testConfig(Options{}), nil, bucket(1, 1000))
		cl.meters = func(string) []Meter {
			return []Meter{{Name: "tokens", Limits: setOf(bucket(1, 1000)), Learn: true}}
		}
		cl.settle = func(_ context.Context, h *Holds) { h.Settle(0, 10) }
		begin := time.Now()
		var calls sync.WaitGroup
		for range 60 {
			calls.Go(func() {
				if _, err := cl.get(holding(t.Context(), 1000), "x"); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		// 30 calls of 10 wait for each other until the bucket is full again; 29 more would take as long.
		if took := time.Since(begin); took > 310*time.Second {
			t.Errorf("60 calls took %v", took)
		}
		if w := cl.table.Get("x").meters.waiting[0]; w != 0 {
			t.Errorf("%d are waited for by nobody", w)
		}
	})
}

// Calls of two keys that share a learned meter: what waits for it is what those who wait hold now.
func TestSharedMeterCountsWhatWasLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := newMetered(testConfig(Options{}), nil, bucket(1, 1000))
		shared := setOf(bucket(10, 1000))
		cl.meters = func(string) []Meter { return []Meter{{Name: "tokens", Limits: shared, Learn: true}} }
		cl.settle = func(_ context.Context, h *Holds) { h.Settle(0, 100) }
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 200 {
			go cl.get(holding(ctx, 1000), string(rune('a'+i%2)))
		}
		for range 15 {
			time.Sleep(100 * time.Second)
			synctest.Wait()
			locked(&cl.table.common, func() {
				var sum int64
				var p *pool
				for _, e := range cl.table.order {
					l := e.queue.line
					for c := range l.All() {
						s := &l.stakes[len(l.stakes)-1]
						p = s.pool
						sum += int64(s.amount(c.Of.need(c.Of.holds())))
					}
				}
				const last = 1 << 40 // units of the newcomer's own before it
				if got, _ := p.Ahead("c", &line.Newcomer{Seq: 1 << 40}, last, false); got-last != sum {
					t.Errorf("%d units go before the last of all, and %d wait", got-last, sum)
				}
			})
		}
		cancel()
		synctest.Wait()
	})
}
