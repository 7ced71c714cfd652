// Package upstream is the other side of the examples: a loopback HTTP server that enforces a rate
// limit, can go down and come back, and keeps a ledger of all that reached it.
//
// What the examples print as "refused by the upstream" is read from this ledger, never from
// the client that is being judged.
package upstream

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Limit is what a Server admits: Burst requests at once and Rate a second in the long run.
type Limit struct {
	Rate       float64
	Burst      int
	RetryAfter time.Duration // told with every 429, in whole seconds; 0: not told
	Tell       Tell          // how every answer, but a 503, tells of the limit
}

// An Arrival is one line of the ledger: a request that reached the server and what it was answered.
type Arrival struct {
	At     time.Time
	Status int    // 200, 429 (over the limit) or 503 (down)
	Key    string // its Idempotency-Key; "" if it had none
	Body   int64  // bytes of its body
}

// Server is a running upstream. Its methods may be called from any goroutine.
type Server struct {
	URL string

	http   http.Server
	served chan struct{} // closed when the accept loop has ended

	mu     sync.Mutex
	limit  Limit
	gcra   gcra
	down   bool
	ledger []Arrival
}

// Start opens a server on a free port of the loopback interface. Close ends it.
func Start(limit Limit) (*Server, error) {
	if err := limit.check(); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("upstream: %w", err)
	}
	s := &Server{URL: "http://" + listener.Addr().String() + "/", served: make(chan struct{})}
	s.SetLimit(limit)
	s.http.Handler = s
	go func() {
		defer close(s.served)
		// Serve always returns an error, http.ErrServerClosed after Close.
		_ = s.http.Serve(listener)
	}()
	return s, nil
}

func (l Limit) check() error {
	if !(l.Rate > 0) || l.Burst < 1 {
		return errors.New("upstream: Limit needs a Rate above 0 and a Burst of at least 1, got " +
			strconv.FormatFloat(l.Rate, 'g', -1, 64) + " and " + strconv.Itoa(l.Burst))
	}
	return l.Tell.check(l)
}

// Close stops the server, breaks its connections, and returns when its accept loop has ended.
// The ledger can still be read.
func (s *Server) Close() {
	// Close reports only an error of closing the listener, and there is nothing to do about that.
	_ = s.http.Close()
	<-s.served
}

// SetLimit replaces the limit by a fresh one, whose burst has not been touched.
func (s *Server) SetLimit(limit Limit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit, s.gcra = limit, newGCRA(limit.Rate, limit.Burst)
}

// SetDown makes the server answer 503 to everything, until SetDown(false).
func (s *Server) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// Ledger returns a copy of all arrivals so far, in order.
func (s *Server) Ledger() []Arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Arrival(nil), s.ledger...)
}

// Count tells how many of the arrivals were answered with the status.
func Count(ledger []Arrival, status int) int {
	n := 0
	for _, arrival := range ledger {
		if arrival.Status == status {
			n++
		}
	}
	return n
}

// Between tells how many of the arrivals came at from or later, but before to.
func Between(ledger []Arrival, from, to time.Time) int {
	n := 0
	for _, arrival := range ledger {
		if !arrival.At.Before(from) && arrival.At.Before(to) {
			n++
		}
	}
	return n
}

// ServeHTTP reads the request to its end, decides, and writes the arrival into the ledger.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	size, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		return // the client went away in the middle: it has not arrived
	}
	status := s.record(w.Header(), r.Header.Get("Idempotency-Key"), size)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, http.StatusText(status)+"\n") // fails only if the client has gone
}

// record decides about one request, and puts what the answer tells of the limit into header. The
// clock is read under the lock, so that the ledger is in the order in which the limit saw the
// requests.
func (s *Server) record(header http.Header, key string, size int64) (status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	switch {
	case s.down:
		status = http.StatusServiceUnavailable
	case s.gcra.admit(now):
		status = http.StatusOK
	default:
		status = http.StatusTooManyRequests
		if s.limit.RetryAfter > 0 {
			header.Set("Retry-After", strconv.Itoa(int(s.limit.RetryAfter/time.Second)))
		}
	}
	if !s.down {
		s.limit.tell(header, &s.gcra, now)
	}
	s.ledger = append(s.ledger, Arrival{At: now, Status: status, Key: key, Body: size})
	return status
}
