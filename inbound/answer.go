package inbound

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/go-throttle/throttle"
)

// This file is what comes after the handler, for Limits with Settle or places: the status is noted as it passes, and the units
// that were taken at arrival are corrected by what the request has cost.
//
//	taken     at arrival, by Cost; other requests see the units as used
//	settled   the handler has returned: Settle was asked, once for each part
//	kept      the handler has panicked, or Settle has: the units stay as they were taken
//	landed    after each of these: its places in flight are free, and the line was told

// serveAndLand lets a request in, and settles it.
func (c *core) serveAndLand(w http.ResponseWriter, r *http.Request, v *visit, next http.Handler) {
	defer v.land()
	if !c.settles {
		next.ServeHTTP(w, r)
		return
	}
	rec := &recorder{ResponseWriter: w}
	next.ServeHTTP(rec.as(w), r)
	if rec.status == 0 {
		rec.status = http.StatusOK // as net/http does
	}
	for i, p := range c.parts {
		if v.asked[i].skip || p.settle == nil {
			continue
		}
		if n := p.settle(r, rec.status, w.Header()); n >= 0 {
			v.settle(i, int64(n))
		}
	}
}

// settle makes n units of those that a part has taken, which a shadow may not have; with the first part go the shared limits.
func (v *visit) settle(i int, n int64) {
	if a := &v.asked[i]; a.took {
		v.core.parts[i].table.settle(a.hash, a.tier, a.cost, n, &a.verdict)
	}
	if more := int(min(n, maxCost)) - v.cost; i == 0 && more != 0 {
		for _, paid := range v.core.Shared {
			if s, ok := paid.(throttle.Adjuster); ok {
				s.Adjust(more)
			}
		}
	}
}

// A recorder notes the status of an answer. It is what the handler gets, as one of the types below, so that what it can do is what
// the ResponseWriter can that it stands for.
type recorder struct {
	http.ResponseWriter
	status int // 0: none yet
}

// flushing is a recorder of a ResponseWriter that flushes, hijacking of one whose connection can be taken over too.
type (
	flushing  struct{ *recorder }
	hijacking struct{ flushing }
)

// as is the recorder as the handler gets it, in place of w.
func (rec *recorder) as(w http.ResponseWriter) http.ResponseWriter {
	_, flushes := w.(http.Flusher)
	_, hijacks := w.(http.Hijacker)
	switch {
	case flushes && hijacks:
		return hijacking{flushing{rec}}
	case flushes:
		return flushing{rec}
	}
	return rec
}

// Unwrap is what http.ResponseController goes by.
func (rec *recorder) Unwrap() http.ResponseWriter { return rec.ResponseWriter }

// note keeps the first status that is final. 103 and its kin come before it.
func (rec *recorder) note(status int) {
	if rec.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		rec.status = status
	}
}

// WriteHeader implements http.ResponseWriter.
func (rec *recorder) WriteHeader(status int) {
	rec.note(status)
	rec.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (rec *recorder) Write(p []byte) (int, error) {
	rec.note(http.StatusOK)
	return rec.ResponseWriter.Write(p)
}

// ReadFrom implements io.ReaderFrom, so that files are sent by the kernel where net/http can.
func (rec *recorder) ReadFrom(src io.Reader) (int64, error) {
	n, err := io.Copy(rec.ResponseWriter, src)
	if n > 0 { // without a byte nothing is sent, and the handler may still say that src has failed
		rec.note(http.StatusOK)
	}
	return n, err
}

// Flush implements http.Flusher.
func (f flushing) Flush() { _ = f.FlushError() }

// FlushError is what http.ResponseController calls.
func (f flushing) FlushError() error {
	f.note(http.StatusOK)
	return http.NewResponseController(f.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker.
func (h hijacking) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := h.ResponseWriter.(http.Hijacker).Hijack()
	if err == nil {
		h.note(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}
