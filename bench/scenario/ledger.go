package scenario

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/go-throttle/throttle/internal/lab"
	"github.com/go-throttle/throttle/throttletest"
)

const (
	callField   = "Bench-Call"
	callerField = "Bench-Caller"
)

// mark writes into a request which call it is, and whose.
func mark(req *http.Request, call, caller int) {
	req.Header[callField] = []string{strconv.Itoa(call)}
	req.Header[callerField] = []string{strconv.Itoa(caller)}
}

// whose reads it, for the ledger.
func whose(req *http.Request) (caller, call string) {
	return req.Header.Get(callerField), req.Header.Get(callField)
}

// number is the number of an arrival's call; -1: it was not marked.
func number(a throttletest.Arrival) int {
	n, err := strconv.Atoi(a.Call)
	if err != nil {
		return -1
	}
	return n
}

// perCall is the attempts per call, where so many calls were made. Calls that never arrived make it
// small: read it beside delivered.
func perCall(l throttletest.Ledger, calls int) float64 { return float64(len(l)) / float64(calls) }

// firstAdmitted tells when each call was first admitted.
func firstAdmitted(l throttletest.Ledger) map[int]time.Duration {
	first := make(map[int]time.Duration)
	for _, a := range l.Only(throttletest.Admitted) {
		if _, ok := first[number(a)]; !ok {
			first[number(a)] = a.At
		}
	}
	return first
}

// last is when the last one arrived; 0 if none did.
func last(l throttletest.Ledger) time.Duration {
	if len(l) == 0 {
		return 0
	}
	return l[len(l)-1].At
}

// evenness is the coefficient of variation of the gaps between arrivals: 0 is perfectly even, a
// Poisson stream has 1. Below three arrivals it is NaN.
func evenness(l throttletest.Ledger) float64 {
	n := float64(len(l) - 1)
	if n < 2 {
		return math.NaN()
	}
	var sum, squares float64
	for i := range l[1:] {
		gap := float64(l[i+1].At - l[i].At)
		sum += gap
		squares += gap * gap
	}
	mean := sum / n
	return math.Sqrt(max(0, squares/n-mean*mean)) / mean
}

// jain is Jain's index of fairness over callers 0 to n-1; NaN if nobody was admitted.
func jain(l throttletest.Ledger, n int) float64 {
	callers := make([]string, n)
	for i := range callers {
		callers[i] = strconv.Itoa(i)
	}
	if index := lab.Jain(l, callers...); index > 0 {
		return index
	}
	return math.NaN()
}
