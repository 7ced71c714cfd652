package inbound

import (
	"context"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-throttle/throttle/internal/shed"
)

// A shedder is an Overload with what it knows. A request takes a place in flight and goes, or waits for one in the line of
// shedline.go, or is turned away. shedlook.go looks how busy the process is, and sets the limit.
//
// # States, locks and races
//
// A place is taken by compare-and-swap against the limit. As long as nobody waits that is all. The line has its own lock, mu;
// whoever looks how busy the process is holds looking, and others pass by meanwhile. Nothing is called under mu, and mu
// is not taken under looking.
//
//	a request joins, the last in flight ends   the one counts itself as waiting and then tries for a place, the other gives
//	                                           its place back and then looks whether somebody waits: one sees the other
//	a grant, the client leaves                 the one who waited gives the place back (leave)
//	a grant, the time is over                  a grant that came first counts
//	the limit falls, requests are in flight    they stay; places are free again when fewer are left
//	the limit rises                            who has made it rise lets others go (tick)
type shedder struct {
	*Overload
	most   time.Duration // Wait
	places int
	start  time.Time
	status int    // of the answer to a request that is turned away
	body   []byte // its
	from   source

	handlers atomic.Int32 // that were made

	n, limit atomic.Int64 // in flight, and how many may be
	bound    atomic.Int64 // how many may be by Adaptive
	waiting  atomic.Int64
	procs    atomic.Int64
	calm     atomic.Bool  // isCalm was so at some moment since the last look
	side     atomic.Int64 // see shed.Input
	due      atomic.Int64 // when to look next, since start

	ended, quickest, before atomic.Int64 // requests that have ended; the quickest of this second, and of the last one
	est                     atomic.Int64 // how long a request takes at least; 0: not known
	probe                   atomic.Int64 // in which 0.1 s one went that is thought to end too late

	admitted, refused, full, low, late, left, allowed atomic.Uint64
	streams, exempt                                   atomic.Int64

	looking sync.Mutex
	view    view

	mu   sync.Mutex
	line shedline
}

// A pass is one request that is in flight. It lives on the stack of its handler.
type pass struct {
	at     time.Duration // when it went, since start
	key    string
	stream *time.Timer // when it stops to be in flight; nil: it asks for nothing that lasts
}

// asStream is after how long what lasts does not count as in flight any more. Until then it does, because a client asks for a stream
// by a header, as those may who want to pass the limit.
const asStream = time.Second

// serve is the middleware. A request that has come through another handler of the same Overload has its place.
func (c *shedder) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if c.handlers.Load() > 1 {
		if r.Context().Value(c) != nil {
			next.ServeHTTP(w, r)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), c, true))
	}
	if c.Allow != nil && c.Allow(r) {
		c.allowed.Add(1)
		c.exempt.Add(1)
		defer c.exempt.Add(-1)
		next.ServeHTTP(w, r)
		return
	}
	var p pass
	why := c.admit(r, &p)
	switch {
	case why == left:
		c.left.Add(1)
		c.refuse(w, r) // without an answer, one whose context was cancelled on this side would read an empty 200
		return
	case why != "" && !c.Shadow:
		c.side.Add(1)
		c.count(r, why)
		c.refuse(w, r)
		return
	}
	defer c.end(&p)
	c.admitted.Add(1)
	if why != "" {
		c.count(r, why)
	}
	if isStream(r) { // it would hold its place for hours
		p.stream = time.AfterFunc(asStream, func() { c.streams.Add(1); c.giveBack() })
	} else if c.Adaptive != nil && c.Adaptive.Load == nil { // its response time counts from here
		c.bound.Store(int64(c.Adaptive.Bound(int(c.n.Load()), 0)))
	}
	next.ServeHTTP(w, r)
}

// isStream reports whether a request asks for what lasts: a tunnel, a websocket, or events. Other upgrades, such as to h2c,
// some clients ask for with each request.
func isStream(r *http.Request) bool {
	upgrade, accept := r.Header["Upgrade"], r.Header["Accept"]
	return r.Method == http.MethodConnect || len(upgrade) == 1 && strings.EqualFold(upgrade[0], "websocket") ||
		len(accept) == 1 && strings.HasPrefix(accept[0], "text/event-stream")
}

// Why requests are turned away, or do not go.
const (
	busy = "busy"
	full = "full"
	low  = "low"
	late = "late"
	left = "left" // the client did
)

