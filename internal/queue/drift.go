package queue

import (
	"math"
	"sort"
	"strings"
	"time"

	"github.com/go-throttle/throttle/hint"
)

// This file finds meters that count something else than their upstream does, by what remains of the advertised quotas that mirror them.
// What an upstream has counted at an answer is not known exactly, so both sides of the comparison are bounds:
//
//	own    what the meter has counted between two answers: at least, and at most
//	fell   by how much the quota fell between them, and what it earned meanwhile, see drift_quota.go
//
// A span is two answers whose bounds do not overlap, even if one side were a tenth larger. Four spans in a row with 50 calls in five minutes or
// more, all in one direction, are a drift. One in which both are the same begins the row anew.
//
// # What an upstream may have counted at an answer
//
//	attempts that were settled 10 s before it was sent    what they have cost
//	open at any time since then                           nothing, what they held, or what they have cost
//	begun later                                           nothing
//
// The meter's own law does not matter for that, nor when the upstream writes its answers, nor which of two attempts reaches it first. An upstream
// that is more than 10 s late with all it writes, again and again, may be reported.
//
// Example: calls of 2 s, one at a time, that hold 1,000 and cost 300. At each answer the six of the last 10 s and its own are 0 to 1,000 each.
// After 60 calls the meter has counted 18,000, at least 12,000 and at most 24,000. If the quota fell by 36,000 that is more than 1.1 · 24,000.
//
// # What it takes
//
// A meter that somebody watches keeps 20 KB of its past at most, 5 KB while no answer advertises a quota of its own, and a start adds to
// that. An answer looks up two moments of it. A meter whose drift was reported is left alone.

const (
	driftLeast = 0.1 // a smaller difference is not looked for
	driftSpans = 4
	driftCalls = 50
	driftTime  = 300.0 // s
	// An upstream may count a call, and correct what it has cost, some time after its answer. With 1 s and without driftTime those that
	// correct 3 s late, or cache for 5 s, were reported in the first minute (TestDriftsOfLateUpstreams).
	settleLag = 10.0 // s
	// A ledger has as many entries.
	ledgerSize = 256
	// So many quotas are compared with a meter. An upstream could invent names for ever.
	maxCompared = 8
)

// A Drift is a steady difference between what a meter counts and what its upstream does.
type Drift struct {
	Reason string  // of the calls that wait for the meter; "": there is no drift
	Share  float64 // by which the upstream counts more, of what the meter counts; below 0: less
}

// Sums are what a meter had counted at some moment, in units and calls.
type sums struct {
	at          float64 // seconds since Meters.base
	held, ended float64 // by all attempts, and by those that were settled
	cost, over  float64 // what these have cost, and of that what single ones have cost above their hold
	begun, done float64 // attempts, and those that were settled
}

// back is what came back until then. Example: 1,000 were held and cost 700, in which one call has cost 50 more than it held: 350 of the
// others came back.
func (t *sums) back() float64 { return t.ended - t.cost + t.over }

// A watch is what is known of a meter whose drift somebody wants to know. The queue's lock guards it.
type watch struct {
	ledger   []sums  // at starts, in order of time
	gap      float64 // the shortest time between two of its entries, in seconds
	short    bool    // it has not reached back far enough since that was set
	quotas   []compared
	reported bool
}

// Watch makes the meters look for drifts, if somebody wants to know. It is called before they are used; nil has none. Without it a start
// and an answer cost a comparison with nil.
func (m *Meters) Watch(wanted bool) {
	if m == nil || !wanted {
		return
	}
	m.watches = make([]watch, len(m.each))
	for i := range m.watches {
		m.watches[i].ledger = []sums{{at: math.Inf(-1)}} // nothing before the first call
	}
}

// since is a moment in seconds since the meters were made, which is as precise as 100 ns for ten years.
func (m *Meters) since(t time.Time) float64 { return t.Sub(m.base).Seconds() }

// sumsLocked is what meter i has counted by now. A call that is being settled at this moment counts as settled for what it held, and
// is right in the next sums.
func (m *Meters) sumsLocked(i int, now time.Time) (t sums) {
	m.count(func() {
		e := &m.ended[i]
		t = sums{ended: float64(e.held), cost: float64(e.cost()), over: float64(e.over), done: float64(m.done)}
	})
	t.at, t.held, t.begun = m.since(now), float64(m.held[i]), float64(m.begun)
	return t
}

