package queue

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A fifo is a sorted list, whatever comes, goes and comes back, and however many chunks it has.
func TestFifoAgainstPlainList(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var f fifo
		var plain, left []*waiter // plain by seq
		for step := range 3000 {
			switch n := rng.IntN(10); {
			case n < 7 && step < 1500, n < 3, len(plain) == 0:
				w := &waiter{seq: uint64(step + 1), cost: rng.Int32N(4)}
				if len(left) > 0 && rng.IntN(6) == 0 {
					w.seq, left = left[len(left)-1].seq, left[:len(left)-1]
				}
				f.put(w)
				i, _ := slices.BinarySearchFunc(plain, w, byArrival)
				plain = slices.Insert(plain, i, w)
			default:
				i := 0
				if n%2 == 0 {
					i = rng.IntN(len(plain))
				}
				f.take(plain[i])
				if plain[i].index != -1 {
					t.Fatalf("seed %d, step %d: index %d after it was taken", seed, step, plain[i].index)
				}
				left, plain = append(left, plain[i]), slices.Delete(plain, i, i+1)
			}
			if f.waiters() != len(plain) || len(plain) > 0 && f.first() != plain[0] {
				t.Fatalf("seed %d, step %d: %d waiters, or another one is first, want %d", seed, step, f.waiters(), len(plain))
			}
			seq, units := uint64(rng.IntN(step+2)), int64(0)
			for _, w := range plain {
				if w.seq < seq {
					units += int64(w.cost)
				}
			}
			if got := f.before(seq); got != units {
				t.Fatalf("seed %d, step %d: %d units before %d, want %d", seed, step, got, seq, units)
			}
		}
		var all []*waiter
		f.each(func(w *waiter) { all = append(all, w) })
		if slices.SortFunc(all, byArrival); !slices.Equal(all, plain) {
			t.Fatalf("seed %d: each visits others", seed)
		}
	}
}
