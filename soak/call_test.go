package soak

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-throttle/throttle"
)

// A call is one caller's call; a redirect makes another one of it. Guarded by the world's lock.
type call struct {
	w      *world
	st     *station
	cost   int
	prio   int
	flow   string
	ctx    context.Context
	cancel context.CancelFunc
	came   time.Time
	route  string    // that it was sent to last
	ended  time.Time // when its context ended; zero: not yet

	inside  bool           // it has come and not ended
	sent    bool           // an attempt was
	refused bool           // it was not sent, or not again
	panics  bool           // Base may panic
	task    bool           // of a Group
	last    *http.Response // of the last attempt; nil: it got none
	hold    hold           // of the attempt that is next
	receipt *receipt       // of the last attempt; nil: it holds nothing of meters
	bill    int            // what its caller may say that an attempt has cost; negative: nothing
}

// A group is a Group and its tasks that have not started.
type group struct {
	ctx     context.Context // ends with the first error
	waiting map[*call]bool
}

type callKey struct{}

// callOf is the call that ctx belongs to; nil: none.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// enter notes that c comes to a station.
func (c *call) enter(st *station) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.st, c.came, c.sent, c.refused, c.inside = st, time.Now(), false, false, true
	st.inside++
	st.line = append(st.line, c)
	c.w.sum.calls.Add(1)
	c.w.happened()
}

// start notes that it goes, and pays for it.
func (c *call) start() {
	now, st := time.Now(), c.st
	c.sent = true
	st.line = slices.DeleteFunc(st.line, func(o *call) bool { return o == c })
	st.flying[c] = now
	st.shares.started(c)
	c.holdUnits()
	c.checkOpen(now)
	for _, m := range st.models {
		m.paid(c.cost)
	}
	for _, f := range st.foreign {
		f.started += c.cost
	}
	for _, q := range st.quiet {
		forgotten := st.tr != nil && st.tr.flood // perhaps: its key may have been dropped
		if now.After(q.since) && now.Before(q.until) && !forgotten && (c.route == q.route || !st.alone(q)) {
			c.w.fail("%s sends at %v, asked to be quiet from %v to %v", st.name, now.Sub(c.w.born), q.since.Sub(c.w.born), q.until.Sub(c.w.born))
		}
	}
	if !c.ended.IsZero() && c.ended.Before(now) {
		c.w.fail("%s sends a call %v after its context has ended", st.name, now.Sub(c.ended))
	}
	c.w.sum.attempts.Add(1)
	c.w.happened()
}

// land notes that the attempt is over.
func (c *call) land() {
	delete(c.st.flying, c)
	c.w.happened()
}

// leave notes that c has ended.
func (c *call) leave() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.st.line = slices.DeleteFunc(c.st.line, func(o *call) bool { return o == c })
	c.st.inside--
	c.inside = false
	c.w.happened()
}

// newCall makes a call with everything that a caller may wish at random, under ctx.
func (w *world) newCall(ctx context.Context, flows bool) (context.Context, *call) {
	c := &call{w: w, cost: 1, panics: w.one(50)}
	if group := callOf(ctx); group != nil {
		c.cost, c.prio, c.flow = group.cost, group.prio, group.flow
	}
	ctx = context.WithValue(ctx, callKey{}, c)
	if w.one(3) {
		c.prio = w.n(4) - 1
		ctx = throttle.WithPriority(ctx, c.prio)
	}
	if w.one(4) {
		c.cost = pick(w, 0, 2, 3, 5, 12)
		ctx = throttle.WithCost(ctx, c.cost)
	}
	if flows {
		c.flow = pick(w, "", "a", "a", "a", "a", "b", "c")
		ctx = throttle.WithFlow(ctx, c.flow)
	}
	ctx, c.cancel = context.WithCancel(ctx)
	switch w.n(6) {
	case 0:
		ctx, c.cancel = context.WithTimeout(ctx, w.dur(0, 4*time.Second))
	case 1:
		time.AfterFunc(w.dur(0, 2*time.Second), c.cancel)
	}
	c.watch(ctx)
	return ctx, c
}

// waits reports whether c is in line, or may be before it is sent again.
func (c *call) waits() bool {
	if c.st == nil || c.task {
		return c.st != nil && !c.sent
	}
	_, flying := c.st.flying[c]
	return c.inside && !flying
}

// watch notes when ctx, which is that of c, ends.
func (c *call) watch(ctx context.Context) {
	c.ctx = ctx
	context.AfterFunc(ctx, func() {
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		c.ended = time.Now()
		if c.waits() {
			c.st.shares.left(c)
		}
	})
}

