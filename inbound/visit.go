package inbound

import (
	"context"
	"net/http"
	"time"

	"github.com/go-throttle/throttle"
)

// A visit is one request on its way through the limits. It lives on the stack of its handler; one that has to wait is
// copied.
//
// All parts are asked in their order. Once one has said no, the others are only looked at, so that Retry-After is the
// longest of all waits, and what was taken goes back. Then the shared limits are asked, in the same way. So no two
// locks are ever held together. Another request of a client may be refused between a take and its return, never let in.
//
// Example: 100/m by address and 3/h by user, and the user's fourth request. The address gives a unit, the user does not:
// wait 1,200 s. The unit goes back, and the answer says Retry-After: 1200 and 97 left for the address. If the address
// had refused with 10 s to wait, the user's limit would have been looked at, and the longer of both waits advertised.
//
//	new     begin has asked the user's functions                      nothing is taken
//	in      try: all limits have given their units                    next is called, or leave gives all back
//	out     try: one has refused; nothing is taken                    it is refused, or waits and tries again
//
// A shadow is asked like the others, and what it takes is given back like the others', but what it says is only counted.
type visit struct {
	core  *core
	asked [maxParts]asked
	held  *[maxParts]held // of parts with a store; nil: there is none
	wait  int64           // ns until all would let it in; 0: they have; never
	cost  int             // for the shared limits
	in    bool            // it has its units
	early bool            // see lines.early
	gens  uint32          // of all laws that it was judged by, for withAtOnce: it may have a place
}

// asked is a visit at one part.
type asked struct {
	hash    uint64
	tier    int
	cost    int64
	skip    bool // not counted here
	took    bool
	verdict verdict
}

// begin asks whose request it is and what it costs: all of the user's functions, before anything is taken.
func (v *visit) begin(c *core, r *http.Request) {
	v.core = c
	for i, p := range c.parts {
		a := &v.asked[i]
		a.verdict.brief = c.NoFields && !c.XRateLimit
		if i > 0 && p.allow != nil && p.allow(r) {
			a.skip = true
			continue
		}
		if p.tier != nil {
			a.tier = p.tiers[p.tier(r)]
		}
		a.cost = 1
		if p.cost != nil {
			if n := p.cost(r); n >= 0 {
				a.cost = int64(n)
			}
		}
		key := p.key(r)
		a.hash = hashOf(p.seed, key, a.tier)
		if p.plans != nil {
			a.tier = p.plans.of(r, a.hash)
		}
		if p.stored != nil {
			v.keep(i, key)
		}
	}
	v.cost = int(min(v.asked[0].cost, maxCost))
}

// replan gives a visit that has waited the plans that its keys have got meanwhile.
func (v *visit) replan() {
	for i, p := range v.core.parts {
		if a := &v.asked[i]; p.plans != nil && !a.skip {
			a.tier = p.plans.latest(a.hash, a.tier)
		}
	}
}

// try asks all limits, and takes from all or from none. It reports whether the request goes.
func (v *visit) try(ctx context.Context) bool {
	v.askAll(take)
	if v.held != nil && v.wait == 0 {
		v.askStores(ctx)
	}
	if v.wait == 0 {
		v.wait = v.askShared(ctx)
	}
	if v.in = v.wait == 0; !v.in {
		v.undo()
	}
	return v.in
}

// askAll asks the tables. Once one has said no, the others are only looked at.
func (v *visit) askAll(m mode) {
	v.wait = 0
	for i, p := range v.core.parts {
		a := &v.asked[i]
		if a.took = false; a.skip {
			continue
		}
		if p.stored == nil {
			p.table.ask(a.hash, a.tier, a.cost, m, &a.verdict)
			a.took = m == take && a.verdict.wait == 0
		} else {
			v.askStored(i, m)
		}
		v.gens |= a.verdict.gen
		if !p.shadow && a.verdict.wait > 0 {
			v.wait, m = max(v.wait, a.verdict.wait), look
		}
	}
}

// undo gives back what was taken from the tables, and counts the request as refused.
func (v *visit) undo() {
	for i, p := range v.core.parts {
		if a := &v.asked[i]; a.took {
			a.took = false
			if p.stored != nil {
				p.stored.back(a.hash, a.tier, a.cost, &a.verdict, &v.held[i])
			} else {
				p.table.back(a.hash, a.tier, a.cost, &a.verdict)
			}
		}
	}
}

// leave ends the wait of a visit that does not go: it gives back what it has got, and sees how things stand.
func (v *visit) leave() {
	if v.in {
		v.undo()
		v.repay(len(v.core.Shared))
		v.in = false
	}
	v.turnAway()
	v.replan()
	v.askAll(look)
	v.wait = max(v.wait, 1)
}

// turnAway counts a visit as refused that may not have been asked for.
func (v *visit) turnAway() { v.core.parts[0].table.turnAway(v.asked[0].hash, &v.asked[0].verdict) }

// behind is about how long so many requests of the key take that are before this one, if they cost as much. Example:
// 2/s and a wait of 500 ms for the first in line: the fourth one waits for 2 s.
func (v *visit) behind(ahead int) (ns int64) {
	a := &v.asked[0]
	if a.cost > maxCost || ahead == 0 {
		return 0
	}
	laws := a.verdict.judged()
	for i := range laws {
		ns = max(ns, laws[i].behind(int64(ahead)*a.cost))
	}
	return ns
}

// repay gives the units of the first n shared limits back. Only the last may be without Adjust, and what that one gave is
// lost if the client leaves in the moment of its grant.
func (v *visit) repay(n int) {
	for _, paid := range v.core.Shared[:n] {
		if a, ok := paid.(throttle.Adjuster); ok && v.cost > 0 {
			a.Adjust(-v.cost)
		}
	}
}

// An asker is a limit that can be asked for units which somebody else has to grant. Ask is Take, but if that is not
// known yet it waits until it is: one round trip, at most a soft timeout. fleet.Limiter is one.
type asker interface {
	Ask(ctx context.Context, n int) (wait time.Duration, err error)
}

// askShared takes from the shared limits, all or none. A limit that fails refuses: an error of a fleet.Limiter means that
// it is closed or that the cost is too high, not that its store is gone. No lock is held, since it may take a round trip.
func (v *visit) askShared(ctx context.Context) int64 {
	if v.cost == 0 {
		return 0
	}
	for i, s := range v.core.Shared {
		var wait time.Duration
		var err error
		v.guard(func() { wait, err = askOne(ctx, s, v.cost) })
		if err == nil && wait <= 0 {
			continue
		}
		v.repay(i)
		if err != nil {
			return never
		}
		return int64(wait)
	}
	return 0
}

// askOne asks one shared limit.
func askOne(ctx context.Context, l throttle.Limiter, n int) (time.Duration, error) {
	if a, ok := l.(asker); ok {
		return a.Ask(ctx, n)
	}
	return l.Take(ctx, n)
}
