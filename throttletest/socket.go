package throttletest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
)

// A socket is what Start has opened. The Server's mu guards it, but for conns.
//
// Close needs both: served says that no connection is added any more, and only then can conns be waited
// for.
type socket struct {
	url    string
	http   *http.Server
	served chan struct{}  // closed when the accept loop has ended
	conns  sync.WaitGroup // open connections
}

// URL is where to send requests, without a path: to the loopback interface after Start, and before that to a name
// which RoundTrip takes as it takes any other.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.socket.url, "http://upstream.test")
}

// Start serves on a free port of the loopback interface, in real time, until Close. It can be called once.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.socket.http != nil {
		return errors.New("throttletest: the Server has been started before")
	}
	if err := s.beginLocked(); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("throttletest: %w", err)
	}
	// Broken connections are wanted, and nothing to log.
	server := &http.Server{Handler: s, ConnState: s.count, ErrorLog: log.New(io.Discard, "", 0)}
	served := make(chan struct{})
	s.socket.url, s.socket.http, s.socket.served = "http://"+listener.Addr().String(), server, served
	go func() {
		defer close(served)
		_ = server.Serve(listener) // http.ErrServerClosed after Close
	}()
	return nil
}

// count keeps conns. The accept loop itself reports new connections, so none come after its end.
func (s *Server) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.socket.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.socket.conns.Done()
	}
}

// Close ends what Start has begun. It breaks the connections, and returns when nothing is being answered any more.
// The Ledger can still be read.
// The lock is not held while it waits: the requests that are under way need it to come to their ends.
func (s *Server) Close() {
	s.mu.Lock()
	server, served := s.socket.http, s.socket.served
	s.mu.Unlock()
	if server == nil {
		return
	}
	_ = server.Close() // an error of the listener's, and nothing is to be done about it
	<-served
	s.socket.conns.Wait()
}

// breakOff resets the connection behind w.
// Without SetLinger(0) the client would see an orderly end. With it the kernel sends a reset, which is
// what a crashed upstream or a load balancer does.
func breakOff(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
