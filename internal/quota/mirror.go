package quota

import (
	"math"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/limit"
)

// This file is what a quota that mirrors a meter makes of an answer.

const (
	// Of a quota without others this share is left alone, or one more hold. With less, one of two clients in seven never got a turn, and so was
	// never seen (TestTwoClientsShareAdvertisedTokens).
	spare = 0.25
	// coarsest is the coarsest rounding of what remains that is looked for.
	coarsest = 10_000
)

// meet finds the meter that the quota mirrors. If it is another kind of meter than before, the log begins anew: it is in other units.
func (q *quota) meet(t *hint.Quota, counter func(*hint.Quota) Counter) {
	before := q.exact()
	q.meter = nil
	if counter != nil {
		asked := *t // t itself would always be on the heap
		if c := counter(&asked); c != nil && c.Cost() > 0 {
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
