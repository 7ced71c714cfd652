package throttletest_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttletest"
	"github.com/go-throttle/throttle/usage"
)

// A load is workers that each ask again as soon as they have read an answer, for some time.
type load struct {
	path, body string
	workers    int
	until      time.Duration
}

// question is a request's body of 400 bytes, which the servers of these tests count as 500 tokens, with a bound of the output.
func question(bound int) string {
	head := fmt.Sprintf(`{"max_tokens":%d,"stream":true,"stream_options":{"include_usage":true},"input":"`, bound)
	return head + strings.Repeat("x", 400-len(head)-2) + `"}`
}

// run sends the load through rt and waits for its end.
func (l load) run(t *testing.T, rt http.RoundTripper, url string) {
	var workers sync.WaitGroup
	begin := time.Now()
	for range l.workers {
		workers.Go(func() {
			for time.Since(begin) < l.until {
				req, _ := http.NewRequestWithContext(t.Context(), "POST", url+l.path, strings.NewReader(l.body))
				resp, err := rt.RoundTrip(req)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					t.Error(err)
				}
				resp.Body.Close()
			}
		})
	}
	workers.Wait()
}

// newModelServer is an upstream of these limits that streams what the model answers, for a time each.
func newModelServer(model *throttletest.Model, work time.Duration, dialect throttletest.Dialect, limits ...throttletest.Limit) *throttletest.Server {
	s := throttletest.NewServer(limits...)
	s.Handler, s.Stream, s.Advertise.Dialect, s.RetryAfter = model, true, dialect, throttletest.Exact
	s.Latency, s.Work = throttletest.Span{Min: 20 * ms}, throttletest.Span{Min: work}
	return s
}

// metered is a Transport with one meter by a law, of n tokens a minute.
func metered(base http.RoundTripper, law usage.Law, n float64) *throttle.Transport {
	limiter := throttle.NewBucket(rate.Limit(n/60), int(n*0.99))
	return &throttle.Transport{Base: base, Meters: func(string) []throttle.Meter {
		return []throttle.Meter{{Name: law.Name, Limiter: limiter, Hold: law.Hold, Settle: law.Settle, Failures: law.Failures}}
	}}
}

// Others use half of a limit of tokens that one's own meter has whole. What answers advertise of it holds the calls that the meter
// would let go, rounded to thousands or not, so hardly one is throttled, and nothing is left unused. Without a word about it one in
// six is throttled.
func TestAdvertisedTokensMirrorTheMeter(t *testing.T) {
	const perMinute, length = 60_000, 8 * time.Minute
	for name, dialect := range map[string]throttletest.Dialect{"OpenAI": throttletest.OpenAI, "Anthropic": throttletest.Anthropic, "nothing": nil} {
		synctest.Test(t, func(t *testing.T) {
			model := &throttletest.Model{Bytes: 0.8, Median: 100}
			s := newModelServer(model, 5*time.Second, dialect, model.HoldsBound(perMinute))
			var all sync.WaitGroup
			all.Go(func() { // 1,000 tokens each 2 s
				for s.Elapsed() < length {
					req, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL(), strings.NewReader(question(1000)))
					all.Go(func() { s.From("others").RoundTrip(req) })
					time.Sleep(2 * time.Second)
				}
			})
			load{body: question(1000), workers: 16, until: length}.run(t, metered(s.From("ours"), usage.OpenAI(), perMinute), s.URL())
			all.Wait()
			ours := s.Ledger().Where(func(a throttletest.Arrival) bool { return a.Client == "ours" }).Tally()
			used := float64(s.Ledger().Charged(0, length/2, length)) / (length / 2).Minutes() / perMinute
			t.Logf("%s: %+v, %.3f of the limit used", name, ours, used)
			if much := ours.Throttled > ours.Total()/20; used < 0.98 || used > 1.02 || much != (dialect == nil) || dialect != nil && ours.Throttled > ours.Total()/200 {
				t.Errorf("%s: %+v, %.3f of the limit used", name, ours, used)
			}
		})
	}
}

// Two clients begin a limit together that is too small for both. Both have a good part of it from then on, and neither stops.
func TestTwoClientsShareAdvertisedTokens(t *testing.T) {
	const perMinute, length = 60_000, 8 * time.Minute
	for seed := range uint64(2) {
		synctest.Test(t, func(t *testing.T) {
			model := &throttletest.Model{Bytes: 0.8, Median: 100, Seed: seed}
			s := newModelServer(model, 5*time.Second, throttletest.OpenAI, model.HoldsBound(perMinute))
			var all sync.WaitGroup
			for _, name := range []string{"a", "b"} {
				rt := metered(s.From(name), usage.OpenAI(), perMinute)
				rt.Retry.MaxPause = -1
				all.Go(func() { load{body: question(1000), workers: 64, until: length}.run(t, rt, s.URL()) })
			}
			all.Wait()
			late := s.Ledger().Between(length/2, length)
			used := float64(s.Ledger().Charged(0, length/2, length)) / (length / 2).Minutes() / perMinute
			t.Logf("%+v, %.3f of the limit used, evenly to %.3f", late.Tally(), used, late.Jain())
			if used < 0.8 || late.Jain() < 0.6 || late.Tally().Throttled > late.Tally().Total()/10 {
				t.Errorf("%+v, %.3f of the limit used, evenly to %.3f", late.Tally(), used, late.Jain())
			}
		})
	}
}

// The laws that hold what is known beforehand: of calls of 5, 30 and 120 s by 64 workers none is throttled, and what is used is what
// can be: a limit of W seconds, calls of T that hold h and cost a, and units that come back at their end allow min(1, (1 + W/T)·a/h), or more.
func TestLawsThatHold(t *testing.T) {
	model := &throttletest.Model{Bytes: 4, Median: 100}
	const bound = 500
	for name, c := range map[string]struct {
		law   usage.Law
		limit func(n int) throttletest.Limit
		a, h  float64 // of a call; the mean of the outputs is 141, because they are bounded
	}{
		"larger": {usage.OpenAI(), model.HoldsBound, 100 + 141, bound},
		"sum":    {usage.Bedrock(1), func(n int) throttletest.Limit { return model.HoldsSum(n, 1) }, 100 + 141, 100 + bound},
		"input":  {usage.Gemini(), model.CountsInput, 100, 100},
	} {
		for _, work := range []time.Duration{5 * time.Second, 30 * time.Second, 120 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				can := min(1, (1+60/work.Seconds())*c.a/c.h)
				perMinute := int(40 / work.Minutes() * c.a / can) // that 40 of the workers can use
				length := 4*time.Minute + 8*work
				s := newModelServer(model, work, nil, c.limit(perMinute))
				load{body: question(bound), workers: 64, until: length}.run(t, metered(s, c.law, float64(perMinute)), s.URL())
				l := s.Ledger()
				used := float64(l.Charged(0, length/2, length)) / (length / 2).Minutes() / float64(perMinute)
				t.Logf("%s, %v: %+v, %.3f of the limit used, %.3f can be", name, work, l.Tally(), used, can)
				if l.Tally().Throttled > 0 || used < 0.98*can || used > 1.05 {
					t.Errorf("%s, %v: %+v, %.3f of the limit used, want %.3f", name, work, l.Tally(), used, can)
				}
			})
		}
	}
}
