package queue

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/go-throttle/throttle/internal/limit"
)

// Whatever is remembered beside it, no key is ever said to owe less than it does; and as long as few
// are remembered, no key is said to owe anything that was never dropped.
func TestNoDebtIsForgotten(t *testing.T) {
	for _, keys := range []int{5, 40, 4000} {
		rng := rand.New(rand.NewPCG(uint64(keys), 5))
		sets := make([]recordSet, 10)
		type debt struct {
			units int64
			until time.Duration
		}
		owed := map[int]debt{}
		now, strangers := time.Duration(0), 0
		for step := range 20_000 {
			now += time.Duration(rng.IntN(1000))
			key := rng.IntN(keys)
			set := &sets[key%len(sets)]
			got := set.get(uint32(key), now)
			if d := owed[key]; d.until > now && (got.until < d.until || int64(got.units) < d.units) {
				t.Fatalf("%d keys, step %d: key %d owes %+v, remembered are %+v", keys, step, key, d, got)
			}
			if stranger := set.get(uint32(1e6+step), now); stranger.until > 0 {
				strangers++
			}
			d := debt{1 + rng.Int64N(100), now + time.Duration(rng.IntN(200_000))}
			set.put(record{uint32(key), roundUp(d.units), d.until}, now)
			owed[key] = d
		}
		if keys <= 40 && strangers > 0 {
			t.Errorf("%d keys: %d strangers owe something", keys, strangers)
		}
		if keys == 4000 && strangers < 100 {
			t.Errorf("%d keys in 80 places, and only %d strangers pay for that: this shows nothing", keys, strangers)
		}
	}
}

// What is over does not add to what is not.
func TestDebtsThatAreOverAreForgotten(t *testing.T) {
	var s recordSet
	for sum := range uint32(20) {
		s.put(record{sum, 1000, 10}, 0)
	}
	s.put(record{3, 1, 30}, 20)
	if got := s.get(3, 20); got.units != 1 || got.until != 30 {
		t.Errorf("owes %+v, want 1 until 30", got)
	}
	for sum := range uint32(7) {
		s.put(record{100 + sum, 2, 40}, 20)
	}
	if got := s.get(5, 20); got.units != 1 || got.until != 30 { // the one that was over first stands for all
		t.Errorf("all keys owe %+v, want 1 until 30", got)
	}
	if got := s.get(5, 35); got != (record{}) {
		t.Errorf("owes %+v when all is over", got)
	}
}

func TestRoundUp(t *testing.T) {
	for _, n := range []int64{0, 1, 1<<24 - 1, 1<<24 + 1, 1e9 + 1, 1<<62 - 1, math.MaxInt64} {
		if f := roundUp(n); int64(f) < min(n, 1<<62) || float64(f) > float64(n)*(1+1e-6) {
			t.Errorf("%d is rounded to %.0f", n, f)
		}
	}
	if n := unsafe.Sizeof(record{}); n != 16 {
		t.Errorf("a record has %d bytes, want 16", n)
	}
}

// A queue that is made again begins as it was dropped: with each of several limiters.
func TestRecall(t *testing.T) {
	r := &common{base: time.Now()}
	now := r.base
	made := func(key string) (*Queue, *limit.Bucket, *limit.SlidingWindow) {
		b, w, set := new(limit.Bucket), new(limit.SlidingWindow), new(limit.Set)
		b.Init("", 1, 10)
		w.Init("", 10, time.Hour)
		set.Join(b)
		set.Join(w)
		q := &Queue{key: key}
		q.init(r, Limits{All: set, Own: set}, 0)
		return q, b, w
	}
	available := func(a limit.Account) float64 {
		var s limit.Set
		s.Join(a)
		return math.Round(s.Available(now))
	}
	var d dropped
	q, _, _ := made("a")
	d.recall(q, now) // nothing is remembered
	d.keep(q, 65536, now)
	if d.sets != nil {
		t.Error("a queue as new is remembered")
	}
	q.own.TakeBy(now, now, 6)
	d.keep(q, 65536, now)
	if n := len(d.sets) * len(recordSet{}); n != 65536 {
		t.Errorf("%d records for 65,536 keys", n)
	}
	for i := range 1000 { // others
		q, _, _ := made(fmt.Sprint(i))
		q.own.TakeBy(now, now, 1)
		d.keep(q, 65536, now)
	}
	now = now.Add(2 * time.Second)
	q, b, w := made("a")
	d.recall(q, now)
	if x, y := available(b), available(w); x != 6 || y != 4 {
		t.Errorf("%v and %v units are there, want 6 and 4", x, y)
	}
	q, b, w = made("new")
	d.recall(q, now)
	if x, y := available(b), available(w); x != 10 || y != 10 {
		t.Errorf("a new key has %v and %v units, want 10 and 10", x, y)
	}
}
