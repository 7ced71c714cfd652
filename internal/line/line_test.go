package line

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/go-throttle/throttle/internal/race"
)

// A job is what waits in these tests.
type job struct {
	Call[job]
	flow string
}

// A plain is a line in the plainest way: a list in which everything is looked up anew. Flows take turns by the formulas of
// start-time fair queueing; it never forgets one while somebody of its priority waits.
type plain struct {
	wait   []*job
	now    map[int32]float64            // of a priority in which flows take turns
	start  map[int32]map[string]float64 // of each flow
	named  bool                         // a call has named one
	weight map[string]float64
	turns  int
}

func (p *plain) waits(prio int32, flow string) bool {
	return slices.ContainsFunc(p.wait, func(o *job) bool { return o.Prio == prio && o.flow == flow })
}

func (p *plain) join(j *job) {
	if j.flow != "" && !p.named {
		p.named = true
		for _, o := range p.wait {
			p.begin(o)
		}
	}
	p.begin(j)
	p.wait = append(p.wait, j)
}

func (p *plain) begin(j *job) {
	switch {
	case !p.named:
	case p.start[j.Prio] == nil:
		p.now[j.Prio], p.start[j.Prio] = 0, map[string]float64{j.flow: 0}
	case !p.waits(j.Prio, j.flow):
		p.start[j.Prio][j.flow] = max(p.start[j.Prio][j.flow], p.now[j.Prio])
	}
}

func (p *plain) leave(j *job) {
	p.wait = slices.DeleteFunc(p.wait, func(o *job) bool { return o == j })
	if !slices.ContainsFunc(p.wait, func(o *job) bool { return o.Prio == j.Prio }) {
		delete(p.now, j.Prio)
		delete(p.start, j.Prio)
	}
}

func byArrival(a, b *job) int { return cmp.Compare(a.Seq, b.Seq) }

func (p *plain) byFlow(a, b *job) int {
	return cmp.Or(cmp.Compare(b.Prio, a.Prio), cmp.Compare(p.start[a.Prio][a.flow], p.start[b.Prio][b.flow]), byArrival(a, b))
}

// first is the first of those that may go, one of each scope, or the one that may go soonest.
func (p *plain) first(of []*job, order func(a, b *job) int, ready func(uint8, int32) time.Time, now time.Time) *job {
	var may, must []*job
	for scope := range uint8(8) {
		its := slices.DeleteFunc(slices.Clone(of), func(j *job) bool { return j.Scope != scope })
		if len(its) == 0 {
			continue
		}
		if j := slices.MinFunc(its, order); ready(scope, j.Cost).After(now) {
			must = append(must, j)
		} else {
			may = append(may, j)
		}
	}
	switch {
	case len(may) > 0:
		return slices.MinFunc(may, order)
	case len(must) > 0:
		return slices.MinFunc(must, func(a, b *job) int {
			return cmp.Or(ready(a.Scope, a.Cost).Compare(ready(b.Scope, b.Cost)), cmp.Compare(b.Prio, a.Prio), cmp.Compare(a.Scope, b.Scope))
		})
	}
	return nil
}

// next is whose turn it is.
func (p *plain) next(ready func(uint8, int32) time.Time, now time.Time) *job {
	if p.turns%fairEvery != fairEvery-1 {
		return p.first(p.wait, p.byFlow, ready, now)
	}
	j := p.first(p.wait, byArrival, ready, now)
	if s := p.start[j.Prio]; s != nil && s[j.flow] > p.now[j.Prio] {
		return p.first(slices.DeleteFunc(slices.Clone(p.wait), func(o *job) bool { return o.Prio != j.Prio }), p.byFlow, ready, now)
	}
	return j
}

func (p *plain) share(j *job) float64 { return float64(max(1, j.Cost)) / p.weight[j.flow] }

// grant notes that j goes. Its flow's turn moves the time of its priority on.
func (p *plain) grant(j *job) {
	p.turns++
	if s := p.start[j.Prio]; s != nil {
		its := slices.DeleteFunc(slices.Clone(p.wait), func(o *job) bool { return o.Prio != j.Prio || o.Scope != j.Scope })
		s[j.flow] = max(s[j.flow], p.now[j.Prio]-p.share(j))
		if slices.MinFunc(its, p.byFlow) == j {
			p.now[j.Prio] = max(p.now[j.Prio], s[j.flow])
		}
		s[j.flow] += p.share(j)
	}
	p.leave(j)
}

