package queue

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/internal/upstream"
	"time"
)

// plainRanks is ranks in the plainest way: a list in which everything is looked up anew.
type plainRanks []*waiter

func byPriority(a, b *waiter) int {
	return cmp.Or(cmp.Compare(b.prio, a.prio), cmp.Compare(a.seq, b.seq))
}

func byArrival(a, b *waiter) int { return cmp.Compare(a.seq, b.seq) }

// next is whose turn it is, if a scope may send no call before the moment that ready tells.
func (p plainRanks) next(turn uint32, ready func(scope uint8, n int) time.Time, now time.Time) *waiter {
	order := byPriority
	if turn%fairEvery == fairEvery-1 {
		order = byArrival
	}
	var may, must []*waiter // of each scope its first call: those who may go, and those who must wait
	for scope := range uint8(16) {
		of := slices.DeleteFunc(slices.Clone(p), func(w *waiter) bool { return w.scope != scope })
		if len(of) == 0 {
			continue
		}
		if w := slices.MinFunc(of, order); ready(scope, int(w.cost)).After(now) {
			must = append(must, w)
		} else {
			may = append(may, w)
		}
	}
	switch {
	case len(may) > 0:
		return slices.MinFunc(may, order)
	case len(must) > 0: // the soonest
		return slices.MinFunc(must, func(a, b *waiter) int {
			return cmp.Or(ready(a.scope, int(a.cost)).Compare(ready(b.scope, int(b.cost))), cmp.Compare(b.prio, a.prio), cmp.Compare(a.scope, b.scope))
		})
	}
	return nil
}

func (p plainRanks) ahead(prio int32, seq uint64, scope uint8) (all, mine int64) {
	for _, w := range p {
		if w.prio > prio || w.prio == prio && w.seq < seq {
			if all += int64(w.cost); w.scope == scope {
				mine += int64(w.cost)
			}
		}
	}
	return all, mine
}

// check compares all that a line asks of its ranks.
func (p plainRanks) check(r *ranks, rng *rand.Rand, prios int) error {
	now := time.Unix(1000, 0)
	free := rng.Uint32() // the scopes that may send; a cost above 2 is too much for those whose bit is in high
	high := rng.Uint32()
	ready := func(scope uint8, n int) time.Time {
		switch {
		case free>>scope&1 == 0:
			return now.Add(time.Duration(scope%3+1) * time.Second)
		case high>>scope&1 == 0 && n > 2:
			return now.Add(time.Duration(n) * time.Second)
		}
		return now
	}
	r.served = rng.Uint32()
	if got, want := r.nextIn(ready, now), p.next(r.served, ready, now); got != want {
		return fmt.Errorf("turn %d is that of %+v, want %+v", r.served, got, want)
	}
	all := func(uint8, int) time.Time { return now }
	if got, want := r.next(), p.next(r.served, all, now); got != want {
		return fmt.Errorf("all may go, turn %d is that of %+v, want %+v", r.served, got, want)
	}
	prio, seq, scope := int32(rng.IntN(prios+2)-1), rng.Uint64N(12_000), uint8(rng.IntN(5))
	total, mine := r.ahead(prio, seq, scope)
	if a, m := p.ahead(prio, seq, scope); total != a || mine != m {
		return fmt.Errorf("%d and %d units are ahead of call %d with priority %d in scope %d, want %d and %d", total, mine, seq, prio, scope, a, m)
	}
	if r.count != len(p) {
		return fmt.Errorf("%d wait, want %d", r.count, len(p))
	}
	if len(p) > 0 && r.top() != slices.MinFunc(p, byPriority).prio {
		return fmt.Errorf("the highest priority is %d", r.top())
	}
	return nil
}

