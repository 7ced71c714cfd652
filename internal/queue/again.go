package queue

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/line"
	"github.com/go-throttle/throttle/internal/upstream"
)

// This file says when a refused call is worth calling again. Its prediction would send everybody back at the same moment:
// of 1,000 calls at 10/s that may wait for 5 s, 950 would come back after 5.1 s, and 900 of them be refused again. So each
// gets a turn of its own: as if those that were asked to come back stood in line before it. Nothing is booked by that: a
// newcomer may go first, and no other prediction counts those who have not come back.
//
// In an outage, whose end nobody knows, a call is asked to come back after a tenth of the outage's age at the earliest. So
// 1,000 callers make some 50 calls each in ten minutes, and are back within a minute of its end. Where the end of a closing
// is known, and no rate, they come back within a tenth of its length behind its end.
//
// # States of an asked: the calls of a flow and priority that were asked to come back
//
//	none       the next refused call of the flow gets its prediction as its turn
//	expected   units > 0, until the last turn that was handed out. They become fewer with time, as if all came back at
//	           their turns, and with each call that joins the line, which may be one of them
//	over       that moment has passed: the next refusal forgets it
//
// A key has those by its limits, and all keys have those of the limiter that they share; a key is the flow of its calls
// that name none there. Of a caller who ignores the turns each refusal counts as another caller's, until it is seen to be a loop (brake.loops).
// So a turn is at most askedWithin behind the prediction, and further ones are anywhere between the two.
//
// # Races
//
// The one lock decides each of them.
//
//	two refusals at once           one comes first, and the other gets the turn behind it
//	its turn, and a newcomer       whoever comes first joins the line; the other may be refused, and is asked behind all
//	its turn, and the gate closes  it is refused again, with a turn behind the closing
//	a limit is raised, or Resume   turns that were handed out stand, and those after them follow the new limit

const (
	askedWithin = 10 * time.Minute // how long after its prediction a call is asked to come back, at most
	mostAsked   = 64               // flows that are told apart; further ones are counted as the last of them
	mostAskers  = 1024             // keys of a Transport that remember whom they have asked; with further ones the prediction counts
	againSteps  = 32               // bounds the work of a turn, as arrivalSteps that of a prediction
	outageShare = 10               // of an outage's age: a call comes back after a tenth
	leastOutage = 10 * time.Second // a younger outage counts as so old
	unknownFor  = time.Second      // within that time a call comes back where nothing is known
)

// An asked is the calls of a flow and priority that were asked to come back.
type asked struct {
	flow   line.ID
	prio   int32
	weight float64
	units  float64   // of those whose turns are not over, as of from
	from   time.Time // so far, and
	until  time.Time // the last turn
}

// A comebacks is those of all flows.
type comebacks []asked

// pass forgets the units whose turns are over by now. Example: 950 units from 5 s to 100 s are 400 units at 60 s.
func (a *asked) pass(now time.Time) {
	if now.After(a.from) && now.Before(a.until) {
		a.units *= float64(a.until.Sub(now)) / float64(a.until.Sub(a.from))
		a.from = now
	}
}

// of returns the units that were asked to come back before a call of that flow: mine are those of its flow, and theirs those
// of other flows, which take turns with it by weight. Those of lines wait, and are not counted here. at is where its flow
// stands; -1: nowhere.
//
// An example: 40 units of flow a were asked to come back, and 3 of b, and none wait. Before another call of b go 3
// of its own and 3 of a. If 2 of a wait, these are two of the three.
func (all *comebacks) of(flow line.ID, prio int32, weight float64, waits waits, now time.Time) (mine, theirs int64, at int) {
	if all == nil {
		return 0, 0, -1
	}
	*all = slices.DeleteFunc(*all, func(a asked) bool { return !a.until.After(now) })
	at = slices.IndexFunc(*all, func(a asked) bool { return a.prio == prio && a.flow == flow })
	if at < 0 && len(*all) == mostAsked {
		at = mostAsked - 1
	}
	for i := range *all {
		(*all)[i].pass(now)
	}
	if at >= 0 {
		mine = int64((*all)[at].units)
	}
	until := float64(unitsOf(waits, prio, flow)+mine) / weight
	for i, a := range *all {
		switch {
		case i == at || a.prio < prio:
		case a.prio > prio:
			theirs += int64(a.units)
		default:
			waiting := float64(unitsOf(waits, prio, a.flow))
			theirs += int64(max(0, min(a.units, until*a.weight-waiting)))
		}
	}
	return mine, theirs, at
}

