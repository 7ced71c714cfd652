package limit

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// joined makes parts of sets; the first has no name, the others are meters a, b, c.
func joined(sets ...*Set) *Set {
	b := new(Set)
	for i, s := range sets {
		b.AddPart(strings.TrimSpace(string(" abc"[i])), s)
	}
	return b
}

// variable is a Var that holds accounts.
func variable(t *testing.T, as ...Account) *Var {
	v := new(Var)
	if err := v.Set(set(as...)); err != nil {
		t.Fatal(err)
	}
	return v
}

func availableOf(a Account) float64 { return set(a).Available(time.Now()) }

// Each limiter pays by its own amount, and a call waits for the latest of them.
func TestPartsTakesFromAllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, tokens := leaky(1), bucket(100, 500)
		b := joined(set(calls), set(tokens))
		take := func(want time.Duration, amounts ...int) {
			t.Helper()
			now := time.Now()
			m, err := b.TakeBy(now, now, amounts...)
			if ready, e := b.Ready(now, amounts...); err == nil && (e != nil || want > 0 && ready != m) {
				t.Errorf("Ready says %v, %v and TakeBy %v", ready, e, m)
			}
			if err != nil || m.Sub(now) != want {
				t.Errorf("%v: wait %v, %v; want %v", amounts, m.Sub(now), err, want)
			}
		}
		take(0, 1, 400)
		if got := availableOf(tokens); got != 100 {
			t.Errorf("%v tokens are left, want 100", got)
		}
		take(2*time.Second, 1, 300)
		take(time.Second, 1, 100)
		if calls, tokens := availableOf(calls), availableOf(tokens); calls != 0 || tokens != 100 {
			t.Errorf("refused calls took units: %v and %v are left", calls, tokens)
		}
		time.Sleep(4 * time.Second)
		take(0, 1, 900) // above the burst: it goes when the bucket is full, and leaves a debt
		take(5*time.Second, 1, 100)
		take(0, 0, 0)
	})
}

// Whoever stands in two of them pays both amounts at once, also as the part of a Var.
func TestPartsSumsWhatOneAccountPays(t *testing.T) {
	for name, second := range map[string]func(*testing.T, *Bucket) *Set{
		"itself": func(_ *testing.T, pool *Bucket) *Set { return set(pool) },
		"a Var":  func(t *testing.T, pool *Bucket) *Set { return set(variable(t, pool, bucket(1, 1000))) },
		"both":   func(t *testing.T, pool *Bucket) *Set { return set(variable(t, pool), pool) },
	} {
		synctest.Test(t, func(t *testing.T) {
			pool := bucket(10, 500)
			b := joined(new(Set), set(pool), second(t, pool))
			now := time.Now()
			m, err := b.TakeBy(now, now, 1, 200, 150)
			if err != nil || m.After(now) || availableOf(pool) != 150 {
				t.Errorf("%s: %v, %v, and %v are left; want 150", name, m.Sub(now), err, availableOf(pool))
			}
			if m, err = b.TakeBy(now, now, 1, 100, 100); err != nil || m.Sub(now) != 5*time.Second {
				t.Errorf("%s: each amount fits and their sum does not: %v, %v; want 5 s", name, m.Sub(now), err)
			}
			if b.GiveBack(now, now, 1, 200, 150); availableOf(pool) != 500 {
				t.Errorf("%s: after GiveBack %v are there, want 500", name, availableOf(pool))
			}
		})
	}
}

// A Var that is replaced is paid by what it holds now.
func TestPartsFollowsAVar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, old, next := new(Var), bucket(1, 100), bucket(2, 100)
		b := joined(new(Set), set(v))
		now := time.Now()
		for i, held := range []*Bucket{nil, old, next} {
			if held != nil {
				v.Set(set(held))
			}
			if m, err := b.TakeBy(now, now, 1, 30); err != nil || m.After(now) {
				t.Errorf("step %d: %v, %v", i, m.Sub(now), err)
			}
		}
		if a, b := availableOf(old), availableOf(next); a != 70 || b != 40 {
			t.Errorf("%v and %v are left, want 70 and 40", a, b)
		}
	})
}

// Pay takes what TakeBy would take as of now, of all kinds, and nothing otherwise.
func TestPayIsTakeBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(7, 7))
		for round := range 200 {
			seed, kinds := r.Uint64(), r.IntN(4)
			made := func() (*Set, []Account) {
				r := rand.New(rand.NewPCG(seed, 1))
				as := []Account{bucket(rate.Limit(1+r.IntN(100)), 1+r.IntN(50)), bucket(rate.Limit(1+r.IntN(100)), 1+r.IntN(50)), leaky(20)}
				switch kinds {
				case 1:
					as[2] = fixed(20, time.Second)
				case 2:
					as[1] = bucket(rate.Inf, 0)
				case 3:
					as[2] = as[0]
				}
				return joined(set(as[0]), set(as[1]), set(as[2])), as
			}
			one, of := made()
			two, other := made()
			for range 50 {
				time.Sleep(time.Duration(r.IntN(50)) * ms)
				now, amounts := time.Now(), []int{r.IntN(3), r.IntN(30), r.IntN(4)}
				paid := one.PayBy(now, amounts...)
				m, err := two.TakeBy(now, now, amounts...)
				if taken := err == nil && !m.After(now); paid != taken {
					t.Fatalf("round %d, %v: paid %v, taken %v: %v", round, amounts, paid, taken, err)
				}
				for i := range of {
					if a, b := availableOf(of[i]), availableOf(other[i]); a != b {
						t.Fatalf("round %d, %v: %v and %v are left in %d", round, amounts, a, b, i)
					}
				}
			}
		}
	})
}

