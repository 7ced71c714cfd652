package throttleredis

import (
	"context"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet"
)

const validity = 250 * time.Millisecond

// A ledger is what an upstream would see: the moment of every unit that is used, by any process, on one clock.
type ledger struct {
	mu   sync.Mutex
	uses []use
}

type use struct {
	at     time.Time
	member int
}

func (l *ledger) add(member int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uses = append(l.uses, use{time.Now(), member})
}

// count is how many units a member has used; negative: all members.
func (l *ledger) count(member int) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, u := range l.uses {
		if member < 0 || u.member == member {
			n++
		}
	}
	return n
}

// burst is the smallest b with which no window of any length L admits more than b + limit·L.
func (l *ledger) burst(limit float64) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	worst, least := 0.0, 1e18
	for i, u := range l.uses {
		due := u.at.Sub(l.uses[0].at).Seconds() * limit
		least = min(least, float64(i)-due)
		worst = max(worst, float64(i)+1-due-least)
	}
	return worst
}

// members are processes of a fleet within this one: each has a client, a limiter and a line of its own.
type members struct {
	ledger
	t       *testing.T
	limit   rate.Limit
	burst   int
	stores  []*Store
	lims    []*fleet.Limiter
	queues  []*throttle.Queue
	workers int
	wg      sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc
}

// newMembers makes n of them, which do nothing yet. Every process names how many there are, so that its share does not
// depend on when it has met the others.
func newMembers(t *testing.T, n int, limit rate.Limit, burst int, mode fleet.Mode, client func() Client) *members {
	m := &members{t: t, limit: limit, burst: burst}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	t.Cleanup(m.stop)
	for range n {
		store := New(client())
		lim := fleet.New(store, "x", limit, burst, fleet.Options{Mode: mode, Members: n})
		m.stores, m.lims = append(m.stores, store), append(m.lims, lim)
		m.queues = append(m.queues, throttle.NewQueue(lim, throttle.QueueOptions{}))
	}
	return m
}

// work starts workers in each member that want all they can get.
func (m *members) work(workers int) {
	for i, q := range m.queues {
		m.workers += workers
		for range workers {
			m.wg.Go(func() {
				for q.Wait(m.ctx) == nil {
					m.add(i)
				}
			})
		}
	}
}

func (m *members) stop() {
	m.cancel()
	m.wg.Wait()
}

// more waits until so many more units are used.
func (m *members) more(n int) {
	m.t.Helper()
	n += m.count(-1)
	until(m.t, "units are used", func() bool { return m.count(-1) >= n })
}

// in reports whether all members are in that mode.
func (m *members) in(mode string) bool {
	for _, l := range m.lims {
		if l.Stats().Mode != mode {
			return false
		}
	}
	return true
}

// granted waits until the store has granted each member so many more units.
func (m *members) granted(more uint64) {
	m.t.Helper()
	for _, l := range m.lims {
		n := l.Stats().Granted + more
		until(m.t, "the store grants units", func() bool { return l.Stats().Granted >= n })
	}
}

// check ends the members, and fails if a window admits more than the bound and more.
//
// The bound is exact on any machine, however busy: units count from the moment of the grant, which is right, and a
// worker that the machine keeps waiting before it writes its unit down can do so with one unit.
func (m *members) check(limit float64, more float64) {
	m.t.Helper()
	m.stop()
	got := m.ledger.burst(limit)
	most := float64(m.burst) + float64(m.limit)*validity.Seconds() + 1 + float64(m.workers) + more
	m.t.Logf("%d units; a window of L admits %.1f + %v·L, and may %.1f", m.count(-1), got, limit, most)
	if got > most {
		m.t.Errorf("a window of L admits %.1f + %v·L, want at most %.1f", got, limit, most)
	}
	for _, l := range m.lims {
		s := l.Stats()
		if back := s.Granted + s.Alone + uint64(s.Debt); back < s.Used+s.Expired+uint64(s.Held) {
			m.t.Errorf("more units are used than granted: %+v", s)
		}
	}
}
