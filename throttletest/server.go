package throttletest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-throttle/throttle/internal/account"
)

// Exact as Server.RetryAfter stands for the time until the limits would admit the request; 1 s if an InFlight limit
// throttles it, which cannot know.
const Exact time.Duration = -1

// A Server is an upstream with limits. The zero Server admits everything at once. It is an http.RoundTripper, which
// needs no sockets and no goroutines, and an http.Handler, which Start serves; it can be both at the same time.
//
// Its clock begins with its first use: a request, Start or Elapsed. Set its fields before; SetLimits and SetFaults
// change what is in force later. Its methods are safe for concurrent use, and so must be the functions in its
// fields, which are called in the goroutine of whoever sends the request.
type Server struct {
	Limits []Limit // all hold together; none: everything is admitted
	Faults []Fault // failures on demand

	Latency Span         // of a request on its way here, and of the answer on its way back
	Work    Span         // from the arrival of an admitted request until it is done
	Handler http.Handler // answers what is admitted, after Work; nil: 200 without a body

	// Stream lets the answers begin at once that the Handler flushes: the parts between its calls of Flush come evenly over
	// Work, the last one at its end. The Handler itself must not take time.
	Stream bool

	// What a throttled request is answered.
	Status     int           // 0: 429
	Body       string        // "": none
	RetryAfter time.Duration // in whole seconds, rounded up; 0: none; Exact: the true time
	RetryDate  bool          // Retry-After is an HTTP date

	Advertise Advert        // what answers say of the limits
	Skew      time.Duration // how far the Server's clock is ahead, in what answers say
	NoDate    bool          // answers have no Date

	// Identify says for the Ledger whose request it is, and which call it is an attempt of. Nil: the client is that of
	// From, or "", and the call is the Idempotency-Key.
	Identify func(*http.Request) (client, call string)
	Seed     uint64 // of all that is random: the same requests in the same order have the same fate

	mu       sync.Mutex
	start    time.Time // zero: not begun
	launched uint64    // requests
	err      error     // what is wrong with the fields
	rng      *rand.Rand
	accounts []*counter
	due      []*exchange   // what is on its way here or at work, the next one last
	streams  []*exchange   // what is at work and charged meanwhile
	streamed time.Duration // until when
	attempts map[string]int
	ledger   []*Arrival
	socket   socket // of Start
}

// NewServer returns a Server with these limits.
func NewServer(limits ...Limit) *Server { return &Server{Limits: limits} }

// Elapsed is the time since the Server's clock began, 0 at its first use.
func (s *Server) Elapsed() (d time.Duration) {
	s.locked(func() {
		_ = s.beginLocked() // the first request says what is wrong
		d = time.Since(s.start)
	})
	return d
}

// SetLimits replaces the limits by fresh ones, for requests sent from now on.
func (s *Server) SetLimits(limits ...Limit) {
	s.locked(func() {
		s.Limits = limits
		s.enforceLocked()
	})
}

// SetFaults replaces the faults, for requests sent from now on. SetFaults(Fault{}) takes the Server down, and
// SetFaults() brings it back.
func (s *Server) SetFaults(faults ...Fault) {
	s.locked(func() {
		s.Faults = faults
		s.err = s.check()
	})
}

// Ledger returns a copy of what has arrived so far.
func (s *Server) Ledger() (l Ledger) {
	s.locked(func() {
		if !s.start.IsZero() {
			s.settleLocked(time.Since(s.start))
		}
		l = make(Ledger, len(s.ledger))
		for i, a := range s.ledger {
			l[i] = *a
		}
	})
	return l
}

// locked calls f with mu held. The functions whose names end in Locked want that of their callers.
func (s *Server) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// beginLocked starts the clock with the first use.
func (s *Server) beginLocked() error {
	if s.start.IsZero() {
		s.start, s.rng, s.attempts = time.Now(), rand.New(rand.NewPCG(s.Seed, 1)), make(map[string]int)
		s.enforceLocked()
	}
	return s.err
}