func TestPartsErrorsNameTheMeter(t *testing.T) {
	b := joined(set(bucket(1, 10)), set(bucket(1, 10)))
	now := time.Now()
	for _, c := range []struct {
		amounts []int
		want    string
	}{
		{[]int{1, 100_000}, `throttle: meter "a": cost 100000 is above burst 10`},
		{[]int{100_000, 1}, `throttle: cost 100000 is above burst 10`},
		{[]int{-1, 5}, `throttle: cost -1 is negative`},
		{[]int{1, -5}, `throttle: cost -5 is negative`},
	} {
		_, err := b.TakeBy(now, now, c.amounts...)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.amounts, err, c.want)
		}
	}
}

// Settle gives back what was too much, charges what was too little, and tells those who wait. A window that is over gets
// nothing back.
func TestSettle(t *testing.T) {
	type want struct{ before, after float64 } // available before and after the settlement
	for _, c := range []struct {
		name    string
		a       Account
		held, n int
		after   time.Duration
		want    want
	}{
		{"bucket, too much", bucket(1, 100), 60, 10, 0, want{40, 90}},
		{"bucket, too little", bucket(1, 100), 60, 130, 0, want{40, -30}},
		{"bucket, as held", bucket(1, 100), 60, 60, 0, want{40, 40}},
		{"bucket, all back", bucket(1, 100), 60, 0, 0, want{40, 100}},
		{"fixed, in time", fixed(100, time.Minute), 60, 10, 50 * time.Second, want{40, 90}},
		{"fixed, too late", fixed(100, time.Minute), 60, 10, 70 * time.Second, want{100, 100}},
		{"fixed, three windows, in the second", fixed(100, time.Minute), 250, 10, 70 * time.Second, want{-50, 100}},
		{"fixed, three windows, the last units", fixed(100, time.Minute), 250, 220, 70 * time.Second, want{-50, -20}},
		{"sliding, in time", sliding(100, time.Minute), 60, 10, 50 * time.Second, want{40, 90}},
		{"sliding, too late", sliding(100, time.Minute), 60, 10, 70 * time.Second, want{100, 100}},
		{"sliding, more, too late", sliding(100, time.Minute), 60, 70, 70 * time.Second, want{100, 90}},
		{"a Var", variable(t, bucket(1, 100), bucket(1, 50)), 60, 10, 0, want{-10, 40}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, now, calls := set(c.a), time.Now(), 0
			if m, err := s.TakeBy(now, now, c.held); err != nil || m.After(now) {
				t.Fatalf("%s: %v, %v", c.name, m, err)
			}
			defer s.Watch(func() { calls++ })()
			time.Sleep(c.after)
			before := s.Available(time.Now())
			s.Settle(now, c.held, c.n)
			if got := (want{before, s.Available(time.Now())}); got != c.want {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
			}
			if c.held != c.n && calls != 1 {
				t.Errorf("%s: watchers called %d times", c.name, calls)
			}
		})
	}
}

// Sets of parts over the same accounts in every order, Sets, Vars that are replaced, and settlements, all at once: nothing
// blocks, and no unit is lost or made.
func TestPartsInUseByMany(t *testing.T) {
	const burst = 1 << 30
	a, b, c := bucket(1e-9, burst), bucket(1e-9, burst), bucket(1e-9, burst)
	v := variable(t, c)
	all := []*Set{joined(set(a), set(b, v)), joined(set(v), set(b), set(a)), joined(set(b, a), set(c))}
	var kept [3]int64 // of a, b, c
	var mu sync.Mutex
	var wg sync.WaitGroup
	for g := range uint64(6) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(g, 1))
			var mine [3]int64
			for range 2000 {
				k, now := r.IntN(len(all)), time.Now()
				x := []int{r.IntN(50), r.IntN(50), r.IntN(50)}[:len(all[k].parts.sets)]
				m, err := all[k].TakeBy(now, now, x...)
				if err != nil || m.After(now) {
					t.Error(m.Sub(now), err)
					return
				}
				if r.IntN(3) == 0 {
					all[k].GiveBack(m, time.Now(), x...)
					continue
				}
				for i := range x {
					n := r.IntN(60)
					all[k].parts.sets[i].Settle(m, x[i], n)
					x[i] = n
				}
				switch k {
				case 0:
					mine[0], mine[1], mine[2] = mine[0]+int64(x[0]), mine[1]+int64(x[1]), mine[2]+int64(x[1])
				case 1:
					mine[0], mine[1], mine[2] = mine[0]+int64(x[2]), mine[1]+int64(x[1]), mine[2]+int64(x[0])
				case 2:
					mine[0], mine[1], mine[2] = mine[0]+int64(x[0]), mine[1]+int64(x[0]), mine[2]+int64(x[1])
				}
				if r.IntN(20) == 0 {
					v.Set(set(c)) // the same again: the flat lists are made anew
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for i := range kept {
				kept[i] += mine[i]
			}
		})
	}
	wg.Wait()
	for i, l := range []*Bucket{a, b, c} {
		if got := burst - l.Tokens(); got < float64(kept[i])-1 || got > float64(kept[i])+1 {
			t.Errorf("account %d: %v units are used, want %d", i, got, kept[i])
		}
	}
}
