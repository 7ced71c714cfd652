package throttletest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-throttle/throttle/internal/account"
)

// RoundTrip is the Server as an http.RoundTripper. It lets Latency and Work pass in the caller's goroutine: virtual
// time in a testing/synctest bubble. It returns as soon as the request's context ends. A request that is on its way
// then arrives nevertheless.
func (s *Server) RoundTrip(req *http.Request) (*http.Response, error) { return s.roundTrip(req, "") }

// From returns the Server as a client of that name reaches it, for the Ledger.
func (s *Server) From(client string) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) { return s.roundTrip(req, client) })
}

// A roundTripper is a function as an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A context that has ended sends nothing, so nothing arrives and the Ledger shows no request.
func (s *Server) roundTrip(req *http.Request, client string) (*http.Response, error) {
	x, err := read(req)
	if err := cmp.Or(err, context.Cause(req.Context())); err != nil {
		return nil, err
	}
	x.Client = client
	w := &recorder{header: make(http.Header, 4)}
	if err := s.exchange(x, w); err != nil {
		return nil, err
	}
	return w.response(req), nil
}

// ServeHTTP is the Server as an http.Handler. A Fault with an Err breaks the connection off.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x, err := read(r)
	if err != nil {
		return // the client has left in the middle of its request
	}
	if s.NoDate {
		w.Header()["Date"] = nil
	}
	switch err := s.exchange(x, w); {
	case err == nil:
	case r.Context().Err() != nil: // x may still be on its way, and is not ours then
		panic(http.ErrAbortHandler)
	case x.fault != nil:
		breakOff(w)
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// read reads a request to its end and closes its body, once and on every path, as an http.RoundTripper must.
func read(req *http.Request) (x *exchange, err error) {
	x = &exchange{Arrival: new(Arrival), req: req}
	if req.Body != nil {
		x.body, err = io.ReadAll(req.Body)
		err = cmp.Or(err, req.Body.Close())
	}
	if err == nil && req.URL == nil {
		err = errors.New("throttletest: nil Request.URL")
	}
	if err != nil {
		return nil, err
	}
	x.Method, x.Host = cmp.Or(req.Method, http.MethodGet), cmp.Or(req.Host, req.URL.Host)
	x.Path, x.Size = req.URL.Path, len(x.body)
	return x, nil
}

// request returns a copy of the request, as a server sees it and with its body unread. The copy is made for the first
// who asks, because many Servers have no function that looks at requests.
// Each function finds the body whole, whatever the one before has read of it.
func (x *exchange) request() *http.Request {
	if !x.copied {
		x.req, x.copied = x.req.WithContext(context.WithValue(x.req.Context(), account.Number{}, &x.number)), true
		x.req.Method, x.req.Host = x.Method, x.Host
	}
	x.req.Body = http.NoBody
	if len(x.body) > 0 {
		x.req.Body = io.NopCloser(bytes.NewReader(x.body))
	}
	return x.req
}

// exchange takes a request through the Server and writes the answer. Its error is the reason why there is none. If
// that is the end of the context, x belongs to the Server from then on.
//
// An example with a Latency of 10 ms and Work of 50 ms, in virtual time: sent at 0, judged as of 10 ms,
// done at 60 ms, answered at 70 ms. In a bubble no time passes but in the sleeps, so these are exact.
// With real sockets the sleeps may end late, but the request is still judged as of 10 ms.
func (s *Server) exchange(x *exchange, w http.ResponseWriter) error {
	if x.Call = x.req.Header.Get("Idempotency-Key"); s.Identify != nil {
		x.Client, x.Call = s.Identify(x.request())
	}
	if err := s.launch(x); err != nil {
		return err
	}
	ctx := x.req.Context()
	way := x.At - x.Sent
	// x.back joins the first sleep: the caller gets the answer at the same moment, and the judgement is
	// made late but as of x.At.
	if s.Handler == nil && s.Work == (Span{}) { // nothing happens here that takes time, so one sleep is enough
		way, x.back = way+x.back, 0
	}
	if err := sleep(ctx, way); err != nil {
		return err
	}
	s.locked(func() { s.settleLocked(max(x.At, time.Since(s.start))) })
	if x.fault != nil && x.fault.Hang {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if x.Verdict == Admitted && s.Handler != nil {
		return s.handle(x, w)
	}
	if err := sleep(ctx, x.work+x.back); err != nil {
		return err
	}
	s.answered(x)
	if x.fault != nil && x.fault.Err != nil {
		return x.fault.Err
	}
	s.describe(x, w.Header())
	w.WriteHeader(x.Status)
	if x.Verdict == Throttled {
		_, _ = io.WriteString(w, s.Body) // fails only if the client has left
	}
	return nil
}

// answered notes that the caller has its answer now, or the beginning of one that streams.
func (s *Server) answered(x *exchange) {
	s.locked(func() { x.Answered = time.Since(s.start) })
}

// handle lets the Handler answer an admitted request.
func (s *Server) handle(x *exchange, w http.ResponseWriter) error {
	ctx, work := x.req.Context(), x.work
	var r *recorder
	if s.Stream {
		var flushed bool
		if r, flushed = s.stream(x, w); flushed {
			work = 0
		}
	}
	if err := sleep(ctx, work); err != nil {
		return err
	}
	if !s.Stream {
		s.describe(x, w.Header())
		s.Handler.ServeHTTP(w, x.request())
		if err := context.Cause(ctx); err != nil {
			return err // it may have given up for that
		}
	}
	if err := sleep(ctx, x.back); err != nil {
		return err
	}
	s.answered(x)
	switch {
	case r == nil:
		return nil
	case len(r.marks) > 0:
		return s.play(x, r, w)
	}
	r.repeat(w)
	return nil
}

// describe writes into the header what the Server knew when x arrived. An answer is older than its words.
//
// An example: throttled at 12:00:00.4 with 1.3 s to wait. Retry-After is 2, as a date 12:00:02, the
// first whole second that is late enough.
func (s *Server) describe(x *exchange, h http.Header) {
	now := s.start.Add(x.At + s.Skew)
	if !s.NoDate {
		h.Set("Date", now.UTC().Format(http.TimeFormat))
	}
	if x.RetryAfter > 0 {
		h.Set("Retry-After", seconds(x.RetryAfter))
		if s.RetryDate {
			h.Set("Retry-After", now.Add(x.RetryAfter+time.Second-1).UTC().Format(http.TimeFormat))
		}
	}
	if len(x.states) == 0 {
		return
	}
	if edit := s.Advertise.Edit; edit != nil {
		for i, st := range x.states {
			x.states[i] = edit(st)
		}
	}
	s.Advertise.Dialect(h, x.states, now)
}

// sleep waits for d, or until ctx ends.
//
// In a bubble this is where virtual time passes: when every goroutine of the bubble sleeps or waits,
// the clock jumps to the first timer. A minute of sleep takes no real time.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	if ctx.Done() == nil {
		time.Sleep(d) // costs half
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// response returns what net/http's client makes of such an answer.
func (r *recorder) response(req *http.Request) *http.Response {
	r.WriteHeader(http.StatusOK)
	if r.parts == nil {
		r.header.Set("Content-Length", strconv.Itoa(r.body.Len()))
	}
	resp := &http.Response{
		StatusCode: r.status, Status: strconv.Itoa(r.status) + " " + http.StatusText(r.status),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: r.header, Body: http.NoBody, ContentLength: int64(r.body.Len()), Request: req,
	}
	if r.body.Len() > 0 && req.Method != http.MethodHead {
		resp.Body = &body{left: &r.body}
	}
	if r.parts != nil {
		resp.Body, resp.ContentLength = r.parts, -1
	}
	return resp
}

// A body is that of a response. It may be closed while it is read.
type body struct {
	left   *bytes.Buffer
	closed atomic.Bool
}

// Read is io.Reader's, and an error after Close, as of net/http's bodies.
func (b *body) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.left.Read(p)
}

// Close is io.Closer's.
func (b *body) Close() error {
	b.closed.Store(true)
	return nil
}
