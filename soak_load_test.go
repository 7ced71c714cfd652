package throttle

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// A soakCall is one caller's call; a redirect makes another one of it. Guarded by the soak's lock.
type soakCall struct {
	s      *soak
	st     *station
	cost   int
	cancel context.CancelFunc

	paid   bool      // the limiters of ours were paid, as foreign ones are asked too
	paidAt time.Time // then
	asks   int       // foreign limiters that are being asked for it
	panics bool      // Base may panic
	task   bool      // of a Group
	aged   bool      // under way for a second
}

type soakKey struct{}

func callOf(ctx context.Context) *soakCall { return ctx.Value(soakKey{}).(*soakCall) }

// enter notes that c comes to a station.
func (c *soakCall) enter(st *station) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.st = st
	st.inside++
	st.line = append(st.line, c)
	c.s.sum.calls.Add(1)
	c.s.happened()
}

// start notes that it goes, and pays for it.
func (c *soakCall) start() {
	now, st := time.Now(), c.st
	st.line = slices.DeleteFunc(st.line, func(o *soakCall) bool { return o == c })
	st.flying[c], c.aged = now, false
	if st.probes.closed {
		st.probes.started++
	}
	if !c.paid {
		for _, m := range st.models {
			m.paid(c.cost)
		}
	}
	c.paid = false
	delete(c.s.paid, c)
	for _, f := range st.foreign {
		f.started += c.cost
	}
	for _, q := range st.quiet {
		dropped := st.tr != nil && st.tr.flood // perhaps, and what was told with it
		if now.After(q.since) && now.Before(q.until) && !dropped {
			c.s.fail("%s sends at %v, told to be quiet from %v to %v", st.name, now.Sub(c.s.born), q.since.Sub(c.s.born), q.until.Sub(c.s.born))
		}
	}
	c.s.sum.attempts.Add(1)
	c.s.happened()
}

// land notes that the attempt is over.
func (c *soakCall) land() {
	if p := &c.st.probes; p.closed && c.st.flying[c].After(p.since) {
		p.landed++
	}
	delete(c.st.flying, c)
	c.s.happened()
}

// leave notes that c has ended.
func (c *soakCall) leave() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.st.line = slices.DeleteFunc(c.st.line, func(o *soakCall) bool { return o == c })
	c.st.inside--
	c.s.happened()
}

// prepay notes that the limiters of ours have been paid before foreign ones are asked, unpay that
// what they got has come back.
func (c *soakCall) prepay() {
	if c.asks++; c.paid {
		return
	}
	c.paid, c.paidAt, c.s.paid[c] = true, time.Now(), true
	c.s.happened()
	for _, m := range c.st.models {
		m.paid(c.cost)
	}
}

func (c *soakCall) unpay() {
	c.paid = false
	delete(c.s.paid, c)
	for _, m := range c.st.models {
		if c.cost > 0 {
			m.backs = append(m.backs, backed{c.paidAt, c.cost})
		}
	}
}

// newCall makes a call with everything that a caller may wish at random.
func (s *soak) newCall() (context.Context, *soakCall) { return s.newCallIn(s.ctx) }

func (s *soak) newCallIn(ctx context.Context) (context.Context, *soakCall) {
	c := &soakCall{s: s, cost: ctxValue(ctx).cost, panics: s.one(50)}
	ctx = context.WithValue(ctx, soakKey{}, c)
	if s.one(3) {
		ctx = WithPriority(ctx, s.n(4)-1)
	}
	if s.one(4) {
		c.cost = pick(s, 0, 2, 3, 5, 12)
		ctx = WithCost(ctx, c.cost)
	}
	ctx, c.cancel = context.WithCancel(ctx)
	switch s.n(6) {
	case 0:
		ctx, c.cancel = context.WithTimeout(ctx, s.dur(0, 4*time.Second))
	case 1:
		time.AfterFunc(s.dur(0, 2*time.Second), c.cancel)
	}
	return ctx, c
}

// cancelAtGrant lets the head of a line be cancelled at the moment that its limiter has told.
func (s *soak) cancelAtGrant(st *station, now time.Time) {
	if st.q == nil || len(st.line) == 0 {
		return
	}
	c := pick(s, st.line[0], pick(s, st.line...))
	st.q.Room.Mu.Lock()
	defer st.q.Room.Mu.Unlock()
	if l := st.q.Line; l != nil && l.Told.After(now) {
		time.AfterFunc(l.Told.Sub(now), c.cancel)
	}
}

