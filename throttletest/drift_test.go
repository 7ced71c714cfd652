package throttletest_test

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/throttletest"
	"github.com/go-throttle/throttle/usage"
)

// A driftWorld is a random limit of tokens a minute, and what calls there are for 20 minutes. The client knows its law.
type driftWorld struct {
	seed              uint64
	counts            float64 // the upstream counts what the law says, so often
	kind              throttletest.Kind
	law, dialect      int
	bound, median     int
	perMinute         int
	down              int // what remains is rounded down to that
	workers           int
	whole, known      bool                  // answers do not stream; the meter's own limit is the true one
	work, pause       time.Duration         // of a call, and after it
	way, read, bursts time.Duration         // up to that on the way; answers are read later; calls begin at multiples of it
	skew              time.Duration         // of the upstream's clock
	changes           []throttletest.Change // of the limit
}

// newDriftWorld draws one. A call holds a third to a 300th of the limit and lasts for 1 to 30 s. The calls of all workers need 20 to 300 %
// of the limit. In some worlds requests overtake each other, in some answers are read late, in some all calls come at once.
func newDriftWorld(seed uint64, kind throttletest.Kind, counts float64) driftWorld {
	r := rand.New(rand.NewPCG(seed, 11))
	w := driftWorld{seed: seed, kind: kind, counts: counts, law: r.IntN(4), dialect: r.IntN(3), whole: r.IntN(2) == 0, known: r.IntN(2) == 0}
	some := func(oneOf int, from, to float64) (d time.Duration) {
		if r.IntN(oneOf) == 0 {
			d = time.Duration(from * math.Pow(to/from, r.Float64()) * float64(time.Second))
		}
		return d
	}
	w.bound, w.down = []int{300, 500, 1000, 2000, 4000}[r.IntN(5)], []int{1, 1, 10, 100}[r.IntN(4)]
	w.median = max(20, int(float64(w.bound)*math.Exp(-3*r.Float64())))
	w.perMinute = int(float64(w.bound+125) * 3 * math.Pow(100, r.Float64()))
	w.work, w.pause, w.way, w.read, w.bursts = some(1, 1, 30), some(3, 1, 60), some(3, 0.03, 3), some(4, 0.1, 10), some(4, 1, 100)
	if w.skew = some(2, 0.1, 1000); r.IntN(2) == 0 {
		w.skew = -w.skew
	}
	if r.IntN(4) == 0 {
		w.changes = []throttletest.Change{{At: time.Duration(20 * r.Float64() * float64(time.Minute)), N: int(float64(w.perMinute) * (0.6 + r.Float64()))}}
	}
	needs := 0.2 * math.Pow(15, r.Float64())
	w.workers = max(1, min(64, int(needs*float64(w.perMinute)*(w.work+w.pause/2).Minutes()/w.cost())))
	return w
}

// newCalmWorld draws one in which a few calls of 1 to 3 s run at a time. What they need is 1.3 to 3 times a limit that counts so, because
// a bucket that is full from time to time does not show what it has lost.
func newCalmWorld(seed uint64, kind throttletest.Kind, counts float64) driftWorld {
	w, r := newDriftWorld(seed, kind, counts), rand.New(rand.NewPCG(seed, 12))
	w.workers, w.work, w.pause, w.way, w.read, w.bursts, w.changes = 1+r.IntN(3), time.Second+time.Duration(r.IntN(2000))*ms, 0, 0, 0, 0, nil
	w.median, w.known = w.bound/(2+r.IntN(3)), false
	w.perMinute = int(float64(w.workers) / w.work.Minutes() * w.cost() * counts / (1.3 + 1.7*r.Float64()))
	return w
}

// cost is about what a call costs.
func (w driftWorld) cost() float64 { return 100 + 1.3*float64(w.median) }

