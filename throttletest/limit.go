package throttletest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/go-throttle/throttle/internal/account"
)

// A Kind is how a Limit counts. Choose the one that the upstream documents.
type Kind string

// The kinds of limits.
const (
	Bucket         Kind = "bucket"          // a token bucket (GCRA, ITU-T I.371): N units per Per, evenly, and up to Burst at once
	Fixed          Kind = "fixed"           // N units in each window; windows begin at Phase, Phase + Per and so on
	FixedFirst     Kind = "fixed-first"     // N units in each window; one begins with the first request after the last one
	Sliding        Kind = "sliding"         // N units in any stretch of Per, by an exact log
	SlidingCounter Kind = "sliding-counter" // an estimate of Sliding by two counts, as HAProxy's
	InFlight       Kind = "in-flight"       // N units at work at once, each for Server.Work
)

// A Limit is one limit of a Server. Limit{N: 10} is a token bucket of 10 requests a second with a burst of 10. Several
// limits hold together: a request that one of them throttles costs nothing in the others.
//
// How many of an even flow of 20/s are admitted in the first second by Limit{N: 10} of each Kind:
// Bucket 19 (the burst of 10, and 10/s), Fixed, FixedFirst, Sliding and SlidingCounter 10; InFlight
// with Work 1 s: 10.
type Limit struct {
	Name  string        // as advertised; "": "default" where a dialect needs a name
	Unit  string        // what is counted, as advertised: "tokens"; "": not said
	Kind  Kind          // "": Bucket
	N     int           // units per Per; 0 admits nothing
	Per   time.Duration // 0: one second; unused by InFlight
	Burst int           // of a Bucket, units at once; 0: N
	Phase time.Duration // of Fixed and SlidingCounter, when a window begins, since the Server's start

	CountThrottled bool // throttled requests are charged too, but in InFlight

	// These are asked about each request, and may read its body.
	Match func(*http.Request) bool   // is the limit about it, say by its route; nil: about all
	Key   func(*http.Request) string // each key has a limit of its own, say each credential; nil: one for all
	Cost  func(*http.Request) int    // its units; nil: 1; 0 and less: it is not counted. More than N or Burst is never admitted

	// Settle is asked as these are, of limits whose costs are known afterwards, and replaces Cost when the Server's Work is done:
	// then Cost is what is held until that, and with a Cost of 0 a request is admitted while one unit is free. Nil: Cost is right.
	Settle  func(*http.Request) int
	Streams bool // the difference is charged evenly over the Work, and not at its end

	Changes []Change // of N, in order of time
}

// A Change gives a Limit another N from a moment on. What has been used stays used, and a Bucket keeps its Burst.
type Change struct {
	At time.Duration // since the Server's start
	N  int           // from then on
}

// account returns one of the limit that has not been used.
func (l Limit) account() *account.Account {
	a := account.Limit{Kind: account.Kind(l.Kind), N: l.N, Per: l.Per, Burst: l.Burst, Phase: l.Phase}
	for _, c := range l.Changes {
		a.Changes = append(a.Changes, account.Change(c))
	}
	return account.New(a)
}

// check says what is wrong with the limit.
func (l Limit) check() error {
	if !slices.Contains([]Kind{"", Bucket, Fixed, FixedFirst, Sliding, SlidingCounter, InFlight}, l.Kind) {
		return fmt.Errorf("there is no Kind %q", l.Kind)
	}
	if min(l.N, l.Burst) < 0 || min(l.Per, l.Phase) < 0 {
		return fmt.Errorf("negative: N %d, Burst %d, Per %v or Phase %v", l.N, l.Burst, l.Per, l.Phase)
	}
	for i, c := range l.Changes {
		if c.N < 0 || i > 0 && c.At < l.Changes[i-1].At {
			return fmt.Errorf("its Changes[%d] to N %d at %v is negative or out of order", i, c.N, c.At)
		}
	}
	return nil
}