// enforceLocked puts fresh limits into force. One that is nonsense has no account: no request comes as far.
// Requests on their way keep the accounts of the moment when they were sent.
func (s *Server) enforceLocked() {
	s.accounts, s.err = nil, s.check()
	for _, l := range s.Limits {
		if l.check() == nil {
			s.accounts = append(s.accounts, &counter{l, l.account()})
		}
	}
}

// check says what is wrong with the fields.
func (s *Server) check() error {
	for i, l := range s.Limits {
		if err := l.check(); err != nil {
			return fmt.Errorf("throttletest: Limits[%d]: %w", i, err)
		}
	}
	for i, f := range s.Faults {
		if err := f.check(); err != nil {
			return fmt.Errorf("throttletest: Faults[%d]: %w", i, err)
		}
	}
	if err := cmp.Or(s.Latency.check(), s.Work.check()); err != nil {
		return fmt.Errorf("throttletest: Latency or Work: %w", err)
	}
	if s.Status != 0 && !isStatus(s.Status) {
		return fmt.Errorf("throttletest: no answer has Status %d", s.Status)
	}
	return nil
}

// An exchange is one request and its answer.
//
// It is in Server.due twice at most: until it arrives, and then, if an InFlight limit counts it, until
// its work is done. So the Server needs no goroutine and no timer: whoever comes next, or wakes from
// its own sleep, lets happen what was due.
type exchange struct {
	*Arrival               // what the Ledger says
	req      *http.Request // see request
	number   uint64        // of the requests in the order of their coming
	body     []byte
	copied   bool // req is a copy

	charges []charge // what it costs
	faults  []Fault  // those that may strike it
	work    time.Duration
	back    time.Duration // the way of the answer
	due     time.Duration // when it arrives, or is done
	atWork  bool
	fault   *Fault  // that has struck
	states  []State // to be advertised
}

// A counter is a limit in force, and what has been used of it.
type counter struct {
	limit Limit
	*account.Account
}

// A charge is what a request costs in one of the limits.
type charge struct {
	*counter
	index int // of the Limit
	key   string
	units int

	final, corrected int // of a Limit with Settle: what it comes to, and by how much it has been corrected
}

// flies reports whether it is over when the work is.
func (c charge) flies() bool { return c.limit.Kind == InFlight }

// lasts reports whether the end of the work changes it.
func (c charge) lasts() bool { return c.flies() || c.settles() }

// launch asks the functions of the limits and faults that are in force about a request, and sends it on its way.
//
// The functions run without the lock, so they may be slow or ask the Server for its Ledger. The moment
// of sending is read after them, under the lock: the order in which Sent grows is the order in which
// random ways are drawn.
func (s *Server) launch(x *exchange) (err error) {
	var accounts []*counter
	s.locked(func() {
		err, accounts, x.faults = s.beginLocked(), s.accounts, slices.Clone(s.Faults)
		s.launched++
		x.number = s.launched
	})
	if err != nil {
		return err
	}
	x.Units, x.charges = make([]int, len(accounts)), make([]charge, 0, len(accounts))
	for i, a := range accounts {
		l, c := &a.limit, charge{counter: a, index: i, units: 1}
		if l.Match != nil && !l.Match(x.request()) {
			continue
		}
		if l.Key != nil {
			c.key = l.Key(x.request())
		}
		if l.Cost != nil {
			c.units = max(0, l.Cost(x.request()))
		}
		if c.settles() {
			c.final = max(0, l.Settle(x.request()))
		}
		x.charges = append(x.charges, c)
	}
	x.faults = slices.DeleteFunc(x.faults, func(f Fault) bool { return f.Match != nil && !f.Match(x.request()) })
	s.locked(func() {
		x.Sent = time.Since(s.start)
		x.At, x.back = x.Sent+s.Latency.draw(s.rng), s.Latency.draw(s.rng)
		s.pushLocked(x, x.At)
		s.settleLocked(x.Sent) // without Latency it is here at once
	})
	return nil
}

