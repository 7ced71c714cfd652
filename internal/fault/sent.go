package fault

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// A Sent is what the trace of one attempt shows of what has left this side. A nil Sent has no trace.
//
// It counts the connections that were asked for and those that were got. What is written to a connection is not asked:
// net/http says "headers written" while they are still in its buffer, others that send requests never say it. So what was given a
// connection counts as sent, also if that was another request, as for a token, or one that net/http has tried on two.
type Sent struct {
	trace      httptrace.ClientTrace
	asked, got atomic.Int32
}

// Watch returns a copy of req whose trace says what was sent. The hooks of a trace that is in the ctx of req are called as before.
// If it is not asked for, the request stays as it is, without a Sent.
func Watch(req *http.Request, asked bool) (*http.Request, *Sent) {
	if !asked {
		return req, nil
	}
	s := new(Sent)
	s.trace.GetConn = func(string) { s.asked.Add(1) }
	s.trace.GotConn = func(httptrace.GotConnInfo) { s.got.Add(1) }
	return req.WithContext(httptrace.WithClientTrace(req.Context(), &s.trace)), s
}

// Nothing reports whether nothing of the request was sent before err, so that it can be sent again without harm. A connection
// was asked for and not got: the dial, the handshake or the proxy has failed, whatever err is called. Without a trace, or if
// nobody has looked at it, only an error of the dial says so. An example: "EOF" in a handshake lets even a POST be sent again;
// after the handshake it does not, because the upstream may have acted on the request.
func (s *Sent) Nothing(err error) bool {
	if s == nil || s.asked.Load()+s.got.Load() == 0 {
		var op *net.OpError
		var dns *net.DNSError
		return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns) || says(err, unused[:])
	}
	return s.got.Load() == 0 || s.got.Load() == 1 && says(err, unused[:])
}

// unused are parts of errors that come with a connection that was got, and say that the request was not processed. HTTP/2 has a
// promise of the server for that (RFC 9113 §8.7); net/http says the others only if the connection was closed before the request
// was handed to it.
var unused = [...]string{
	"; REFUSED_STREAM", "Server's graceful shutdown GOAWAY", "http2: Transport received GOAWAY from server ErrCode:",
	"http2: no cached connection was available", "http2: client conn not usable", "http2: client conn could not be established",
	"http: server closed idle connection", "readLoopPeekFailLocked: ",
}