// A Fault is a way in which a Server fails for some time, whatever its limits say. The zero Fault answers 503 to
// everything. If several strike the first counts. A request that is struck costs nothing in any limit, and its
// answer advertises none.
type Fault struct {
	From, To time.Duration            // since the Server's start, To not included; To 0: for ever
	Share    float64                  // of the requests that it strikes, at random; 0: all
	Match    func(*http.Request) bool // which requests it may strike, as Limit.Match; nil: all

	Status     int           // of the answer; 0: 503. 429 counts as throttled: with a Share, throttled at random
	RetryAfter time.Duration // in the answer, in whole seconds; 0: none
	Err        error         // in place of an answer: RoundTrip returns it, a connection is broken off
	Hang       bool          // no answer until the caller gives up
}

// strikes reports whether a request that arrives at a moment is struck. A Share is a matter of chance.
// No number is drawn without a Share, nor outside the Fault's time. So a Fault whose time has not come
// changes nothing.
func (f *Fault) strikes(at time.Duration, r *rand.Rand) bool {
	return f.From <= at && (f.To == 0 || at < f.To) && (f.Share == 0 || r.Float64() < f.Share)
}

// check says what is wrong with the fault.
func (f *Fault) check() error {
	switch {
	case !(0 <= f.Share && f.Share <= 1):
		return fmt.Errorf("a Share of %v is not between 0 and 1", f.Share)
	case f.To != 0 && f.To < f.From:
		return fmt.Errorf("its To %v is before its From %v", f.To, f.From)
	case f.Status != 0 && !isStatus(f.Status):
		return fmt.Errorf("a Status of %d is not that of an answer", f.Status)
	}
	return nil
}

// isStatus reports whether an answer can have the status: 1xx are none.
func isStatus(code int) bool { return 200 <= code && code <= 999 }

// A Span is a random time: uniform, exponential as the gaps and the service times of the textbooks are, or lognormal as response
// times are.
//
// Four of 100 ms on average: Span{Min: 100 ms} always takes that, Span{Min: 50 ms, Max: 150 ms} anything
// in between, Span{Min: 20 ms, Mean: 80 ms} now and then half a second, and Span{Mean: 100 ms, Sigma: 1.5}
// mostly less than 60 ms and one time in a hundred more than a second.
type Span struct {
	Min, Max time.Duration // uniform from Min to Max; always Min if Max is not above it
	Mean     time.Duration // not 0: Min and an exponential time of this mean, at most Max if Max is above Min
	Sigma    float64       // not 0: lognormal of that Mean instead, and this is the deviation of its logarithm. 0.5 is usual, 1.5 a heavy tail

	Slow   float64 // this share of the times, at random, is slow
	SlowBy float64 // how many times as long those are
}

// check says what is wrong with the span.
func (s Span) check() error {
	if min(s.Min, s.Mean) < 0 || !(s.Sigma >= 0) || !(0 <= s.Slow && s.Slow <= 1) || !(s.SlowBy >= 0) {
		return fmt.Errorf("negative: Min %v, Mean %v, Sigma %v or SlowBy %v; or a Slow of %v is not a share", s.Min, s.Mean, s.Sigma, s.SlowBy, s.Slow)
	}
	return nil
}

// draw returns one such time.
// Both ends are included: Min 1 ms and Max 2 ms may give either. Nothing is drawn if there is no
// choice.
func (s Span) draw(r *rand.Rand) time.Duration {
	d := s.each(r)
	if s.Slow > 0 && r.Float64() < s.Slow {
		d = time.Duration(float64(d) * s.SlowBy)
	}
	return d
}

// each is draw without those that are slow.
func (s Span) each(r *rand.Rand) time.Duration {
	if s.Mean > 0 {
		v := 0.
		if s.Sigma > 0 { // e^(σ²/2) is the mean over the median
			v = math.Exp(s.Sigma*r.NormFloat64() - s.Sigma*s.Sigma/2)
		} else {
			v = r.ExpFloat64()
		}
		d := s.Min + time.Duration(v*float64(s.Mean))
		if s.Max > s.Min {
			d = min(d, s.Max)
		}
		return d
	}
	if s.Max <= s.Min {
		return s.Min
	}
	return s.Min + time.Duration(r.Int64N(int64(s.Max-s.Min)+1))
}
