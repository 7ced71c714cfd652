package inbound

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-throttle/throttle"
)

// Lines hold requests that wait for units. Each key has one while somebody waits for it: a Queue of package throttle
// before a Limiter that is the table. So the requests of a key go in the order of their arrival, only the first of them
// asks, and one that leaves takes nothing along. A key's line does not delay other keys: they have other units.
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
//	a grant, the time is over            whichever the queue sees first; a grant that came first counts
type lines struct {
	most    time.Duration // Limit.Wait; 0: nobody waits
	places  int64
	waiting atomic.Int64

	mu  sync.Mutex
	all map[uint64]*line // by the hash of the Limit's own key
}

// A line is that of one key.
type line struct {
	queue *throttle.Queue
	n     int // requests that are in it or on their way
}

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
// places. It returns the line of a key, with a place in it, and how many are before; nil: all places are taken.
func (l *lines) enter(hash uint64) (at *line, ahead int) {
	if l.waiting.Add(1) > l.places {
		l.waiting.Add(-1)
		return nil, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at = l.all[hash]
	if at == nil {
		if l.all == nil {
			l.all = map[uint64]*line{}
		}
		at = &line{queue: throttle.NewQueue(turn{}, throttle.QueueOptions{})}
		l.all[hash] = at
	}
	at.n++
	return at, at.n - 1
}

// leave gives a place up.
func (l *lines) leave(hash uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.all[hash]; at != nil {
		if at.n--; at.n == 0 {
			delete(l.all, hash)
		}
	}
	l.waiting.Add(-1)
}

// join holds a visit in the line of its key. Example: 1/s, Wait 3 s, and six requests at once. The first is let in, three
// are held for 1, 2 and 3 s, and two are refused at once, with Retry-After 4.
//
// It holds the visit until it has its units, its time is over or its client leaves. It reports
// whether the request goes. The visit's wait is then what the client should wait before it comes again.
func (l *lines) join(ctx context.Context, v *visit) bool {
	hash := v.asked[0].hash
	at, ahead := l.enter(hash)
	if at == nil {
		v.leave()
		return false
	}
	defer l.leave(hash)
	if ahead > 0 {
		v.askAll(look)
	}
	if v.wait = min(v.wait, never-v.behind(ahead)) + v.behind(ahead); v.wait > int64(l.most) {
		v.turnAway()
		return false
	}
	held := new(visit)
	*held = *v
	held.in = false
	err := at.queue.Wait(throttle.WithMaxWait(context.WithValue(inOrder(ctx), visitKey{}, held), l.most))
	*v = *held
	if err == nil {
		return true
	}
	v.leave()
	if e := new(throttle.Error); errors.Is(err, errNever) {
		v.wait = never // a shared limit has failed, which the tables do not know
	} else if errors.As(err, &e) {
		v.wait = max(v.wait, int64(e.Wait)) // others are before it
	}
	return false
}

// inOrder is ctx for the line. What its context says of outgoing calls, a priority or a cost, is not about the request:
// a middleware that marks the calls of its handlers must not let a request overtake.
func inOrder(ctx context.Context) context.Context {
	return throttle.WithFlow(throttle.WithPriority(throttle.WithCost(ctx, 1), 0), "")
}

// visitKey is the key of a visit in the ctx of its wait.
type visitKey struct{}

// A turn is the Limiter of all lines: it asks for the visit whose ctx it gets. The Queue calls it in the goroutine of that
// request and under no lock, so the visit is used by one goroutine only. It has no Adjust: units that cannot be used go
// back by join, which knows whose they are.
type turn struct{}

// Take implements throttle.Limiter.
func (turn) Take(ctx context.Context, _ int) (time.Duration, error) {
	v := ctx.Value(visitKey{}).(*visit)
	if v.try(ctx) {
		return 0, nil
	}
	if v.wait == never {
		return 0, errNever
	}
	return time.Duration(v.wait), nil
}

// errNever ends the wait of a request that can never be let in.
var errNever = errors.New("throttle: the cost can never be paid")
