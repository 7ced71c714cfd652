package queue

import (
	"math"
	"time"

	"github.com/go-throttle/throttle/hint"
)

// This file is an advertised quota that is compared with a meter, see drift.go: what it earns between two answers, and so whether it fell by
// more than the meter has counted.
//
//	a bucket        its reset is when it will be full. Then all of it takes limit · reset ÷ (limit − remaining) to come back, which is the
//	                same at each answer. It earns evenly, unless it was full meanwhile
//	a fixed window  it earns nothing until its end, and then all is back at once. Only a window whose beginning was seen so is compared:
//	                of an estimate by two counters, and of a bucket with such a reset, units come back one by one
//	anything else   is not compared: what a sliding window earns depends on what was used long before
//
// The first must agree in 8 answers whose resets differ by a half. An answer says nothing of how much is lacking if 0 remain or all, because
// debts, and what a full bucket would have earned, are not seen. One that says what the last one said may come from a cache, or be rounded.

const (
	// Answers that must agree on a bucket, by how much their resets must differ, and how precise the result must be.
	fillAnswers, fillSpread, fillPrecise = 8, 1.5, 1.3
	// A bucket may have been full if less than this share is lacking.
	fullMargin = 1.0 / 32
	// All of a window is back at once if less than stillNew is lacking, and wasUsed has come back beside sureTurn times what a bucket would
	// have earned since the last answer.
	wasUsed, stillNew, sureTurn = 1.0 / 4, 1.0 / 10, 1.3
	// Roundings of resets in seconds: below, and above. A date in whole seconds is compared with one in whole seconds.
	finest, dated, dateUp = 2e-3, 2.1, 1.1
	// The coarsest rounding of what remains that is looked for.
	coarsestLeft = 10_000
)

// bounds are what a number is at least and at most.
type bounds struct{ lo, hi float64 }

func (b bounds) mid() float64   { return (b.lo + b.hi) / 2 }
func (b bounds) width() float64 { return b.hi - b.lo }

// and is what both allow; ok is false if that is nothing. Example: 55 to 62 s and 58 to 70 s allow 58 to 62 s.
func (b bounds) and(c bounds) (both bounds, ok bool) {
	both = bounds{max(b.lo, c.lo), min(b.hi, c.hi)}
	return both, both.lo <= both.hi
}

// A compared is one quota. Zero but for its name, it has seen no answer.
type compared struct {
	name, unit string
	window     time.Duration // as advertised

	limit int64
	grain float64    // the coarsest rounding of what remains that all answers allow
	fills [2]filling // as a bucket, with precise resets and with those in whole seconds
	turn  turn       // as a fixed window

	last   end  // the answer to the attempt that was sent last
	bucket bool // what the span is of: a bucket, or a fixed window
	begun  bool // there is a span
	from   end  // its beginning
	row    row  // of the spans before it
}

// A filling is a bucket, as far as answers agree on one.
type filling struct {
	n     int
	whole bounds // seconds in which all of it comes back
	reset bounds // the shortest reset at most, and the longest at least
}

// take takes in that so much is lacking, and is back after some seconds. It reports whether that agrees with those before: otherwise the
// filling begins anew.
//
// Example: of 6,000 units 1,000 are lacking, and the reset is 10 s, rounded up: 6,000 take 47 to 67 s. Later 4,000 are lacking for
// 40 s. That is 57 to 62 s, so both agree. If the later reset were 30 s, 42 to 47 s, it would be something else than a bucket.
func (f *filling) take(limit float64, lack, reset bounds) (agrees bool) {
	if lack.lo <= 0 || reset.hi <= 0 {
		return true
	}
	whole := bounds{max(0, reset.lo) * limit / lack.hi, reset.hi * limit / lack.lo}
	both, agrees := f.whole.and(whole)
	if f.n == 0 || !agrees {
		agrees = f.n == 0
		*f, both = filling{reset: bounds{reset.hi, reset.lo}}, whole
	}
	f.n, f.whole = f.n+1, both
	f.reset = bounds{min(f.reset.lo, reset.hi), max(f.reset.hi, reset.lo)}
	return agrees
}

// sure reports whether it is a bucket. Resets that are all about the same would agree with much else.
func (f *filling) sure() bool {
	return f.n >= fillAnswers && f.reset.hi >= fillSpread*f.reset.lo && f.whole.hi <= fillPrecise*f.whole.lo
}

// A turn is the window of a quota, if it is a fixed one.
type turn struct {
	until bounds // seconds since Meters.base
	whole bool   // all was back when it began
}

// take takes in an answer whose window ends then, and at which all was back at once or not. It reports whether that window is a new one.
//
// Example: an answer to an attempt sent at 5 s says 55 s, another one at 20 s says 40 s: both are of the window that ends at 60 s. 5,000
// of 10,000 are lacking at 55 s. One at 61 s says 59 s, and 300 are lacking: that window is a new one, and it is a fixed one, because a bucket
// would have earned 1,000 in these 6 s.
func (w *turn) take(back bool, until bounds) (begins bool) {
	if both, ok := w.until.and(until); ok && w.until != (bounds{}) {
		w.until = both
		return false
	}
	*w = turn{until: until, whole: back}
	return true
}