// pushLocked notes that x arrives, or is done, at a moment. Of what is due at the same moment, what is done comes before
// what arrives, so that its place is free, and of that what was sent first.
//
// The next one is last, so taking it off moves nothing. An example: due are 30 ms, 20 ms, 10 ms; an
// arrival at 20 ms goes before the one that is there, because that one was sent first and must be
// nearer to the end.
func (s *Server) pushLocked(x *exchange, at time.Duration) {
	x.due = at
	i, _ := slices.BinarySearchFunc(s.due, x, func(a, x *exchange) int {
		if a.due > x.due || a.due == x.due && x.atWork {
			return -1
		}
		return 1
	})
	s.due = slices.Insert(s.due, i, x)
}

// settleLocked lets everything happen that was due by now, in its order, and judges it as of its own moment. So it does
// not matter that this is late, nor which of the goroutines that wake at the same moment runs first.
//
// An example with an InFlight limit of 1 and Work 50 ms: x arrives at 10 ms and y at 60 ms. Both
// callers wake at 60 ms, in any order. The first one that has the lock ends the work of x, and then
// judges y: it is admitted.
func (s *Server) settleLocked(now time.Duration) {
	for n := len(s.due) - 1; n >= 0 && s.due[n].due <= now; n = len(s.due) - 1 {
		x := s.due[n]
		s.streamLocked(x.due)
		s.due[n], s.due = nil, s.due[:n]
		if x.atWork {
			s.doneLocked(x)
		} else if s.judgeLocked(x); x.Verdict == Admitted && slices.ContainsFunc(x.charges, charge.lasts) {
			s.workLocked(x)
		}
	}
	s.streamLocked(now)
}

// judgeLocked decides about x and notes it.
//
// A Fault with a Share draws a random number for each request that it may strike; the order of
// judgement is fixed, and so are the numbers.
func (s *Server) judgeLocked(x *exchange) {
	x.Verdict, x.Status, x.Limit = Admitted, http.StatusOK, -1
	if i := slices.IndexFunc(x.faults, func(f Fault) bool { return f.strikes(x.At, s.rng) }); i >= 0 {
		f := &x.faults[i]
		x.fault, x.Verdict, x.RetryAfter = f, Failed, f.RetryAfter
		if x.Status = cmp.Or(f.Status, http.StatusServiceUnavailable); f.Hang || f.Err != nil {
			x.Status = 0
		}
		if x.Status == http.StatusTooManyRequests {
			x.Verdict = Throttled
		}
	} else {
		s.askLocked(x)
	}
	if x.Call != "" {
		s.attempts[x.Call]++
		x.Attempt = s.attempts[x.Call]
	}
	s.ledger = append(s.ledger, x.Arrival)
}

// askLocked asks the limits. If all admit x it is charged in all; otherwise only in those that count what is throttled.
// Both must be known before anything is charged, so it goes through the limits twice.
//
// An example: 10/s with 4 units free and 100 a minute that is used up for 20 s. The second one
// throttles x, Limit is its index, and with Exact the answer says Retry-After: 20. The first one keeps
// its 4 units.
func (s *Server) askLocked(x *exchange) {
	ready := x.At
	for _, c := range x.charges {
		if n := c.wants(); n > 0 {
			if r := c.Of(x.At, c.key).Ready(x.At, n); r > ready {
				ready, x.Limit = r, c.index
			}
		}
	}
	switch {
	case ready == x.At:
		x.work = s.Work.draw(s.rng)
		x.Done = x.At + x.work
	case s.RetryAfter >= 0:
		x.RetryAfter = s.RetryAfter
	case ready == account.Never:
		x.RetryAfter = time.Second
	default:
		x.RetryAfter = ready - x.At
	}
	if x.Limit >= 0 {
		x.Verdict, x.Status = Throttled, cmp.Or(s.Status, http.StatusTooManyRequests)
	}
	advertise := s.Advertise.due(x.Verdict, len(s.ledger))
	for _, c := range x.charges {
		l := c.Of(x.At, c.key)
		if x.Verdict == Admitted || c.limit.CountThrottled && !c.flies() {
			x.Units[c.index] = c.units
			l.Take(x.At, c.units)
		}
		if st := l.State(x.At); advertise && st.Window > 0 {
			x.states = append(x.states, State{c.limit.Name, c.limit.Unit, st.Limit, st.Remaining, st.Window, st.Reset})
		}
	}
}
