package line

import (
	"fmt"
	"math/bits"
	"testing"
)

// spots are where the tickets of a line stand in a pool.
func (l *Line[W]) spots() (all []ticket[W]) {
	for _, s := range l.stations {
		for _, n := range s.lanes {
			for _, p := range n.ages {
				all = append(all, *p.tickets[0])
			}
		}
	}
	return all
}

// A key with many flows and a limit of its own comes and goes. Each grant moves as many of its tickets as lie in one path of a heap.
func TestGrantMovesFewTickets(t *testing.T) {
	for _, n := range []int{1000, 2000, 4000, 8000} {
		pool := &Pool[job]{amount: func(c *Call[job]) int64 { return int64(c.Cost) }}
		var own, other Line[job]
		seq := uint64(0)
		push := func(l *Line[job], flow string) {
			seq++
			j := &job{Call: Call[job]{item: item[job]{Seq: seq, Cost: 1}}}
			j.Of = j
			l.Push(&j.Call, flow, 1)
		}
		own.Share(pool, "own")
		other.Share(pool, "other")
		for range 100 {
			push(&other, "a")
			push(&other, "b")
		}
		for i := range n {
			push(&own, fmt.Sprint(i))
		}
		other.stations[0].Enter(pool, false, false)
		grant := func(l *Line[job]) {
			c, inTurn := pool.Next()
			pool.Granted(c, inTurn)
			l.Granted(c)
			l.Remove(c)
		}
		for i := range 80 {
			if i%2 == 0 {
				grant(&other)
				continue
			}
			before := own.spots()
			own.stations[0].Enter(pool, false, false)
			pool.Next()
			own.stations[0].Leave()
			moved := 0
			for i, now := range own.spots() {
				if was := before[i]; now.place != was.place || now.out != was.out || now.start != was.start {
					moved++
				}
			}
			if most := 2 * bits.Len(uint(n)); moved > most {
				t.Fatalf("%d flows: a grant moves %d tickets, want %d at most", n, moved, most)
			}
		}
	}
}