// noteLocked notes what was counted before an attempt that starts now. An entry that comes too soon after the last one is left out: the
// older one says less of what is settled, and nothing wrong. When the ledger is full its older half goes.
func (m *Meters) noteLocked(now time.Time) {
	at := m.since(now)
	for i := range m.watches {
		w, most := &m.watches[i], ledgerSize
		if w.reported {
			continue
		}
		if last := w.ledger[len(w.ledger)-1].at; at <= last || at < last+w.gap {
			continue
		}
		if w.quotas == nil {
			most /= 4
		}
		if len(w.ledger) >= most {
			if w.short {
				w.gap, w.short = max(1e-3, 2*w.gap), false
			}
			w.ledger = w.ledger[:copy(w.ledger, w.ledger[most/2:])]
		}
		w.ledger = append(w.ledger, m.sumsLocked(i, now))
	}
}

// asOf is the last entry until then; nil: it is forgotten. Then entries lie further apart from now on, until those that the slowest
// answer needs are there. Example: 100 calls a second that take 30 s each need one in 200 ms.
func (w *watch) asOf(at float64) *sums {
	k := sort.Search(len(w.ledger), func(k int) bool { return w.ledger[k].at > at }) - 1
	if k < 0 {
		w.short = true
		return nil
	}
	return &w.ledger[k]
}

// An end is an answer at which a span begins or ends.
type end struct {
	sent, there float64 // when its attempt was sent, and its answer was there
	left        float64 // what remained
	own         bounds  // what the upstream had counted if its law is the meter's
	begun       float64 // attempts until then
	back        float64 // what came back in all until the answer was there,
	backAtStart float64 // and until the attempt was sent
}

// endLocked is the end of an answer that is there now; ok is false if the ledger does not go back that far. How it comes by own:
//
//	at least  what those have cost that were settled in time
//	at most   the same, and for all others what they hold, or have cost above that. A stream that holds little is taken to cost twice
//	          the mean
//
// Example: an attempt is sent at 100 s and answered at 110 s. At 90 s 50,000 units were settled and 3 attempts open, which hold 1,000 each; by
// 110 s two more have begun. The upstream has counted 50,000 to 55,000.
func (m *Meters) endLocked(i int, sent, now time.Time) (e end, ok bool) {
	w, start := &m.watches[i], m.since(sent)
	early := w.asOf(start - settleLag)
	if early == nil {
		return e, false
	}
	then, t := w.asOf(start), m.sumsLocked(i, now)
	e = end{sent: start, there: t.at, begun: t.begun, back: t.back(), backAtStart: then.back()}
	open := t.held - early.ended + t.over - early.over
	e.own = bounds{early.cost, early.cost + open}
	if m.each[i].Streams { // which holds a little of what a call will cost
		e.own.hi = early.cost + max(open, 2*m.meanLocked(i)*(t.begun-early.done))
	}
	return e, true
}

// driftLocked takes in what the answer of a success advertises, and returns a drift that was not reported before. Of several meters that
// drift the others follow with a later answer. Those of a key that is dropped are reported anew.
func (m *Meters) driftLocked(quotas []hint.Quota, sent, now time.Time) Drift {
	for k := range quotas {
		t := &quotas[k]
		i, fit := m.mirrorOf(t)
		if fit < byUnit || m.watches[i].reported || t.Limit <= 0 || t.Remaining < 0 {
			continue // the rest of a quota that fits by part is counted by other meters
		}
		w := &m.watches[i]
		c := w.quota(t)
		e, ok := m.endLocked(i, sent, now)
		if c == nil || !ok {
			continue
		}
		if c.take(t, e); c.row.found() {
			share := c.row.fell/c.row.own - 1
			*w = watch{reported: true}
			return Drift{m.reasons[i], share}
		}
	}
	return Drift{}
}

// quota is what is known of an advertised quota; nil: there are too many. Two of one meter, as tokens a minute and a day, are compared
// each by itself, and whichever shows a drift first is the one that counts. Names are cloned, because the answer's own may keep a whole
// header in memory.
func (w *watch) quota(t *hint.Quota) *compared {
	for i := range w.quotas {
		if c := &w.quotas[i]; c.name == t.Name && c.unit == t.Unit && c.window == t.Window {
			return c
		}
	}
	if len(w.quotas) == maxCompared {
		return nil
	}
	w.quotas = append(w.quotas, compared{name: strings.Clone(t.Name), unit: strings.Clone(t.Unit), window: t.Window})
	return &w.quotas[len(w.quotas)-1]
}
