// Package upstream is the other side of the comparison: an HTTP server that admits what its limits
// allow, can tell of them, fails when it is told to, and writes every arrival into a ledger. What a
// scenario reports is computed from that ledger, never from a client's word.
//
// The same handler is served over loopback TCP in real time, and over in-memory connections inside
// a testing/synctest bubble in virtual time.
package upstream

import (
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Config is how an upstream behaves. Moments are counted from its start.
type Config struct {
	Limits  []Limit  // none: all is admitted
	Changes []Change // of limits, in order of time: weaker capacity after a return, say
	Outages []Outage
	Brown   []Brown

	Tell    Dialect         // of limits, with every answer of an upstream that is up
	Lie     func(Told) Told // what is told in place of the truth; nil: the truth
	Retry   RetryAfter      // with every refusal
	Refusal int             // status of a refusal; 0: 429

	Latency Span // each way
	Work    Span // from the arrival to the answer; the call is in flight meanwhile
	Seed    int64
}

// A Change sets a limit to N from a moment on.
type Change struct {
	At    time.Duration
	Limit int // index
	N     int
}

// A Fault is how an upstream fails.
type Fault byte

const (
	Unavailable Fault = iota // 503 without Retry-After
	Hang                     // no answer until the caller gives up
	Break                    // the connection is reset
)

// An Outage is a time in which everything fails.
type Outage struct {
	From, To time.Duration
	Fault    Fault
}

// A Brown is a time in which a share of what arrives is answered 503, at random.
type Brown struct {
	From, To time.Duration
	Share    float64
}

// A Span is a random length, uniform from Min to Max. Max below Min: Min.
type Span struct{ Min, Max time.Duration }

func (s Span) mean() time.Duration { return (s.Min + max(s.Min, s.Max)) / 2 }

func (s Span) draw(r *rand.Rand) time.Duration {
	if s.Max <= s.Min {
		return s.Min
	}
	return s.Min + time.Duration(r.Int64N(int64(s.Max-s.Min)+1))
}

// up is the first moment, at or later, that lies in no outage.
func (c Config) up(at time.Duration) time.Duration {
	for _, o := range c.Outages {
		if o.From <= at && at < o.To {
			at = o.To
		}
	}
	return at
}

// A Server is a running upstream.
type Server struct {
	URL string // to send to, through Base

	config Config
	start  time.Time
	http   http.Server
	listen net.Listener
	dial   dialer
	served chan struct{}
	open   sync.WaitGroup // connections

	mu       sync.Mutex
	rng      *rand.Rand
	models   []model
	changes  int // made
	attempts map[int]int
	ledger   Ledger
	bases    []*http.Transport
}

const (
	callField   = "Bench-Call"
	callerField = "Bench-Caller"
)

// Mark writes into a request which call it is, and whose.
func Mark(req *http.Request, call, caller int) {
	req.Header[callField] = []string{strconv.Itoa(call)}
	req.Header[callerField] = []string{strconv.Itoa(caller)}
}

// A verdict is what becomes of one arrival.
type verdict struct {
	outcome Outcome
	wait    time.Duration // until its answer
	back    time.Duration // of the way home
}

// ServeHTTP takes the way there, decides, notes, and answers.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return // the client went away in the middle: it has not arrived
	}
	if there := s.way(); there > 0 {
		time.Sleep(there)
	}
	v := s.judge(r, w.Header())
	if v.wait > 0 {
		time.Sleep(v.wait)
	}
	if v.outcome == Admitted {
		s.done()
	}
	if v.back > 0 {
		time.Sleep(v.back)
	}
	switch v.outcome {
	case Refused:
		status := s.config.Refusal
		if status == 0 {
			status = http.StatusTooManyRequests
		}
		w.WriteHeader(status)
	case Failed:
		w.WriteHeader(http.StatusServiceUnavailable)
	case Hung:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case Reset:
		s.breakOff(w)
	}
}

func (s *Server) way() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config.Latency.draw(s.rng)
}

// judge decides about one arrival and notes it. The clock is read under the lock, so that the
// ledger is in the order in which the limits saw the requests.
func (s *Server) judge(r *http.Request, header http.Header) (v verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Since(s.start)
	for ; s.changes < len(s.config.Changes) && s.config.Changes[s.changes].At <= at; s.changes++ {
		c := s.config.Changes[s.changes]
		s.models[c.Limit].set(c.At, c.N)
	}
	v.back = s.config.Latency.draw(s.rng)
	down, fault := s.config.down(at, s.rng)
	switch {
	case down:
		v.outcome = fault
	default:
		s.ask(&v, at, header)
	}
	a := Arrival{At: at, Call: number(r, callField), Caller: number(r, callerField), Outcome: v.outcome}
	s.attempts[a.Call]++
	a.Attempt = s.attempts[a.Call]
	s.ledger = append(s.ledger, a)
	return v
}

// down tells whether the upstream fails now, and how.
func (c Config) down(at time.Duration, rng *rand.Rand) (bool, Outcome) {
	for _, o := range c.Outages {
		if o.From <= at && at < o.To {
			return true, [...]Outcome{Unavailable: Failed, Hang: Hung, Break: Reset}[o.Fault]
		}
	}
	for _, b := range c.Brown {
		if b.From <= at && at < b.To && rng.Float64() < b.Share {
			return true, Failed
		}
	}
	return false, Admitted
}

// ask asks the limits: all or none.
func (s *Server) ask(v *verdict, at time.Duration, header http.Header) {
	ready := at
	for _, m := range s.models {
		ready = max(ready, m.ready(at))
	}
	if ready == at {
		for _, m := range s.models {
			v.wait = max(v.wait, m.take(at))
		}
		v.wait += s.config.Work.draw(s.rng)
	} else {
		v.outcome = Refused
		for _, m := range s.models {
			m.refuse(at)
		}
		wait := ready - at
		if ready == Never {
			wait = time.Second
		}
		s.config.Retry.write(header, wait, s.start.Add(at))
	}
	var told []Told
	for _, m := range s.models {
		if t := m.tell(at); t.Window > 0 {
			if s.config.Lie != nil {
				t = s.config.Lie(t)
			}
			told = append(told, t)
		}
	}
	s.config.Tell.write(header, told, s.start.Add(at))
}

// done notes that an admitted call has its answer.
func (s *Server) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.models {
		m.done()
	}
}

func number(r *http.Request, field string) int {
	n, err := strconv.Atoi(r.Header.Get(field))
	if err != nil {
		return -1
	}
	return n
}

// Now is the time since the start.
func (s *Server) Now() time.Duration { return time.Since(s.start) }

// Config is how it behaves.
func (s *Server) Config() Config { return s.config }

// Ledger returns a copy of all arrivals so far, in order.
func (s *Server) Ledger() Ledger {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(Ledger(nil), s.ledger...)
}
