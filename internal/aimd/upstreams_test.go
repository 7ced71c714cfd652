package aimd

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/go-throttle/throttle/internal/race"
)

// A world is workers that call something one after the other, under a Bound or without one, in virtual time.
type world struct {
	workers int
	length  time.Duration
	draw    func(worker int) float64 // how long a call takes alone, in seconds
	speed   func(n int) float64      // of each of n calls; nil: 1
}

// A ran is a call in flight: of whom, since when, and when it ends by the clock of work done.
type ran struct {
	worker int
	began  time.Duration
	due    float64
}

type calls []ran

func (c calls) Len() int           { return len(c) }
func (c calls) Less(i, j int) bool { return c[i].due < c[j].due }
func (c calls) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }
func (c *calls) Push(x any)        { *c = append(*c, x.(ran)) }
func (c *calls) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

// run returns how many calls ended after the first fifth of the time, and how long they took. All calls in flight get on at the same speed, so
// each has done as much since the start as any other: done.
func (w *world) run(most int, b *Bound) (ended int, took []float64) {
	var in calls
	start, now, done := time.Unix(0, 0), time.Duration(0), 0.
	line := make([]int, w.workers)
	for i := range line {
		line[i] = i
	}
	for {
		for len(line) > 0 && len(in) < most && (b == nil || len(in) < b.Now()) {
			heap.Push(&in, ran{line[0], now, done + w.draw(line[0])})
			if line = line[1:]; b != nil {
				b.Use(len(in))
				b.Begin(start.Add(now))
			}
		}
		next, speed := heap.Pop(&in).(ran), 1.
		if w.speed != nil {
			speed = w.speed(len(in) + 1)
		}
		if now += time.Duration((next.due - done) / speed * float64(time.Second)); now > w.length {
			return ended, took
		}
		done = next.due
		if line = append(line, next.worker); now > w.length/5 {
			ended, took = ended+1, append(took, (now-next.began).Seconds())
		}
		if b != nil {
			b.End(start.Add(next.began), start.Add(now), true)
			b.FollowTimes(len(in), start.Add(now))
		}
	}
}

// followed is how many of run end under a bound that follows response times.
func (w *world) followed(target float64) int {
	var b Bound
	b.Init(&Law{Target: target, Least: 1, Most: w.workers})
	ended, _ := w.run(w.workers, &b)
	return ended
}

// p90 is the response time that nine of ten are within.
func p90(took []float64) float64 {
	slices.Sort(took)
	return took[len(took)*9/10]
}

// simulates skips a test with the race detector: nothing here shares memory.
func simulates(t *testing.T) {
	if race.Enabled {
		t.Skip("skipped: a simulation")
	}
}

// judged are seeds that nothing was chosen by.
const judged = 3800

// TestFreeUpstreams: nothing is in the way, and response times vary: lognormal, σ 0.3 to 1.8, or some are 10 to 100 times as long.
// With a target that is kept, by a fifth, a half, or half of it, the calls of 2,000 upstreams go on as they were. Where more than 9 of
// 100 are late by nature, so that nine of ten are within the target at best, a twentieth more may be lost.
func TestFreeUpstreams(t *testing.T) {
	simulates(t)
	for _, factor := range []float64{1.2, 1.5, 2} {
		var kept []float64
		barely, least := 0, 100.
		for seed := range uint64(race.Pick(8, 2000)) {
			r := rand.New(rand.NewPCG(seed, judged))
			median, sigma, slow, by := 0.1*math.Exp(r.Float64()*3), 0.3+1.5*r.Float64(), 0., 1.
			if r.IntN(3) == 0 {
				sigma, slow, by = 0.2, 0.01+0.49*r.Float64(), 10+90*r.Float64()
			}
			w := world{workers: 8 + r.IntN(60)}
			w.length = max(2*time.Minute, time.Duration(8_000*median*(1+slow*by)/float64(w.workers)*float64(time.Second)))
			run := func(target float64) (int, []float64) {
				each := make([]*rand.Rand, w.workers) // so that both runs have the same calls
				for i := range each {
					each[i] = rand.New(rand.NewPCG(seed, uint64(judged+1+i)))
				}
				w.draw = func(worker int) float64 {
					v := median * math.Exp(sigma*each[worker].NormFloat64())
					if each[worker].Float64() < slow {
						v *= by
					}
					return v
				}
				if target == 0 {
					return w.run(w.workers, nil)
				}
				return w.followed(target), nil
			}
			all, took := run(0)
			target := factor * p90(took)
			with, _ := run(target)
			share := 100 * float64(with) / float64(all)
			if float64(len(took)-sort.SearchFloat64s(took, above*target)) > 0.09*float64(len(took)) {
				barely, least = barely+1, min(least, share)
				continue
			}
			kept = append(kept, share)
		}
		slices.Sort(kept)
		mean, worst := mean(kept), kept[0]
		t.Logf("target %.1f × p90: %.2f %% kept in the mean, 5th percentile %.1f, worst %.1f; of %d that keep it barely the worst %.1f",
			factor, mean, kept[len(kept)/20], worst, barely, least)
		if mean < 99.8 || worst < 90 {
			t.Errorf("target %.1f × p90: %.2f %% kept, worst %.1f", factor, mean, worst)
		}
	}
}

