package quota

import (
	"math"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/limit"
)

// This file is about advertised quotas that mirror a meter of the key which holds what the upstream holds. Then it is known when the
// upstream takes units, and when it gives them back, also between two answers:
//
//	level = remaining − held since the attempt was sent + come back since then + earned since then, at most the limit
//
// The limit cuts the level whenever it is reached, so the time from the attempt to its answer is gone through start by start. An
// answer that was quick counts what came back until it was there. Of a slow one, which comes when the work is done, it is taken to count
// what had come back when it was sent.
//
// Example: a bucket of 8,380 a minute, and calls that hold 2,000 and cost 419. An answer says that 500 remain. In the next 3 s
// the bucket earns 419, and a call ends that gives 1,581 back: the next one can go. Without what came back it would wait for 8 s more.
//
// # Others
//
// If a bucket loses more than the meter explains, others draw on it, and calls are spaced as those of any rolling quota. Nobody else
// is seen: calls go at once while a second one of the same size would find its units too, so that others can be seen.
//
// # Fixed windows
//
// What was held in an earlier window never comes back. The meter is asked to leave it out (Turn).

const (
	// An answer that takes less than quickTrip counts what came back until it was there. Otherwise what comes back meanwhile would be
	// counted twice, and one call in 1,000 be throttled (TestSmallAdvertisedLimitIsUsed).
	quickTrip = time.Second
	// Of a quota without others this share is left alone, or one more hold. With less, one of two clients in seven never got a turn, and so was
	// never seen (TestTwoClientsShareAdvertisedTokens).
	spare = 0.25
	// coarsest is the coarsest rounding of what remains that is looked for.
	coarsest = 10_000
)

// A Counter is a meter of the key that an advertised quota mirrors. It is asked under the lock of the State.
type Counter interface {
	Cost() float64               // what a call costs in the end, on average; 0: nothing is known
	Hold() float64               // what a call holds
	Units() (held, back float64) // what calls have held in all, and what came back of that
	Holds() bool                 // the upstream holds what the meter does
	Turn(t time.Time)            // what was held before t does not come back from now on
}

// A count is what a meter has held in all by some moment, and what had come back of that.
type count struct{ held, back float64 }

// countNow is the count of the quota's meter.
func (q *quota) countNow() (c count) {
	c.held, c.back = q.meter.Units()
	return c
}

// A mirrored is what a quota knows by its meter, if that is exact.
type mirrored struct {
	level  float64       // what remains as of at,
	at     time.Time     // when
	by     count         // was the meter's count
	then   count         // that of the last answer
	base   count         // that of quota.base
	others float64       // what others have taken of a rolling one in the last window, smoothed
	seen   bool          // that was much at the last answer
	grain  float64       // what remains is advertised in these
	whole  time.Duration // in which all of a rolling one comes back, by its resets; 0: not known
}

// meet finds the meter that the quota mirrors. If it is another kind of meter than before, the log begins anew: it is in other units.
func (q *quota) meet(t *hint.Quota, a *Answer) {
	before := q.exact()
	q.meter = nil
	if a.Counter != nil {
		asked := *t // t itself would always be on the heap
		if c := a.Counter(&asked); c != nil && c.Cost() > 0 {
			q.meter, q.perUnit = c, c.Cost()
		}
	}
	if len(q.starts) == 0 || q.exact() == before {
		return
	}
	if q.starts = (starts{{}}); !before {
		c := q.countNow()
		q.starts[0].count = c
		q.mirrored = mirrored{level: q.left, at: q.leftAt, by: c, then: c, base: c}
	}
}

// exact reports whether the meter knows when the upstream takes units, and when they come back.
func (q *quota) exact() bool { return q.meter != nil && q.meter.Holds() }

// hold is what the next call needs.
func (q *quota) hold() float64 { return min(q.meter.Hold(), q.size) }

// countAt is the meter's count when a call had started.
func (s starts) countAt(t time.Time) count { return s[s.upTo(t)-1].count }

// earned is what has come back by itself since the level was known.
func (q *quota) earned(now time.Time) float64 {
	if age := now.Sub(q.at); q.rolling && age > 0 {
		return q.allows(age)
	}
	return 0
}

// levelAt is what remains at now. Those who have just started may arrive before what has come back since, so it is never
// above what they would leave of the whole.
func (q *quota) levelAt(now time.Time) float64 {
	c := q.countNow()
	level := q.level - (c.held - q.by.held) + (c.back - q.by.back) + q.earned(now)
	under := c.held - q.starts.countAt(limit.Latest(q.sentAt, now.Add(-quickTrip))).held
	return min(level, q.size-under)
}

