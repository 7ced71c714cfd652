package throttletest_test

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/go-throttle/throttle/throttletest"
)

// figures has an arrival each 10 ms, by turns of two clients. Each call is throttled once before it is admitted.
func figures() (l throttletest.Ledger) {
	for i := range 100 {
		a := throttletest.Arrival{
			At: time.Duration(i) * 10 * ms, Verdict: throttletest.Throttled, Units: []int{0, 3 * (i % 2)},
			Client: strconv.Itoa(i / 2 % 2), Call: strconv.Itoa(i / 2), Attempt: 1 + i%2,
		}
		if i%2 == 1 {
			a.Verdict = throttletest.Admitted
		}
		l = append(l, a)
	}
	return append(l, throttletest.Arrival{At: time.Second, Verdict: throttletest.Failed, Units: []int{0, 0}})
}

func TestFigures(t *testing.T) {
	l := figures()
	if got := l.Tally(); got != (throttletest.Tally{Admitted: 50, Throttled: 50, Failed: 1}) || got.Total() != 101 {
		t.Error(got)
	}
	for _, c := range []struct {
		from, to time.Duration
		n        int
	}{{100 * ms, 200 * ms, 10}, {0, 1, 1}, {0, 0, 0}, {200 * ms, 100 * ms, 0}, {95 * ms, time.Hour, 91}, {time.Hour, 2 * time.Hour, 0}} {
		if got := len(l.Between(c.from, c.to)); got != c.n {
			t.Errorf("%d from %v to %v, want %d", got, c.from, c.to, c.n)
		}
	}
	if a, b := l.Peak(100*ms), l.Peak(0); a != 10 || b != 1 {
		t.Error("peaks", a, b)
	}
	if got := l.Calls(); got != 50 {
		t.Error("calls", got)
	}
	if got := len(l.Where(func(a throttletest.Arrival) bool { return a.Client == "1" })); got != 50 {
		t.Error("of client 1", got)
	}
	var none throttletest.Ledger
	if none.Peak(1) != 0 || none.Calls() != 0 || none.Tally().Total() != 0 {
		t.Error("an empty ledger has something")
	}
}

func TestUsed(t *testing.T) {
	l := figures() // 50 admitted in a second, evenly
	for _, c := range []struct {
		limit    throttletest.Limit
		from, to time.Duration
		want     float64
	}{
		{throttletest.Limit{N: 100}, 0, time.Second, 0.5},
		{throttletest.Limit{N: 100, Per: 2 * time.Second}, 0, time.Second, 1},
		{throttletest.Limit{N: 100}, 500 * ms, 600 * ms, 0.5},
		{throttletest.Limit{N: 100, Changes: []throttletest.Change{{At: 500 * ms, N: 25}, {At: time.Hour, N: 1}}}, 0, time.Second, 50 / 62.5},
		{throttletest.Limit{N: 100, Changes: []throttletest.Change{{At: 500 * ms, N: 25}, {At: 600 * ms, N: 50}}}, 600 * ms, time.Second, 1},
	} {
		if got := l.Used(c.limit, c.from, c.to); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%+v from %v to %v: %v, want %v", c.limit, c.from, c.to, got, c.want)
		}
	}
}

// Clients are named by From, or by Identify.
func TestClients(t *testing.T) {
	s := new(throttletest.Server)
	for _, name := range []string{"a", "b", "a"} {
		get(t, s.From(name), s.URL())
	}
	get(t, s, s.URL())
	l := s.Ledger()
	if l[0].Client != "a" || l[1].Client != "b" || l[2].Client != "a" || l[3].Client != "" || l[0].Attempt != 0 {
		t.Errorf("%+v", l)
	}
}
