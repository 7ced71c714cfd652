package lab_test

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
	"github.com/go-throttle/throttle/internal/lab"
	"github.com/go-throttle/throttle/internal/race"
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
					t.Log(err)
					time.Sleep(time.Second)
					continue
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
func newModelServer(model *lab.Model, work time.Duration, dialect throttletest.Dialect, limits ...throttletest.Limit) *throttletest.Server {
	s := throttletest.NewServer(limits...)
	s.Handler, s.Stream, s.Advertise.Dialect, s.RetryAfter = model, true, dialect, throttletest.Exact
	s.Latency, s.Work = throttletest.Span{Min: 20 * time.Millisecond}, throttletest.Span{Min: work}
	return s
}

// metered is a Transport with one meter by a law, of n tokens a minute.
func metered(base http.RoundTripper, law usage.Law, n float64) *throttle.Transport {
	limiter := throttle.NewBucket(rate.Limit(n/60), int(n*0.99))
	return &throttle.Transport{Base: base, Meters: func(string) []throttle.Meter {
		m := throttle.Meter{Name: law.Name, Limiter: limiter, Hold: law.Hold, Settle: law.Settle, Failures: law.Failures}
		if law.Learns() {
			m.Hold, m.Learn, m.Streams = law.Most, true, law.Streams
		}
		return []throttle.Meter{m}
	}}
}

// Others use half of a limit of tokens that one's own meter has whole. What answers advertise of it holds the calls that the meter
// would let go, rounded to thousands or not, so hardly one is throttled, and nothing is left unused. Without a word about it one in ten
// to thirty is throttled, and the probes of the search use a little more than there is. Means of three runs.
func TestAdvertisedTokensMirrorTheMeter(t *testing.T) {
	const perMinute, length = 60_000, 8 * time.Minute
	runs := race.Pick(1, 3)
	for _, test := range []struct {
		name        string
		dialect     throttletest.Dialect
		least, most float64 // share of calls throttled
		from, to    float64 // of the limit used
	}{
		{"OpenAI", throttletest.OpenAI, 0, 0.005, 0.98, 1.02},
		{"Anthropic", throttletest.Anthropic, 0, 0.005, 0.98, 1.02},
		{"nothing", nil, 0.01, 0.15, 0.95, 1.1},
	} {
		if race.Pick(test.name == "Anthropic", false) {
			continue
		}
		var throttled, used float64
		for seed := range uint64(runs) {
			synctest.Test(t, func(t *testing.T) {
				model := &lab.Model{Bytes: 0.8, Median: 100, Seed: seed}
				s := newModelServer(model, 5*time.Second, test.dialect, model.HoldsBound(perMinute))
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
				throttled += float64(ours.Throttled) / float64(ours.Total()) / float64(runs)
				used += float64(lab.Charged(s.Ledger(), 0, length/2, length)) / (length / 2).Minutes() / perMinute / float64(runs)
			})
		}
		t.Logf("%s: %.4f throttled, %.3f of the limit used", test.name, throttled, used)
		if throttled < test.least || throttled > test.most || used < test.from || used > test.to {
			t.Errorf("%s: %.4f throttled, %.3f of the limit used", test.name, throttled, used)
		}
	}
}

// Two clients begin a limit together that is too small for both. Both have a good part of it from then on, and neither stops.
func TestTwoClientsShareAdvertisedTokens(t *testing.T) {
	const perMinute, length = 60_000, 8 * time.Minute
	for seed := range race.Pick(uint64(1), 2) {
		synctest.Test(t, func(t *testing.T) {
			model := &lab.Model{Bytes: 0.8, Median: 100, Seed: seed}
			s := newModelServer(model, 5*time.Second, throttletest.OpenAI, model.HoldsBound(perMinute))
			var all sync.WaitGroup
			for _, name := range []string{"a", "b"} {
				rt := metered(s.From(name), usage.OpenAI(), perMinute)
				rt.Retry.MaxPause = -1
				all.Go(func() { load{body: question(1000), workers: 64, until: length}.run(t, rt, s.URL()) })
			}
			all.Wait()
			late := s.Ledger().Between(length/2, length)
			used := float64(lab.Charged(s.Ledger(), 0, length/2, length)) / (length / 2).Minutes() / perMinute
			t.Logf("%+v, %.3f of the limit used, evenly to %.3f", late.Tally(), used, lab.Jain(late))
			if used < 0.8 || lab.Jain(late) < 0.6 || late.Tally().Throttled > late.Tally().Total()/10 {
				t.Errorf("%+v, %.3f of the limit used, evenly to %.3f", late.Tally(), used, lab.Jain(late))
			}
		})
	}
}

