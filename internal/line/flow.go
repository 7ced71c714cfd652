package line

import "math"

// Waiting calls may name a flow: whose calls they are. Within a priority flows take turns by weight, by start-time fair
// queueing (Goyal, Vin, Cheng: Start-time Fair Queuing, SIGCOMM 1996).
//
// The next call of a flow starts at a virtual time S, and is charged cost/weight of it when it is granted. The flow with
// the least S is next. Now (v in the paper) is the S of the latest grant: a flow that begins to wait starts at
// max(now, where it has ended). Example: flow a has 10,000 calls in line, and S = now = 500. Three calls of b arrive,
// S = 500. The turns are a, b, a, b, a, b, a ...: b's wait is bounded by one call of each other flow, whatever their
// backlogs. With weight 2 for b they are a, b, b, a, b, a, a ...
//
// # States of a flow
//
//	unknown      not in class.flows
//	waiting      parts > 0; start is S of its next call
//	remembered   parts = 0, and start > now. Forgotten earlier, one worker that comes back at once would start at
//	             now each time and take every grant. In class.idle, by start
//
//	unknown, remembered -> waiting      join: start = max(now, start)
//	waiting -> remembered or unknown    leave: its last call was granted, cancelled, refused
//	remembered -> unknown               now has passed start; or more than maxRemembered are, and now is moved on
//	all -> unknown                      nobody of the class waits any more: whoever comes next starts even

// maxRemembered bounds the flows that are remembered. A program that names a flow for each call would fill the memory:
// all start at the same now, which never moves on. With the bound it does.
const maxRemembered = 4096

// An ID names a flow: by the name that calls give, or by the key of those that give none, where several keys take turns.
type ID struct {
	Name  string
	IsKey bool
}

// A flow is the calls of one tenant and priority.
type flow[W any] struct {
	id     ID
	class  *class[W]
	weight float64
	start  float64 // virtual time at which its next call starts
	parts  int     // of lanes in which its calls wait
	all    tally   // that wait
	sure   tally   // those of them that nothing holds but what is shared, see Station.Enter
	heads  int     // lanes in a pool whose first call alone is such a one
	place  int32   // in class.idle, or in class.turns of a pool

	tickets places[*ticket[W]] // of a pool: those that are out, by arrival
}

// A tally is how much is taken by how many calls.
type tally struct {
	units int64
	calls int
}

func (t *tally) add(units int64, calls int) {
	t.units += units
	t.calls += calls
}

// A class is the flows of one priority.
type class[W any] struct {
	prio  int32
	now   float64 // virtual time
	flows map[ID]*flow[W]
	idle  places[*flow[W]] // remembered ones
	parts int              // of all flows
	all   int64            // units of all flows that wait
	sure  int64            // of flow.sure

	turns places[*flow[W]] // of a pool: flows with a ticket that is out
	seats places[*seat[W]] // of a pool: lanes with tickets that are kept, but for those that are aside
}

// A turns is who has had how much of something that is shared, by priority. A class is made by the first call that takes
// turns, and goes with the last one of its priority: a program that uses moments as priorities leaves nothing behind.
type turns[W any] map[int32]*class[W]

// join notes that calls of a flow begin to wait in one more lane. A flow that nobody has waited in starts now, or where
// its last grant has ended if that is later. Two examples with now = 500: a flow that has not been here for an hour
// starts at 500, and has saved up nothing; one whose last call was granted at 500, and which comes back at once, at 501.
func (t turns[W]) join(prio int32, id ID) *flow[W] {
	c := t[prio]
	if c == nil {
		c = &class[W]{prio: prio, flows: map[ID]*flow[W]{}}
		t[prio] = c
	}
	f := c.flows[id]
	if f == nil {
		f = &flow[W]{id: id, class: c, weight: 1, start: c.now}
		c.flows[id] = f
	}
	if f.parts == 0 {
		c.idle.take(f)
		f.start = max(f.start, c.now)
	}
	f.parts++
	c.parts++
	return f
}

// leave notes that none of the flow's calls waits in a lane any more, and forgets what need not be remembered.
//
// An example: the last call of flow a was granted at 500, so a starts at 501, and is remembered. When now is 501, every
// flow that waits has got as much since: a is forgotten, and would start at 501 as a newcomer does.
func (t turns[W]) leave(f *flow[W]) {
	c := f.class
	f.parts--
	if c.parts--; c.parts == 0 {
		delete(t, c.prio)
		return
	}
	if f.parts == 0 {
		c.idle.put(f)
	}
	for len(c.idle) > 0 && (c.idle[0].start <= c.now || len(c.idle) > maxRemembered) {
		old := c.idle[0]
		c.idle.take(old)
		c.now = max(c.now, old.start)
		delete(c.flows, old.id)
	}
}

// share is what a call of that cost is charged. One without units is charged too: it takes a turn.
func (f *flow[W]) share(cost int64) float64 { return float64(max(1, cost)) / f.weight }

// charge notes that a call is granted. inTurn: because its flow was next; then virtual time moves on. When a call
// out of turn is granted, as each eighth is, now stays: otherwise newcomers would start as far ahead as that flow is.
//
// A flow that could not go for a while is behind now, and gives up what it has missed but for one call. That one it would
// lose each time in which it waits at another pool, and a flow that does so more often would get less for ever.
func (f *flow[W]) charge(cost int64, inTurn bool) {
	share := f.share(cost)
	f.start = max(f.start, f.class.now-share)
	if inTurn {
		f.class.now = max(f.class.now, f.start)
	}
	f.start += share
}

// isAhead reports whether the flow has had its turn already: its oldest call, even if it is the oldest of all, must not go
// out of turn now. Then no flow gets more than its share but for the call that is its turn and the one before.
func (f *flow[W]) isAhead() bool { return f.start > f.class.now+1e-9 }

func (f *flow[W]) at() *int32 { return &f.place }

// before orders remembered flows by start, and those with tickets by start and arrival.
func (f *flow[W]) before(o *flow[W]) bool {
	if len(f.tickets) == 0 || len(o.tickets) == 0 {
		return f.start < o.start
	}
	return byTurn(f.start, o.start, f.tickets[0].seq, o.tickets[0].seq)
}

// unitsBefore counts the units that a flow of that weight gets before a call of another one that starts at until. The
// flow has count calls of so many units in line, and is to start.
//
// An example: 100 calls of 2 units each wait, weight 1, from 500 on. A call that starts at 503 has two of them before
// it, those of 500 and 502: 4 units.
func unitsBefore(until, start, weight float64, units int64, count int) int64 {
	if count == 0 || start > until+1e-6 {
		return 0
	}
	each := float64(units) / float64(count)
	calls := math.Floor((until-start)*weight/max(1, each)+1e-6) + 1
	if calls >= float64(count) {
		return units
	}
	return int64(math.Ceil(calls * each))
}

// mostFlows is how many flows a prediction looks at. Further ones are taken to be like these: predictions are made under
// the queue's lock, at each arrival of a call with a deadline.
const mostFlows = 1024
