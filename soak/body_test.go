package soak

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// A requestBody is the body of a request, as the Transport gets it.
type requestBody struct {
	w      *world
	closed bool
}

func (w *world) newBody() *requestBody {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bodies++
	return &requestBody{w: w}
}

func (b *requestBody) Read(p []byte) (int, error) { return 0, io.EOF }

func (b *requestBody) Close() error {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	if b.closed {
		b.w.fail("a request's body is closed twice")
		return nil
	}
	b.closed = true
	b.w.bodies--
	return nil
}

// withBodies returns a copy of req whose bodies are counted. http.Client closes its own too.
func (w *world) withBodies(req *http.Request) *http.Request {
	if req.Body == nil || req.Body == http.NoBody {
		return req
	}
	c := *req
	c.Body = w.newBody()
	if req.GetBody != nil {
		c.GetBody = func() (io.ReadCloser, error) {
			if w.one(20) {
				return nil, errors.New("no body any more")
			}
			return w.newBody(), nil
		}
	}
	return &c
}

// RoundTrip is the Transport's, and looks at what it returns.
func (x *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	w, ctx, c := x.w, req.Context(), callOf(req.Context())
	st := x.stations[x.keyOf(req)]
	c.enter(st)
	defer c.leave()
	resp, err := x.tr.RoundTrip(w.withBodies(req))
	w.mu.Lock()
	defer w.mu.Unlock()
	switch late := time.Since(c.ended); {
	case (resp == nil) == (err == nil):
		w.fail("RoundTrip returned %v and %v", resp, err)
	case !c.ended.IsZero() && late > readTime+askTime:
		w.fail("a call of %s came back %v after its context had ended: %v", st.name, late, err)
	}
	c.checkRefusal(err)
	if err != nil {
		return nil, err
	}
	w.handOut(resp)
	// An answer holds a slot while its body is there to be read, but one that is handed out because the call could not be sent
	// again, or was sent again in vain: that gave its slot back before.
	if st.slotted() && !c.refused && resp == c.last && req.Method != http.MethodHead {
		h := &heldBody{ReadCloser: resp.Body, st: st, w: w}
		st.bodies++
		h.stop = context.AfterFunc(ctx, h.ended)
		resp.Body = h
	}
	return resp, nil
}

// A heldBody notes when the body of an answer gives its slot back.
type heldBody struct {
	io.ReadCloser
	w    *world
	st   *station
	once sync.Once
	stop func() bool
}

func (h *heldBody) ended() {
	h.once.Do(func() {
		h.w.locked(func() { h.st.bodies-- })
		h.w.happened()
	})
}

func (h *heldBody) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	if err != nil {
		h.ended()
	}
	return n, err
}

func (h *heldBody) Close() error {
	defer h.ended()
	h.stop()
	return h.ReadCloser.Close()
}

// An answerBody is the body of a response. If nobody gets it, a quick one has been read to its end
// before it is closed.
type answerBody struct {
	w     *world
	ctx   context.Context
	resp  *http.Response
	size  int
	long  bool          // more than is read ahead
	slow  time.Duration // for each read
	fails bool          // instead of an end
	once  sync.Once
	gone  chan struct{} // closed
	text  string        // its last bytes; the others are 0

	receipt       *receipt // of its attempt; nil: it has none
	ended, handed bool     // guarded by the world's lock
}

// newAnswer makes the body of resp.
func (w *world) newAnswer(ctx context.Context, c *call, resp *http.Response) {
	b := &answerBody{w: w, ctx: ctx, resp: resp, size: pick(w, 0, 10, 1000, 16<<10, 20<<10), gone: make(chan struct{})}
	b.long = b.size > readAhead
	switch w.n(12) {
	case 0:
		b.slow = w.dur(time.Millisecond, 400*time.Millisecond)
	case 1:
		b.slow = time.Minute
	case 2:
		b.fails = true
	}
	resp.Body, resp.ContentLength = b, -1
	w.locked(func() { b.price(c) })
	if w.one(4) {
		resp.ContentLength = int64(b.size)
	}
	w.locked(func() {
		w.answers[resp] = b
		w.open++
	})
}

// handOut notes that a caller gets resp.
func (w *world) handOut(resp *http.Response) {
	if b := w.answers[resp]; b != nil {
		b.handed = true
	}
	delete(w.answers, resp)
}

func (b *answerBody) Read(p []byte) (int, error) {
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
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	n := min(b.size, len(p), 8<<10)
	if clear(p[:n]); b.size <= len(b.text) {
		copy(p[:n], b.text[len(b.text)-b.size:])
	}
	b.size -= n
	if b.size > 0 {
		return n, nil
	}
	if !b.fails && b.ctx.Err() == nil {
		b.receipt.read()
	}
	b.ended = true
	if b.fails {
		return n, errors.New("the connection broke")
	}
	return n, io.EOF
}

func (b *answerBody) Close() error {
	b.once.Do(func() {
		close(b.gone)
		b.w.mu.Lock()
		defer b.w.mu.Unlock()
		b.w.open--
		delete(b.w.answers, b.resp)
		if !b.handed && !b.ended && b.slow == 0 && !b.long {
			b.w.fail("an answer that nobody gets was closed with %d bytes left", b.size)
		}
	})
	return nil
}