// used is the share of a limit of tokens that was charged within two thirds of a length. It returns at the end of that.
func used(s *throttletest.Server, perMinute int, length time.Duration) float64 {
	charged := func(at time.Duration) (sum int) {
		time.Sleep(at - s.Elapsed())
		for _, a := range s.Ledger() {
			sum += a.Units[0]
		}
		return sum
	}
	before := charged(length / 3)
	return float64(charged(length)-before) / (length - length/3).Minutes() / float64(perMinute)
}

// A lawCase is a limit, the law that a client knows of it, and what a call of 100 tokens and so many at most costs there.
type lawCase struct {
	law   usage.Law
	path  string
	limit func(n int) throttletest.Limit
	bound int
	cost  float64                          // on average
	least func(work time.Duration) float64 // of the limit is to be used
}

// check runs 64 workers whose calls take 5, 30 and 120 s, and whose answers have 100 tokens in the middle.
func (c lawCase) check(t *testing.T, name string, throttled func(n int) int) {
	for _, work := range race.Pick([]time.Duration{30 * time.Second}, []time.Duration{5 * time.Second, 30 * time.Second, 120 * time.Second}) {
		synctest.Test(t, func(t *testing.T) {
			perMinute := int(40 / work.Minutes() * c.cost) // that 40 of the workers can use
			length := max(5*time.Minute, 24*work)
			s := newModelServer(lawModel, work, nil, c.limit(perMinute))
			body := question(c.bound)
			if !c.law.Streams {
				body = strings.Replace(body, "true", "null", 1)
			}
			var share float64
			var all sync.WaitGroup
			all.Go(func() { share = used(s, perMinute, length) })
			load{path: c.path, body: body, workers: 64, until: length}.run(t, metered(s, c.law, float64(perMinute)), s.URL())
			all.Wait()
			n, least := s.Ledger().Tally(), c.least(work)
			t.Logf("%s, %v: %+v, %.3f of the limit used", name, work, n, share)
			if n.Throttled > throttled(n.Total()) || share < least || share > 1.1 {
				t.Errorf("%s, %v: %+v, %.3f of the limit used, want %.3f", name, work, n, share, least)
			}
		})
	}
}

// lawModel is the upstream of these tests. Its outputs are 141 tokens on average if they are bounded at 500, and 157 at 1,000.
var lawModel = &lab.Model{Bytes: 4, Median: 100, Seed: 1}

// The laws that hold what is known beforehand: no call is throttled, and what is used is what can be. A limit of a minute, calls of T
// seconds that hold h and cost a, and units that come back at their end allow min(1, (1 + 60/T)·a/h), or more.
func TestLawsThatHold(t *testing.T) {
	can := func(share float64) func(time.Duration) float64 {
		return func(work time.Duration) float64 { return 0.95 * min(1, (1+60/work.Seconds())*share) }
	}
	sum := func(n int) throttletest.Limit { return lawModel.HoldsSum(n, 1) }
	for name, c := range map[string]lawCase{
		"larger": {usage.OpenAI(), "/v1/chat/completions", lawModel.HoldsBound, 1000, 257, can(257. / 1000)},
		"sum":    {usage.Bedrock(1), "/v1/chat/completions", sum, 500, 241, can(241. / 600)},
		"input":  {usage.Gemini(), "/v1/chat/completions", lawModel.CountsInput, 500, 100, can(1)},
	} {
		c.check(t, name, func(int) int { return 0 })
	}
}

// The laws that count what nobody knows beforehand: while the answer streams, or at its end. At most one of 1,000 calls is throttled,
// and the limit is used although calls use 28 % of their bound: they hold what calls usually cost, or what they use in 10 s if
// they are charged as they stream. Under a limit that counts at the end alone no more calls begin than its burst could pay.
func TestLawsThatCount(t *testing.T) {
	_, out := usage.Anthropic()
	atEnd := usage.OpenAI()
	atEnd.Holds, atEnd.Failures = usage.HoldsNothing, false
	burst := func(work time.Duration) float64 { return min(0.9, 0.65*60/work.Seconds()) }
	for name, c := range map[string]lawCase{
		"streams": {out, "/v1/messages", lawModel.CountsOutput, 500, 141, func(time.Duration) float64 { return 0.95 }},
		"at end":  {atEnd, "/v1/chat/completions", lawModel.CountsAtEnd, 500, 241, burst},
	} {
		c.check(t, name, func(n int) int { return n / 1000 })
	}
}
