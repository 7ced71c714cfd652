//go:build throttle_invariants

package queue

// checkFlows: each flow counts the calls of it that wait, and each flow that is kept is waited in or remembered.
func (fs flows) checkFlows(lines []*line) {
	count, units := map[*flow]int{}, map[*flow]int64{}
	for _, l := range lines {
		l.each(func(w *waiter) {
			f := fs.of(w)
			count[f]++
			units[f] += int64(w.cost)
			if f != nil && f.class != fs[w.prio] {
				broken("%q: call %d waits in a flow that was forgotten", l.q.key, w.seq)
			}
		})
	}
	for prio, c := range fs {
		waiting := 0
		for id, f := range c.flows {
			waiting += f.count
			if f.id != id || f.count != count[f] || f.units != units[f] {
				broken("flow %v of priority %d counts %d calls of %d units; %d of %d wait", f.id, prio, f.count, f.units, count[f], units[f])
			}
			if f.count == 0 && f.place < 0 && f != c.unnamed {
				broken("flow %v of priority %d is neither waited in nor remembered", f.id, prio)
			}
		}
		if waiting != c.waiting || waiting == 0 || len(c.idle) > maxRemembered {
			broken("priority %d counts %d calls, %d wait in its flows, and %d flows are remembered", prio, c.waiting, waiting, len(c.idle))
		}
	}
}
