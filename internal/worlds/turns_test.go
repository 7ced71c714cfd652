package worlds

import (
	"slices"
	"time"
)

// A turnCount is how many turns at an account may still go to a lower priority than waits.
type turnCount struct{ credit float64 }

// turn judges who has got their turn at this moment: priorities, and that nobody starves. Of those who wait, it looks
// at those who could go before this moment and still can.
func (o *oracle) turn(started []*waiter) {
	lows := map[int]float64{}
	n := map[int]float64{}
	for _, a := range started {
		ka := o.keys[a.key]
		for _, i := range ka.spec.shared {
			n[i]++
			n[-1] += 1 / float64(len(ka.spec.shared))
			if ka.health == dead { // its tenth goes before any priority; it is a turn like any other
				continue
			}
			if c := o.higher(i, a, ka); c != nil {
				lows[i]++
				lows[-1] += 1 / float64(len(ka.spec.shared))
				o.claims["priority"]++
				if o.low(i, lows, n) && o.low(-1, lows, n) {
					o.found("priority", "turns at %s go to call %d (key %d, %s, priority %d) and others in more than one case of eight, while call %d (key %d, %s) of priority %d waits%s", o.accounts[i].name, a.id, a.key, a.flow, a.prio, c.id, c.key, c.flow, c.prio, o.state())
				}
			}
		}
		o.lastCost[a.flow] = float64(a.cost)
	}
	for i, turns := range n {
		t := o.count(i)
		t.credit = min(t.credit+turns/8-lows[i], o.spare())
	}
	o.oldest(started)
}

// low reports whether more than an eighth of the turns at an account, or with -1 at all of them, were out of order.
func (o *oracle) low(i int, lows, n map[int]float64) bool {
	return lows[i] > o.count(i).credit+n[i]/8+eps
}

// spare is how many turns beyond an eighth may go out of order at once: one, and one more for each further shared
// thing, as each may count its turns by itself.
func (o *oracle) spare() float64 {
	things := 0
	for _, keys := range o.users {
		if len(keys) > 1 {
			things++
		}
	}
	return float64(things)
}

func (o *oracle) count(i int) *turnCount {
	if o.turns[i] == nil {
		o.turns[i] = &turnCount{credit: o.spare()}
	}
	return o.turns[i]
}

// higher returns a call of a higher priority than a's that waits for account i and could have gone in its place.
func (o *oracle) higher(i int, a *waiter, ka *keyState) *waiter {
	for _, k := range o.users[i] {
		s := o.keys[k]
		if !o.could(s) {
			continue
		}
		for _, c := range s.waiting {
			if c.prio > a.prio && c.at < o.now && o.useful(a, c) && !o.lacksMore(c, s, ka) && o.ownStill(s, c) {
				return c
			}
		}
	}
	return nil
}

// useful reports whether c could have used the units that a has taken. Those of a window that are too few for c are of
// no use to it, and nobody is later if a takes them: so nothing is said of windows while calls of several costs wait.
func (o *oracle) useful(a, c *waiter) bool {
	for _, i := range o.keys[c.key].spec.shared {
		w := o.accounts[i]
		if w.kind != fixed && w.kind != sliding || !slices.Contains(o.keys[a.key].spec.shared, i) {
			continue
		}
		for _, k := range o.users[i] {
			for _, x := range o.keys[k].waiting {
				if w.amount(x.call) != w.amount(a.call) {
					return false
				}
			}
		}
	}
	return true
}

// ownStill reports whether the call's own limits would let it go now, after the starts of this moment.
func (o *oracle) ownStill(s *keyState, c *waiter) bool {
	for _, i := range s.spec.own {
		if o.lacks(i, c.call) {
			return false
		}
	}
	return true
}

// contended reports whether units of an account may be saved for another call, or lack for one that needs so many.
func (o *oracle) contended(j int, need float64) bool {
	for _, k := range o.users[j] {
		need = max(need, o.keys[k].most[j])
	}
	return o.accounts[j].free(o.now) < need-eps
}

// lacksMore reports whether a call waits for something shared that a start of another key does not take.
func (o *oracle) lacksMore(c *waiter, s, other *keyState) bool {
	for _, j := range s.spec.shared {
		if !slices.Contains(other.spec.shared, j) && o.contended(j, o.accounts[j].need(o.accounts[j].amount(c.call))) {
			return true
		}
	}
	return false
}

// oldest judges that who has waited longest gets one turn of eight. Its flow may have been served before and be ahead
// of the others; then they may catch up first.
func (o *oracle) oldest(started []*waiter) {
	var first *waiter
	for _, s := range o.keys {
		for _, c := range s.waiting {
			if !o.could(s) || c.at >= o.now || !o.ownStill(s, c) {
				c.overtake = 0
			} else if first == nil || c.at < first.at {
				first = c
			}
		}
	}
	if first == nil {
		return
	}
	s := o.keys[first.key]
	turns := 0
	for _, a := range started {
		if a.flow == first.flow {
			first.overtake = 0
			return
		}
		ka := o.keys[a.key]
		if a.at > first.at && slices.ContainsFunc(s.spec.shared, func(i int) bool { return slices.Contains(ka.spec.shared, i) }) && !o.lacksMore(first, s, ka) {
			turns++
		}
	}
	first.overtake += turns
	bound := 16 * o.spare()
	bound += 8 * float64(o.flowCount()) * (2*o.lastCost[first.flow]/o.weight(first.flow) + 1)
	for _, k := range o.keys {
		if k.health != live && len(k.waiting) > 0 && k.waiting[0].at <= first.at { // the dead may use four of five such turns for their tenth
			bound *= 5
			break
		}
	}
	o.claims["starve"]++
	if float64(first.overtake) > bound {
		o.found("starve", "call %d (key %d, %s, priority %d, cost %d) has waited longest, since %v, and %d turns have gone to younger calls of other flows%s", first.id, first.key, first.flow, first.prio, first.cost, time.Duration(first.at), first.overtake, o.state())
		first.overtake = 0
	}
}

func (o *oracle) flowCount() int {
	flows := map[string]bool{}
	for _, s := range o.keys {
		for _, c := range s.waiting {
			flows[c.flow] = true
		}
	}
	return len(flows)
}

func (o *oracle) weight(flow string) float64 {
	if w := o.weights[flow]; w > 0 {
		return w
	}
	return 1
}
