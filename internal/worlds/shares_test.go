package worlds

import (
	"slices"
	"time"
)

// A share is a flow of one priority among keys that pay the same shared accounts: what takes turns.
type share struct {
	class string // the accounts
	flow  string
	prio  int
}

type pairOf [2]share

// A pair is two shares that could both go since a moment. ahead is by how much the first is ahead at most, over all
// intervals that end now, in units by weight, by each of the units that may count.
type pair struct {
	ahead  [3]float64
	moment [3]float64 // what is added at this moment
	counts [3]bool    // which of the units count
	served bool
	window bool
	credit [2]float64 // turns of the eighth kind that may have gone to the first, or to the second
	extra  [3]float64 // what the second has got by these, which the first may make up for
}

func class(s *keyState) string { return s.spec.class }

// backlogged returns the shares that could go before this moment and still can: a call that has come before waits, and
// all calls of the flow wait for the same.
func (o *oracle) backlogged() map[share]bool {
	there, other := map[share]bool{}, map[string]int{}
	for _, s := range o.keys {
		if len(s.spec.shared) == 0 {
			continue
		}
		for _, c := range s.waiting {
			sh := share{class(s), c.flow, c.prio}
			if o.could(s) && o.ownFits(s) && c.at < o.now {
				there[sh] = true
			}
		}
	}
	seen := map[string]share{}
	for _, s := range o.keys {
		for _, c := range s.waiting {
			sh := share{class(s), c.flow, c.prio}
			if first, ok := seen[c.flow]; ok && first != sh || s.health != live || s.since >= o.now {
				other[c.flow]++
			}
			seen[c.flow] = sh
		}
	}
	for sh := range there {
		if other[sh.flow] > 0 {
			delete(there, sh)
		}
	}
	return there
}

func (o *oracle) ownFits(s *keyState) bool { return s.fits < o.now }

// units are what a call counts in its flow: its cost, what it holds, or one.
func (o *oracle) units(c *call) [3]float64 {
	return [3]float64{float64(c.cost), float64(c.hold), 1}
}

// counts are the units that may count in a class: those of what is shared there.
func (o *oracle) counts(s *keyState) (u [3]bool) {
	for _, i := range s.spec.shared {
		switch o.accounts[i].unit {
		case byCost:
			u[0] = true
		case byHold:
			u[1] = true
		case bySlot:
			u[0], u[2] = true, true
		}
	}
	return u
}

// flowsAfter judges that flows take turns by weight.
func (o *oracle) flowsAfter(started []*waiter) {
	there := o.backlogged()
	for of := range o.pairs {
		if !there[of[0]] || !there[of[1]] {
			delete(o.pairs, of)
			continue
		}
	}
	for _, a := range started { // a flow that goes elsewhere too has no share that can be told
		ka := o.keys[a.key]
		sh := share{class(ka), a.flow, a.prio}
		eighth := o.mayBeEighth(a)
		for of, p := range o.pairs {
			if of[0].flow == a.flow && of[0] != sh || of[1].flow == a.flow && of[1] != sh {
				delete(o.pairs, of)
				continue
			}
			if of[0].class == sh.class {
				p.credit = [2]float64{min(p.credit[0]+1.0/8, 2), min(p.credit[1]+1.0/8, 2)}
			}
			if of[0] == sh || of[1] == sh {
				o.serve(p, a, of[0] == sh, eighth)
			}
		}
	}
	for of, p := range o.pairs {
		o.settle(of, p)
	}
	all := make([]share, 0, len(there))
	for sh := range there {
		all = append(all, sh)
	}
	for _, f := range all {
		for _, g := range all {
			if f != g && f.class == g.class && f.prio == g.prio && o.pairs[pairOf{f, g}] == nil {
				o.pairs[pairOf{f, g}] = &pair{credit: [2]float64{2, 2}}
			}
		}
	}
}

// mayBeEighth reports whether a start may be the turn of who has waited longest.
func (o *oracle) mayBeEighth(a *waiter) bool {
	for _, s := range o.keys {
		for _, c := range s.waiting {
			if c.at < a.at && o.could(s) && o.sharesWith(s, o.keys[a.key]) {
				return false
			}
		}
	}
	return true
}