// The order is that of a plain list, whatever comes, goes, comes back to its old place or moves to
// another scope.
func TestRanksAgainstPlainList(t *testing.T) {
	for seed := range race.Pick(uint64(15), 60) {
		rng := rand.New(rand.NewPCG(seed, 2))
		scopes, prios := 1+rng.IntN(4), []int{1, 3, 200}[rng.IntN(3)]
		var r ranks
		var p plainRanks
		var left []*waiter // may come back
		for step := range 1500 {
			switch n := rng.IntN(10); {
			case n < 5 && (step/300)%2 == 0, n < 3, len(p) == 0: // more come, then more leave
				w := &waiter{seq: uint64(2*step + 2), prio: int32(rng.IntN(prios)), scope: uint8(rng.IntN(scopes)), route: upstream.Route(rng.IntN(8)), cost: rng.Int32N(5)}
				if len(left) > 0 && rng.IntN(3) == 0 { // a retry
					i := rng.IntN(len(left))
					w.seq = left[i].seq
					left = slices.Delete(left, i, i+1)
				}
				r.push(w)
				p = append(p, w)
			default:
				w := p[rng.IntN(len(p))] // gives up
				if n%2 == 0 {
					w = r.next() // is granted
				}
				r.remove(w)
				if w.index != -1 {
					t.Fatalf("seed %d, step %d: index %d after the removal", seed, step, w.index)
				}
				p = slices.DeleteFunc(p, func(x *waiter) bool { return x == w })
				left = append(left, w)
			}
			if rng.IntN(100) == 0 { // what is known of the routes has changed
				now := upstream.Route(rng.IntN(4))
				r.move(func(r upstream.Route) uint8 { return uint8((r + now) % 4) })
			}
			if err := p.check(&r, rng, prios); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			if step%100 == 0 {
				checkTrees(t, &r)
				want := slices.SortedFunc(slices.Values(p), byPriority)
				if !slices.Equal(r.ordered(), want) {
					t.Fatalf("seed %d, step %d: not ordered", seed, step)
				}
			}
		}
	}
}

// checkTrees checks each level against its waiters and its place in the tree, and returns the depth
// of the deepest tree.
func checkTrees(t *testing.T, r *ranks) (deepest int) {
	t.Helper()
	for i := range r.scopes {
		s := &r.scopes[i]
		if i > 0 && r.scopes[i-1].number >= s.number || s.root == nil {
			t.Fatalf("scope %d after %d, or empty", s.number, r.scopes[i-1].number)
		}
		above := int64(1) << 40 // the priority of the level visited before
		var visit func(l *level, depth int) (units int64, oldest uint64)
		visit = func(l *level, depth int) (int64, uint64) {
			if l == nil {
				return 0, 1 << 62
			}
			deepest = max(deepest, depth)
			more, first := visit(l.below[0], depth+1)
			if int64(l.prio) >= above {
				t.Fatalf("priority %d stands after %d", l.prio, above)
			}
			above = int64(l.prio)
			units := more
			l.fifo.each(func(w *waiter) { units, first = units+int64(w.cost), min(first, w.seq) })
			more, oldest := visit(l.below[1], depth+1)
			units, oldest = units+more, min(first, oldest)
			if l.total != units || l.oldest.seq != oldest {
				t.Fatalf("the tree of priority %d has %d units, oldest %d; it says %d, %d", l.prio, units, oldest, l.total, l.oldest.seq)
			}
			return units, oldest
		}
		visit(s.root, 1)
	}
	return deepest
}

// A turn looks at a few levels of thousands, in whatever pattern programs choose their priorities.
func TestTreesStayFlat(t *testing.T) {
	const levels = 10_000 // a random tree of so many has a depth of 31 on average
	for name, prio := range map[string]func(i int) int32{
		"rising":    func(i int) int32 { return int32(i) },
		"falling":   func(i int) int32 { return int32(-i) },
		"times":     func(i int) int32 { return int32(1_700_000_000 + 60*i) },
		"high bits": func(i int) int32 { return int32(i << 16) },
	} {
		var r ranks
		seq := uint64(0)
		push := func(i int) {
			seq++
			r.push(&waiter{seq: seq, prio: prio(i), cost: 1})
		}
		for i := range levels {
			push(i)
		}
		for i := range levels { // and so they stay: the oldest leaves, another comes
			r.served = fairEvery - 1
			r.remove(r.next())
			push(levels + i)
		}
		if depth := checkTrees(t, &r); depth > 50 {
			t.Errorf("%s: 10,000 priorities stand %d deep, want about 31", name, depth)
		}
	}
}
