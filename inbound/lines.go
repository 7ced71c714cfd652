package inbound

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Lines hold requests that wait for units. Each key has one while somebody waits for it. The requests of a key go in the order of
// their arrival, only the first of them asks, and one that leaves takes nothing along. A key's line does not delay other keys:
// they have other units. What a context says of outgoing calls, a priority or a cost, is not about the request.
//
// # States, locks and races
//
// One lock guards which lines there are and how many requests each of them has; nothing is called under it. A line is
// made by the first request that waits and is dropped by the last one that leaves it.
//
//	the last one leaves, another comes   one is first under the lock: it joins the line, or makes a new one
//	a newcomer, a line is there          it joins; it would overtake otherwise. If it looked just before the
//	                                     line was made, it may take the unit first, once
//	a grant, the client leaves           the handler gives the units back (join)
//	a grant, the time is over            a grant that came first counts
type lines struct {
	most    time.Duration // Limit.Wait; 0: nobody waits
	places  int64
	waiting atomic.Int64
	early   atomic.Int64 // of these, those that a table has counted as refused so far, as it has no units for them yet

	mu  sync.Mutex
	all map[uint64]line // by the hash of the Limit's own key
}

// A line is the requests of one key, in order. Each has a channel with room for one signal, which says that it is the first and should
// ask, and later that something has come back.
type line []chan struct{}

// newLines makes the lines of a Limit; there are none yet.
func newLines(most time.Duration, places int) lines {
	if places == 0 {
		places = defaultWaiting
	}
	return lines{most: most, places: int64(places)}
}

// busy reports whether requests of a key wait. While nobody waits at all, which is so most of the time, it looks at one
// atomic number.
func (l *lines) busy(hash uint64) bool {
	if l.most == 0 || l.waiting.Load() == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[hash] != nil
}

// enter counts a request among those that are held, before it looks at the line, so that there are never more than
// places. It returns the channel of the request, and how many of its key are before; nil: all places are taken.
func (l *lines) enter(hash uint64) (first chan struct{}, ahead int) {
	if l.waiting.Add(1) > l.places {
		l.waiting.Add(-1)
		return nil, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[uint64]line{}
	}
	first, ahead = make(chan struct{}, 1), len(l.all[hash])
	if ahead == 0 {
		signal(first)
	}
	l.all[hash] = append(l.all[hash], first)
	return first, ahead
}

// leave gives a place up. Whoever is the first then asks.
func (l *lines) leave(hash uint64, first chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting.Add(-1)
	at := l.all[hash]
	was := at[0] == first
	if at = slices.DeleteFunc(at, func(c chan struct{}) bool { return c == first }); len(at) == 0 {
		delete(l.all, hash)
		return
	}
	if l.all[hash] = at; was {
		signal(at[0])
	}
}

// wake lets the first in the line of a key ask again: units of it have come back.
func (l *lines) wake(hash uint64) {
	if l.most == 0 || l.waiting.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.all[hash]; len(at) > 0 {
		signal(at[0])
	}
}

// wakeAll is wake for all lines.
func (l *lines) wakeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.all {
		signal(at[0])
	}
}

// signal does not wait: a signal that is there already serves for both.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// join holds a visit in the line of its key. Example: 1/s, Wait 3 s, and six requests at once. The first is let in, three
// are held for 1, 2 and 3 s, and two are refused at once, with Retry-After 4.
//
// It holds the visit until it has its units, its time is over or its client leaves. It reports
// whether the request goes. The visit's wait is then what the client should wait before it comes again.
func (l *lines) join(ctx context.Context, v *visit) bool {
	hash := v.asked[0].hash
	first, ahead := l.enter(hash)
	if first == nil {
		v.leave()
		return false
	}
	defer l.leave(hash, first)
	v.noteEarly()
	defer v.forgetEarly()
	if ahead > 0 {
		v.askAll(look)
	}
	if v.wait = min(v.wait, never-v.behind(ahead)) + v.behind(ahead); v.wait > int64(l.most) {
		v.turnAway()
		return false
	}
	v.in = false
	wait := v.hold(ctx, first, l.most)
	if wait == 0 {
		return true
	}
	v.leave()
	v.wait = max(v.wait, wait)
	return false
}

// noteEarly notes once that a table has counted a visit that waits as refused; forgetEarly, that it counts as what became of it.
func (v *visit) noteEarly() {
	if !v.early && v.asked[0].verdict.refused {
		v.early = true
		v.core.lines.early.Add(1)
	}
}

func (v *visit) forgetEarly() {
	if v.early {
		v.early = false
		v.core.lines.early.Add(-1)
	}
}

// maxAskGap is how long the first in a line does not ask: a shared limit may change without a word.
const maxAskGap = time.Second

// hold waits until the visit is the first, and then asks until the visit has its units, its time is over or its client leaves. It
// returns 0 if the request goes; otherwise what the client should wait at least, never: for ever. Units that come as the client
// leaves go back with the visit.
func (v *visit) hold(ctx context.Context, first chan struct{}, most time.Duration) (wait int64) {
	over := time.NewTimer(most + 1) // a grant at the last moment wins
	defer over.Stop()
	select {
	case <-first:
	case <-ctx.Done():
		return 1
	case <-over.C:
		return 1
	}
	for {
		v.replan()
		switch in := v.try(ctx); {
		case ctx.Err() != nil:
			return 1
		case in:
			return 0
		case v.wait == never: // a shared limit has failed, which the tables do not know
			return never
		}
		v.noteEarly()
		again := time.NewTimer(v.gap())
		select {
		case <-again.C:
		case <-first:
			again.Stop()
		case <-ctx.Done():
			again.Stop()
			return 1
		case <-over.C:
			again.Stop()
			return 1
		}
	}
}
