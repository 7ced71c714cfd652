package lab_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/throttletest"
)

// These tests are about upstreams that serve so many requests at once, and throttle the others without a word about that.

// A crowded is such an upstream, and who calls it. All that it is follows from its seed.
type crowded struct {
	seed       uint64
	most       int           // requests that it serves at once
	call       time.Duration // mean of a whole call
	shape      string        // of its time: constant, uniform, exponential
	way        float64       // the part of it that is spent on the way
	retryAfter time.Duration
	random     float64 // share that is throttled at random
	rate       float64 // of a limit beside, of what most allows; 0: there is none
	clients    int
	workers    int     // of each client; 0: open load
	demand     float64 // of an open load, of what most allows
	until      time.Duration
}

func (c *crowded) String() string {
	load := fmt.Sprintf("%d workers", c.workers)
	if c.workers == 0 {
		load = fmt.Sprintf("open load of %.2f", c.demand)
	}
	return fmt.Sprintf("seed %d: %d at once; calls of %v %s, %.0f %% on the way; retry-after %v; %.1f %% at random; rate %.2f; %d clients; %s; %v",
		c.seed, c.most, c.call.Round(time.Millisecond), c.shape, 100*c.way, c.retryAfter, 100*c.random, c.rate, c.clients, load, c.until.Round(time.Second))
}

// newCrowded draws the upstream of a seed.
func newCrowded(seed uint64) *crowded {
	r := rand.New(rand.NewPCG(seed, 38))
	c := &crowded{seed: seed, most: int(logUniform(r, 1, 201)), clients: 1 + r.IntN(2)}
	c.call = time.Duration(logUniform(r, max(0.02, float64(c.most)/500), 10) * 1e9)
	c.shape, c.way = pick(r, "constant", 20, "uniform", 40, "exponential", 40), 0.02+0.2*r.Float64()
	c.retryAfter = map[string]time.Duration{"none": 0, "exact": throttletest.Exact, "1s": time.Second,
		"more": time.Duration(2+r.IntN(9)) * time.Second}[pick(r, "none", 50, "exact", 15, "1s", 25, "more", 10)]
	if r.IntN(10) < 3 {
		c.random = logUniform(r, 0.001, 0.05)
	}
	if r.IntN(10) < 2 {
		c.rate = 0.5 + 1.5*r.Float64()
	}
	if c.workers = int(logUniform(r, 2, 401)); r.IntN(10) < 3 {
		c.workers, c.demand = 0, 0.3+1.2*r.Float64()
	}
	c.until = time.Duration(min(max(30000*c.call.Seconds()/float64(c.most), 120), 600) * 1e9)
	return c
}