// take takes in an answer. It is an end of spans unless something is not known about it: it was overtaken, its window may be over, or
// what remains is cut off at 0 or at the limit.
func (c *compared) take(t *hint.Quota, e end) {
	if c.limit != t.Limit {
		*c = compared{name: c.name, unit: c.unit, window: c.window, limit: t.Limit, grain: coarsestLeft}
	}
	limit := float64(t.Limit)
	e.left = float64(t.Remaining)
	for ; c.grain > 1 && math.Mod(e.left, c.grain) != 0; c.grain /= 10 {
	}
	lack, reset := bounds{limit - e.left - c.grain, limit - e.left + c.grain}, t.Reset.Seconds()
	coarse := bounds{reset - dated, reset + dateUp}
	earns, bucket := c.earns(limit, lack, bounds{reset - finest, reset + finest}, coarse)
	if e.sent < c.last.sent {
		return // it was overtaken
	}
	before := c.last
	c.last = e
	rose := 0.0 // by more than a bucket earns in that time
	if before.there > 0 {
		rose = (e.left-before.left-e.back+before.backAtStart)/limit - sureTurn*(e.there-before.sent)/reset
	}
	begins := c.turn.take(rose >= wasUsed && lack.hi <= stillNew*limit, bounds{e.sent + coarse.lo, e.there + coarse.hi})
	if bucket != c.bucket {
		c.bucket, c.begun, c.row = bucket, false, row{}
	}
	none, full := e.left <= c.grain, lack.lo <= 0 || t.Reset <= 0
	if bucket {
		top := max(before.left, e.left) + c.grain + earns.hi*(e.there-before.sent) + e.back - before.backAtStart
		full = full || top >= limit*(1-fullMargin)
		c.begun = c.begun && !full
	} else if c.begun = c.begun && !begins; e.there >= c.turn.until.lo {
		return // the window may be over
	}
	switch {
	case none || full || e.left == before.left:
	case !c.begun:
		c.begun, c.from = true, e
	case bucket:
		c.judge(&e, bounds{earns.lo * max(0, e.sent-c.from.there), earns.hi * (e.there - c.from.sent)})
	case c.turn.whole:
		c.judge(&e, bounds{})
	}
}

// earns is what the quota earns in a second if it is a bucket, by the answers so far and this one. Resets in parts of a second say it
// best. If they do not agree because a clock is behind them, those rounded to seconds may. Example: 60,000 units that take 59 to 61 s are
// 984 to 1,017 a second.
func (c *compared) earns(limit float64, lack, fine, coarse bounds) (rate bounds, bucket bool) {
	for i, reset := range []bounds{fine, coarse} {
		f := &c.fills[i]
		if was := f.sure(); !f.take(limit, lack, reset) && was {
			c.begun, c.row = false, row{}
		}
		if f.sure() && !bucket {
			rate, bucket = bounds{limit / f.whole.hi, limit / f.whole.lo}, true
		}
	}
	return rate, bucket
}

// judge looks whether the span ends with this answer. If it does not, and this answer is a much better beginning, it begins here: at a busy
// key what was open at its first answer would have to be made up for by many calls.
//
// Example: 8,000 remained, and 5,000 remain 2 s later. A bucket that earns 984 to 1,017 a second has fallen by 4,968 to 5,034. If the meter has
// counted 2,000 to 3,000 that is a drift: more than 1.1 · 3,000. If it has counted 4,000 to 6,000 more calls must show which.
func (c *compared) judge(e *end, earned bounds) {
	from := &c.from
	if e.sent < from.there {
		return // it may have reached the upstream first
	}
	own := bounds{e.own.lo - from.own.hi, e.own.hi - from.own.lo}
	down := from.left - e.left
	fell := bounds{down + earned.lo - 2*c.grain, down + earned.hi + 2*c.grain}
	span := row{began: from.sent, ended: e.there, calls: e.begun - from.begun, spans: 1, own: own.mid(), fell: fell.mid()}
	switch least, most := 1-driftLeast, 1+driftLeast; {
	case fell.lo > most*own.hi:
		span.more = true
	case own.lo > 0 && fell.hi < least*own.lo: // the upstream counts less
	case fell.hi <= most*own.lo && fell.lo >= least*own.hi:
		span = row{}
	default:
		if from.own.width()-e.own.width() > own.mid()/4 {
			c.row.own, c.row.fell, *from = c.row.own+span.own, c.row.fell+span.fell, *e
		}
		return
	}
	*from = *e
	c.row.add(span)
}

// A row is spans that differ in one direction.
type row struct {
	more      bool    // the upstream counts more
	began     float64 // seconds since Meters.base
	ended     float64
	spans     int
	calls     float64
	own, fell float64 // sums
}

// add adds a span. One without a difference, or in the other direction, begins the row anew. Example: 20 calls that show more, then 15 that
// show more, then 9 that show less: the row is these 9.
func (r *row) add(s row) {
	if s.spans == 0 || r.more != s.more {
		*r = s
		return
	}
	*r = row{r.more, r.began, s.ended, r.spans + 1, r.calls + s.calls, r.own + s.own, r.fell + s.fell}
}

// found reports whether it is a drift. What is late or cached for some seconds shows in one direction at first, and then in the other.
func (r *row) found() bool {
	return r.spans >= driftSpans && r.calls >= driftCalls && r.ended-r.began >= driftTime && math.Abs(r.fell-r.own) > driftLeast*r.own
}
