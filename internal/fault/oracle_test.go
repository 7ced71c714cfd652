package fault_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
)

// An oracle is an upstream whose connections fail at random, and that notes which requests it has got the header of.
type oracle struct {
	secure bool

	mu   sync.Mutex
	rand *rand.Rand
	got  map[string]int // by the call's number
}

// chance draws whether something happens that does so once in n times.
func (o *oracle) chance(n int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rand.IntN(n) == 0
}

// note is the oracle's word: from here on a request counts as received.
func (o *oracle) note(req *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.got[req.Header.Get("Call")]++
}

// serve is one connection: it fails at accept, in the handshake, or at a request; it may end after an answer, which the client
// that keeps it sees late.
func (o *oracle) serve(raw *net.TCPConn) {
	if o.chance(6) {
		raw.SetLinger(0)
	}
	if o.chance(4) {
		return
	}
	var c net.Conn = raw
	if o.secure {
		if o.chance(6) {
			raw.Read(make([]byte, 5))
			return
		}
		secured := tls.Server(raw, serverTLS())
		if secured.Handshake() != nil || o.chance(8) {
			return
		}
		c = secured
	}
	for r := bufio.NewReader(c); ; {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		o.note(req)
		if o.chance(6) { // in the body
			return
		}
		io.Copy(io.Discard, req.Body)
		if o.chance(6) { // before the answer
			raw.SetLinger(0)
			return
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		if o.chance(3) {
			return
		}
	}
}

// An unsafe request without a key is never received twice, whatever fails; and it is sent again until it is received, unless its
// attempts are used up, or it was given a connection, which may have taken it. The caller's own trace says so: it is called too.
func TestNeverTwice(t *testing.T) {
	for _, secure := range []bool{false, true} {
		var saved atomic.Int32
		for seed := range race.Pick(2, 40) {
			t.Run(fmt.Sprintf("TLS %v, seed %d", secure, seed), func(t *testing.T) {
				o := &oracle{secure: secure, rand: rand.New(rand.NewPCG(uint64(seed), 1)), got: map[string]int{}}
				t.Cleanup(func() { // when the last connection has ended
					for call, n := range o.got {
						if n > 1 {
							t.Errorf("call %s was received %d times", call, n)
						}
					}
				})
				w := plain(listen(t, o.serve))
				if secure {
					w = https(strings.TrimPrefix(w.url, "http://")).with()
				}
				saved.Add(o.calls(t, w))
			})
		}
		t.Logf("TLS %v: %d calls that failed at first were answered", secure, saved.Load())
		if secure && saved.Load() == 0 { // without TLS it takes a connection that ends just before the request
			t.Error("nothing was sent again")
		}
	}
}

// calls sends POSTs to the oracle, and returns how many of them were answered at a later attempt.
func (o *oracle) calls(t *testing.T, w way) int32 {
	const most = 4
	type number struct{} // the key of a call's number
	var failed sync.Map  // the attempts of a call, by its number
	tr := &throttle.Transport{Base: w.base, Retry: throttle.Retry{
		MaxAttempts: most, Failures: 1 << 20, Budget: throttle.Budget{PerCall: -1},
		Backoff: func() throttle.Backoff { return soon{} },
	}}
	tr.Hooks.Failed = func(ctx context.Context, e throttle.Event) { failed.Store(ctx.Value(number{}), e.Attempt) }
	defer w.base.CloseIdleConnections()
	var saved, callers = new(atomic.Int32), new(sync.WaitGroup)
	for worker := range 4 {
		callers.Go(func() {
			for i := range 30 {
				call := fmt.Sprint(worker, "-", i)
				conns := new(atomic.Int32)
				ctx := httptrace.WithClientTrace(context.WithValue(t.Context(), number{}, call),
					&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { conns.Add(1) }})
				req, err := http.NewRequestWithContext(ctx, "POST", w.url, strings.NewReader("body"))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Call", call)
				resp, err := tr.RoundTrip(req)
				attempts, again := failed.Load(call)
				switch {
				case err != nil && attempts != most && conns.Load() == 0:
					t.Errorf("given up after %v attempts, none of which had a connection: %v", attempts, err)
				case err == nil:
					resp.Body.Close()
					if again {
						saved.Add(1)
					}
				}
			}
		})
	}
	callers.Wait()
	return saved.Load()
}