// limit is the upstream's, and law what the client knows of it.
func (w driftWorld) limit(model *throttletest.Model) (limit throttletest.Limit, law usage.Law) {
	switch w.law {
	case 0:
		limit, law = model.HoldsBound(w.perMinute), usage.OpenAI()
	case 1:
		limit, law = model.HoldsSum(w.perMinute, 1), usage.Bedrock(1)
	case 2:
		limit, law = model.CountsAtEnd(w.perMinute), usage.Groq()
	default:
		limit = model.CountsOutput(w.perMinute)
		_, law = usage.Anthropic()
	}
	cost, settle := limit.Cost, limit.Settle
	limit.Cost = func(req *http.Request) int { return int(w.counts * float64(cost(req))) }
	limit.Settle = func(req *http.Request) int { return int(w.counts * float64(settle(req))) }
	limit.Kind, limit.Changes = w.kind, w.changes
	return limit, law
}

// run makes the calls, and returns what drifts were reported.
func (w driftWorld) run(t *testing.T) (events []throttle.Event, n throttletest.Tally) {
	synctest.Test(t, func(t *testing.T) {
		model := &throttletest.Model{Median: w.median, Seed: w.seed}
		limit, law := w.limit(model)
		s := newModelServer(model, w.work, []throttletest.Dialect{throttletest.OpenAI, throttletest.Anthropic, throttletest.Draft08}[w.dialect], limit)
		s.Work.Min, s.Work.Max, s.Latency.Max, s.Skew = w.work/2, w.work*3/2, w.way, w.skew
		s.Advertise.Edit = func(st throttletest.State) throttletest.State {
			st.Remaining -= st.Remaining % w.down
			return st
		}
		own := w.perMinute
		if !w.known {
			own *= 10
		}
		rt := watched(s, law, own, &events)
		body, path := question(w.bound), "/v1/chat/completions"
		if law.Streams {
			path = "/v1/messages"
		}
		if w.whole {
			body = strings.Replace(body, "true", "null", 1)
		}
		var workers sync.WaitGroup
		for i := range w.workers {
			r := rand.New(rand.NewPCG(w.seed, uint64(i)))
			about := func(d time.Duration) { time.Sleep(time.Duration(2 * r.Float64() * float64(d))) }
			workers.Go(func() {
				for s.Elapsed() < 20*time.Minute {
					req, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL()+path, strings.NewReader(body))
					resp, err := rt.RoundTrip(req)
					if err != nil {
						time.Sleep(time.Second)
						continue
					}
					about(w.read)
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					if about(w.pause); w.bursts > 0 {
						time.Sleep(w.bursts - s.Elapsed()%w.bursts)
					}
				}
			})
		}
		workers.Wait()
		n = s.Ledger().Tally()
	})
	return events, n
}

// watched is a Transport with one meter by a law, of n tokens a minute, that notes what drifts are reported.
func watched(base http.RoundTripper, law usage.Law, n int, events *[]throttle.Event) *throttle.Transport {
	m := throttle.Meter{Name: law.Name, Limiter: throttle.NewBucket(rate.Limit(float64(n)/60), n), Hold: law.Hold, Settle: law.Settle}
	if law.Learns() {
		m.Hold, m.Learn, m.Streams = law.Most, true, law.Streams
	}
	rt := &throttle.Transport{Base: base, Meters: func(string) []throttle.Meter { return []throttle.Meter{m} }}
	rt.Retry.MaxPause = -1
	var mu sync.Mutex
	rt.Hooks.Drifted = func(_ context.Context, e throttle.Event) {
		mu.Lock()
		defer mu.Unlock()
		*events = append(*events, e)
	}
	return rt
}

// seeds is how many random worlds a test tries: THROTTLE_SEEDS, or at least so many.
func seeds(least int) uint64 {
	n, _ := strconv.Atoi(os.Getenv("THROTTLE_SEEDS"))
	return uint64(max(n, least))
}

var kinds = []throttletest.Kind{throttletest.Bucket, throttletest.Fixed, throttletest.Sliding, throttletest.SlidingCounter}

