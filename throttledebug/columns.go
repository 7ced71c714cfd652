package throttledebug

import (
	"cmp"
	"strings"
	"time"
)

// A column is one of the table: how it is called, how it sorts, and what it shows. The page without script, the events
// and the order of both come from this one list, so a column is added here and nowhere else.
//
// An example: a row of a key that waits behind a pause has the cells
//
//	github, api.github.com, 3, 1.2 s, 0, 4,180, 0, 0, 0, 10, 10/s, 0 %, "paused, 48 s", "gate:paused, 48 s"
//
// Cells are words, not numbers, because they are written in one place for the page and for the script. The script
// gets about 90 bytes a row, where an object with a name for each field would take 250.
type column struct {
	// id is its name in queries, and the class of its cells. help is shown when the pointer rests on the title.
	id, title, help string

	// text is words, left-aligned; otherwise it is a number, right-aligned. wide columns are left out on a phone.
	text, wide bool

	// up is a number whose smallest value comes first.
	up bool

	// compare puts first what is most worth a look: the longest line, the emptiest bucket, a closed gate.
	compare func(a, b *row, at time.Time) int

	// cell is what is shown of a row.
	cell func(r *row, at time.Time) string
}

// columns are in the order of the page. The first two are the identity of a row: with them a link finds its key.
var columns = []column{
	{id: "name", title: "Transport", help: "the name that the program gave to Handler", text: true, wide: true,
		compare: func(a, b *row, _ time.Time) int { return strings.Compare(a.name, b.name) },
		cell:    func(r *row, _ time.Time) string { return quoted(r.name) }},
	{id: "key", title: "Key", help: "what requests are counted by: the host, unless Transport.Key says otherwise", text: true,
		compare: func(a, b *row, _ time.Time) int { return strings.Compare(a.Key, b.Key) },
		cell:    func(r *row, _ time.Time) string { return quoted(r.Key) }},
	number("waiting", "Waiting", "calls in line", func(r *row) int { return r.Waiting }),
	{id: "oldest", title: "Oldest", help: "how long the oldest call in line has waited", wide: true,
		compare: func(a, b *row, at time.Time) int { return cmp.Compare(b.waited(at), a.waited(at)) },
		cell:    func(r *row, at time.Time) string { return span(r.waited(at)) }},
	wide(number("in_flight", "In flight", "attempts without a response yet, or slots held", func(r *row) int { return r.InFlight })),
	number("sent", "Sent", "attempts sent", func(r *row) uint64 { return r.Sent }),
	wide(number("throttled", "Throttled", "attempts that the upstream throttled", func(r *row) uint64 { return r.Throttled })),
	wide(number("retried", "Retried", "attempts after a call's first", func(r *row) uint64 { return r.Retried })),
	wide(number("refused", "Refused", "calls that this side refused", func(r *row) uint64 { return r.Refused })),
	{id: "tokens", title: "Tokens", help: "units ready now; negative: a debt", wide: true, up: true,
		compare: func(a, b *row, _ time.Time) int { return cmp.Compare(a.Tokens, b.Tokens) },
		cell:    func(r *row, _ time.Time) string { return known(decimal, r.tokens) }},
	{id: "limit", title: "Limit", help: "the slowest configured limit", wide: true, up: true,
		compare: func(a, b *row, _ time.Time) int { return cmp.Compare(a.Limit, b.Limit) },
		cell:    func(r *row, _ time.Time) string { return known(pace, r.limit) }},
	{id: "used", title: "Used", help: "how much is used of the limit that is used most", wide: true,
		compare: func(a, b *row, _ time.Time) int { return compareUsed(a, b) },
		cell:    func(r *row, _ time.Time) string { return known(percent, r.used) }},
	{id: "gate", title: "Gate", help: "closed: no call goes, for how long, and why", text: true,
		compare: func(a, b *row, _ time.Time) int {
			return cmp.Or(compareTrue(a.closed(), b.closed()), cmp.Compare(b.ClosedFor, a.ClosedFor))
		},
		cell: func(r *row, _ time.Time) string { return gate(r) }},
	{id: "held", title: "First call waits for", help: "what holds the first call in line, and for how much longer", text: true, wide: true,
		compare: func(a, b *row, at time.Time) int {
			return cmp.Or(compareTrue(a.Reason != "", b.Reason != ""), strings.Compare(a.Reason, b.Reason), a.Until.Compare(b.Until))
		},
		cell: held},
}

// number is a column of a count. The largest comes first. A count may be negative for a moment, when it is the difference
// of two that are read one after the other; that is shown as 0.
func number[N int | uint64](id, title, help string, of func(*row) N) column {
	return column{id: id, title: title, help: help,
		compare: func(a, b *row, _ time.Time) int { return cmp.Compare(of(b), of(a)) },
		cell:    func(r *row, _ time.Time) string { return count(uint64(max(0, of(r)))) },
	}
}

// wide is a column that a phone has no place for.
func wide(c column) column {
	c.wide = true
	return c
}

// compareTrue puts true before false.
func compareTrue(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// columnOf returns the column with that id, or nil: ids come from queries. There are 14, so it looks at each.
func columnOf(id string) *column {
	for i := range columns {
		if columns[i].id == id {
			return &columns[i]
		}
	}
	return nil
}

// cells are a row as text, one for each column, in their order.
func (r *row) cells(at time.Time) []string {
	cells := make([]string, len(columns))
	for i := range columns {
		cells[i] = columns[i].cell(r, at)
	}
	return cells
}

// gate is the state of the gate in few words: "open", "retry-after, 12 s", or "failing" if the end is not known. The
// words are those of QueueStats.Reason, or "closed" if the first call in line waits for longer than that, for something else.
func gate(r *row) string {
	if !r.closed() {
		return "open"
	}
	why, ok := strings.CutPrefix(r.Reason, "gate:")
	if !ok {
		why = "closed"
	}
	if r.ClosedFor > 0 {
		why += ", " + span(r.ClosedFor)
	}
	return why
}

// held says what holds the first call in line, in the words of QueueStats.Reason: "limit, 0.4 s". A word that this page
// does not know, because it is newer, is shown as it is. Nothing is shown if nobody waits.
func held(r *row, at time.Time) string {
	left := r.Until.Sub(at)
	switch {
	case r.Waiting == 0:
		return ""
	case r.Reason == "" || r.Until.IsZero() || left <= 0:
		return r.Reason
	}
	return r.Reason + ", " + span(left)
}
