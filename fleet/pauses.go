package fleet

import (
	"sync"
	"time"

	"github.com/go-throttle/throttle/fleet/store"
	"github.com/go-throttle/throttle/internal/limit"
)

// This file is what limiters hear of pauses by message, from stores that have messages. Without them a pause comes with
// the next request, at most W later. A message only stops: what may be sent afterwards comes from the store, which
// dates nothing before the end of the pause. So a message that is lost, late or doubled does no harm.
//
// The limiters of one store listen together, because a store has one way for messages, whatever the number of limits.
// They listen while one of them has units in hand, or a line that waits, or a request out.
//
// # States
//
//	off   nobody listens; want switches on
//	on    the store has been asked for messages, or is about to be; a timer looks each second who is in use still
//
// # Races
//
// The lock of hearers guards who listens. It is never held while a store, a limiter or a timer's function is called.
//
//	want, sweep     sweep asks each limiter without the lock whether it is in use, and notes in it that it is not. If
//	                that one wants to listen again before it is taken out, it has another number, and stays
//	want, stop      a new way may be opened before the old one is closed: a message that comes twice does no harm
//	message, sweep  a limiter that is not in use has nothing that a message could stop

// A listener is a Store that has messages; see Store.
type listener interface {
	Listen(heard func(store.Pause)) (stop func())
}

const (
	sweepEvery = time.Second           // how often it is looked who is in use
	slack      = 50 * time.Millisecond // a pause that gets longer by less is no message
)

// hearers are the limiters that listen to one store.
type hearers struct {
	mu   sync.Mutex
	on   bool
	stop func()
	in   map[string]map[*account]uint64 // by name; how often each has wanted to listen
}

// listen lets s hear messages if it does not yet. It is called under the account's lock with each request, and for a line
// that waits without one. The store is called without locks, so it takes a goroutine for a moment.
func (s *account) listen() {
	if l, ok := s.store.(listener); ok && !s.hears {
		s.hears = true
		go s.common.hearers.want(s, l)
	}
}

// want lets s hear messages for as long as it is in use.
//
// Example: ten limiters of one store send their first requests at 0 s, one of them switches on. Nine have spent their
// units at 0.3 s, and the tenth at 5.2 s. At 1 s the nine are taken out, at 6 s the tenth, and it is off.
func (h *hearers) want(s *account, l listener) {
	if !h.enter(s) {
		return
	}
	stop := l.Listen(h.heard)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stop = stop
	time.AfterFunc(sweepEvery, h.sweep)
}

// enter adds s, and reports whether the caller has to switch on.
func (h *hearers) enter(s *account) (first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.in == nil {
		h.in = map[string]map[*account]uint64{}
	}
	if h.in[s.name] == nil {
		h.in[s.name] = map[*account]uint64{}
	}
	h.in[s.name][s]++
	first, h.on = !h.on, true
	return first
}

// heard is what the store calls with a message.
func (h *hearers) heard(p store.Pause) {
	for s := range h.named(p.Name) {
		s.update(func(now time.Time) { s.hear(now, &p) })
	}
}

// named is a copy of who listens to a limit.
func (h *hearers) named(name string) map[*account]uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	set := make(map[*account]uint64, len(h.in[name]))
	for s, n := range h.in[name] {
		set[s] = n
	}
	return set
}

// sweep takes out who is not in use, and switches off if nobody is left.
func (h *hearers) sweep() {
	idle := map[*account]uint64{}
	for _, name := range h.names() {
		for s, n := range h.named(name) {
			if !s.hearsOn() {
				idle[s] = n
			}
		}
	}
	if stop := h.leave(idle); stop != nil {
		stop()
		return
	}
	time.AfterFunc(sweepEvery, h.sweep)
}

func (h *hearers) names() (names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name := range h.in {
		names = append(names, name)
	}
	return names
}

// leave takes out those of idle that have not wanted to listen since, and returns what switches off; nil: others listen.
func (h *hearers) leave(idle map[*account]uint64) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s, n := range idle {
		set := h.in[s.name]
		if set[s] == n {
			delete(set, s)
		}
		if len(set) == 0 {
			delete(h.in, s.name)
		}
	}
	if len(h.in) > 0 {
		return nil
	}
	stop, h.stop, h.on, h.in = h.stop, nil, false, nil
	return stop
}

// hearsOn reports whether s is in use still. If not, the next request or line brings it back.
func (s *account) hearsOn() (yes bool) {
	s.locked(func() {
		s.hand.expire(time.Now())
		s.hears = !s.closed && (s.hand.held > 0 || s.out != nil || s.guard.Watched())
		yes = s.hears
	})
	return yes
}

// hear takes a message in, under the account's lock. A message may have been under way for long, or the process was
// stopped. How late it is at least, the latest answer tells: the store's clock showed known.Now no later than when that
// arrived.
//
// Example: an answer of the store's 100.0 s arrives at 7.0 s here. A message says: until 105 s, 5 s left. If it comes at
// 7.1 s the store's clock shows 100.1 s or more, and 4.9 s are left. If it comes at 13 s the pause is over.
func (s *account) hear(now time.Time, p *store.Pause) {
	left := min(p.Left, limit.MaxBelief)
	if sent := p.Until - p.Left.Microseconds(); s.known.Now > 0 && sent > s.known.Now-second {
		ends := time.Duration(min(p.Until-s.known.Now, maxPause)) * time.Microsecond
		left = min(left, ends-now.Sub(s.knownAt))
	}
	if left > 0 && !s.closed {
		s.counts.Expired += uint64(s.hand.pause(now.Add(left)))
	}
}
