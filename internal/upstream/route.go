package upstream

import (
	"hash/maphash"
	"net/url"
	"strings"
)

// This file says which scope a route falls under. A quota holds where it was advertised:
//
//	a route whose answers advertise     its scope, until its quotas lapse (see quota.lapses)
//	a route of three silent answers     none
//	a route not known yet               what remains of the scope of its longest known beginning
//
// A silent answer is one that was served and advertises nothing. A beginning (the host, or the path cut after one
// or two segments) is for routes that are not known. It takes the scope of the first route below it that advertises,
// and changes its mind when three new ones in a row say otherwise.
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

// A Route is the host of a call and the first segments of its path, without /api and a version: 16 bits of a hash for
// each, because paths may hold what must not be kept. So a beginning is a route whose last bits are 0. Two segments are taken for one
// another once in 65,536 pairs.
type Route uint64

// routeSeed prevents an upstream from choosing paths that collide.
var routeSeed = maphash.MakeSeed()

// RouteOf returns the route of a call.
func RouteOf(host, path string) Route {
	r := hashed(host)
	path = unversioned(path)
	for range routeDepth {
		var segment string
		segment, path, _ = strings.Cut(strings.TrimLeft(path, "/"), "/")
		r <<= 16
		if segment != "" {
			r |= hashed(segment)
		}
	}
	return r
}

// hashed returns 16 bits for a segment, never 0.
func hashed(segment string) Route {
	return Route(max(1, maphash.String(routeSeed, segment)>>48))
}

// host is the beginning of all routes of its host.
func (r Route) host() Route { return r >> (16 * routeDepth) << (16 * routeDepth) }

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
	sure  bool // outvoted routes below it have: one that is not known is spaced too
	row   int8 // new routes below it in a row that advertise the scope; negative: that are silent, or silent answers
}

// scopeAt is scopeOf the route of url.
func (l *learner) scopeAt(url *url.URL) uint8 {
	if len(l.routes) == 0 {
		return 0
	}
	return l.scopeOf(RouteOf(url.Host, url.Path))
}

// scopeOf returns the scope of a route: that of the longest beginning that is known.
func (l *learner) scopeOf(r Route) (id uint8) {
	if len(l.routes) == 0 {
		return 0
	}
	r.beginnings(func(at Route) {
		b, ok := l.routes[at]
		switch {
		case !ok || b.scope == undecided:
		case b.scope == 0 || b.sure || b.own && at == r:
			id = b.scope
		default:
			id = b.scope + unspaced
		}
	})
	return id
}

// advertised notes that an answer of a route has advertised a scope. It reports whether other routes may fall under
// another scope now. A route that is new counts for its beginnings; if they know it all already, it need not be kept.
func (l *learner) advertised(r Route, id uint8) (moved bool) {
	if l.routes == nil {
		l.routes = map[Route]beginning{}
	}
	before := l.scopeOf(r)
	old, kept := l.routes[r]
	if before == id && !kept {
		return false
	}
	isNew := !old.own || old.scope != id
	r.beginnings(func(at Route) {
		b, known := l.routes[at]
		was := b
		switch {
		case at == r:
			b.scope, b.own, b.sure, b.row = id, true, b.sure && b.scope == id, max(0, b.row)
		case !known && at == r.host() && l.silentFirst:
			b.row = 1
		case !known, b.scope == undecided:
			b = beginning{scope: id, row: 1}
		case b.scope == id || b.scope == 0 && !b.own:
			if isNew {
				b.row = min(max(0, b.row)+1, outvoted)
			}
			if b.row >= outvoted {
				b.scope, b.sure = id, true
			}
		case !b.own: // routes of several scopes begin with it, so it says nothing
			b = beginning{}
		}
		l.setRoute(at, b)
		moved = moved || b.scope != was.scope || b.sure != was.sure
	})
	return moved || l.scopeOf(r) != before
}

// silent notes an answer of a route that advertises nothing, and reports whether the route, or others with it, are
// free now. What has advertised itself stays where it is: its quotas lapse in time. A route that is new counts for
// its beginnings too.
func (l *learner) silent(r Route) (freed bool) {
	if l.scopeOf(r) == 0 {
		return false
	}
	_, known := l.routes[r]
	r.beginnings(func(at Route) {
		b, ok := l.routes[at]
		switch {
		case !ok:
			b = beginning{scope: undecided, row: -1}
		case b.own, known && at != r:
			return
		default:
			b.row = max(min(0, b.row)-1, -outvoted)
		}
		if b.row <= -outvoted {
			b, freed = beginning{}, true
		}
		l.setRoute(at, b)
	})
	return freed
}

// setRoute keeps what is known of a beginning, in the place of any other if there are too many.
func (l *learner) setRoute(at Route, b beginning) {
	if _, ok := l.routes[at]; !ok && len(l.routes) >= maxRoutes {
		for other := range l.routes {
			delete(l.routes, other)
			break
		}
	}
	l.routes[at] = b
}
