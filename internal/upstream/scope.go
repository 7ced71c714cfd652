package upstream

import (
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/limit"
)

// This file says which calls of a key fall under the same quotas.

const (
	// MaxScopes is how many scopes a key has at most, the one without quotas included. A line looks at the
	// first call of each at every turn.
	MaxScopes = 16
	// maxRoutes is how many prefixes of routes are remembered, by 9 bytes each.
	maxRoutes = 256
	// routeDepth is how many segments of a path tell routes apart: most identifiers, which would make a route
	// of every object, come later.
	routeDepth = 3
	// mixedScope marks a prefix under which routes of several scopes lie.
	mixedScope = 255
)

// A scope is a set of quotas that calls pay together. It never changes, so that an answer can end what its
// start has counted, and it is known by its number. Scope 0 has no quotas: it is for unknown routes.
//
// Example: an answer to /search advertises "search, 30 a minute", and one to /repos/a "core, 5,000 an hour".
// They make scope 1 and scope 2. Calls of /search/code fall under scope 1 and are spaced at 30 a minute;
// those of /repos/b under scope 2, because /repos belongs to it; those of /users under scope 0, because the
// host has routes of both. A spent scope stops no other: each has its own place in the line.
type scope struct {
	quotas   []*quota // several scopes may share one
	inFlight int      // calls under way
}

// matches reports whether the scope is of just those quotas, in that order.
func (a *scope) matches(advertised []hint.Quota) bool {
	return slices.EqualFunc(a.quotas, advertised, func(q *quota, t hint.Quota) bool { return q.same(&t) })
}

// lastAdvertised is when one of its quotas was advertised last, in whatever scope.
func (a *scope) lastAdvertised() (last time.Time) {
	for _, q := range a.quotas {
		last = limit.Latest(last, q.leftAt)
	}
	return last
}

// scopeOf returns the scope of a route: that of the longest prefix known. While there is but one scope with
// quotas, all routes fall under it: most upstreams have one limit for all, and a quota that holds calls of a route
// that it is not about costs less than one that is exceeded.
func (l *learner) scopeOf(host, path string) (id uint8) {
	if l.routes == nil {
		return uint8(len(l.scopes) - 1)
	}
	l.prefixes(host, path, func(h uint64) {
		if known, ok := l.routes[h]; ok && known != mixedScope {
			id = known
		}
	})
	return id
}

// setRoute notes that a route belongs to a scope, and with it those of its prefixes that belong to none. A
// prefix of another scope becomes mixed: it says nothing of routes below it that are not known themselves.
// Example: with scope 1 for /search/code and 2 for /search/users, /search is mixed and /search/x unknown. The
// route itself takes the scope that it was advertised with last.
func (l *learner) setRoute(host, path string, id uint8) {
	if l.routes == nil {
		if len(l.scopes) <= 2 {
			return
		}
		l.routes = map[uint64]uint8{}
		l.prefixes(host, "", func(h uint64) { l.routes[h] = mixedScope })
	}
	route := uint64(0)
	l.prefixes(host, path, func(h uint64) { route = h })
	l.prefixes(host, path, func(h uint64) {
		known, ok := l.routes[h]
		switch {
		case !ok && len(l.routes) >= maxRoutes:
			for other := range l.routes { // any
				delete(l.routes, other)
				break
			}
			l.routes[h] = id
		case !ok || h == route:
			l.routes[h] = id
		case known != id:
			l.routes[h] = mixedScope
		}
	})
}

// prefixes visits the hashes of the host, then of host and path cut after each of the first segments:
// of a/b//c/d/e on host h, those of h, h/a, h/a/b and h/a/b/c.
func (l *learner) prefixes(host, path string, visit func(uint64)) {
	var h maphash.Hash
	h.SetSeed(l.seed)
	h.WriteString(host)
	visit(h.Sum64())
	for range routeDepth {
		path = strings.TrimLeft(path, "/")
		if path == "" {
			return
		}
		segment, rest, _ := strings.Cut(path, "/")
		h.WriteByte('/')
		h.WriteString(segment)
		visit(h.Sum64())
		path = rest
	}
}

// scopeFor finds the scope of those quotas, or makes it; nil if there is no place.
func (l *learner) scopeFor(advertised []hint.Quota, now time.Time) (uint8, *scope) {
	for i, a := range l.scopes[1:] {
		if a.matches(advertised) {
			return uint8(i + 1), a
		}
	}
	a := new(scope)
	for i := range advertised {
		a.quotas = append(a.quotas, l.quotaFor(&advertised[i]))
	}
	if len(l.scopes) < MaxScopes {
		l.scopes = append(l.scopes, a)
		return uint8(len(l.scopes) - 1), a
	}
	return l.replace(a, now)
}

// replace puts a in the place of the scope that was advertised least recently, if that is not in use; nil if all
// are. Attempts in flight must end in the scope that counted their start. Calls that wait are not in flight: those
// of the old scope fall under a's quotas from now on, until their routes are advertised again.
func (l *learner) replace(a *scope, now time.Time) (uint8, *scope) {
	oldest := 0
	for i, b := range l.scopes {
		if b.inFlight == 0 && (oldest == 0 || b.lastAdvertised().Before(l.scopes[oldest].lastAdvertised())) {
			oldest = i
		}
	}
	if oldest == 0 {
		return 0, nil
	}
	l.scopes[oldest] = a
	for h, id := range l.routes {
		if id == uint8(oldest) {
			delete(l.routes, h)
		}
	}
	return uint8(oldest), a
}

// quotaFor finds a quota in any scope, or makes it. A quota that two scopes share is one: an upstream may advertise
// "core" on some routes, "core" and "search" on others, and what either uses is gone for both.
func (l *learner) quotaFor(t *hint.Quota) *quota {
	for _, a := range l.scopes {
		for _, q := range a.quotas {
			if q.same(t) {
				return q
			}
		}
	}
	return &quota{Quota: hint.Quota{Name: strings.Clone(t.Name), Unit: strings.Clone(t.Unit), Limit: -1}, named: t.Window, perCall: 1}
}