func (o *oracle) sharesWith(a, b *keyState) bool {
	return slices.ContainsFunc(a.spec.shared, func(i int) bool { return slices.Contains(b.spec.shared, i) })
}

// serve counts a start for a pair. In which order those of one moment were granted is not known.
func (o *oracle) serve(p *pair, a *waiter, first, eighth bool) {
	w, u := o.weight(a.flow), o.units(a.call)
	o.claims["flows"]++
	if first && eighth && p.credit[0] >= 1 {
		p.credit[0]--
		return
	}
	late := !first && eighth && p.credit[1] >= 1
	if late {
		p.credit[1]--
	}
	for i := range u {
		p.extra[i] += u[i] / w * b2f(late)
		p.moment[i] += u[i] / w * (2*b2f(first) - 1)
	}
	p.served, p.counts = true, o.counts(o.keys[a.key])
	p.window = slices.ContainsFunc(o.keys[a.key].spec.shared, func(i int) bool {
		return o.accounts[i].kind == fixed || o.accounts[i].kind == sliding
	})
}

// settle judges a pair after all starts of a moment.
func (o *oracle) settle(of pairOf, p *pair) {
	if !p.served {
		return
	}
	bad := true
	var bound [3]float64
	for i := range p.ahead {
		p.ahead[i] = max(0, p.ahead[i]+p.moment[i])
		bound[i] = o.largest(of[0].flow)[i]/o.weight(of[0].flow) + o.largest(of[1].flow)[i]/o.weight(of[1].flow)
		if p.window && o.largest(of[0].flow)[i]+o.largest(of[1].flow)[i] > 2 { // the rest of a window is of use to small calls alone
			bad = false
		}
		if over := min(p.extra[i], p.ahead[i]-bound[i]); over > 0 {
			p.extra[i] -= over
			p.ahead[i] -= over
		}
		if p.counts[i] && p.ahead[i] <= bound[i]+eps {
			bad = false
		}
	}
	p.moment, p.served = [3]float64{}, false
	if bad {
		o.found("flows", "flow %q is ahead of %q by %.4g units by weight (costs, holds, calls), and may be by %.4g; both could go, at priority %d%s", of[0].flow, of[1].flow, p.ahead, bound, of[0].prio, o.state())
		p.ahead = [3]float64{}
	}
}

// largest is the largest call of a flow, in each of the units.
func (o *oracle) largest(flow string) (u [3]float64) {
	if o.largestOf == nil {
		o.largestOf = map[string][3]float64{}
		for _, e := range o.log {
			if e.kind == arrives {
				v, l := o.units(e.c), o.largestOf[e.c.flow]
				o.largestOf[e.c.flow] = [3]float64{max(v[0], l[0]), max(v[1], l[1]), 1}
			}
		}
	}
	return o.largestOf[flow]
}

// deadAfter judges that the dead get at most a tenth of what a live key waits for.
func (o *oracle) deadAfter(started []*waiter, dying map[int]bool) {
	for i, a := range o.accounts {
		if len(o.users[i]) < 2 {
			continue
		}
		waits := o.liveWaits(i)
		if a.kind == slots {
			if waits != nil {
				o.deadSlots(i, started, dying, waits)
			}
			continue
		}
		if waits == nil {
			o.deadUnits[i] = 0
			o.deadSince[i] = o.now
			continue
		}
		all, bads, largest := 0.0, 0.0, 0.0
		for _, c := range started {
			if !slices.Contains(o.keys[c.key].spec.shared, i) {
				continue
			}
			n := a.amount(c.call)
			all += n
			if dying[c.key] && o.liveSince[i] < o.now {
				bads += n
				largest = max(largest, n)
			}
		}
		if a.kind == bucket {
			all = max(all, a.rate*float64(o.now-max(o.deadSince[i], o.liveSince[i]))/1e9)
		}
		o.deadSince[i] = o.now
		o.deadMost[i] = max(o.deadMost[i], largest)
		o.deadUnits[i] = max(0, o.deadUnits[i]+bads-all/10)
		if bads > 0 {
			o.claims["dead"]++
		}
		if bads > 0 && o.deadUnits[i] > max(1, o.deadMost[i])+eps {
			o.found("dead", "dead keys get %.4g units of %s beyond a tenth, while call %d of key %d waits, which is live%s", o.deadUnits[i], a.name, waits.id, waits.key, o.state())
			o.deadUnits[i] = 0
		}
	}
	for i := range o.accounts {
		if o.liveWaits(i) == nil {
			o.liveSince[i] = never
		} else if o.liveSince[i] == never {
			o.liveSince[i] = o.now
		}
	}
}

