package throttletest

import (
	"cmp"
	"slices"
	"sort"
	"time"
)

// A Verdict is what became of a request. Use [Ledger.Only] to get those with one of them.
type Verdict string

// The verdicts.
const (
	Admitted  Verdict = "admitted"  // by all limits
	Throttled Verdict = "throttled" // by a limit, or by a Fault with Status 429
	Failed    Verdict = "failed"    // by another Fault
)

// An Arrival is one request that has come to a Server. Its times are counted from the Server's start.
//
// An example with a Limit of tokens, index 1, and one of requests, index 0: a request of 300 tokens
// that was admitted has Units [1 300]. One that was throttled has [0 0], unless a Limit has
// CountThrottled.
type Arrival struct {
	Sent, At, Answered time.Duration // when it left its caller, arrived, and was answered; Answered 0: it was not

	Verdict    Verdict       // what became of it
	Status     int           // of the answer, 200 whatever the Handler says; 0: none
	RetryAfter time.Duration // in the answer; 0: none
	Limit      int           // index of the Limit that throttled it, of several the one with the longest wait; -1: none
	Units      []int         // what each Limit has charged so far, by its index; not to be changed
	Done       time.Duration // when its Work ends; 0: it was not admitted

	Client, Call       string // who sent it, for which call; see Server.Identify
	Attempt            int    // 1 is the first of its Call; 0: its Call is ""
	Method, Host, Path string // of the request
	Size               int    // bytes of its body
}

// A Ledger is what has come to a Server, in order of At.
type Ledger []Arrival

// A Tally counts arrivals by their verdict, for assertions such as "nothing was throttled".
type Tally struct {
	Admitted, Throttled, Failed int // by their verdict
}

// Total is the number of arrivals, whatever became of them: for asking how many attempts a client needed.
func (t Tally) Total() int { return t.Admitted + t.Throttled + t.Failed }

// Tally counts the arrivals by their verdict. It is what most tests ask of a Ledger when they are done.
func (l Ledger) Tally() (t Tally) {
	for i := range l {
		switch l[i].Verdict {
		case Admitted:
			t.Admitted++
		case Throttled:
			t.Throttled++
		default:
			t.Failed++
		}
	}
	return t
}

// Between returns the arrivals at from and later, and before to. It shares the memory of l.
// Two binary searches find it, because a Ledger is in order of At.
func (l Ledger) Between(from, to time.Duration) Ledger {
	at := func(t time.Duration) int { return sort.Search(len(l), func(i int) bool { return l[i].At >= t }) }
	return l[at(from):max(at(from), at(to))]
}

// Only returns the arrivals with a verdict. Use [Ledger.Where] for other conditions.
func (l Ledger) Only(v Verdict) Ledger {
	return l.Where(func(a Arrival) bool { return a.Verdict == v })
}

// Where returns the arrivals that keep wants.
func (l Ledger) Where(keep func(Arrival) bool) (kept Ledger) {
	for _, a := range l {
		if keep(a) {
			kept = append(kept, a)
		}
	}
	return kept
}

// Peak is the most arrivals within any stretch of a length.
// An example: arrivals at 0, 0.9, 1.0 and 1.1 s. Within a second the most are 3, those from 0.9 s on;
// the one at 0 and the one at 1.0 s are in no stretch of a second together.
func (l Ledger) Peak(length time.Duration) int {
	first, most := 0, 0
	for i := range l {
		for l[first].At <= l[i].At-max(length, 1) {
			first++ // has left the stretch that ends with i
		}
		most = max(most, i-first+1)
	}
	return most
}

// Used is the share of a Limit that was admitted from from to to, at a unit each: 1 is N for each Per of that time, after
// the Changes. A rested Bucket's Burst comes on top.
// An example: Limit{N: 10} for 60 s is 600 units. If 570 requests were admitted in that time, Used is
// 0.95. With a Change to 5 at 30 s it would be 570 of 450: 1.27, more than the limit allows.
func (l Ledger) Used(limit Limit, from, to time.Duration) float64 {
	units, at := 0.0, from
	for _, c := range slices.Concat(limit.Changes, []Change{{At: to}}) {
		until := min(max(at, c.At), to)
		units += float64(limit.N) * float64(until-at)
		at, limit.N = until, c.N
	}
	return float64(l.Between(from, to).Tally().Admitted) * float64(cmp.Or(limit.Per, time.Second)) / units
}

// Calls is the number of calls in the ledger: arrivals whose Attempt is 1. Use it for the attempts per call: all arrivals
// of known calls, divided by it.
// An example: 100 calls made 130 arrivals: 1.3 attempts per call. Arrivals without a Call count in
// neither figure.
func (l Ledger) Calls() int { return len(l.Where(func(a Arrival) bool { return a.Attempt == 1 })) }
