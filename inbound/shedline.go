package inbound

import (
	"context"
	"hash/maphash"
	"math"
	"net/http"
	"strconv"
	"time"

	order "github.com/go-throttle/throttle/internal/line"
	"github.com/go-throttle/throttle/internal/shed"
)

// A shedline is the requests that wait in front of the limit, all guarded by shedder.mu. Their order is that of package line:
// priority, then keys in turn by weight. Places in it are counted downwards, so that who came last is first; who came
// first is known by a list beside it.
type shedline struct {
	line   order.Line[waiter]
	first  *waiter // of those that wait, by arrival
	last   *waiter
	came   uint64
	went   uint64
	levels shed.Levels
	passOn bool // the next place that is free above the limit

	took map[uint64]float64 // seconds that the requests of a key take, smoothed, by the key's hash, since clients choose how long it is
	mean float64            // of all
	seed maphash.Seed
}

// mostTook bounds the keys whose times are known. When there are more, all are forgotten.
const mostTook = 4096

// A waiter is one request that waits, until turn is closed. Then it is granted, or expelled.
type waiter struct {
	call        order.Call[waiter]
	prev, next  *waiter
	turn        chan struct{}
	in, granted bool // guarded by shedder.mu
}

// stand is how a request gets a place that found none, or whose priority has to be counted: it waits if it may.
func (c *shedder) stand(r *http.Request, p *pass, most time.Duration) (why string) {
	w, why := c.join(p, c.level(r), most)
	if w == nil {
		return why
	}
	over := time.NewTimer(most + 1) // a grant at the last moment wins
	defer over.Stop()
	select {
	case <-w.turn:
	case <-r.Context().Done():
	case <-over.C:
	}
	err := r.Context().Err()
	if why = c.leave(w, err != nil); why == left && err == context.DeadlineExceeded {
		return late
	}
	return why
}

// join takes a place at once, or puts the request in line; nil: it does not wait.
func (c *shedder) join(p *pass, level int32, most time.Duration) (w *waiter, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.line
	isLow := c.Priority != nil && l.levels.Arrive(c.start.Add(p.at), level)
	switch {
	case c.waiting.Load() == 0 && c.take():
		l.levels.Serve()
		return nil, ""
	case isLow:
		return nil, low
	case most == 0:
		return nil, busy
	case l.line.Len() >= c.places && l.first.call.Prio > level:
		return nil, full
	case l.line.Len() >= c.places:
		c.removeLocked(l.first)
	}
	w = &waiter{turn: make(chan struct{}), in: true}
	w.call.Of, w.call.Prio, w.call.Cost = w, level, 1
	w.call.Seq = math.MaxUint64 - l.came
	l.came++
	if w.prev = l.last; w.prev != nil {
		w.prev.next = w
	} else {
		l.first = w
	}
	l.last = w
	l.line.Push(&w.call, p.key, l.weight(p.key))
	c.waiting.Add(1)
	c.side.Add(1)
	c.grantLocked() // a place may have come free before it was counted
	return w, ""
}

// leave ends a wait, and says how.
func (c *shedder) leave(w *waiter, gone bool) (why string) {
	inTime := c.quit(w)
	switch {
	case gone && w.granted:
		c.giveBack()
		return left
	case gone:
		return left
	case w.granted:
		c.side.Add(1)
		return ""
	case inTime:
		return full
	}
	return busy
}

// quit takes a request out of the line, and reports whether its wait was ended by somebody else before.
func (c *shedder) quit(w *waiter) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.in {
		c.removeLocked(w)
		return false
	}
	return true
}

// removeLocked takes a request out of the line, and wakes it.
func (c *shedder) removeLocked(w *waiter) {
	l := &c.line
	l.line.Remove(&w.call)
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.last = w.prev
	}
	w.prev, w.next, w.in = nil, nil, false
	c.waiting.Add(-1)
	close(w.turn)
}

// grant lets requests go for which there are places. freed: one has just been given back. While more are in flight than
// may be, since the limit has fallen, every second such place is passed on: otherwise nobody would be let in for half a
// second, whoever it is, and a request waits for 100 ms. Those in flight come down half as fast, and the same work is
// done.
func (c *shedder) grant(freed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.line
	if c.grantLocked() || !freed || l.first == nil {
		return
	}
	if l.passOn = !l.passOn; l.passOn {
		c.n.Add(1)
		c.goLocked(l.nextLocked(c.Key != nil))
	}
}

// grantLocked reports whether anybody goes.
func (c *shedder) grantLocked() (any bool) {
	for c.line.first != nil && c.take() {
		c.goLocked(c.line.nextLocked(c.Key != nil))
		any = true
	}
	return any
}

// goLocked lets one go that has its place.
func (c *shedder) goLocked(w *waiter) {
	w.granted = true
	c.line.line.Granted(&w.call)
	c.line.levels.Serve()
	c.removeLocked(w)
}

// everyEighth turn is that of the request that has waited longest. Package line counts so too, but takes the one with the
// lowest place, which came last here; so the right one is put before it.
const everyEighth = 8

// nextLocked is the request whose turn it is; somebody waits. Where keys share, an old request of the highest priority gets
// no turn for its age: a key with many requests would have every eighth turn beside its own.
func (l *shedline) nextLocked(keys bool) *waiter {
	l.went++
	if l.went%everyEighth == 0 && (!keys || l.first.call.Prio < l.line.Top()) {
		l.line.Hold(&l.first.call)
	}
	return l.line.Next(nil, time.Time{}).Of
}

// took notes how long a request of a key took.
func (c *shedder) took(key string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.line
	of := hashOf(l.seed, key, 0)
	if l.took == nil || len(l.took) >= mostTook && l.took[of] == 0 {
		l.took = map[uint64]float64{}
	}
	s := took.Seconds()
	was := l.took[of]
	if was == 0 {
		was = s
	}
	l.took[of] = was + (s-was)/8
	l.mean += (s - l.mean) / 64
}

// weight is how many turns a key gets, so that all have an equal share of the places over time: one whose requests take
// twice the mean gets half as many.
func (l *shedline) weight(key string) float64 {
	s := l.took[hashOf(l.seed, key, 0)]
	if s == 0 || l.mean == 0 {
		return 1
	}
	return min(max(l.mean/s, 1e-3), 1e3)
}

// level is the priority of a request, within bounds.
func (c *shedder) level(r *http.Request) int32 {
	if c.Priority == nil {
		return 0
	}
	return int32(min(max(c.Priority(r), math.MinInt32), math.MaxInt32))
}

// count counts a request that is turned away, or would be.
func (c *shedder) count(r *http.Request, why string) {
	c.refused.Add(1)
	switch why {
	case full:
		c.full.Add(1)
	case low:
		c.low.Add(1)
	case late:
		c.late.Add(1)
	}
	if c.OnRefusal != nil {
		c.OnRefusal(r, why)
	}
}

// refuse answers a request that is turned away.
func (c *shedder) refuse(w http.ResponseWriter, r *http.Request) {
	if c.Refused != nil {
		c.Refused.ServeHTTP(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(c.body)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(c.status)
	_, _ = w.Write(c.body) // fails only if the client has left
}
