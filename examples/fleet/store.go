package main

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/go-throttle/throttle/fleet"
	"github.com/go-throttle/throttle/fleet/store"
)

// A gate can be closed for a while: then nothing passes, and nobody hears why, as with a server that hangs. The
// zero gate is open.
type gate struct {
	mu     sync.Mutex
	closed chan struct{} // is closed when the gate opens; nil: it is open
}

// stall closes the gate, or opens it.
func (g *gate) stall(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case on && g.closed == nil:
		g.closed = make(chan struct{})
	case !on && g.closed != nil:
		close(g.closed)
		g.closed = nil
	}
}

// pass waits until the gate is open, or returns the error of ctx.
func (g *gate) pass(ctx context.Context) error {
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed == nil {
		return nil
	}
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A memory is the way of one member to a store in memory, as if that were a server. Each member has one of its own,
// and with it a breaker of its own.
type memory struct {
	*gate
	store   *fleet.Memory
	breaker store.Breaker
}

func (m *memory) Breaker() *store.Breaker { return &m.breaker }

// Exchange implements store.Store.
func (m *memory) Exchange(ctx context.Context, name string, r store.Request) (store.Reply, error) {
	if err := m.pass(ctx); err != nil {
		return store.Reply{}, err
	}
	return m.store.Exchange(ctx, name, r)
}

// A pipe stands before a Redis and passes bytes on, both ways, while its gate is open. So the members meet a Redis
// that hangs, and the one that the user has pointed at does not.
type pipe struct {
	gate
	listener net.Listener
	dial     func(context.Context) (net.Conn, error)
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

// newPipe listens on the loopback interface, and sends on to the server at that address.
func newPipe(network, address string) (*pipe, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: time.Second}
	p := &pipe{listener: l, dial: func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, network, address) }}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wg.Go(p.accept)
	return p, nil
}

func (p *pipe) addr() string { return p.listener.Addr().String() }

func (p *pipe) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.join(conn) })
	}
}

// join connects one client with the server until either hangs up.
func (p *pipe) join(client net.Conn) {
	defer client.Close()
	server, err := p.dial(p.ctx)
	if err != nil {
		return
	}
	defer server.Close()
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { client.Close(); server.Close() })
	defer stop()
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		wg.Go(func() {
			defer cancel()
			_, _ = io.Copy(gated{ctx, &p.gate, way[1]}, way[0])
		})
	}
	wg.Wait()
}

// close hangs up on everybody.
func (p *pipe) close() {
	p.cancel()
	p.listener.Close()
	p.wg.Wait()
}

// gated writes while a gate is open.
type gated struct {
	ctx  context.Context
	gate *gate
	to   io.Writer
}

func (g gated) Write(b []byte) (int, error) {
	if err := g.gate.pass(g.ctx); err != nil {
		return 0, err
	}
	return g.to.Write(b)
}
