package usage

import "time"

// NextDay returns the moment after t at which the next day begins in loc, for limits of a day: Gemini's begin
// again at midnight in America/Los_Angeles, for example, and most others at midnight in UTC. A nil loc is UTC.
//
// Days have 23 or 25 hours when clocks change. Where midnight itself is skipped, the day begins when the clocks
// have changed; where it comes twice, with the first.
func NextDay(t time.Time, loc *time.Location) time.Time {
	if loc == nil {
		loc = time.UTC
	}
	year, month, day := t.In(loc).Date()
	next := time.Date(year, month, day+1, 0, 0, 0, 0, loc)
	start, end := next.ZoneBounds()
	switch {
	case !next.After(t) || sameDay(next, t.In(loc)):
		// There is no such midnight: Date took the offset of after the change, and came out before it.
		return end
	case !start.IsZero() && next.Sub(start) < 24*time.Hour:
		// A change not long before: with the offset before it, was it midnight already?
		_, offset := next.Zone()
		_, before := start.Add(-1).Zone()
		if first := next.Add(time.Duration(offset-before) * time.Second); first.Before(start) && first.After(t) && !sameDay(first, t.In(loc)) {
			return first
		}
	}
	return next
}

// sameDay reports whether both are of one date, each in its own location.
func sameDay(a, b time.Time) bool {
	y1, m1, d1 := a.Date()
	y2, m2, d2 := b.Date()
	return y1 == y2 && m1 == m2 && d1 == d2
}
