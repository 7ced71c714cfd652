package throttleredis

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"
)

// A proxy stands before a server and does what networks do.
type proxy struct {
	l  net.Listener
	to string

	mu     sync.Mutex
	conns  map[*net.TCPConn]bool
	faults faults
}

// faults are what a proxy does to what passes. The zero value passes all.
type faults struct {
	delay time.Duration // of everything, each way
	hole  bool          // nothing passes, and connections stay
	reset bool          // connections are reset, also new ones
	// cut says of an answer to a script how many bytes of it pass before the connection is reset; negative: all. The
	// script has been executed by then.
	cut func() int
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, to: to, conns: map[*net.TCPConn]bool{}}
	t.Cleanup(func() { l.Close(); p.set(faults{reset: true}) })
	go p.accept()
	return p
}

func (p *proxy) addr() string { return p.l.Addr().String() }

// set changes what the proxy does from now on.
func (p *proxy) set(f faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = f
	if f.reset {
		for c := range p.conns {
			c.SetLinger(0)
			c.Close()
		}
		clear(p.conns)
	}
}

func (p *proxy) now() faults {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}

// cut is how much passes of an answer to a script.
func (p *proxy) cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.faults.cut == nil {
		return -1
	}
	return p.faults.cut()
}

// keep notes a connection, unless connections are reset now.
func (p *proxy) keep(cs ...*net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range cs {
		if p.faults.reset {
			c.SetLinger(0)
			c.Close()
		} else {
			p.conns[c] = true
		}
	}
	return !p.faults.reset
}

func (p *proxy) drop(cs ...*net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range cs {
		c.SetLinger(0)
		c.Close()
		delete(p.conns, c)
	}
}

func (p *proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		go p.serve(c.(*net.TCPConn))
	}
}

// serve is one connection. A client asks and waits for the answer, so an answer belongs to the latest question.
func (p *proxy) serve(in *net.TCPConn) {
	c, err := net.Dial("tcp", p.to)
	if err != nil {
		in.SetLinger(0)
		in.Close()
		return
	}
	out := c.(*net.TCPConn)
	if !p.keep(in, out) {
		return
	}
	var mu sync.Mutex
	asked := false // for a script
	go p.pass(in, out, func(b []byte) int {
		mu.Lock()
		defer mu.Unlock()
		asked = asked || bytes.Contains(bytes.ToLower(b), []byte("evalsha"))
		return -1
	})
	p.pass(out, in, func([]byte) int {
		mu.Lock()
		defer mu.Unlock()
		if !asked {
			return -1
		}
		asked = false
		return p.cut()
	})
}

// pass copies one direction. cut says how much of a piece passes.
func (p *proxy) pass(from, to *net.TCPConn, cut func([]byte) int) {
	defer p.drop(from, to)
	for b := make([]byte, 1<<16); ; {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		most := cut(b[:n])
		time.Sleep(p.now().delay)
		for p.now().hole {
			time.Sleep(5 * time.Millisecond)
		}
		if most >= 0 {
			to.Write(b[:min(most, n)])
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}
