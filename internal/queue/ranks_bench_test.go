package queue

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// BenchmarkGrant is what one grant costs the line: whose turn it is, taking that call out, and taking in
// a newcomer of the same level. It is spent under the lock of all keys.
//
// A level is a priority in a scope. "one" has one call in each level, so that levels come and go; "deep"
// has 50 waiting in each. In "blocked" half of the scopes may not send now.
func BenchmarkGrant(b *testing.B) {
	for _, c := range []struct{ prios, scopes int }{{1, 1}, {1, 4}, {1000, 1}, {1000, 4}} {
		for _, how := range []string{"one", "deep", "blocked"} {
			if how == "blocked" && c.scopes == 1 {
				continue
			}
			b.Run(fmt.Sprintf("%dx%d/%s", c.prios, c.scopes, how), func(b *testing.B) {
				benchGrant(b, c.prios, c.scopes, how)
			})
		}
	}
}

func benchGrant(b *testing.B, prios, scopes int, how string) {
	each := 1
	if how == "deep" {
		each = 50
	}
	var r ranks
	now := time.Now()
	later := now.Add(time.Second)
	var ready func(uint8, int) time.Time
	if scopes > 1 {
		ready = func(scope uint8, _ int) time.Time {
			if how == "blocked" && scope%2 == 0 {
				return later
			}
			return now
		}
	}
	seq := uint64(0)
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(prios * scopes * each) {
		seq++
		r.push(&waiter{seq: seq, prio: int32(i % prios), scope: uint8(i / prios % scopes), cost: 1})
	}
	b.ReportAllocs()
	for b.Loop() {
		w := r.nextIn(ready, now)
		r.served++
		r.remove(w)
		seq++
		w.seq = seq
		r.push(w)
	}
}

// BenchmarkAhead is what a newcomer with a deadline asks: how much goes before it.
func BenchmarkAhead(b *testing.B) {
	for _, c := range []struct{ prios, scopes int }{{1, 1}, {1000, 1}, {1000, 4}} {
		b.Run(fmt.Sprintf("%dx%d", c.prios, c.scopes), func(b *testing.B) {
			var r ranks
			for i := range c.prios * c.scopes {
				r.push(&waiter{seq: uint64(i + 1), prio: int32(i % c.prios), scope: uint8(i / c.prios), cost: 1})
			}
			i := 0
			for b.Loop() {
				i++
				r.ahead(int32(i%c.prios), 1<<40, 0)
			}
		})
	}
}

// BenchmarkOrdered lists 4,000 calls, as a closing does.
func BenchmarkOrdered(b *testing.B) {
	for _, c := range []struct{ prios, scopes int }{{1, 1}, {1000, 1}, {1000, 4}} {
		b.Run(fmt.Sprintf("%dx%d", c.prios, c.scopes), func(b *testing.B) {
			var r ranks
			for i := range 4000 {
				r.push(&waiter{seq: uint64(i + 1), prio: int32(i % c.prios), scope: uint8(i / c.prios % c.scopes), cost: 1})
			}
			for b.Loop() {
				r.ordered()
			}
		})
	}
}

// BenchmarkFlows is the same with so many flows that wait, and a prediction for a newcomer of another one.
func BenchmarkFlows(b *testing.B) {
	for _, flows := range []int{1, 100, 10_000} {
		q := New(testConfig(Options{}), setOf())
		l := newLine(q)
		q.line = l
		seq := uint64(0)
		put := func() {
			seq++
			w := &waiter{seq: seq, cost: 1}
			l.join(w, &order{want: &Want{Flow: fmt.Sprint("flow ", seq%uint64(flows))}, weight: 1})
			l.push(w)
		}
		for range 20_000 {
			put()
		}
		b.Run(fmt.Sprint(flows, "/grant"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := l.next()
				l.inTurn = !l.oldestTurn()
				w.flow.charge(w.cost, l.inTurn)
				l.served++
				l.remove(w)
				q.goneLocked(w)
				put()
			}
		})
		b.Run(fmt.Sprint(flows, "/predict"), func(b *testing.B) {
			for b.Loop() {
				q.predictLocked(&order{waiter: waiter{cost: 1, seq: seq + 1}, want: &Want{Flow: "new"}, weight: 1}, time.Now())
			}
		})
	}
}