// populate starts the callers.
func (s *soak) populate(wg *sync.WaitGroup) {
	caller := func(think time.Duration, call func()) {
		wg.Go(func() {
			for {
				time.Sleep(s.dur(time.Millisecond, think))
				over := false
				s.locked(func() { over = s.over })
				if over {
					return
				}
				call()
			}
		})
	}
	for _, x := range s.trs {
		think := s.dur(50*time.Millisecond, 5*time.Second)
		for range 2 + s.n(30) {
			caller(think, func() { s.callTransport(x) })
		}
		caller(20*time.Second, func() { s.rush(func() { s.callTransport(x) }) })
	}
	for _, st := range s.stations {
		if st.tr != nil {
			continue
		}
		for range 1 + s.n(10) {
			caller(time.Second, func() { s.callQueue(st) })
		}
		caller(20*time.Second, func() { s.rush(func() { s.callQueue(st) }) })
		caller(10*time.Second, func() { s.group(st) })
	}
	for _, b := range s.buckets {
		for range 1 + s.n(6) {
			caller(2*time.Second, func() { s.callBucket(b) })
		}
	}
}

// rush calls many times at once.
func (s *soak) rush(call func()) {
	var wg sync.WaitGroup
	for range 2 + s.n(40) {
		wg.Go(call)
	}
	wg.Wait()
}

func (s *soak) callQueue(st *station) {
	ctx, c := s.newCall()
	defer c.cancel()
	c.enter(st)
	defer c.leave()
	if s.one(2) {
		if st.bare.Wait(ctx) == nil {
			s.locked(func() {
				c.start()
				c.land()
				st.succeeded = true
			})
		}
		return
	}
	st.bare.Do(ctx, func(ctx context.Context) error { return c.work(ctx) })
}

// work is what a Queue's call does when it has started.
func (c *soakCall) work(ctx context.Context) error {
	s := c.s
	s.locked(c.start)
	defer s.locked(func() {
		c.land()
		c.st.succeeded = true
	})
	select {
	case <-time.After(s.dur(0, time.Second)):
	case <-ctx.Done():
	}
	return nil
}

func (s *soak) group(st *station) {
	ctx, c := s.newCall()
	defer c.cancel()
	g, ctx := NewGroup(ctx, st.bare)
	s.locked(func() { st.groups[g] = true })
	for range 1 + s.n(30) {
		ctx, c := s.newCallIn(ctx)
		defer c.cancel()
		c.st, c.task = st, true
		g.Go(ctx, func(ctx context.Context) error {
			c.work(ctx)
			if s.one(60) {
				return errors.New("one task has failed")
			}
			return nil
		})
		if s.one(8) {
			time.Sleep(s.dur(0, 300*time.Millisecond))
		}
	}
	g.Wait()
	s.locked(func() { delete(st.groups, g) })
}

func (s *soak) callBucket(b *soakBucketLine) {
	ctx, c := s.newCall()
	defer c.cancel()
	s.locked(func() { b.inside++ })
	err := b.bucket.Wait(ctx)
	s.locked(func() {
		b.inside--
		if err == nil {
			b.model.paid(c.cost)
		}
	})
	s.happened()
}

// callTransport makes one request and does with its answer what callers do.
func (s *soak) callTransport(x *soakTransport) {
	ctx, c := s.newCall()
	defer c.cancel()
	req := s.request(ctx, x)
	defer func() {
		if p := recover(); p != nil && p != errSoakPanic {
			panic(p)
		}
	}()
	var resp *http.Response
	var err error
	if s.one(3) {
		resp, err = (&http.Client{Transport: x}).Do(req)
	} else {
		resp, err = x.RoundTrip(req)
	}
	if err != nil {
		s.sum.cancelled.Add(1)
		return
	}
	if s.one(10) {
		time.Sleep(s.dur(0, 2*time.Second))
	}
	switch s.n(8) {
	case 0:
		c.cancel() // then closes
		time.Sleep(s.dur(0, 10*time.Millisecond))
	case 1:
		resp.Body.Read(make([]byte, 10))
	case 2:
	default:
		io.Copy(io.Discard, resp.Body)
	}
	resp.Body.Close()
	if s.one(5) {
		resp.Body.Close()
	}
}

func (s *soak) request(ctx context.Context, x *soakTransport) *http.Request {
	path := pick(s, "/", "/a", "/b/1", "/b/2")
	if s.one(10) {
		path = "/redirect"
	}
	req, err := http.NewRequestWithContext(ctx, pick(s, "GET", "GET", "GET", "POST", "PUT", "HEAD", "DELETE"), "http://"+pick(s, x.hosts...)+path, nil)
	if err != nil {
		panic(err)
	}
	if s.one(3) {
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader("")), -1
	}
	if s.one(2) {
		req.GetBody = func() (io.ReadCloser, error) { return req.Body, nil }
	}
	if s.one(3) {
		req.Header.Set("Idempotency-Key", "x")
	}
	return req
}

func (s *soak) left() (at []string) {
	for _, st := range s.stations {
		if st.inside > 0 {
			at = append(at, st.state())
		}
	}
	return at
}