// An example at 10/s with an empty line: the first call is asked to come after 0.1 s, the second, with 1 unit expected, after
// 0.2 s. The first comes and joins the line: 1 unit is expected and 1 waits, so a third is asked to come after 0.3 s too.

// ask notes that a call was asked to come back at that turn; at is what of has returned for it.
func (all *comebacks) ask(at int, o *order, flow line.ID, turn time.Time) {
	if all == nil {
		return
	}
	if at < 0 {
		*all = append(*all, asked{flow: flow, prio: o.Prio, from: turn})
		at = len(*all) - 1
	}
	a := &(*all)[at]
	a.weight = cmp.Or(o.weight, 1)
	a.units += float64(max(1, o.Cost))
	a.until = limit.Latest(a.until, turn)
}

// joined notes that a call of that flow has joined the line: it may be one that was asked to.
func (all *comebacks) joined(flow line.ID, w *waiter) {
	for i := 0; all != nil && i < len(*all); i++ {
		if a := &(*all)[i]; a.prio == w.Prio && a.flow == flow {
			a.units = max(0, a.units-float64(max(1, w.Cost)))
		}
	}
}

// againLocked is when a call that o wants, and which is refused, is worth calling again. b is what goes before it, and wait
// its prediction.
//
// Examples at 10/s with 50 calls in line: the first one to be refused is asked to come after 5.1 s, as predicted, the next
// one after 5.2 s. In an outage of five minutes the first is asked to come after 27 to 30 s, as is the tenth, and the 400th
// after 40 s.
func (q *Queue) againLocked(o *order, b *backlog, wait time.Duration, now time.Time) time.Duration {
	if wait > limit.Forever/2 {
		return wait
	}
	start, n := now.Add(max(0, wait)), o.need(o.holds)
	n.cost = max(1, n.cost)
	flow, weight, s := q.flowOf(o.want.Flow), cmp.Or(o.weight, 1), q.common.all
	var waits waits
	if q.line != nil {
		waits = q.line
	}
	mine, theirs, at := q.common.asked[q].of(flow, o.Prio, weight, waits, now)
	b.more, b.all, b.scope = mine, b.all+theirs, b.scope+theirs
	ofAll := -1 // the place of the flow at what all share
	if s != nil {
		mineOfAll, theirs, at := s.asked.of(flow, o.Prio, weight, &s.Pool, now)
		b.more, ofAll = b.more+theirs+max(0, mineOfAll-mine), at
	}
	p := q.foreseeLocked(b, n, againSteps, now)
	turn := limit.Latest(start, p.start())
	if q.lacksSlotLocked(o.wants, now) || !turn.After(now) { // by Little's law, as calls under way end
		each := q.up.RoundTrip().Smoothed / time.Duration(max(1, int(q.slots), int(q.underLocked())))
		turn = limit.Latest(turn, now.Add(time.Duration(b.all+mine+1)*each))
	}
	if !turn.After(now) { // nothing is known, but it will be soon
		return unknownFor - limit.Jitter(unknownFor/2)
	}
	c := q.up.Closing(now)
	closed := c.Cause != upstream.Open && !c.Over
	switch paced := p.latest != never || q.limits().Pace(now) < rate.Inf; {
	case closed && !c.Probing && !paced:
		turn = start
		if q.troubled().refused > 0 { // the first one comes back at the end
			turn = start.Add(limit.Jitter(min((c.Age+c.Left)/outageShare, time.Minute)))
		}
	case turn.Sub(start) > askedWithin:
		turn = start.Add(limit.Jitter(askedWithin))
	case !q.troubled().brake.loops(now.Sub(q.common.base)):
		q.askersLocked(now).ask(at, o, flow, turn)
		if s != nil {
			s.asked.ask(ofAll, o, flow, turn)
		}
	}
	if closed && c.Probing {
		tenth := max(c.Age, leastOutage) / outageShare
		turn = limit.Latest(turn, now.Add(tenth-limit.Jitter(tenth/10)))
	}
	return turn.Sub(now)
}

// A Transport of 65,536 keys, all of which refuse, remembers 1,024 of them: a few words for each, and 100 KB in all. A key
// that is not remembered sends its callers back after the prediction.

