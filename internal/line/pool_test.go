package line

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-throttle/throttle/internal/race"
)

// A key is a line in a pool, and what a plain list knows of it.
type key struct {
	Line[job]
	name     string
	in, dead bool
}

// A plainPool is a pool in the plainest way.
type plainPool struct {
	keys   []*key
	wait   map[*job]*key
	now    map[int32]float64
	start  map[int32]map[ID]float64
	weight map[string]float64
	served int
}

func (p *plainPool) id(j *job) ID {
	if j.flow == "" {
		return ID{p.wait[j].name, true}
	}
	return ID{Name: j.flow}
}

func (p *plainPool) join(j *job, k *key) {
	p.wait[j] = k
	if p.start[j.Prio] == nil {
		p.now[j.Prio], p.start[j.Prio] = 0, map[ID]float64{}
	}
	for o := range p.wait {
		if o != j && o.Prio == j.Prio && p.id(o) == p.id(j) {
			return
		}
	}
	p.start[j.Prio][p.id(j)] = max(p.start[j.Prio][p.id(j)], p.now[j.Prio])
}

func (p *plainPool) leave(j *job) {
	delete(p.wait, j)
	for o := range p.wait {
		if o.Prio == j.Prio {
			return
		}
	}
	delete(p.now, j.Prio)
	delete(p.start, j.Prio)
}

// at is when a call's flow starts.
func (p *plainPool) at(j *job) float64 { return p.start[j.Prio][p.id(j)] }

// first is the first of those that may go and that fit.
func (p *plainPool) first(order func(a, b *job) int, fits func(*job, *key) bool) (best *job) {
	for j, k := range p.wait {
		if k.in && fits(j, k) && (best == nil || order(j, best) < 0) {
			best = j
		}
	}
	return best
}

func (p *plainPool) byTurn(a, b *job) int {
	return cmp.Or(cmp.Compare(b.Prio, a.Prio), cmp.Compare(p.at(a), p.at(b)), byArrival(a, b))
}

// next is whose turn it is among the live.
func (p *plainPool) next() (j *job, inTurn bool) {
	live := func(_ *job, k *key) bool { return !k.dead }
	if p.served%fairEvery == fairEvery-1 {
		j = p.first(byArrival, live)
		if j == nil || p.at(j) <= p.now[j.Prio]+1e-9 {
			return j, false
		}
		prio := j.Prio
		return p.first(p.byTurn, func(j *job, k *key) bool { return j.Prio == prio && !k.dead }), true
	}
	return p.first(p.byTurn, live), true
}

func (p *plainPool) grant(j *job, inTurn bool) {
	share := float64(max(1, j.Cost)) / p.weight[j.flow]
	at := max(p.at(j), p.now[j.Prio]-share)
	p.served++
	if inTurn {
		p.now[j.Prio] = max(p.now[j.Prio], at)
	}
	p.start[j.Prio][p.id(j)] = at + share
	p.leave(j)
}

// Turns are those of a plain list, whatever keys come, go, wait for something of their own, die and live again.
func TestPoolAgainstPlainList(t *testing.T) {
	for seed := range race.Pick(uint64(20), 80) {
		rng := rand.New(rand.NewPCG(seed, 7))
		flows, prios := []string{"", "", "a", "b", "c", "d"}[:1+rng.IntN(6)], 1+rng.Int32N(3)
		pool := &Pool[job]{amount: func(c *Call[job]) int64 { return int64(c.Cost) }}
		p := &plainPool{wait: map[*job]*key{}, now: map[int32]float64{}, start: map[int32]map[ID]float64{}, weight: map[string]float64{"": 1, "a": 1, "b": 2, "c": 0.5, "d": 4}}
		for i := range 1 + rng.IntN(8) {
			k := &key{name: string(rune('A' + i))}
			k.Share(pool, k.name)
			p.keys = append(p.keys, k)
		}
		// enter says whether nothing but the pool holds the key's calls.
		enter := func(k *key, in, dead bool) {
			k.in, k.dead = in && k.Len() > 0, dead
			for s := range k.Stations() {
				if k.in {
					s.Enter(pool, k.dead, false)
				} else {
					s.Leave()
				}
			}
		}
		remove := func(j *job, k *key) {
			k.Remove(&j.Call)
			k.in = k.in && k.Len() > 0
		}
		for step := range 1500 {
			k := p.keys[rng.IntN(len(p.keys))]
			next, inTurn := p.next()
			switch n := rng.IntN(12); {
			case n < 6 && (step/300)%2 == 0, n < 3:
				j := &job{Call[job]{item: item[job]{Seq: uint64(step + 1), Prio: rng.Int32N(prios), Cost: rng.Int32N(5)}}, flows[rng.IntN(len(flows))]}
				j.Of = j
				k.Push(&j.Call, j.flow, p.weight[j.flow])
				p.join(j, k)
				continue
			case n < 5:
				enter(k, rng.IntN(4) > 0, rng.IntN(5) == 0)
				continue
			case n == 11 && len(p.wait) > 0: // gives up
				all := slices.SortedFunc(func(yield func(*job) bool) {
					for j := range p.wait {
						if !yield(j) {
							return
						}
					}
				}, byArrival)
				j := all[rng.IntN(len(all))]
				remove(j, p.wait[j])
				p.leave(j)
				continue
			}
			c, its := pool.Next()
			if next == nil {
				if c != nil || pool.Live() != 0 {
					t.Fatalf("seed %d, step %d: the turn is that of %v, want nobody's", seed, step, c.Of)
				}
			} else if c == nil || c.Of != next || its != inTurn {
				t.Fatalf("seed %d, step %d: the turn is that of %v, in turn %t, want %v of %s, %t", seed, step, c, its, next, p.wait[next].name, inTurn)
			} else {
				pool.Granted(c, inTurn)
				p.wait[next].Granted(c)
				remove(next, p.wait[next])
				p.grant(next, inTurn)
			}
			oldest := p.first(byArrival, func(_ *job, k *key) bool { return k.dead })
			if d := pool.NextDead(); (d == nil) != (oldest == nil) || d != nil && p.wait[d.Of] != p.wait[oldest] {
				t.Fatalf("seed %d, step %d: of the dead keys the turn is that of %v, want one of the key of %v", seed, step, d, oldest)
			}
		}
	}
}

// The call that is held goes first in its scope at each turn, those for the oldest call included.
func TestHeldCallGoesAtAnyTurn(t *testing.T) {
	pool := &Pool[job]{amount: func(c *Call[job]) int64 { return int64(c.Cost) }}
	var k Line[job]
	k.Share(pool, "k")
	jobs := make([]job, 3*fairEvery)
	for i := range jobs {
		jobs[i].Seq, jobs[i].Cost, jobs[i].Of = uint64(i+1), 1, &jobs[i]
		k.Push(&jobs[i].Call, "", 1)
	}
	for range 2 * fairEvery {
		last := &jobs[len(jobs)-1]
		jobs = jobs[:len(jobs)-1]
		k.Hold(&last.Call)
		for s := range k.Stations() {
			s.Enter(pool, false, false)
		}
		c, inTurn := pool.Next()
		if c != &last.Call {
			t.Fatalf("turn %d is that of call %d, and %d is held", pool.served, c.Seq, last.Seq)
		}
		pool.Granted(c, inTurn)
		k.Granted(c)
		k.Remove(c)
	}
}