// run calls it with clients that the func makes, and returns what was served and throttled in the last four fifths of the time.
func (c *crowded) run(t *testing.T, client func(base http.RoundTripper) http.RoundTripper) (served []float64, throttled float64) {
	synctest.Test(t, func(t *testing.T) {
		part := func(of float64) throttletest.Span {
			mean := time.Duration(of * float64(c.call))
			return map[string]throttletest.Span{"constant": {Min: mean}, "uniform": {Min: mean / 2, Max: mean * 3 / 2}, "exponential": {Min: mean / 4, Mean: mean * 3 / 4}}[c.shape]
		}
		limits := []throttletest.Limit{{Kind: throttletest.InFlight, N: c.most}}
		if c.rate > 0 {
			per := time.Minute
			limits = append(limits, throttletest.Limit{N: max(1, int(c.rate*float64(c.most)*per.Seconds()/c.call.Seconds())), Per: per, Burst: max(1, c.most)})
		}
		s := newSim(trip{}, c.seed, limits...)
		s.Latency, s.Work, s.RetryAfter = part(c.way/2), part(1-c.way), c.retryAfter
		if c.random > 0 {
			s.Faults = []throttletest.Fault{random(c.random, c.retryAfter)}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range c.clients {
			rt := client(s.port(i))
			if c.workers > 0 {
				wg.Go(s.load(ctx, t, rt, c.workers, s.URL()))
				continue
			}
			wg.Go(func() { c.open(ctx, &wg, rt, s, uint64(i)) })
		}
		time.Sleep(c.until)
		cancel()
		wg.Wait()
		served = make([]float64, c.clients)
		l := s.Ledger().Between(c.until/5, c.until)
		for i := range l {
			switch a := &l[i]; {
			case a.Verdict == throttletest.Admitted:
				served[int(a.Client[0]-'0')]++
			case a.Verdict == throttletest.Throttled && a.Limit >= 0:
				throttled++
			}
		}
	})
	return served, throttled
}

// open starts calls at random moments.
func (c *crowded) open(ctx context.Context, wg *sync.WaitGroup, rt http.RoundTripper, s *sim, i uint64) {
	r := rand.New(rand.NewPCG(c.seed, 39+i))
	mean := c.call.Seconds() / float64(c.most) / c.demand * float64(c.clients)
	for ctx.Err() == nil {
		time.Sleep(time.Duration(r.ExpFloat64() * mean * 1e9))
		wg.Go(func() { _, _ = get(ctx, rt, s.URL()) })
	}
}

// A crowdedVerdict is how clients have fared: what was served of what those are that know the limit, and what was throttled of all.
type crowdedVerdict struct {
	*crowded
	share, throttled, jain float64
}

func sum(all []float64) (n float64) {
	for _, x := range all {
		n += x
	}
	return n
}

func (c *crowded) judge(t *testing.T) crowdedVerdict {
	make := func(most int) func(http.RoundTripper) http.RoundTripper {
		return func(base http.RoundTripper) http.RoundTripper {
			return &throttle.Transport{Base: base, Queue: throttle.QueueOptions{MaxInFlight: most}, Retry: throttle.Retry{MaxAttempts: 1 << 30, MaxPause: -1}}
		}
	}
	ours, throttled := c.run(t, make(0))
	known, _ := c.run(t, make(max(1, c.most/c.clients)))
	squares := 0.0
	for _, x := range ours {
		squares += x * x
	}
	return crowdedVerdict{c, sum(ours) / max(1, sum(known)), throttled / max(1, throttled+sum(ours)), sum(ours) * sum(ours) / max(1, squares*float64(c.clients))}
}

// A limit of the calls in flight is found, held and named: in minutes 2 to 10 nearly all of it is used, and hardly anything is throttled.
// One client has four times as many workers; of two each has.
func TestInFlightLimit(t *testing.T) {
	for _, clients := range []int{1, 2} {
		for _, most := range []int{20, 5, 100} {
			for _, call := range []time.Duration{100 * time.Millisecond, 5 * time.Second} {
				for _, retryAfter := range []time.Duration{0, time.Second} {
					c := &crowded{seed: 1, most: most, call: call, shape: "uniform", way: 0.1, retryAfter: retryAfter, clients: clients, workers: 4 * most, until: race.Pick(90*time.Second, 10*time.Minute)}
					t.Run(fmt.Sprintf("%d/%v/retry-after-%v/%d", most, call, retryAfter, clients), func(t *testing.T) {
						if most != 20 || call > time.Second || retryAfter > 0 || clients > 1 {
							race.Long(t)
						}
						if most == 100 && call < time.Second {
							race.Full(t)
						}
						v := c.judge(t)
						t.Logf("%.1f %% used, %.2f %% throttled, Jain %.3f", 100*v.share, 100*v.throttled, v.jain)
						if clients == 1 && (v.share < 0.8 || v.throttled > 0.05) { // mostly 97 % and 1 %; less if it is found late
							t.Errorf("%.1f %% used, %.2f %% throttled", 100*v.share, 100*v.throttled)
						}
					})
				}
			}
		}
	}
}

// Observers hear of it once, and are told what holds a call.
func TestInFlightLimitIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(trip{8 * time.Millisecond, 12 * time.Millisecond}, 1, throttletest.Limit{Kind: throttletest.InFlight, N: 10})
		s.Work = throttletest.Span{Min: 40 * time.Millisecond, Max: 140 * time.Millisecond}
		var heard []throttle.Learned
		var mu sync.Mutex
		tr := s.client(0).(*throttle.Transport)
		tr.Hooks.Learned = func(_ context.Context, e throttle.Event) {
			if mu.Lock(); e.Learned.Unit == "in-flight" {
				heard = append(heard, e.Learned)
			}
			mu.Unlock()
		}
		ctx, cancel := context.WithCancel(t.Context())
		wait := s.load(ctx, t, tr, 30, s.URL())
		time.Sleep(time.Minute)
		k := statsOf(tr)
		cancel()
		wait()
		if len(heard) == 0 || len(heard) > 3 || heard[0].Source != "throttled" || heard[len(heard)-1].Limit < 9 || heard[len(heard)-1].Limit > 11 {
			t.Errorf("heard of %+v", heard)
		}
		if k.Reason != "in-flight:found" || len(k.Learned) != 1 || k.Learned[0].Unit != "in-flight" || k.Learned[0].Limit < 9 || k.InFlight > 11 {
			t.Errorf("%+v", k)
		}
	})
}

// Of random upstreams that serve so many at once as much is used as by clients that know how many, in the mean.
func TestRandomInFlightLimits(t *testing.T) {
	race.Long(t)
	n, from := 20, uint64(1)
	fmt.Sscan(os.Getenv("THROTTLE_SEEDS"), &n)
	fmt.Sscan(os.Getenv("THROTTLE_FROM"), &from)
	var all []crowdedVerdict
	for i := range n {
		all = append(all, newCrowded(from+uint64(i)).judge(t))
	}
	groups := map[string][]crowdedVerdict{}
	for _, v := range all {
		for _, g := range []string{"all", fmt.Sprintf("clients %d", v.clients), fmt.Sprintf("retry-after %v", v.retryAfter != 0), fmt.Sprintf("random %v", v.random > 0),
			fmt.Sprintf("rate %v", v.rate > 0), fmt.Sprintf("open %v", v.workers == 0)} {
			groups[g] = append(groups[g], v)
		}
		if v.random == 0 && v.rate == 0 && v.clients == 1 {
			groups["alone"] = append(groups["alone"], v)
		}
	}
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		vs := groups[g]
		slices.SortFunc(vs, func(a, b crowdedVerdict) int { return cmp.Compare(a.share, b.share) })
		mean, throttled := 0.0, 0.0
		for _, v := range vs {
			mean, throttled = mean+v.share/float64(len(vs)), throttled+v.throttled/float64(len(vs))
		}
		t.Logf("%-20s %4d: mean %.1f %%, 5th percentile %.1f %%, worst %.1f %%; throttled %.2f %%", g, len(vs), 100*mean, 100*vs[len(vs)/20].share, 100*vs[0].share, 100*throttled)
	}
	for _, v := range groups["all"][:min(10, len(all))] {
		t.Logf("%.1f %%, %.2f %% throttled, Jain %.2f: %v", 100*v.share, 100*v.throttled, v.jain, v.crowded)
	}
}