// liveWaits returns a call of a live key that waits for an account, and for nothing else, since before this moment.
func (o *oracle) liveWaits(i int) *waiter {
	for _, k := range o.users[i] {
		s := o.keys[k]
		if !o.could(s) {
			continue
		}
		for _, c := range s.waiting {
			if c.at < o.now && o.lacks(i, c.call) && o.ownStill(s, c) && !o.lacksAnother(i, s) {
				return c
			}
		}
	}
	return nil
}

// lacksAnother reports whether a call of the key may wait for another account, or for those of others who do.
func (o *oracle) lacksAnother(i int, s *keyState) bool {
	return slices.ContainsFunc(s.spec.shared, func(j int) bool { return j != i && o.contended(j, 0) })
}

func (o *oracle) deadSlots(i int, started []*waiter, dying map[int]bool, waits *waiter) {
	most := max(1, (o.maxIn+9)/10)
	for _, c := range started {
		if !dying[c.key] {
			continue
		}
		n := 0
		for _, s := range o.keys {
			if s.health == dead {
				n += s.deadFlight
			}
		}
		o.claims["dead"]++
		if n > most {
			o.found("dead", "call %d of key %d, which is dead, makes %d in flight to dead keys, of %d slots, while call %d of key %d waits, which is live%s", c.id, c.key, n, o.maxIn, waits.id, waits.key, o.state())
			return
		}
	}
}

// refusals judges calls that were turned away at once for a wait that is longer than they bear: who waits for
// something of its own counts before nobody.
func (o *oracle) refusals(events []event) {
	for _, e := range events {
		if e.kind != leaves || e.c.maxWait == 0 || !isTooLong(e.err) || o.maxIn > 0 || o.ownIn > 0 {
			continue
		}
		came := slices.ContainsFunc(events, func(x event) bool { return x.kind == arrives && x.c == e.c })
		s := o.keys[e.key]
		if !came || s.reopening > 0 || o.now < s.pauseEnd || s.gated || s.health != live || !s.ok {
			continue
		}
		o.claims["isolate"]++
		if b := o.longest(s, e.c); b < int64(e.c.maxWait) {
			o.found("isolate", "call %d of key %d is refused (%v), although it could wait for %v and has to for %v at most%s", e.c.id, e.key, e.err, e.c.maxWait, time.Duration(b), o.state())
		}
	}
}

// longest is an upper bound of the wait of a call that has just come.
func (o *oracle) longest(s *keyState, c *call) int64 {
	horizon, total := o.now+int64(c.maxWait), int64(0)
	for _, i := range s.spec.pays {
		a := o.accounts[i]
		n := a.amount(c)
		for _, k := range append([]int{c.key}, o.users[i]...) {
			other := o.keys[k]
			if k == c.key && other != s || k != c.key && !slices.Contains(s.spec.shared, i) {
				continue
			}
			n += o.ahead(other, i, horizon)
			if k == c.key && len(o.users[i]) > 0 {
				n -= o.ahead(other, i, horizon) / 2 // it is among the users too
			}
		}
		if a.kind != bucket || a.rate == 0 {
			return never
		}
		total += max(0, int64((n+a.burst-a.free(o.now)+1)/a.rate*1e9))
	}
	return total + total/10 + int64(20*time.Millisecond)
}

// ahead is what the waiting calls of a key may take of an account until a moment.
func (o *oracle) ahead(s *keyState, i int, horizon int64) float64 {
	if s.pauseEnd > horizon {
		return 0
	}
	n := 0.0
	for _, c := range s.waiting {
		n += o.accounts[i].amount(c.call)
	}
	for _, j := range s.spec.own {
		if a := o.accounts[j]; a.kind == bucket && a.unit == o.accounts[i].unit {
			n = min(n, max(0, a.free(o.now))+a.rate*float64(horizon-o.now)/1e9+s.most[i])
		}
	}
	return n
}
