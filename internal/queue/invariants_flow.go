//go:build throttle_invariants

package queue

import "time"

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

// checkSlots: those that all keys hold are counted, and within their bound.
func (s *sharedLine) checkSlots(keys []*entry) {
	held, failed, well := 0, 0, 0
	for _, e := range keys {
		q := &e.queue
		if held += int(q.slots); q.behindLocked() {
			failed += int(q.slots)
		} else if q.line != nil {
			well++
		}
	}
	if held != s.inFlight || s.most > 0 && held > s.most || failed != s.failed || well != s.well {
		broken("of %d slots %d are held, %d by keys that stand behind, and %d others wait; counted are %d, %d and %d", s.most, held, failed, well, s.inFlight, s.failed, s.well)
	}
}

// couldGo is the head of the line if nothing seems to stop it; nil where that is hard to say.
//
// A wrong nil hides a bug, a wrong waiter invents one. So whatever is not certain is nil: a foreign
// limiter that is being asked, a gate that is not open, another key first at the shared limiter.
func (q *Queue) couldGo(now time.Time) *waiter {
	if q.line == nil || q.line.asking != nil || !q.up.MayStart(now) {
		return nil
	}
	s := q.common.shared
	if s != nil && s.head() != nil && s.head() != q {
		return nil
	}
	w := q.headLocked(now)
	if s != nil && q.line.named() { // a grant under another key may have moved a flow
		return nil
	}
	if q.crowdedLocked(w) || q.foreign != nil && q.foreign.next.After(now) {
		return nil
	}
	if m, err := q.payableLocked(q.line.holdsOf(w), now, w.cost); err != nil || m.After(now) {
		return nil
	}
	for _, c := range q.common.hosts {
		if c.booked[q].After(now) {
			return nil
		}
	}
	return w
}