// askersLocked is where the calls stand that q has asked to come back; nil: there is no room for more keys. Of those that
// are there it looks at a few, and forgets the ones whose turns are over.
func (q *Queue) askersLocked(now time.Time) *comebacks {
	asked, looked := q.common.asked, 0
	if all := asked[q]; all != nil {
		return all
	}
	for of, all := range asked { // in random order
		if all.over(now) {
			delete(asked, of)
		}
		if looked++; looked == evictTries {
			break
		}
	}
	switch {
	case len(asked) >= mostAskers:
		return nil
	case asked == nil:
		q.common.asked = map[*Queue]*comebacks{}
	}
	q.common.asked[q] = new(comebacks)
	return q.common.asked[q]
}

// over reports whether the turns of all are.
func (all *comebacks) over(now time.Time) bool {
	return !slices.ContainsFunc(*all, func(a asked) bool { return a.until.After(now) })
}

// waits is where units of flows wait: a line, or what all share.
type waits interface {
	Waiting(prio int32, id line.ID) int64
}

func unitsOf(w waits, prio int32, id line.ID) int64 {
	if w == nil {
		return 0
	}
	return w.Waiting(prio, id)
}

// flowOf is the flow of a call that names that one. Where several keys take turns the calls of a key that name none are the key's.
func (q *Queue) flowOf(name string) line.ID {
	if name == "" && q.common.all != nil {
		return line.ID{Name: q.key, IsKey: true}
	}
	return line.ID{Name: name}
}

// turnedAwayLocked is the error of o, which arrives and is refused because of reason, and would wait for that long. It
// stands behind all who wait and, with a flow, in turn with the other flows.
func (q *Queue) turnedAwayLocked(o *order, wait time.Duration, reason error, now time.Time) error {
	mine, _, _ := q.common.asked[q].of(q.flowOf(o.want.Flow), o.Prio, cmp.Or(o.weight, 1), nil, now)
	again := q.againLocked(o, q.beforeLocked(o, mine), wait, now)
	return q.heldErrorLocked(o.need(o.holds), o.attempts, wait, again, reason, now)
}

// sentAwayLocked is the error of w, which is in line with so many units before it that stay, and would wait for that long.
//
// An example: 100 calls wait at 10/s, and a 429 closes the gate for an hour. All leave. None of them has anybody before it,
// but each has those who left before it: they are asked to come after an hour, and an hour and 0.1 s, 0.2 s ...
func (q *Queue) sentAwayLocked(w *waiter, before int64, wait time.Duration, reason error, now time.Time) error {
	return q.heldErrorLocked(w.need(w.holds()), int(w.tries), wait, q.leavesLocked(w, before, wait, now), reason, now)
}

// leavesLocked is againLocked of w, which is in line.
func (q *Queue) leavesLocked(w *waiter, before int64, wait time.Duration, now time.Time) time.Duration {
	o := order{waiter: *w, want: new(Want), holds: w.holds(), reserve: w.also().reserve}
	o.want.Flow, o.weight = q.line.Flow(&w.Call)
	b := &backlog{all: before, scope: before, old: true, key: q.key, holds: o.holds, held: q.aheadLocked(before)}
	b.of = line.Newcomer{Flow: o.want.Flow, Weight: o.weight, Prio: w.Prio, Seq: w.Seq, Scope: w.Scope}
	return q.againLocked(&o, b, wait, now)
}

// lateErrorLocked is the error of w, which is in line and was held by that: its turn has come too late, or not within the
// time that it may wait. It comes back behind those who were before it, and not behind all: they may leave as it does.
func (q *Queue) lateErrorLocked(w *waiter, reason error, by string, now time.Time) error {
	before, _ := q.line.AheadOf(&w.Call)
	again := q.leavesLocked(w, before, 0, now)
	return q.errorOf(int(w.tries), again, &Held{reason, by, 0})
}

// Errors that no time mends, such as a cost that can never be paid, name none.

// deniedLocked is the error of w, the head, which does not go because of reason.
func (q *Queue) deniedLocked(w *waiter, reason error, now time.Time) error {
	if reason == q.common.Errors.Deadline {
		return q.lateErrorLocked(w, reason, "", now)
	}
	return q.fail(w, reached(reason))
}

// joinedLocked notes that w joins the line, under its key and, where all keys share a limiter, there. A call that goes at
// once is not noted: a caller who comes at the turn is no longer expected by then.
func (q *Queue) joinedLocked(w *waiter) {
	if len(q.common.asked) == 0 {
		return
	}
	name, _ := q.line.Flow(&w.Call)
	flow := q.flowOf(name)
	q.common.asked[q].joined(flow, w)
	if s := q.common.all; s != nil {
		s.asked.joined(flow, w)
	}
}
