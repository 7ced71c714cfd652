package lab_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
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

// One call holds a quarter of an advertised limit, and gives back most of that when its answer ends. What comes back after the last
// answer has said what remains is used too. Without it, 61 % of the limit were used.
func TestSmallAdvertisedLimitIsUsed(t *testing.T) {
	const perMinute, length = 8380, time.Hour // 10 calls of 419 tokens in each 30 s
	seeds := race.Pick(1, 4)
	mean := 0.0 // one run differs from another by one or two hundredths
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			model := &lab.Model{Median: 200, Seed: seed}
			s := newModelServer(model, 30*time.Second, throttletest.OpenAI, model.HoldsBound(perMinute))
			s.Work.Min, s.Work.Max = 15*time.Second, 45*time.Second
			load{body: question(2000), workers: 16, until: length}.run(t, metered(s, usage.OpenAI(), perMinute), s.URL())
			used, n := float64(lab.Charged(s.Ledger(), 0, length/6, length))/(length-length/6).Minutes()/perMinute, s.Ledger().Tally()
			t.Logf("%+v, %.3f of the limit used", n, used)
			if mean += used / float64(seeds); n.Throttled > n.Total()/1000 {
				t.Errorf("%+v, want no more than a thousandth throttled", n)
			}
		})
	}
	if mean < 0.9 {
		t.Errorf("%.3f of the limit used in the mean, want 0.9", mean)
	}
}

// A tokenWorld is a random limit of tokens that holds what calls may cost, and what calls there are.
type tokenWorld struct {
	seed               uint64
	sum, whole         bool // it holds the sum; answers do not stream
	dialect            int
	bound, median      int
	work               time.Duration
	perMinute, workers int
}

// newTokenWorld draws one. A call holds a third to a 120th of the limit, and the calls of all workers need 70 to 220 % of it.
func newTokenWorld(seed uint64) tokenWorld {
	r := rand.New(rand.NewPCG(seed, 7))
	w := tokenWorld{seed: seed, sum: r.IntN(2) == 0, whole: r.IntN(2) == 0, dialect: r.IntN(3), bound: []int{300, 500, 1000, 2000, 4000}[r.IntN(5)]}
	w.median = max(20, int(float64(w.bound)*math.Exp(-3*r.Float64())))
	w.work = time.Duration(2 * math.Pow(30, r.Float64()) * float64(time.Second))
	w.perMinute = int(float64(w.bound+125) * 3 * math.Pow(40, r.Float64()))
	cost := 100.0
	for range 1000 {
		cost += min(float64(w.bound), math.Exp(r.NormFloat64())*float64(w.median)) / 1000
	}
	w.workers = min(64, 1+int(float64(w.perMinute)*w.work.Minutes()/cost*(0.7+1.5*r.Float64())))
	return w
}

// run makes its calls, under the true limit, and returns what share of it is used, and what became of the calls.
func (w tokenWorld) run(t *testing.T, advertised bool) (share float64, n throttletest.Tally) {
	synctest.Test(t, func(t *testing.T) {
		model := &lab.Model{Median: w.median, Seed: w.seed}
		limit, law, length := model.HoldsBound(w.perMinute), usage.OpenAI(), max(15*time.Minute, 40*w.work)
		if w.sum {
			limit, law = model.HoldsSum(w.perMinute, 1), usage.Bedrock(1)
		}
		s := newModelServer(model, w.work, []throttletest.Dialect{throttletest.OpenAI, throttletest.Anthropic, throttletest.Draft08}[w.dialect], limit)
		if s.Work.Min, s.Work.Max = w.work/2, w.work*3/2; !advertised {
			s.Advertise.Dialect = nil
		}
		m := throttle.Meter{Name: law.Name, Limiter: throttle.NewBucket(rate.Limit(float64(w.perMinute)/60), w.perMinute), Hold: law.Hold, Settle: law.Settle, Failures: law.Failures}
		rt := &throttle.Transport{Base: s, Meters: func(string) []throttle.Meter { return []throttle.Meter{m} }}
		body := question(w.bound)
		if w.whole {
			body = strings.Replace(body, "true", "null", 1)
		}
		load{body: body, workers: w.workers, until: length}.run(t, rt, s.URL())
		share = float64(lab.Charged(s.Ledger(), 0, length/3, length)) / (length - length/3).Minutes() / float64(w.perMinute)
		n = s.Ledger().Between(length/3, length).Tally()
	})
	return share, n
}

// Random limits that hold what calls may cost are used as well if they are advertised as if they are not, and next to nothing is
// throttled, although what remains says nothing of what has come back since. THROTTLE_SEEDS=300 tries so many.
func TestAdvertisedHoldsAreUsed(t *testing.T) {
	race.Long(t)
	seeds, _ := strconv.Atoi(os.Getenv("THROTTLE_SEEDS"))
	seeds = max(seeds, 24)
	var with, without, throttled, total, least = 0.0, 0.0, 0, 0, 1.0
	worst := ""
	for seed := range uint64(seeds) {
		w := newTokenWorld(seed)
		a, n := w.run(t, true)
		b, _ := w.run(t, false)
		with, without, throttled, total = with+a, without+b, throttled+n.Throttled, total+n.Total()
		if a/b < least {
			least, worst = a/b, fmt.Sprintf("%+v", w)
		}
	}
	t.Logf("%.3f of the limits used, %.3f where nothing is advertised, %d of %d throttled; the least share of that %.2f: %s", with/float64(seeds), without/float64(seeds), throttled, total, least, worst)
	if with < 0.95*without || throttled > total/1000 {
		t.Error("that is too little, or too many")
	}
}
