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

// A key with many priorities comes and goes, and each time its calls of the highest one stand in the pool alone.
func TestKeyWithManyPrioritiesMovesFewLanes(t *testing.T) {
	for _, n := range []int{1000, 2000, 4000, 8000} {
		pool := &Pool[job]{amount: func(c *Call[job]) int64 { return int64(c.Cost) }}
		var own Line[job]
		own.Share(pool, "own")
		for i := range n {
			j := &job{Call: Call[job]{item: item[job]{Seq: uint64(i + 1), Prio: int32(i), Cost: 1}}}
			j.Of = j
			own.Push(&j.Call, "", 1)
		}
		s := own.stations[0]
		places := func() (all []int32) {
			for _, n := range s.lanes {
				all = append(all, n.seats[0].place)
			}
			return all
		}
		before, moved := places(), 0
		s.Enter(pool, false, false)
		pool.Next()
		for i, now := range places() {
			if before[i] != now {
				moved++
			}
		}
		if moved > 1 {
			t.Errorf("%d priorities: %d move when the key comes, want 1 at most", n, moved)
		}
	}
}

// Many keys have the same two flows, and each key has something of its own to wait for after a call. A flow that is granted under one key
// starts later under all of them, which moves none of its tickets under the others.
func TestGrantMovesFewTicketsOfOtherKeys(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		for _, n := range []int{500, 1000, 2000} {
			pool := &Pool[job]{amount: func(c *Call[job]) int64 { return int64(c.Cost) }}
			keys := make([]Line[job], n)
			for i := range 8 * n {
				l := &keys[i/2%n]
				if len(l.pools) == 0 {
					l.Init(l)
					l.Share(pool, fmt.Sprint(i))
				}
				j := &job{Call: Call[job]{item: item[job]{Seq: uint64(i + 1), Cost: 1}}}
				j.Of = j
				l.Push(&j.Call, fmt.Sprint(i%2), 1)
			}
			for i := range keys {
				keys[i].stations[0].Enter(pool, false, false)
			}
			spots := func() (all []ticket[job]) {
				for i := range keys {
					all = append(all, keys[i].spots()...)
				}
				return all
			}
			var away *Line[job]
			moved := 0
			before := spots()
			for i := range 80 {
				c, inTurn := pool.Next()
				l := OwnerOf(c).(*Line[job])
				pool.Granted(c, inTurn)
				l.Granted(c)
				l.Remove(c)
				if leaves {
					l.stations[0].Leave()
					if away != nil {
						away.stations[0].Enter(pool, false, false)
					}
					away = l
				}
				after := spots()
				for k, now := range after {
					if was := before[k]; now.place != was.place || now.out != was.out || now.start != was.start {
						moved++
					}
				}
				if before = after; i == 7 {
					moved = 0 // by now each ticket has been put out
				}
			}
			if most := 72 * 4 * bits.Len(uint(n)); moved > most {
				t.Errorf("%d keys that leave (%t): 72 grants move %d tickets, want %d at most", n, leaves, moved, most)
			}
		}
	}
}
