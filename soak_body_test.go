package throttle

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// A soakBody is the body of a request, as the Transport gets it.
type soakBody struct {
	s      *soak
	closed bool
}

func (s *soak) newBody() *soakBody {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies++
	return &soakBody{s: s}
}

func (b *soakBody) Read(p []byte) (int, error) { return 0, io.EOF }

func (b *soakBody) Close() error {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if b.closed {
		b.s.fail("a request's body is closed twice")
		return nil
	}
	b.closed = true
	b.s.bodies--
	return nil
}

// withBodies returns a copy of req whose bodies are counted. http.Client closes its own too.
func (s *soak) withBodies(req *http.Request) *http.Request {
	if req.Body == nil || req.Body == http.NoBody {
		return req
	}
	c := *req
	c.Body = s.newBody()
	if req.GetBody != nil {
		c.GetBody = func() (io.ReadCloser, error) {
			if s.one(20) {
				return nil, errors.New("no body any more")
			}
			return s.newBody(), nil
		}
	}
	return &c
}

// RoundTrip is the Transport's, and looks at what it returns.
func (x *soakTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	s, ctx, c := x.s, req.Context(), callOf(req.Context())
	key := req.URL.Host
	if x.joined {
		key = "all"
	}
	var st *station
	s.locked(func() { st = x.station(key) })
	c.enter(st)
	defer c.leave()
	var ended time.Time
	stop := context.AfterFunc(ctx, func() { s.locked(func() { ended = time.Now() }) })
	defer stop()
	resp, err := x.tr.RoundTrip(s.withBodies(req))
	s.mu.Lock()
	defer s.mu.Unlock()
	switch late := time.Since(ended); {
	case (resp == nil) == (err == nil):
		s.fail("RoundTrip returned %v and %v", resp, err)
	case !ended.IsZero() && late > keepTime+soakAsking:
		s.fail("a call of %s came back %v after its context had ended: %v", st.name, late, err)
	}
	if err != nil {
		return nil, err
	}
	switch b := resp.Body.(type) {
	case *slotBody:
		h := &heldBody{slotBody: b, st: st, s: s}
		st.bodies++
		h.stop = context.AfterFunc(ctx, h.ended)
		resp.Body = h
		markHanded(b.ReadCloser)
	default:
		markHanded(b)
	}
	return resp, nil
}

// A heldBody notes when a slotBody gives its slot back.
type heldBody struct {
	*slotBody
	s    *soak
	st   *station
	once sync.Once
	stop func() bool
}

func (h *heldBody) ended() {
	h.once.Do(func() {
		h.s.locked(func() { h.st.bodies-- })
		h.s.happened()
	})
}

func (h *heldBody) Read(p []byte) (int, error) {
	n, err := h.slotBody.Read(p)
	if err != nil {
		h.ended()
	}
	return n, err
}

func (h *heldBody) Close() error {
	defer h.ended()
	h.stop()
	return h.slotBody.Close()
}

// A soakAnswer is the body of a response: quick ones have been read to their end before they are
// closed, if nobody gets them.
type soakAnswer struct {
	s     *soak
	ctx   context.Context
	size  int
	long  bool          // more than is read ahead
	slow  time.Duration // for each read
	fails bool          // instead of an end
	once  sync.Once
	gone  chan struct{} // closed

	ended, handed bool // guarded by the soak's lock
}

func (s *soak) newAnswer(ctx context.Context) *soakAnswer {
	b := &soakAnswer{s: s, ctx: ctx, size: pick(s, 0, 10, 1000, 16<<10, 20<<10), gone: make(chan struct{})}
	b.long = b.size > keepBytes
	switch s.n(12) {
	case 0:
		b.slow = s.dur(time.Millisecond, 400*time.Millisecond)
	case 1:
		b.slow = time.Minute
	case 2:
		b.fails = true
	}
	s.locked(func() { s.answers++ })
	return b
}

func (b *soakAnswer) Read(p []byte) (int, error) {
	if b.slow > 0 {
		timer := time.NewTimer(b.slow)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-b.gone:
			return 0, errors.New("the body is closed")
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		}
	}
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	n := min(b.size, len(p), 8<<10)
	b.size -= n
	if b.size > 0 {
		return n, nil
	}
	b.ended = true
	if b.fails {
		return n, errors.New("the connection broke")
	}
	return n, io.EOF
}

func (b *soakAnswer) Close() error {
	b.once.Do(func() {
		close(b.gone)
		b.s.mu.Lock()
		defer b.s.mu.Unlock()
		b.s.answers--
		if !b.handed && !b.ended && b.slow == 0 && !b.long {
			b.s.fail("an answer that nobody gets was closed with %d bytes left", b.size)
		}
	})
	return nil
}

// markHanded notes that the caller has the answer.
func markHanded(b io.ReadCloser) {
	switch b := b.(type) {
	case *soakAnswer:
		b.handed = true
	case *keptBody:
		markHanded(b.body)
	}
}
