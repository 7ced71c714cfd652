package throttletest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// This file lets the parts of an answer come one after the other, see Server.Stream. Nothing runs meanwhile: whoever reads
// sleeps until the next part is there.
//
// An example: sent at 0, with 10 ms each way and 3 s of work, of a Handler that flushes three times. The header is back at 20 ms,
// the parts at 1.02, 2.02 and 3.02 s. A reader who first looks at 2.5 s finds two of them.

// stream lets the Handler answer at once, and reports whether it has flushed. If not, the answer comes as a whole, after the Work.
func (s *Server) stream(x *exchange, w http.ResponseWriter) (r *recorder, flushed bool) {
	r, ok := w.(*recorder)
	if !ok {
		r = &recorder{header: w.Header()}
	}
	s.describe(x, r.header)
	s.Handler.ServeHTTP(r, x.request())
	return r, len(r.marks) > 0
}

// play makes the recorded answer one whose parts come over time: the body of RoundTrip's response, or what w gets.
//
// An example of its marks: a Handler writes 100 bytes, flushes, writes 50, flushes and writes 10. The parts end at 100, 150 and 160.
func (s *Server) play(x *exchange, r *recorder, w http.ResponseWriter) error {
	p := &parts{ctx: x.req.Context(), text: r.body.Bytes(), marks: r.marks, closed: make(chan struct{})}
	if p.marks[len(p.marks)-1] < len(p.text) {
		p.marks = append(p.marks, len(p.text)) // what was written after the last Flush
	}
	p.first, p.length = s.start.Add(x.At+x.back), x.Done-x.At
	if r == w {
		r.parts = p
		return nil
	}
	r.WriteHeader(http.StatusOK)
	w.WriteHeader(r.status)
	flush := http.NewResponseController(w).Flush
	for buf := make([]byte, 4096); ; {
		if err := flush(); err != nil {
			return err
		}
		n, err := p.Read(buf)
		if err == io.EOF {
			return nil
		}
		if _, failed := w.Write(buf[:n]); err != nil || failed != nil {
			panic(http.ErrAbortHandler) // the client has left
		}
	}
}

// repeat writes a recorded answer that comes as a whole to w, unless it has been recorded for it.
func (r *recorder) repeat(w http.ResponseWriter) {
	if r != w {
		r.WriteHeader(http.StatusOK)
		w.WriteHeader(r.status)
		_, _ = w.Write(r.body.Bytes()) // fails only if the client has left
	}
}

// parts is a body that comes in parts. It may be closed while it is read.
type parts struct {
	ctx    context.Context
	text   []byte
	marks  []int         // where each part ends
	first  time.Time     // when the header is there
	length time.Duration // until the last part is
	next   int           // the part that is not there yet
	read   int           // bytes

	once   sync.Once
	closed chan struct{}
}

// Read is io.Reader's. It waits for the next part only if there is nothing else to return.
func (p *parts) Read(buf []byte) (int, error) {
	for {
		select {
		case <-p.closed:
			return 0, http.ErrBodyReadAfterClose
		default:
		}
		have := 0
		if p.next > 0 {
			have = p.marks[p.next-1]
		}
		switch {
		case len(buf) == 0:
			return 0, nil
		case p.read < have:
			n := copy(buf, p.text[p.read:have])
			p.read += n
			return n, nil
		case p.next == len(p.marks):
			return 0, io.EOF
		}
		if err := p.wait(); err != nil {
			return 0, err
		}
		p.next++
	}
}

// wait waits until the next part is there. The moment is counted from the header's, so a slow reader delays no part.
func (p *parts) wait() error {
	at := p.first.Add(p.length * time.Duration(p.next+1) / time.Duration(len(p.marks)))
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	case <-p.closed:
		return http.ErrBodyReadAfterClose
	}
}

// Close is io.Closer's.
func (p *parts) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// A recorder is the http.ResponseWriter of RoundTrip.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
	marks  []int  // where it was flushed
	parts  *parts // nil: the answer comes as a whole
}

// Header returns what becomes the header of the response.
func (r *recorder) Header() http.Header { return r.header }

// Flush notes the end of a part.
func (r *recorder) Flush() { r.marks = append(r.marks, r.body.Len()) }

// WriteHeader keeps the first status that is final.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && isStatus(status) {
		r.status = status
	}
}

// Write keeps p.
func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(p)
}
