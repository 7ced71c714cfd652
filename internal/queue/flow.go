package queue

import (
	"container/heap"
	"math"
)

// Waiting calls may name a flow: whose calls they are. Within a priority the flows share the
// line by weight, by start-time fair queueing (Goyal, Vin, Cheng: Start-time Fair Queuing,
// SIGCOMM 1996).
//
// The next call of a flow starts at a virtual time S, and is charged cost/weight of it when
// it is granted. The flow with the least S is next. Now (v in the paper) is the S of the
// latest grant: a flow that begins to wait starts at max(now, where it has ended). Example:
// flow a has 10,000 calls in line, and S = now = 500. Three calls of b arrive, S = 500. The
// turns are a, b, a, b, a, b, a ...: b's wait is bounded by one call of each other flow,
// whatever their backlogs. With weight 2 for b they are a, b, b, a, b, a, a ...: b is charged
// half a unit a call.
//
// # Who has which state
//
//	a bare Queue, a key without anything shared    line.flows: nil until a call with a flow waits
//	keys that share a limiter or slots             sharedLine.flows, also as line.flows of each; a key is the flow
//	                                               of its calls that name none
//
// A class is the flows of one priority. The flow of calls without a name in a line of its own
// is class.unnamed, and their waiters have no flow: without WithFlow nothing of this is
// touched. An order within a flow, and of a line without named flows, is that of arrival as
// ever.
//
// # States of a flow, all under the lock of the queues
//
//	unknown      not in class.flows
//	waiting      count > 0; start is S of its next call
//	remembered   count = 0, and start > now. Forgotten earlier, one worker that comes back at once would start at
//	             now each time and take every grant. In class.idle, by start
//
//	unknown, remembered -> waiting      join: start = max(now, start)
//	waiting -> remembered or unknown    gone: its last call was granted, cancelled, refused
//	remembered -> unknown               now has passed start; or more than maxRemembered are, and now is moved on
//	all -> unknown                      nobody of the class waits any more: whoever comes next starts even
//
// # Races
//
// The one lock decides each of them.
//
//	grant, then the end of ctx     undo: the flow's next charge is less by this one, so start never falls
//	a cancelled call               was never charged: those of its flow behind it move up
//	a call moves to another scope  it stays in its flow: only its part changes, see parts
//	a retry                        is charged as each attempt; within its flow it has its first arrival's place
//	weights that change            each arrival brings its own; it holds for the flow from then on
//	a grant under another key      its flow starts later under every key. A key whose head is of that flow learns
//	                               of it when it is looked at next: by its own events, or when its turn comes
//	a start that has grown         a part is sorted by what start was; parts.next corrects the one on top. Since
//	                               start never falls, a part that is not corrected yet stands too far in front

// maxRemembered bounds the flows that are remembered. A program that names a flow for each
// call would fill the memory: all start at the same now, which never moves on. With the bound
// it does.
const maxRemembered = 4096

// A flowID names a flow: by the name that calls give, or by the key of those that give none,
// in a line of several keys.
type flowID struct {
	name  string
	isKey bool
}

// A flow is the calls of one tenant and priority.
type flow struct {
	id     flowID
	class  *class
	weight float64
	start  float64 // virtual time at which its next call starts; not below class.now, but for one that was held back
	credit float64 // of grants that were not used
	units  int64   // of its calls that wait
	count  int     // of these calls
	place  int     // in class.idle; -1: not there
}

// A class is the flows of one priority.
type class struct {
	prio    int32
	now     float64 // virtual time
	flows   map[flowID]*flow
	idle    idleFlows
	unnamed *flow // nil in a line of several keys
	waiting int   // calls of all flows
}

// flows are the classes in use, by priority. A class is made by the first call that names a
// flow and has to wait, and goes with the last call of its priority. So a program that uses
// moments as priorities leaves nothing behind.
type flows map[int32]*class

// add makes the class of a priority.
func (fs flows) add(prio int32) *class {
	c := &class{prio: prio, flows: map[flowID]*flow{}}
	fs[prio] = c
	return c
}

// of is the flow of a waiter; nil: nobody of its priority has named one.
//
// An example: 100,000 calls wait, and none has named a flow. Then one does: a class is made,
// and the others, which have no flow, are those of class.unnamed from now on. None of them is
// touched.
func (fs flows) of(w *waiter) *flow {
	if w.flow != nil {
		return w.flow
	}
	if c := fs[w.prio]; c != nil {
		return c.unnamed
	}
	return nil
}

// start is the virtual time at which w's flow is to start.
func (fs flows) start(w *waiter) float64 {
	if f := fs.of(w); f != nil {
		return f.start
	}
	return 0
}

// before reports whether a, of the same priority as b, goes before it: its flow starts
// earlier, or a has come earlier.
func (fs flows) before(a, b *waiter) bool {
	if fs != nil {
		if s, t := fs.start(a), fs.start(b); s != t {
			return s < t
		}
	}
	return a.seq < b.seq
}

