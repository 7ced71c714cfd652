package quota

import (
	"hash/maphash"
	"maps"
	"strings"
)

// This file says which scope a route falls under. A quota holds where it was advertised:
//
//	a route whose answers advertise     its scope, until its quotas lapse (see quota.lapsed)
//	a route of three silent answers     none
//	a route not known yet               what remains of the scope of its longest known beginning
//
// A silent answer is one that was served and advertises nothing. A beginning (the host, or the path cut after one
// or two segments) is for routes that are not known. It takes the scope of the first route below it that advertises.
// Three new routes in a row change its mind, or confirm it: then those that are not known are spaced too, because an
// upstream with a route for every object has no others.
//
// Example: /auth/login advertises 5 per 15 minutes. It belongs to that scope, and so do the beginnings /auth and
// the host. A first call of /data may go while one of the five remains, but need not wait for 3 minutes. The third
// answer of /data without a quota makes /data free, with all calls that wait for it.

const (
	// maxRoutes is how many routes and beginnings are remembered, by 12 bytes each.
	maxRoutes = 256
	// routeDepth is how many segments of a path tell routes apart: most identifiers, which would make a route
	// of every object, come later.
	routeDepth = 3
	// outvoted is how many answers or routes in a row overrule what is known. With one, an error page would free
	// a route, and with two, an error page that is sent again.
	outvoted = 3
	// undecided is the scope of a beginning that has answered, but too seldom to say anything.
	undecided = 255
)

// A Route is the host of a call and the first segments of its path: 16 bits of a hash for each, because paths may hold
// what must not be kept. So a beginning is a route whose last bits are 0. Two segments are taken for one another once in
// 65,536 pairs. What all routes of an API begin with does not count: /api/v10/channels/7 is channels/7.
type Route uint64

// routeSeed prevents an upstream from choosing paths that collide.
var routeSeed = maphash.MakeSeed()

// RouteOf returns the route of a call.
func RouteOf(host, path string) Route {
	r := hashed(host)
	for depth := 0; depth < routeDepth; {
		var segment string
		segment, path, _ = strings.Cut(strings.TrimLeft(path, "/"), "/")
		if depth == 0 && path != "" && isVersion(segment) {
			continue
		}
		depth++
		if r <<= 16; segment != "" {
			r |= hashed(segment)
		}
	}
	return r
}

// isVersion reports whether a segment is "api" or the version of an API, such as v10.
func isVersion(segment string) bool {
	name := strings.TrimRight(segment, "0123456789")
	return segment == "api" || name == "v" && segment != "v"
}

// hashed returns 16 bits for a segment, never 0.
func hashed(segment string) Route {
	return Route(max(1, maphash.String(routeSeed, segment)>>48))
}

// beginnings visits the beginnings of a route, the host first and the route itself last.
func (r Route) beginnings(visit func(Route)) {
	last := Route(0)
	for shift := 16 * routeDepth; shift >= 0; shift -= 16 {
		if b := r >> shift << shift; b != last {
			visit(b)
			last = b
		}
	}
}

// A beginning is what is known of a route and of those that begin with it.
type beginning struct {
	scope uint8
	own   bool // its own answers have advertised the scope, not only those of routes below it
	votes int8 // in a row for the scope, of new routes below it; negative: silent ones, or silent answers
}

// routes are which scope the routes of a key fall under, as far as is known.
type routes struct {
	known       map[Route]beginning
	throttled   throttledRoute // the route that was throttled last
	silentFirst bool           // the key's first answers advertised nothing: unknown routes are free
}

// scopeOf returns the scope of a route: that of the longest beginning that is known.
func (l *routes) scopeOf(r Route) (id uint8) {
	if len(l.known) == 0 {
		return 0
	}
	r.beginnings(func(at Route) {
		b, ok := l.known[at]
		switch {
		case !ok || b.scope == undecided:
		case b.scope == 0 || b.votes >= outvoted || b.own && at == r:
			id = b.scope
		default:
			id = b.scope + unspaced
		}
	})
	return id
}

// vote notes that an answer of a route has advertised a scope, or with 0 that it was silent. It reports whether calls
// that wait may fall under another scope now. What has advertised itself stays where it is: its quotas lapse in time. A
// route that is new counts for its beginnings; if they know it all already, it need not be kept.
func (l *routes) vote(r Route, id uint8) (moved bool) {
	before := l.scopeOf(r)
	old, kept := l.known[r]
	if before == id && (!kept || id == 0) {
		return false
	}
	isNew := !kept || id != 0 && (!old.own || old.scope != id)
	r.beginnings(func(at Route) {
		b, ok := l.known[at]
		was := b
		switch {
		case at == r && id != 0:
			if b.own = true; b.scope != id {
				b.scope, b.votes = id, 0
			}
			b.votes = max(0, b.votes)
		case at != r && !isNew, b.own && id != b.scope:
			return
		case id == 0 && !ok:
			b = beginning{scope: undecided, votes: -1}
		case id == 0:
			b.votes = max(min(0, b.votes)-1, -outvoted)
		case (!ok || b.scope == undecided) && !(l.silentFirst && at&(1<<(16*routeDepth)-1) == 0):
			b = beginning{scope: id, votes: 1}
		case b.scope == id || b.scope == 0:
			b.votes = min(max(0, b.votes)+1, outvoted)
		default: // routes of several scopes begin with it, so it says nothing
			b = beginning{}
		}
		switch {
		case b.votes <= -outvoted:
			b = beginning{}
		case b.votes >= outvoted:
			b.scope = id
		}
		l.set(at, b)
		moved = moved || b.scope != undecided && (b.scope != was.scope || (b.votes >= outvoted) != (was.votes >= outvoted))
	})
	return moved || l.scopeOf(r) != before
}

// set keeps what is known of a beginning, in the place of any other if there are too many.
func (l *routes) set(at Route, b beginning) {
	if l.known == nil {
		l.known = map[Route]beginning{}
	}
	if _, ok := l.known[at]; !ok && len(l.known) >= maxRoutes {
		for other := range l.known {
			delete(l.known, other)
			break
		}
	}
	l.known[at] = b
}

// forget makes the routes of a scope unknown.
func (l *routes) forget(id uint8) {
	maps.DeleteFunc(l.known, func(_ Route, b beginning) bool { return b.scope == id })
}

// A time that throttled answers of one route advertise holds that route alone, if it is meant for it. It closes the gate
// for all at first, because that is not said. A route whose last two answers were throttled with a time, while another
// was served between them, has shown it.
//
// Example: /export answers 429 with Retry-After: 60 whenever it is called. The first two close the gate for a minute
// each, and calls of /items are served between them. From the third on only /export waits. A 429 of /items closes the
// gate again. An answer to a call of /export that was sent before the third 429 opens nothing, also if it advertises a quota
// that /export falls under afterwards (Book.observe).

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

// refused takes in a throttled answer with a time, and reports whether that is meant for its route alone. searching: a search is under
// way; forget: it is to end, because what began it was meant for the route, and must not slow the others.
func (t *throttledRoute) refused(r Route, searching bool) (alone, forget bool) {
	switch {
	case t.route != r || t.row == 0:
		*t = throttledRoute{route: r, row: 1, first: !searching}
		return false, false
	case t.row == 1 && t.other:
		t.row, t.other = 2, false
		return false, false
	case t.row == 1:
		return false, false
	}
	forget = t.first
	t.first, t.other = false, false
	return true, forget
}