// TestCollapses: something serves up to so many calls at full speed, and loses 2 to 20 % of what it can do with each one more. 3 to 8 times as
// many workers call it. The target is above what nine of ten take at that number by a fifth or a half.
func TestCollapses(t *testing.T) {
	simulates(t)
	for _, factor := range []float64{1.2, 1.5} {
		var kept, without []float64
		for seed := range uint64(race.Pick(5, 500)) {
			r := rand.New(rand.NewPCG(seed, judged))
			median, sigma := 0.05*math.Exp(r.Float64()*3), 0.3+0.9*r.Float64()
			knee, loss := 4+r.IntN(30), 0.02+0.18*r.Float64()
			w := world{workers: knee * (3 + r.IntN(6)), length: 4 * time.Minute}
			w.draw = func(int) float64 { return median * math.Exp(sigma*r.NormFloat64()) }
			w.speed = func(n int) float64 {
				if n <= knee {
					return 1
				}
				return float64(knee) / float64(n) / (1 + loss*float64(n-knee))
			}
			best, took := w.run(knee, nil)
			none, _ := w.run(w.workers, nil)
			kept = append(kept, 100*float64(w.followed(factor*p90(took)))/float64(best))
			without = append(without, 100*float64(none)/float64(best))
		}
		slices.Sort(kept)
		t.Logf("target %.1f × p90: %.0f %% of what is possible, 5th percentile %.0f, worst %.0f; without a bound %.0f %%", factor,
			mean(kept), kept[len(kept)/20], kept[0], mean(without))
		if mean(kept) < 70 || mean(kept) < 2*mean(without) {
			t.Errorf("target %.1f × p90: %.0f %% of what is possible; without a bound %.0f %%", factor, mean(kept), mean(without))
		}
	}
}

func mean(all []float64) (m float64) {
	for _, v := range all {
		m += v / float64(len(all))
	}
	return m
}

// TestLightUse: a few workers for 20 minutes, and a bound of 50. What chance makes late lowers the bound by little, so that many may
// come afterwards.
func TestLightUse(t *testing.T) {
	simulates(t)
	for _, factor := range []float64{1, 1.2, 1.5} {
		sum, n, worst := 0, 0, 50
		for seed := range uint64(race.Pick(20, 200)) {
			r := rand.New(rand.NewPCG(seed, judged))
			median, sigma := 0.1*math.Exp(r.Float64()*3), 0.3+1.2*r.Float64()
			w := world{workers: 1 + r.IntN(8), length: 20 * time.Minute}
			w.draw = func(int) float64 { return median * math.Exp(sigma*r.NormFloat64()) }
			_, took := w.run(w.workers, nil)
			var b Bound
			b.Init(&Law{Target: factor * p90(took), Least: 1, Most: 50})
			w.run(w.workers, &b)
			sum, n, worst = sum+b.Now(), n+1, min(worst, b.Now())
		}
		t.Logf("target %.1f × p90: a bound of %.1f in the mean, %d at worst", factor, float64(sum)/float64(n), worst)
		if sum < 42*n {
			t.Errorf("target %.1f × p90: a bound of %.1f in the mean", factor, float64(sum)/float64(n))
		}
	}
}
