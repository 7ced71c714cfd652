package inbound

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-throttle/throttle/inbound/keys"
	"github.com/go-throttle/throttle/internal/outage"
)

// A link is the way to one store, for all Limits that use it: what is to be asked next, and whether the store answers.
//
// What waits goes in one round trip, at once if none was sent in the last millisecond, otherwise when it is over, or a
// quarter of a smoothed round trip if that is longer. So a server that is quiet asks without delay, and one with 5,000
// requests a second for as many keys needs a fifth of a round trip for each. There are at most 8 under way, of at most 128
// keys, and 1,024 keys wait, at most 256 of them new; requests above that are decided by the mode, without the store.
//
// Its lock guards all but the breaker, which has its own, and is taken under those of hands. Nothing is called under it. A
// goroutine lives as long as its round trip, and a timer while keys wait.
type link struct {
	outage.Breaker
	keys keys.Store

	mu     sync.Mutex
	queue  []*ask
	out    int
	sent   time.Time // the latest
	timed  bool
	owed   []owed
	given  []*ask // that give back what is not of a hand
	counts linkCounts
}

type linkCounts struct {
	trips, asked, failed uint64
	err                  error
}

// owed are units of a hand that go back to the store at a moment, if they are still there.
type owed struct {
	s     *stored
	hash  uint64
	until time.Time
}

const (
	mostOut    = 8
	mostBatch  = 128
	mostQueued = 1024
	mostBack   = 32  // keys whose units go back in one round trip,
	mostOwed   = 256 // of so many that are looked at
	leastGap   = time.Millisecond
	hardWait   = time.Second // after which the ctx of a round trip ends
)

var (
	errLate = errors.New("throttle: the store has not answered in time")
	errGone = errors.New("throttle: the store does not answer")
)

// linkOf is the link to a store: the one that its users have in common, or a new one.
func linkOf(k keys.Store) *link {
	made := func() any { return &link{keys: k} }
	if k, ok := k.(interface{ Breaker() *keys.Breaker }); ok {
		if b := k.Breaker(); b != nil {
			return b.Of(made).(*link)
		}
	}
	return made().(*link)
}

// add queues an ask, for send. It reports false if there are too many, of keys that are new a quarter.
func (l *link) add(a *ask, known bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.queue); n >= mostQueued || n >= mostQueued/4 && !known {
		return false
	}
	l.queue = append(l.queue, a)
	return true
}

// send sees to it that what waits is sent.
func (l *link) send(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pushLocked(now)
}

// owe notes units that go back.
func (l *link) owe(o owed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owed = append(l.owed, o)
}

// give notes an ask that goes with the next round trip. Too many are dropped: what they would give back stays used.
func (l *link) give(a *ask) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.given) < mostQueued {
		l.given = append(l.given, a)
	}
}

// pushLocked sends what waits, or sees to it that somebody does: a timer, or the next answer.
func (l *link) pushLocked(now time.Time) {
	if len(l.queue) == 0 || l.out >= mostOut {
		return
	}
	rtt, _ := l.Times()
	if wait := max(leastGap, rtt/4) - now.Sub(l.sent); wait > 0 && len(l.queue) < mostBatch {
		if !l.timed {
			l.timed = true
			time.AfterFunc(wait, l.wake)
		}
		return
	}
	n := min(len(l.queue), mostBatch)
	batch := append([]*ask(nil), l.queue[:n]...)
	l.queue = append(l.queue[:0], l.queue[n:]...)
	l.out++
	l.sent = now
	go func() {
		back := sync.OnceFunc(l.back)
		late := time.AfterFunc(hardWait, back) // a client may ignore the end of its ctx
		defer late.Stop()
		l.run(batch, false)
		back()
	}()
}

// wake is what the timer does.
func (l *link) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timed = false
	l.pushLocked(time.Now())
}

// back ends a round trip, or gives up waiting for it.
func (l *link) back() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out--
	l.pushLocked(time.Now())
}

// run makes a round trip, without locks.
func (l *link) run(batch []*ask, probe bool) {
	now := time.Now()
	if up, _, _ := l.Look(); !up && !probe {
		for _, a := range batch {
			a.request(now)
			a.finish(now, nil, errGone)
		}
		return
	}
	for _, a := range batch {
		if a.s.greets(now) > 0 { // another one's servers are counted next time
			batch = append(batch, a.s.greeting(1))
			break
		}
	}
	batch = append(l.due(now), batch...) // first, so that the others find it
	rs := make([]keys.Request, len(batch))
	for i, a := range batch {
		rs[i] = a.request(now)
	}
	_, soft := l.Times()
	ctx, cancel := context.WithTimeout(context.Background(), hardWait)
	defer cancel()
	replies, err := l.keys.Ask(ctx, rs)
	if err == nil && len(replies) != len(rs) {
		err = errors.New("throttle: the store has answered other requests than it was asked")
	}
	if probe {
		l.Ended()
	}
	ended := time.Now()
	l.count(len(batch), err)
	if err != nil {
		l.Lost(ended, now)
	} else {
		l.Answered(ended, ended.Sub(now), soft)
	}
	for i, a := range batch {
		if err != nil {
			a.finish(ended, nil, err)
		} else {
			a.finish(ended, &replies[i], nil)
		}
	}
}

// due makes asks for units that go back.
func (l *link) due(now time.Time) (asks []*ask) {
	given, expired := l.expired(now)
	for _, o := range expired {
		a := o.s.returning(o.hash, now)
		switch {
		case a == nil:
		case len(asks) < mostBack:
			asks = append(asks, a)
		default:
			l.owe(o)
		}
	}
	return append(asks, given...)
}

// expired takes what is given, and what is due from what is owed, which is in order but for leases of 20 ms among those of two seconds.
func (l *link) expired(now time.Time) (given []*ask, due []owed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.given), mostBack)
	given, l.given = append(given, l.given[:n]...), append(l.given[:0], l.given[n:]...)
	n = 0
	for n < len(l.owed) && n < mostOwed && !now.Before(l.owed[n].until) {
		n++
	}
	due = append(due, l.owed[:n]...)
	l.owed = l.owed[n:]
	return given, due
}

func (l *link) count(n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.trips++
	l.counts.asked += uint64(n)
	if l.counts.err = err; err != nil {
		l.counts.failed++
	}
}