// Whoever sets the hook learns once by about how much a meter is off, and which one it is: of a bucket that counts 30 % more, of a minute that
// counts half, and of one that others use as much. A bucket that is full while nobody calls earns nothing. Calls take 2 s, three run at a
// time.
func TestDriftedSaysByHowMuch(t *testing.T) {
	for name, c := range map[string]struct {
		kind   throttletest.Kind
		counts float64
		others int
		rest   time.Duration // after each ten seconds
		want   float64       // 0: nothing is reported
	}{
		"a bucket":             {throttletest.Bucket, 1.3, 0, 0, 0.3},
		"an equal bucket":      {throttletest.Bucket, 1, 0, 0, 0},
		"one that rests":       {throttletest.Bucket, 1, 0, time.Minute, 0},
		"a minute":             {throttletest.Fixed, 0.5, 0, 0, -0.5},
		"an equal minute":      {throttletest.Fixed, 1, 0, 0, 0},
		"a minute with others": {throttletest.Fixed, 1, 3, 0, 1},
	} {
		if race.Pick(name == "one that rests" || name == "an equal minute" || name == "a minute", false) {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			model := &throttletest.Model{Median: 100}
			limit, law := driftWorld{counts: c.counts, kind: c.kind, perMinute: 20_000}.limit(model)
			s := newModelServer(model, 2*time.Second, throttletest.OpenAI, limit)
			var events []throttle.Event
			var all sync.WaitGroup
			all.Go(func() {
				load{body: question(500), workers: c.others, until: time.Hour / 3}.run(t, metered(s.From("others"), law, 1e6), s.URL())
			})
			rt := watched(s.From("ours"), law, 1e6, &events)
			rt.Hooks.Learned = func(_ context.Context, e throttle.Event) { // a search would leave others more
				if e.Learned.Source == "refusals" {
					t.Errorf("%s: the rate %v was found beside a quota that explains the refusals", name, e.Learned.Rate)
				}
			}
			for s.Elapsed() < time.Hour/3 {
				load{body: question(500), workers: 3, until: 10 * time.Second}.run(t, rt, s.URL())
				time.Sleep(c.rest)
			}
			all.Wait()
			t.Logf("%s: %+v %+v", name, s.Ledger().Tally(), events)
			switch {
			case c.want == 0 && len(events) > 0, c.want != 0 && len(events) != 1:
				t.Errorf("%s: %+v", name, events)
			case c.want != 0 && (events[0].Reason != "meter:tokens" || math.Abs(events[0].Drift-c.want) > 0.5*math.Abs(c.want) || events[0].Status != 200):
				t.Errorf("%s: %+v, want a drift of %v", name, events[0], c.want)
			}
		})
	}
}

// A meter that counts what the upstream does is never reported: whatever the limit, the load, the rounding, and the way of requests.
func TestEqualLawsDoNotDrift(t *testing.T) {
	total := 0
	for seed := range seeds(race.Pick(2, 24)) {
		w := newDriftWorld(seed, kinds[seed%4], 1)
		if seed%3 == 0 {
			w = newCalmWorld(seed, kinds[seed/3%4], 1)
		}
		events, n := w.run(t)
		if total += n.Admitted; len(events) > 0 {
			t.Errorf("%+v: %+v: %+v", w, n, events)
		}
	}
	t.Logf("%d calls", total)
}

// An upstream that counts twice what the meter does is reported as one that counts more, and one that counts half as one that counts
// less, if at all: never as the opposite, and once. Of buckets and fixed windows at which a few short calls run some are reported.
func TestDriftsOfRandomLimitsAreReported(t *testing.T) {
	calm := map[throttletest.Kind]*[2]int{throttletest.Bucket: {}, throttletest.Fixed: {}}
	found, n := 0, seeds(race.Pick(1, 8))
	for seed := range n {
		for _, counts := range []float64{2, 0.5} {
			check := func(w driftWorld) (one int) {
				events, n := w.run(t)
				if len(events) > 1 || len(events) == 1 && ((events[0].Drift > 0) != (counts > 1) || !strings.HasPrefix(events[0].Reason, "meter:")) {
					t.Errorf("%+v: %+v: %+v", w, n, events)
				}
				return len(events)
			}
			found += check(newDriftWorld(seed, kinds[seed/2%4], counts))
			kind := kinds[seed%2]
			calm[kind][0]++
			calm[kind][1] += check(newCalmWorld(seed, kind, counts))
		}
	}
	t.Logf("reported %d of %d", found, 2*n)
	for kind, n := range calm {
		t.Logf("calm, %s: reported %d of %d", kind, n[1], n[0])
		if n[1]*4 < n[0] {
			t.Errorf("calm, %s: reported only %d of %d", kind, n[1], n[0])
		}
	}
}
