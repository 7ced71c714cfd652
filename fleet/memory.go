package fleet

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-throttle/throttle/fleet/store"
)

// Memory is a [store.Store] in the memory of one process: for tests, for programs that have several Limiters of one
// limit, and as the description of the law that every Store keeps. The zero Memory is ready to use. It is safe
// for concurrent use and must not be copied.
//
// # The law
//
// A limit is a schedule of dates, one unit each 1/rate, which falls behind now by a burst at most when it is
// idle. A unit may be used from its date on, and no later than the validity W after it.
//
//   - Need units get one date, up to 30 s ahead. Want units get dates up to 0.8·W ahead, and at most the
//     member's part of those: 0.8·W·rate ÷ members rounded down, less what it holds.
//   - A member that has had nothing for W gets its Need at once, on loan: the schedule moves by as many. At
//     most a tenth of the units of 0.8·W are on loan at a time, or one.
//   - What several limits are needed for is granted together, but not a unit that would be there more than 0.8·W before
//     the last of the others.
//   - During a pause nothing is granted for a date before its end.
//   - Back moves the schedule the other way, and so does Unused if nobody has been granted units since.
//   - A changed limit keeps what is used: units ahead count as many as before.
//   - A store that has lost its state, or whose clock went back by more than a second, believes what
//     members carry in Known, but not more than ten minutes ahead.
//
// A limit that was not used for a minute beyond the time it takes to fill is forgotten.
type Memory struct {
	mu      sync.Mutex
	limits  map[string]*state
	breaker store.Breaker
	swept   int64
	heard   map[*func(store.Pause)]func(store.Pause)
	skew    time.Duration // of the clock, in tests
}

// Exchange implements [store.Store]. It fails if ctx has ended, and for a limit that cannot be.
func (m *Memory) Exchange(ctx context.Context, name string, r store.Request) (store.Reply, error) {
	replies, err := m.ExchangeAll(ctx, []string{name}, []store.Request{r})
	if err != nil {
		return store.Reply{}, err
	}
	return replies[0], nil
}

// ExchangeAll is Exchange for several limits in one step, see [store.Store].
func (m *Memory) ExchangeAll(ctx context.Context, names []string, rs []store.Request) ([]store.Reply, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for i := range rs {
		if err := rs[i].Check(); err != nil {
			return nil, err
		}
	}
	replies, news, heard := m.exchange(names, rs)
	for _, f := range heard {
		for _, p := range news {
			f(p)
		}
	}
	return replies, nil
}

// exchange also returns the pauses that are news, and who is to hear of them.
func (m *Memory) exchange(names []string, rs []store.Request) (replies []store.Reply, news []store.Pause, heard []func(store.Pause)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now().Add(m.skew).UnixMicro()
	m.sweepLocked(now)
	grants, latest := make([]grant, len(rs)), 0.0
	for i := range rs {
		grants[i] = m.limitLocked(names[i]).begin(now, &rs[i])
		latest = max(latest, grants[i].wait)
	}
	for i := range rs {
		r := grants[i].end(&rs[i], latest)
		replies = append(replies, r)
		if grants[i].raised {
			news = append(news, store.Pause{Name: names[i], Left: r.Pause, Until: r.Known.Pause})
		}
	}
	if len(news) > 0 {
		heard = slices.Collect(maps.Values(m.heard))
	}
	return replies, news, heard
}

// limitLocked is the state of a limit, made when it is first asked for.
func (m *Memory) limitLocked(name string) *state {
	s := m.limits[name]
	if s == nil {
		if m.limits == nil {
			m.limits = map[string]*state{}
		}
		s = new(state)
		m.limits[name] = s
	}
	return s
}

// Listen has heard called with each pause, until stop; see [store.Store].
func (m *Memory) Listen(heard func(store.Pause)) (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.heard == nil {
		m.heard = map[*func(store.Pause)]func(store.Pause){}
	}
	m.heard[&heard] = heard
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.heard, &heard)
	}
}

// Breaker returns what the limiters of this store have in common. [New] asks for it; programs do not.
func (m *Memory) Breaker() *store.Breaker { return &m.breaker }

// sweepLocked forgets limits that are as new, once a minute.
func (m *Memory) sweepLocked(now int64) {
	if now-m.swept < forget {
		return
	}
	m.swept = now
	for name, s := range m.limits {
		if s.idle(now) {
			delete(m.limits, name)
		}
	}
}
