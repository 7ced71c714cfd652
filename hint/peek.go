package hint

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// This file reads the beginning of a body and puts it back: its reader gets every byte and every error at its place.

const (
	// maxBody is the most bytes of a body that are read, and the most that they may be unpacked to. Bodies of refusals are short.
	maxBody = 64 << 10

	// How long Parse waits for a body. Nearly always the body of a refusal comes with its header. One that was asked for may be
	// long, and come over a slow network. If an answer is kept while a retry waits, that reads on until 100 ms have passed.
	unaskedTime = 90 * time.Millisecond
	askedTime   = time.Second
)

// peekBody reads the body for that long, and returns it; nil if it is longer than maxBody, slower, or broke off. It
// replaces resp.Body by one that returns all bytes, and the same error after them, so that the caller sees no
// difference.
func peekBody(resp *http.Response, within time.Duration) []byte {
	a := &ahead{rest: resp.Body, done: make(chan struct{})}
	resp.Body = a
	go a.read()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-a.done:
		a.done = nil
	case <-timer.C:
		a.stop.Store(true)
		return nil
	}
	if a.panicked != nil {
		panic(a.panicked)
	}
	if a.err != io.EOF || len(a.head) > maxBody {
		return nil
	}
	return a.head
}

// ahead is a body whose beginning was read already, or still is: one Read may be under way when peekBody gives up, and its
// goroutine ends with it. As with the bodies of net/http, Close may be called while another goroutine reads.
//
// An example: of a body "one", (a second's silence), "two" peekBody has read "one" and is in the second Read when its
// time is over. Whoever reads the body gets "one" at once, then what that Read brings, and from there on reads rest itself.
type ahead struct {
	rest   io.ReadCloser
	done   chan struct{} // closed when nothing is read ahead any more; nil: peekBody has seen that
	stop   atomic.Bool   // begin no other Read
	closed atomic.Bool   // from now on rest alone is read: it has the error for a closed body

	mu   sync.Mutex
	head []byte // what was read ahead, and not yet handed out

	err      error // what ended the reading; nil: rest goes on. Valid once done is closed, as panicked is
	panicked any   // what a Read has panicked with
}

// read reads ahead, until the body ends, maxBody is passed, or it is told to stop.
func (a *ahead) read() {
	defer close(a.done)
	defer func() { a.panicked = recover() }()
	buf := make([]byte, 4<<10)
	for all := 0; all <= maxBody && a.err == nil && !a.stop.Load(); {
		var n int
		n, a.err = a.rest.Read(buf[:min(len(buf), maxBody+1-all)])
		all += n
		a.mu.Lock()
		a.head = append(a.head, buf[:n]...)
		a.mu.Unlock()
	}
}

// Read implements io.Reader. It returns head, then the error that ended head, if there was one, and otherwise
// what rest still has.
func (a *ahead) Read(p []byte) (int, error) {
	if n := a.take(p); n > 0 || len(p) == 0 {
		return n, nil
	}
	if a.done != nil {
		<-a.done
	}
	switch n := a.take(p); {
	case n > 0:
		return n, nil
	case a.closed.Load():
	case a.panicked != nil:
		panic(a.panicked)
	case a.err != nil:
		return 0, a.err
	}
	return a.rest.Read(p)
}

// take hands out what was read ahead, unless the body is closed.
func (a *ahead) take(p []byte) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed.Load() {
		return 0
	}
	n := copy(p, a.head)
	a.head = a.head[n:]
	return n
}

// Close implements io.Closer.
func (a *ahead) Close() error {
	a.closed.Store(true)
	return a.rest.Close()
}

// isPacked reports whether a body of that Content-Encoding is compressed, and whether unpack understands it. The standard library
// has neither br nor zstd.
func isPacked(encoding string) (packed, ok bool) {
	switch strings.ToLower(trim(encoding)) {
	case "", "identity":
		return false, true
	case "gzip", "x-gzip", "deflate":
		return true, true
	}
	return false, false
}

// unpack returns what b was before it was compressed; nil if that is longer than maxBody, or b is broken. RFC 9110 §8.4.1.2 lets
// "deflate" stand for the format of zlib; some servers send it without zlib's frame. The first bytes show which of the three it is.
func unpack(b []byte) []byte {
	var r io.Reader = flate.NewReader(bytes.NewReader(b))
	if z, err := zlib.NewReader(bytes.NewReader(b)); err == nil {
		r = z
	} else if z, err := gzip.NewReader(bytes.NewReader(b)); err == nil {
		r = z
	}
	text, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	if err != nil || len(text) > maxBody {
		return nil
	}
	return text
}
