package upstream

import (
	"math"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/limit"
)

// This file holds one route alone for a time that its throttled answers advertise. Such a time closes the gate for
// all, because it is not said whom it is meant for. A route whose last two answers were throttled with a time, while
// another was served between them, has shown that it is meant for the route.
//
// Example: /export answers 429 with Retry-After: 60 whenever it is called. The first two close the gate for a minute
// each, and calls of /items are served between them. From the third on only /export waits. A 429 of /items closes the
// gate again.

// A throttledRoute is the route of a key whose answers were throttled with a time, the last of all.
type throttledRoute struct {
	route Route
	row   uint8 // how many in a row, with another route served between them, at most 2; 0: none
	other bool  // another route was served since the last
	first bool  // no search was under way when the row began, so one that is has begun with it
}

// wasServed notes that a route has answered.
func (t *throttledRoute) wasServed(r Route) {
	if t.row > 0 && t.route == r {
		*t = throttledRoute{}
	}
	t.other = true
}

// closeRoute takes in a throttled answer with a time, and holds the calls of its route until it is over, if it is meant
// for the route alone: then ok is true, and id the scope of the route from now on.
func (l *learner) closeRoute(a *Answer, now time.Time) (id uint8, ok bool) {
	r, t := RouteOf(a.Host, a.Path), &l.throttled
	switch {
	case t.route != r || t.row == 0:
		*t = throttledRoute{route: r, row: 1, first: l.finder == nil}
	case t.row == 1 && t.other:
		t.row, t.other = 2, false
	case t.row == 2:
		if t.first { // what began the search was meant for the route: it must not slow the others
			t.first, l.finder = false, nil
		}
		t.other = false
		return l.closedScope(r, now.Add(limit.Jittered(a.Hint.RetryAfter)), now)
	}
	return 0, false
}

// closedScope puts a route into a scope that is closed until then, if it has no quotas of its own.
func (l *learner) closedScope(r Route, until, now time.Time) (id uint8, ok bool) {
	if b := l.routes[r]; b.own {
		q := l.scope(b.scope).quotas[0]
		if q.closing() {
			q.heard, q.closedUntil = now, limit.Latest(q.closedUntil, until)
		}
		return b.scope, q.closing()
	}
	q := &quota{Quota: hint.Quota{Source: closingSource, Limit: -1, Remaining: -1, Reset: -1}, perUnit: 1, size: math.Inf(1)}
	q.begin(now, time.Time{}, q.size, now)
	q.heard, q.closedUntil = now, until
	id, made := l.addScope(&scope{quotas: []*quota{q}}, now)
	if made == nil {
		return 0, false
	}
	if l.routes == nil {
		l.routes = map[Route]beginning{}
	}
	l.setRoute(r, beginning{scope: id, own: true})
	return id, true
}

// closingSource is the header field that a closing of one route comes from.
const closingSource = "Retry-After"

// closing reports whether the quota is none, but the closing of a route.
func (q *quota) closing() bool { return q.Source == closingSource }