// fold brings the level up to now.
func (q *quota) fold(now time.Time) { q.level, q.at, q.by = q.levelAt(now), now, q.countNow() }

// anchor takes the level from what remained at a moment, when the count was then.
func (q *quota) anchor(left float64, then count, sent, now time.Time) {
	q.level, q.at, q.by, q.then = left, sent, then, then
	for _, e := range q.starts[q.starts.upTo(sent):] {
		back := max(q.by.back, e.back)
		q.level = min(q.size, q.level+q.earned(e.at)+back-q.by.back) - (e.held - q.by.held)
		q.at, q.by = e.at, count{e.held, back}
	}
	q.fold(now)
}

// beginExact is begin where the meter is exact: so much was left when the window began.
func (q *quota) beginExact(left float64, began, now time.Time) {
	q.base = left
	q.meter.Turn(began)
	q.mirrored.base = q.starts.countAt(began)
	q.anchor(left, q.mirrored.base, began, now)
}

// updateExact is update where the meter is exact. More than the meter explains means that a new window has begun or, well before the reset,
// that the quota is rolling; so does a reset that moves on before it was due.
//
// Example: 10,000 remained when the window began, 6,000 were held since, and 1,000 have come back. An answer says that 9,000 remain
// with 20 s to go: 4,000 more have come back by themselves.
func (q *quota) updateExact(left float64, until, sent, now time.Time) {
	if sent.Before(q.sentAt) || sent.Equal(q.sentAt) && left >= q.left || !q.rolling && sent.Before(q.began) {
		return // one sent at the same moment that says less was the later one
	}
	then := q.starts.countAt(sent)
	if now.Sub(sent) < quickTrip {
		then.back = q.countNow().back
	}
	more := left - q.base + (then.held - q.mirrored.base.held) - (then.back - q.mirrored.base.back)
	early := q.early(left, now)
	race := 2*q.meter.Hold() + q.size/16 // what came back meanwhile may be counted or not
	switch moved := !q.fresh && !q.until.IsZero() && until.Add(-now.Sub(sent)).After(q.until.Add(resetGrain)); {
	case q.rolling:
		q.detectByMeter(left, then, sent, now)
	case q.fresh && more < -0.75*q.size && now.Sub(q.began) < q.window/8, early && (moved || !q.fresh && more > race):
		q.rolling, q.grain = true, coarsest
	case !q.fresh && more > race:
		if q.guessed {
			until = now.Add(q.window)
		}
		q.begin(sent, until, left, now)
		return
	default:
		if q.fresh {
			q.base -= max(0, -more)
		}
		if q.fresh || q.until.IsZero() || !until.IsZero() && until.Before(q.until) {
			q.until = until
		}
		q.fresh = false
	}
	q.left, q.leftAt, q.sentAt, q.silent, q.answered = left, now, sent, 0, 0
	q.anchor(left, then, sent, now)
}

// measureWhole finds out how long it takes until all of a rolling quota is back. If its reset is when it will be whole, what is lacking
// comes back until then. Two answers must agree. Example: 5,000 of 8,000 remain, and the reset is in 22.5 s: 8,000 take 60 s.
func (q *quota) measureWhole(t *hint.Quota) {
	left := float64(t.Remaining)
	if !q.exact() || !q.rolling || t.Reset <= 0 || left < 0 || left > 0.875*q.size {
		return
	}
	whole := time.Duration(min(float64(t.Reset)*q.size/(q.size-left), float64(limit.MaxBelief)))
	if off := max(whole-q.whole, q.whole-whole); off > whole/16 {
		q.whole = whole
		return
	}
	q.whole += (whole - q.whole) / 4
	q.window = max(q.whole, minWindow)
}

// detectByMeter finds out whether others draw on a rolling quota: they do if two answers in a row say less than should remain.
// What is missing is forgotten in a window. What comes back while an answer is on its way is missing at most once, and found again.
func (q *quota) detectByMeter(left float64, then count, sent, now time.Time) {
	for ; q.grain > 1 && math.Mod(left, q.grain) != 0; q.grain /= 10 {
	}
	dt, hold := sent.Sub(q.sentAt), q.meter.Hold()
	should := min(q.size, q.left+q.allows(dt)-(then.held-q.then.held)+(then.back-q.then.back))
	faded := q.mirrored.others * math.Exp(-dt.Seconds()/max(q.window, minWindow).Seconds())
	q.mirrored.others = max(-2*hold, faded+should-left)
	much := q.mirrored.others > 0.75*hold+q.grain
	if much && q.seen {
		q.shared = now.Add(max(2*q.window, 2*time.Second))
	}
	q.seen = much
}
