package inbound

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// This file counts windows that follow the calendar of a time zone, "1000/day in Europe/Berlin". They are windows like others, but
// they begin when the hour, day, week (on Monday) or month does, for all keys at once, and last as long as that takes: a day
// of 23 hours counts as one of 24. A cell has the start of its period, in seconds of Unix time, and the units used in it; a debt
// fills the periods that follow.
//
// The wall clock says which period it is. It is read each minute, and at each end of a period; in between the table's
// clock goes on from there.
//
//	the clock is set back into the last period      what is used stays used, and counts for both
//	it is set back further, by a clock gone wrong   what was used in the far future does not count
//	it is set forward                               a new period begins
//	a call that waited for the lock at midnight     counts in the new day, if another one was there before
type calendar struct {
	unit  string // hour, day, week or month
	zone  *time.Location
	start func() time.Time // the zero of the table's clock
	now   atomic.Pointer[period]
}

// A period is what is known of the present one.
type period struct {
	read     int64 // when the wall clock was read, on the clock of the table, ns
	ahead    int64 // Unix time without the table's, ns
	from, to int64 // Unix time, s
}

// readClock is how long the wall clock is believed to go as the table's does.
const readClock = int64(time.Minute)

// calendarUnits are the lengths of the units. They are what fields advertise as w; the reset, t, is exact.
var calendarUnits = map[string]time.Duration{
	"h": time.Hour, "hour": time.Hour, "d": 24 * time.Hour, "day": 24 * time.Hour, "w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour,
	"month": 30 * 24 * time.Hour,
}

// newCalendar reads "1000/day in Europe/Berlin"; ok: it is of that kind.
func newCalendar(text string) (l law, ok bool, err error) {
	words := strings.Fields(text)
	n := len(words)
	if n < 3 || !strings.EqualFold(words[n-2], "in") {
		return l, false, nil
	}
	text = strings.ToLower(strings.Join(words[:n-2], " "))
	at := strings.LastIndexAny(text, "/ ") + 1
	per, found := calendarUnits[text[at:]]
	if !found {
		return l, true, fmt.Errorf("%.100q is not a window of the calendar: hour, day, week or month", text[at:])
	}
	specs, err := limit.ParseSpecs(text[:at] + "h window")
	if err != nil {
		return l, true, err
	}
	c := &calendar{unit: text[at:]}
	if c.zone, err = time.LoadLocation(words[n-1]); err != nil {
		return l, true, fmt.Errorf("zone %.100q: %w", words[n-1], err)
	}
	if per != calendarUnits["month"] {
		c.unit = c.unit[:1]
	}
	return law{kind: dated, name: c.unit, words: 2, most: int64(specs[0].N), per: int64(per), span: int64(per / time.Second), cal: c}, true, nil
}

// bind gives laws the clock of their table.
func bind(laws []law, start func() time.Time) {
	for k := range laws {
		if laws[k].kind == dated {
			laws[k].cal.start = start
		}
	}
}

// at is the period of a moment of the table, and for how long it lasts from then on, ns.
func (c *calendar) at(now int64) (p *period, left int64) {
	p = c.now.Load()
	if p == nil || now-p.read > readClock || now+p.ahead >= p.to*1e9 || now+p.ahead < p.from*1e9 {
		wall := time.Now()
		read := int64(wall.Sub(c.start()))
		from, to := c.around(time.Unix(0, now+wall.UnixNano()-read))
		p = &period{read, wall.UnixNano() - read, from.Unix(), to.Unix()}
		c.now.Store(p)
	}
	return p, p.to*1e9 - (now + p.ahead)
}

// around is the period of a moment: from is the first moment in it, and to that of the next.
func (c *calendar) around(t time.Time) (from, to time.Time) {
	if t = t.In(c.zone); c.unit == "h" {
		return c.hour(t)
	}
	year, month, day := t.Date()
	days, months := 1, time.Month(0)
	switch c.unit {
	case "w":
		day, days = day-(int(t.Weekday())+6)%7, 7 // on Monday
	case "month":
		day, days, months = 1, 0, 1
	}
	from, to = c.begin(year, month, day), c.begin(year, month+months, day+days)
	if !to.After(t) { // the clock went back over midnight: the new period goes on
		from, to = to, c.begin(year, month+2*months, day+2*days)
	}
	return from, to
}

// hour is an hour by the offset that holds at its moment. Where that changes by half an hour there are shorter ones.
func (c *calendar) hour(t time.Time) (from, to time.Time) {
	_, offset := t.Zone()
	start, end := t.ZoneBounds() // zero, or on the wrong side of t: there is none
	past := (t.Unix() + int64(offset)) % 3600
	from = time.Unix(t.Unix()-past, 0)
	if to = from.Add(time.Hour); end.After(t) && end.Before(to) {
		to = end
	}
	if start.After(from) && !start.After(t) {
		from = start
	}
	return from, to
}

// begin is the first moment of a day. Where clocks are changed at midnight, that is not 0:00, or the first 0:00 of two.
func (c *calendar) begin(year int, month time.Month, day int) time.Time {
	utc := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	t := time.Date(year, month, day, 0, 0, 0, 0, c.zone)
	if t.Day() != utc.Day() { // 0:00 is left out, or the whole day
		start, end := t.ZoneBounds()
		if _, offset := t.Zone(); t.Unix()+int64(offset) < utc.Unix() {
			return end
		}
		return start
	}
	start, _ := t.ZoneBounds()
	if start.IsZero() {
		return t
	}
	if start.Before(t) && start.Day() == utc.Day() && t.Sub(start) < 24*time.Hour {
		t = start
	}
	_, offset := start.Add(-1).Zone()
	if first := utc.Add(-time.Duration(offset) * time.Second); first.Before(start) && first.In(c.zone).Day() == utc.Day() {
		t = first
	}
	return t
}

// dated is the period of a cell at a moment, the units used of it, and for how long it lasts. Example: 10/day, and 25 units used
// by a charge on Monday. On Tuesday 15 are, on Wednesday 5, on Thursday none.
func (l *law) dated(c cell, now int64) (start, used, left int64) {
	p, left := l.cal.at(now)
	start, used = int64(c[0]), int64(c[1])
	if start > p.to {
		start, used = p.from, 0
	}
	for used > 0 && start < p.from {
		_, next := l.cal.around(time.Unix(start, 0))
		start, used = next.Unix(), max(0, used-l.most)
	}
	return max(start, p.from), used, left
}

// waitDated: n units wait for the end of as many periods as are full.
func (l *law) waitDated(c cell, now, n int64) int64 {
	if l.tooLong(n) {
		return never
	}
	_, used, left := l.dated(c, now)
	full := ceilDiv(max(0, used+min(n, l.most)-l.most), l.most)
	if full == 0 {
		return 0
	}
	p, _ := l.cal.at(now)
	end := time.Unix(p.to, 0)
	for ; full > 1; full-- {
		_, end = l.cal.around(end)
	}
	return left + int64(end.Sub(time.Unix(p.to, 0)))
}
