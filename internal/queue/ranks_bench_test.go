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