// admit takes a place for a request; "": it has one. In Shadow it always has.
func (c *shedder) admit(r *http.Request, p *pass) (why string) {
	now := c.now()
	c.tick(now)
	if r.Context().Err() == context.Canceled && !c.Shadow {
		return left
	}
	c.ask()
	p.at = now
	if c.Key != nil {
		p.key = c.Key(r)
	}
	most, ok := c.time(r, now)
	switch {
	case !ok:
		why = late
	case c.Priority == nil && c.waiting.Load() == 0 && c.take():
		return ""
	case c.Shadow:
		why = c.shadow(r, now)
	default:
		if why = c.stand(r, p, most); why == "" {
			p.at = c.now()
		}
		return why
	}
	if c.Shadow && why != "" {
		c.n.Add(1)
	}
	return why
}

// ask moves the limit by Adaptive's Load, if it has one. All who arrive do, let in or not: those in flight may last for long.
func (c *shedder) ask() {
	if c.Adaptive == nil || c.Adaptive.Load == nil {
		return
	}
	if c.bound.Store(int64(c.Adaptive.Bound(int(c.n.Load()), 0))); c.waiting.Load() > 0 {
		c.grant(false)
	}
}

// shadow says what would happen to a request that found no place at once.
func (c *shedder) shadow(r *http.Request, now time.Duration) (why string) {
	level := c.level(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	isLow := c.Priority != nil && c.line.levels.Arrive(c.start.Add(now), level)
	switch {
	case c.take():
		c.line.levels.Serve()
		return ""
	case isLow:
		return low
	}
	return busy
}

// now is the time since start, which costs less to read than a Time.
func (c *shedder) now() time.Duration { return time.Since(c.start) }

// take takes a place in flight, if there is one.
func (c *shedder) take() bool {
	for {
		n := c.n.Load()
		if n >= c.limit.Load() || n >= c.bound.Load() {
			return false
		}
		if c.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// giveBack frees a place.
func (c *shedder) giveBack() {
	if n := c.n.Add(-1); n <= c.procs.Load() && !c.calm.Load() && c.isCalm(n) {
		c.calm.Store(true)
	}
	if c.waiting.Load() > 0 {
		c.grant(true)
	}
}

// isCalm reports that none of n requests can wait for another one, nor does the limit hold any back.
func (c *shedder) isCalm(n int64) bool {
	return n <= c.procs.Load() && n < c.limit.Load() && c.waiting.Load() == 0
}

// end is the end of a request, also by a panic. Adaptive's Load may end the goroutine.
func (c *shedder) end(p *pass) {
	if p.stream != nil && !p.stream.Stop() {
		c.streams.Add(-1)
		return
	}
	c.ended.Add(1)
	now := c.now()
	defer func() {
		c.giveBack()
		c.tick(now)
	}()
	took := now - p.at
	for q := c.quickest.Load(); int64(took) < q && !c.quickest.CompareAndSwap(q, int64(took)); q = c.quickest.Load() {
	}
	if c.Key != nil && min(c.limit.Load(), c.bound.Load()) < math.MaxInt64 {
		c.took(p.key, took)
	}
	if c.Adaptive != nil && (p.stream == nil || c.Adaptive.Load != nil) {
		c.bound.Store(int64(c.Adaptive.Bound(int(c.n.Load()), max(1, took))))
	}
}

// time is how long a request may wait in front of the limit, and whether it should be let in at all: whether it can end
// before its deadline.
func (c *shedder) time(r *http.Request, now time.Duration) (most time.Duration, ok bool) {
	until, known := r.Context().Deadline()
	if c.Deadline != nil {
		if t := c.Deadline(r); !t.IsZero() && (!known || t.Before(until)) {
			until, known = t, true
		}
	}
	if !known {
		return c.most, true
	}
	rest := time.Until(until)
	spare := rest - time.Duration(c.est.Load())
	if rest <= 0 || spare < 0 && !c.mayProbe(now) {
		return 0, false
	}
	return min(c.most, max(0, spare)), true
}

// mayProbe reports whether a request may go that is thought to end too late: one in each 0.1 s. Without them nobody would end
// in time, and nothing be learned.
func (c *shedder) mayProbe(now time.Duration) bool {
	at := int64(now/shed.Window) + 1
	was := c.probe.Load()
	return was < at && c.probe.CompareAndSwap(was, at)
}
