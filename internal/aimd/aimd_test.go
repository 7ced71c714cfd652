package aimd

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestNext: a target of 100, bounds of 2 and 50.
func TestNext(t *testing.T) {
	law := Law{Target: 100, Least: 2, Most: 50}
	for _, c := range []struct {
		name       string
		bound      int
		used, load float64
		want       int
	}{
		{"above: a fifth", 50, 50, 111, 40},
		{"above and unused: a fifth", 50, 0, 111, 40},
		{"above by far: a fifth", 50, 50, 1e6, 40},
		{"above, rounded", 7, 7, 111, 6},
		{"above, one at least", 3, 3, 111, 2},
		{"above at the lower end", 2, 2, 111, 2},
		{"at the target", 20, 20, 100, 20},
		{"at the upper edge", 20, 20, 110, 20},
		{"at the lower edge", 20, 20, 90, 20},
		{"below: a tenth", 20, 20, 89, 22},
		{"below, one at least", 3, 3, 89, 4},
		{"below, no load at all", 3, 3, 0, 4},
		{"below, rounded", 16, 16, 89, 18},
		{"below at the upper end", 49, 49, 89, 50},
		{"below, 80 % used", 20, 16, 89, 22},
		{"below, less than 80 % used", 20, 15.9, 89, 20},
		{"no number", 20, 20, math.NaN(), 20},
		{"negative", 20, 20, -1, 20},
		{"infinite", 20, 20, math.Inf(1), 20},
		{"negative infinite", 20, 20, math.Inf(-1), 20},
	} {
		if got := Next(&law, c.bound, c.used, c.load); got != c.want {
			t.Errorf("%s: %d with %v used under %v: %d, want %d", c.name, c.bound, c.used, c.load, got, c.want)
		}
	}
}

// TestBoundTakesEachReadingOnce: what moves a bound, and when.
func TestBoundTakesEachReadingOnce(t *testing.T) {
	var b Bound
	b.Init(&Law{Target: 1, Least: 1, Most: 100})
	start := time.Unix(0, 0)
	for _, c := range []struct {
		name     string
		after    time.Duration
		load     float64
		n        uint64
		inFlight int
		want     int
	}{
		{"no reading yet", 0, math.NaN(), 0, 50, 100},
		{"the first", 0, 2, 1, 50, 80},
		{"the same again", 2 * time.Second, 2, 1, 50, 80},
		{"a new one", 2 * time.Second, 2, 2, 64, 64},
		{"the next one comes early", 2900 * time.Millisecond, 0.5, 3, 64, 64},
		{"and counts later, all used meanwhile", 3 * time.Second, 0.5, 3, 10, 70},
		{"few since", 4 * time.Second, 0.5, 4, 10, 70},
	} {
		if b.Follow(c.load, c.n, c.inFlight, start.Add(c.after)); b.Now() != c.want {
			t.Errorf("%s: %d, want %d", c.name, b.Now(), c.want)
		}
	}
}

// TestBoundRandom: under any readings at any times a bound stays between its ends, moves at most once a second, down only above the
// target, up only below, and by no more than the law says.
func TestBoundRandom(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 38))
		law := Law{Target: math.Exp(r.NormFloat64() * 3), Least: 1 + r.IntN(20)}
		law.Most = law.Least + r.IntN(200)
		var b Bound
		b.Init(&law)
		now, last, n := time.Unix(0, 0), time.Time{}, uint64(0)
		for range 300 {
			now = now.Add(time.Duration(r.ExpFloat64() * float64(time.Second)))
			load := law.Target * math.Exp(r.NormFloat64())
			switch r.IntN(20) {
			case 0:
				load = math.NaN()
			case 1:
				load = math.Inf(1 - 2*r.IntN(2))
			}
			n += uint64(r.IntN(2))
			was := b.Now()
			moved := b.Follow(load, n, r.IntN(law.Most+1), now)
			is := b.Now()
			switch by := float64(is - was); {
			case moved != (is != was), is < law.Least, is > law.Most,
				moved && !last.IsZero() && now.Sub(last) < time.Second,
				is < was && !(load > law.Target) || is > was && !(load < law.Target),
				-by > max(1, 0.2*float64(was)+0.5), by > max(1, 0.1*float64(was)+0.5):
				t.Fatalf("seed %d: %d after %d at %v, the last step was at %v; %+v, load %v", seed, is, was, now, last, law, load)
			}
			if moved {
				last = now
			}
		}
	}
}
