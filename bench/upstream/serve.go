package upstream

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// Start serves an upstream on a free port of the loopback interface. Close ends it.
func Start(config Config) (*Server, error) {
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("upstream: %w", err)
	}
	var d net.Dialer
	return start(config, listen, "http://"+listen.Addr().String()+"/", d.DialContext), nil
}

// StartInMemory serves an upstream over in-memory connections, so that it can live in a
// testing/synctest bubble. Close must be called in the same bubble.
func StartInMemory(config Config) *Server {
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	return start(config, p, "http://upstream.test/", p.dial)
}

func start(config Config, listen net.Listener, url string, dial dialer) *Server {
	s := &Server{
		URL: url, config: config, listen: listen, dial: dial, served: make(chan struct{}), start: time.Now(),
		rng: rand.New(rand.NewPCG(uint64(config.Seed), 1)), attempts: make(map[int]int),
	}
	for _, l := range config.Limits {
		s.models = append(s.models, l.model())
	}
	s.http.Handler = s
	s.http.ConnState = s.count
	s.http.ErrorLog = log.New(io.Discard, "", 0) // broken connections are wanted
	go func() {
		defer close(s.served)
		_ = s.http.Serve(listen) // http.ErrServerClosed after Close
	}()
	return s
}

// Base returns a new http.Transport that reaches the server, and nothing else.
func (s *Server) Base() *http.Transport {
	t := &http.Transport{
		DialContext: s.dial, MaxIdleConnsPerHost: 1 << 16, DisableCompression: true,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bases = append(s.bases, t)
	return t
}

// count keeps open. A new connection is told of by the accept loop.
func (s *Server) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.open.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.open.Done()
	}
}

// Close ends the server and all connections, and waits for what is still being answered. The ledger
// can still be read.
func (s *Server) Close() {
	_ = s.http.Close()
	<-s.served
	s.open.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.bases {
		t.CloseIdleConnections()
	}
}

// breakOff resets the connection: over TCP the caller sees a RST, in memory an end in the middle.
func (s *Server) breakOff(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// pipes is a net.Listener of in-memory connections.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept returns the next connection.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr is a name.
func (p *pipes) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "upstream.test" }
