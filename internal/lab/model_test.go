package lab_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/lab"
	"github.com/go-throttle/throttle/throttletest"
)

// Outputs are lognormal, the same for the same seed, and within their bound. Ten thousand of them have a median and a mean, which
// is e^½ of that, within a few per cent.
func TestModelOutputs(t *testing.T) {
	outputs := func(seed uint64, body string, n int) (all []int) {
		m := &lab.Model{Median: 500, Seed: seed, Longest: 1 << 20}
		s := throttletest.NewServer(m.CountsOutput(1 << 30))
		for range n {
			req, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL(), strings.NewReader(body))
			if _, err := s.RoundTrip(req); err != nil {
				t.Fatal(err)
			}
		}
		for _, a := range s.Ledger() {
			all = append(all, a.Units[0])
		}
		return all
	}
	a, sum := outputs(1, "{}", 10_000), 0
	for _, n := range a {
		sum += n
	}
	if !slices.Equal(outputs(1, "{}", 100), a[:100]) {
		t.Error("the same seed gives others")
	}
	if slices.Equal(outputs(2, "{}", 100), a[:100]) {
		t.Error("another seed gives the same")
	}
	if got := slices.Max(outputs(1, `{"max_tokens":600}`, 100)); got != 600 {
		t.Errorf("%d tokens, bound 600", got)
	}
	slices.Sort(a)
	if median, mean := a[len(a)/2], sum/len(a); median < 475 || median > 525 || mean < 784 || mean > 864 {
		t.Errorf("median %d, mean %d, want about 500 and 824", median, mean)
	}
}

// What each limit of a Model holds and counts, of 4,000 bytes with a bound of 500, and of a bound of 2,000.
func TestModelLimits(t *testing.T) {
	m := &lab.Model{Median: 100, Sigma: 1e-9}
	for name, c := range map[string]struct {
		limit        throttletest.Limit
		held, counts []int
	}{
		"bound":  {m.HoldsBound(9999), []int{1000, 2000}, []int{1100, 1100}},
		"sum":    {m.HoldsSum(9999, 5), []int{1500, 3000}, []int{1500, 1500}},
		"end":    {m.CountsAtEnd(9999), []int{0, 0}, []int{1100, 1100}},
		"output": {m.CountsOutput(9999), []int{0, 0}, []int{100, 100}},
		"input":  {m.CountsInput(9999), []int{1000, 1000}, []int{1000, 1000}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := throttletest.NewServer(c.limit)
			s.Work = throttletest.Span{Min: time.Second}
			var calls sync.WaitGroup
			for _, bound := range []string{`{"max_tokens":500`, `{"max_output_tokens":2000`} {
				body := bound + `,"input":"` + strings.Repeat("x", 4000-len(bound)-12) + `"}`
				req, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL(), strings.NewReader(body))
				calls.Go(func() { s.RoundTrip(req) })
				synctest.Wait()
			}
			before := s.Ledger()
			calls.Wait()
			after := s.Ledger()
			if held := []int{before[0].Units[0], before[1].Units[0]}; !slices.Equal(held, c.held) {
				t.Errorf("%s holds %v, want %v", name, held, c.held)
			}
			if counts := []int{after[0].Units[0], after[1].Units[0]}; !slices.Equal(counts, c.counts) {
				t.Errorf("%s counts %v, want %v", name, counts, c.counts)
			}
		})
	}
}