// populate starts the callers.
func (w *world) populate(wg *sync.WaitGroup) {
	caller := func(think time.Duration, call func()) {
		wg.Go(func() {
			for {
				time.Sleep(w.dur(time.Millisecond, think))
				over := false
				w.locked(func() { over = w.over })
				if over {
					return
				}
				call()
			}
		})
	}
	for _, x := range w.trs {
		think := w.dur(50*time.Millisecond, 5*time.Second)
		for range 2 + w.n(30) {
			caller(think, func() { w.callTransport(x) })
		}
		caller(20*time.Second, func() { w.rush(func() { w.callTransport(x) }) })
		if x.flows {
			caller(30*time.Second, func() {
				host := pick(w, x.hosts...)
				w.flood(func(flow string) { w.floodTransport(x, host, flow) })
			})
		}
	}
	for _, st := range w.stations {
		if st.tr != nil {
			continue
		}
		for range 1 + w.n(10) {
			caller(time.Second, func() { w.callQueue(st) })
		}
		caller(20*time.Second, func() { w.rush(func() { w.callQueue(st) }) })
		caller(10*time.Second, func() { w.callGroup(st) })
		if st.flows {
			caller(30*time.Second, func() { w.flood(func(flow string) { w.floodQueue(st, flow) }) })
		}
	}
	for _, b := range w.buckets {
		for range 1 + w.n(6) {
			caller(2*time.Second, func() { w.callBucket(b) })
		}
	}
}

// rush calls many times at once.
func (w *world) rush(call func()) {
	var wg sync.WaitGroup
	for range 2 + w.n(40) {
		wg.Go(call)
	}
	wg.Wait()
}

func (w *world) callQueue(st *station) {
	ctx, c := w.newCall(w.ctx, st.flows)
	defer c.cancel()
	c.enter(st)
	defer c.leave()
	if w.one(2) {
		if st.bare.Wait(ctx) == nil {
			w.locked(func() {
				c.start()
				c.land()
			})
		}
		return
	}
	st.bare.Do(ctx, func(ctx context.Context) error { return c.work(ctx) })
}

// work is what a Queue's call does when it has started.
func (c *call) work(ctx context.Context) error {
	c.w.locked(c.start)
	defer c.w.locked(c.land)
	select {
	case <-time.After(c.w.dur(0, time.Second)):
	case <-ctx.Done():
	}
	return nil
}

func (w *world) callGroup(st *station) {
	ctx, c := w.newCall(w.ctx, st.flows)
	defer c.cancel()
	g, ctx := throttle.NewGroup(ctx, st.bare)
	tasks := &group{ctx, map[*call]bool{}}
	w.locked(func() { st.groups[tasks] = true })
	for range 1 + w.n(30) {
		ctx, c := w.newCall(ctx, st.flows)
		defer c.cancel()
		w.locked(func() { c.st, c.task, tasks.waiting[c] = st, true, true })
		g.Go(ctx, func(ctx context.Context) error {
			w.locked(func() { delete(tasks.waiting, c) })
			c.work(ctx)
			if w.one(60) {
				return errors.New("one task has failed")
			}
			return nil
		})
		if w.one(8) {
			time.Sleep(w.dur(0, 300*time.Millisecond))
		}
	}
	g.Wait()
	w.locked(func() { delete(st.groups, tasks) })
}

func (w *world) callBucket(b *bucketLine) {
	ctx, c := w.newCall(w.ctx, false)
	defer c.cancel()
	if b.bucket.Wait(ctx) == nil {
		w.locked(func() { b.model.paid(c.cost) })
	}
	w.happened()
}

// callTransport makes one request and does with its answer what callers do.
func (w *world) callTransport(x *transport) {
	ctx, c := w.newCall(w.ctx, x.flows)
	defer c.cancel()
	ctx, settle := c.billed(ctx, x)
	req := w.request(ctx, x)
	defer func() {
		if p := recover(); p != nil && p != errOwnPanic {
			panic(p)
		}
	}()
	var resp *http.Response
	var err error
	if w.one(3) {
		resp, err = (&http.Client{Transport: x}).Do(req)
	} else {
		resp, err = x.RoundTrip(req)
	}
	if err != nil {
		w.sum.failed.Add(1)
		return
	}
	if w.one(10) {
		time.Sleep(w.dur(0, 2*time.Second))
	}
	settle()
	switch w.n(8) {
	case 0:
		c.cancel() // then closes
		time.Sleep(w.dur(0, 10*time.Millisecond))
	case 1:
		resp.Body.Read(make([]byte, 10))
	case 2:
	default:
		io.Copy(io.Discard, resp.Body)
	}
	resp.Body.Close()
	if w.one(5) {
		resp.Body.Close()
	}
}

func (w *world) request(ctx context.Context, x *transport) *http.Request {
	path := pick(w, "/", "/a", "/b/1", "/b/2")
	if w.one(10) {
		path = "/redirect"
	}
	req, err := http.NewRequestWithContext(ctx, pick(w, "GET", "GET", "GET", "POST", "PUT", "HEAD", "DELETE"), "http://"+pick(w, x.hosts...)+path, nil)
	if err != nil {
		panic(err)
	}
	if w.one(3) {
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader("")), -1
	}
	if w.one(2) {
		req.GetBody = func() (io.ReadCloser, error) { return req.Body, nil }
	}
	if w.one(3) {
		req.Header.Set("Idempotency-Key", "x")
	}
	return req
}