// flow finds a flow, or makes it.
func (c *class) flow(id flowID) *flow {
	f := c.flows[id]
	if f == nil {
		f = &flow{id: id, class: c, weight: 1, start: c.now, place: -1}
		c.flows[id] = f
	}
	return f
}

// join counts a call that begins to wait.
//
// A flow that nobody has waited in starts now, or where its last grant has ended if that is
// later. Two examples with now = 500: a flow that has not been here for an hour starts at
// 500, and has saved up nothing; one whose last call was granted at 500, and which comes back
// at once, starts at 501.
func (f *flow) join(w *waiter) {
	if f.count == 0 {
		f.start = max(f.start, f.class.now)
		if f.place >= 0 {
			heap.Remove(&f.class.idle, f.place)
		}
	}
	f.units += int64(w.cost)
	f.count++
	f.class.waiting++
}

// share is what a call of that cost is charged. One without units is charged too: it takes a
// turn.
func (f *flow) share(cost int32) float64 { return float64(max(1, cost)) / f.weight }

// charge notes that a call is granted. inTurn: because its flow was next; then virtual time
// moves on.
//
// An example: flow a, of weight 2, starts at 500 and has its turn with a call of 3 units. Now
// is 500, and a's next call starts at 501.5. Flow b starts at 501: b goes next. When a call
// out of turn is granted, as each eighth is, now stays: otherwise newcomers would start as
// far ahead as that flow is.
func (f *flow) charge(cost int32, inTurn bool) {
	c := f.class
	f.start = max(f.start, c.now)
	if inTurn {
		c.now = f.start
	}
	paid := min(f.credit, f.share(cost))
	f.credit -= paid
	f.start += f.share(cost) - paid
}

// isAhead reports whether the flow has had its turn already: its call of that cost, even if
// it is the oldest of all, must not go out of turn now.
//
// An example with now = 500 and calls of one unit. Flow a has gone at 500 and starts at 501:
// it is ahead. Flow b starts at 500.5, because its weight is 2 and it has gone once: it is
// not ahead, and may go out of turn.
func (f *flow) isAhead(cost int32) bool { return f.start+1e-9 >= f.class.now+f.share(cost) }

// gone counts a call that has left the line, and forgets what need not be remembered.
//
// An example: the last call of flow a was granted at 500, so a starts at 501, and is
// remembered. When now is 501, every flow that waits has got as much since: a is forgotten,
// and would start at 501 as a newcomer does.
func (f *flow) gone(w *waiter, fs flows) {
	c := f.class
	f.units -= int64(w.cost)
	f.count--
	if c.waiting--; c.waiting == 0 {
		delete(fs, c.prio)
		return
	}
	if f.count == 0 {
		heap.Push(&c.idle, f)
	}
	for len(c.idle) > 0 && (c.idle[0].start <= c.now || len(c.idle) > maxRemembered) {
		old := heap.Pop(&c.idle).(*flow)
		c.now = max(c.now, old.start)
		if old != c.unnamed {
			delete(c.flows, old.id)
		}
	}
}

// unitsBefore counts the units that a flow gets before a call of another one that starts at
// until. The flow has count calls of so many units in line, and is to start.
//
// An example: 100 calls of 2 units each wait, weight 1, from 500 on. A call that starts at
// 503 has two of them before it, those of 500 and 502: 4 units.
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

// ahead counts the units of the class that go before a newcomer of a flow, and of so many more of that flow, in all
// lines. weight is what it would have. Of more than mostFlows flows so many are looked at, in the
// random order of a map, and stand for the others: predictions are made under the lock, at
// each arrival of a call with a deadline.
//
// An example with now = 500: flow a has 10,000 calls and starts at 501, b has 5 and starts at
// 500. A newcomer of b starts at 505. Before it go 5 of its own, and those of a from 501 to
// 505, which are 5 too.
func (c *class) ahead(id flowID, weight float64, more int64) int64 {
	var units, others int64
	until, seen := c.now, 0
	if f := c.flows[id]; f != nil {
		until = max(until, f.start) + float64(f.units)/weight
		units = f.units
	}
	until += float64(more) / weight
	for _, f := range c.flows {
		if f.id == id || f.count == 0 {
			continue
		}
		if seen++; seen > mostFlows {
			others = others * int64(len(c.flows)-len(c.idle)) / mostFlows
			break
		}
		others += unitsBefore(until, max(c.now, f.start), f.weight, f.units, f.count)
	}
	return units + others
}

// mostFlows is how many flows a prediction looks at.
const mostFlows = 1024

// idleFlows is a heap of flows by start, for container/heap.
type idleFlows []*flow

func (h idleFlows) Len() int           { return len(h) }
func (h idleFlows) Less(i, j int) bool { return h[i].start < h[j].start }

func (h idleFlows) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *idleFlows) Push(f any) {
	f.(*flow).place = len(*h)
	*h = append(*h, f.(*flow))
}

func (h *idleFlows) Pop() any {
	last := len(*h) - 1
	f := (*h)[last]
	f.place, (*h)[last], *h = -1, nil, (*h)[:last]
	return f
}