// The turns are those of a plain list, whatever flows, weights, priorities, costs and scopes come, go, come back to their
// old places and move; and so is all that can be asked of the line.
func TestLineAgainstPlainList(t *testing.T) {
	now := time.Unix(1000, 0)
	for seed := range race.Pick(uint64(20), 80) {
		rng := rand.New(rand.NewPCG(seed, 5))
		names := []string{"", "a", "b", "c", "d", "e"}[:1+rng.IntN(6)]
		prios, scopes := 1+rng.Int32N(3), 1+rng.IntN(3)
		var l Line[job]
		p := &plain{now: map[int32]float64{}, start: map[int32]map[string]float64{}, weight: map[string]float64{"": 1, "a": 1, "b": 2, "c": 0.5, "d": 4, "e": 1}}
		var back []*job
		for step := range 1200 {
			// Scopes that may send nothing for a while, or no costly call.
			shut, high := rng.Uint32N(1<<scopes), rng.Uint32N(1<<scopes)
			ready := func(scope uint8, cost int32) time.Time {
				switch {
				case shut>>scope&1 == 1:
					return now.Add(time.Duration(scope+1) * time.Second)
				case high>>scope&1 == 1 && cost > 2:
					return now.Add(time.Duration(cost) * time.Second)
				}
				return now
			}
			switch n := rng.IntN(10); {
			case n < 6 && (step/300)%2 == 0, n < 4, len(p.wait) == 0:
				j := &job{Call[job]{item: item[job]{Seq: uint64(step + 1), Prio: rng.Int32N(prios), Cost: rng.Int32N(5), Scope: uint8(rng.IntN(scopes))}}, names[rng.IntN(len(names))]}
				if len(back) > 0 && rng.IntN(4) == 0 { // a retry
					i := rng.IntN(len(back))
					j = back[i]
					back = slices.Delete(back, i, i+1)
				}
				j.Of = j
				l.Push(&j.Call, j.flow, p.weight[j.flow])
				p.join(j)
			case n == 9: // gives up
				j := p.wait[rng.IntN(len(p.wait))]
				p.leave(j)
				l.Remove(&j.Call)
				back = append(back, j)
			default:
				j := l.Next(ready, now).Of
				if want := p.next(ready, now); j != want {
					t.Fatalf("seed %d, step %d: the turn is that of %v, want %v", seed, step, j, want)
				}
				l.Granted(&j.Call)
				l.Remove(&j.Call)
				p.grant(j)
				back = append(back, j)
			}
			p.check(t, &l)
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, step)
			}
		}
	}
}

func (j *job) String() string {
	return fmt.Sprintf("call %d, priority %d, cost %d, scope %d, flow %q", j.Seq, j.Prio, j.Cost, j.Scope, j.flow)
}

// check compares what can be asked of the line.
func (p *plain) check(t *testing.T, l *Line[job]) {
	t.Helper()
	var units int64
	scopes, flows := map[uint8]int64{}, map[string]int{}
	for _, j := range p.wait {
		units += int64(j.Cost)
		scopes[j.Scope] += int64(j.Cost)
		flows[j.flow]++
		if j.part == nil {
			t.Errorf("%v does not wait", j)
		}
	}
	var all []*job
	for c := range l.All() {
		all = append(all, c.Of)
	}
	slices.SortFunc(all, byArrival)
	if slices.SortFunc(p.wait, byArrival); !slices.Equal(all, p.wait) || l.Len() != len(all) || l.Units() != units {
		t.Errorf("%v, count %d, %d units, want %v, %d units", all, l.Len(), l.Units(), p.wait, units)
	}
	if len(all) > 0 && l.Oldest().Of != all[0] {
		t.Errorf("the oldest is %v, want %v", l.Oldest().Of, all[0])
	}
	for scope, n := range l.Scopes() {
		if scopes[scope] != n {
			t.Errorf("%d units in scope %d, want %d", n, scope, scopes[scope])
		}
		delete(scopes, scope)
	}
	if got := l.Flows(); len(scopes) != 0 || got != nil && fmt.Sprint(got) != fmt.Sprint(flows) {
		t.Errorf("scopes %v are missing; flows %v, want %v", scopes, got, flows)
	}
}
