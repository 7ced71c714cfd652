package quota

import (
	"slices"
	"strings"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/limit"
)

// This file says which calls of a key fall under the same quotas.

const (
	// maxSets is how many sets of quotas a key has at most, the empty one included. With 16, 20 channels of Discord's
	// take twice as long as they could; each has a quota of its own.
	maxSets = 64
	// unspaced is added to the scope of routes that are not known: what remains binds their calls, spacing does not.
	unspaced = maxSets
	// MaxScopes is how many scopes a key has at most. A line looks at the first call of each at every turn.
	MaxScopes = 2 * maxSets
)

// A scope is a set of quotas that calls pay together. It never changes, so that an answer can end what its
// start has counted, and it is known by its number. Scope 0 has no quotas. Scope n + unspaced is scope n
// for routes that are not known yet, see route.go.
//
// Example: an answer to /search advertises "search, 30 a minute", and one to /repos/a "core, 5,000 an hour".
// They make scope 1 and scope 2. Calls of /search are spaced at 30 a minute; those of /repos/b may use
// what remains of core, because /repos belongs to it; those of /users are free, because the host has routes of
// both. A spent scope stops no other: each has its own place in the line.
type scope struct {
	quotas      []*quota  // several scopes may share one
	closedUntil time.Time // no call before then, because that route alone was throttled
	inFlight    int       // calls under way
}

// scopes are all of a key, by number; 0 has no quotas.
type scopes []*scope

// find finds the scope of those quotas; 0: there is none.
func (all scopes) find(advertised []hint.Quota) (id uint8) {
	for i, a := range all[1:] {
		if a.matches(advertised) {
			return uint8(i + 1)
		}
	}
	return 0
}

// matches reports whether the scope is of just those quotas, in that order.
func (a *scope) matches(advertised []hint.Quota) bool {
	return slices.EqualFunc(a.quotas, advertised, func(q *quota, t hint.Quota) bool { return q.same(&t) })
}

// add gives a scope a number, or that of the one that was advertised least recently; 0: there is no place.
// Attempts in flight must end in the scope that counted their start. Calls that wait are not in flight: their routes are
// unknown from now on. To forget a scope that lets nothing go now would let all its calls go.
//
// Example: a bot with 100 channels, 10,000 calls, and 63 places. A channel that has been asked to wait for 5 s keeps
// its place for so long. When all 63 wait, the next refusal has no place: it closes the gate, for all of them. If
// it took one of theirs, the calls of that channel would be sent again, be refused, and take the place of another.
func (all *scopes) add(a *scope, now time.Time) (id uint8) {
	if len(*all) < maxSets {
		*all = append(*all, a)
		return uint8(len(*all) - 1)
	}
	oldest, least := 0, now
	for i, b := range (*all)[1:] {
		last, held := b.closedUntil, b.inFlight > 0
		for _, q := range b.quotas {
			last, held = limit.Latest(last, q.heard), held || !q.spent(now).IsZero()
		}
		if !held && last.Before(least) {
			oldest, least = i+1, last
		}
	}
	if oldest > 0 {
		(*all)[oldest] = a
	}
	return uint8(oldest)
}

// quotaFor finds a quota in any scope, or makes it. A quota that two scopes share is one: an upstream may advertise
// "core" on some routes, "core" and "search" on others, and what either uses is gone for both.
func (all scopes) quotaFor(t *hint.Quota, factor float64) *quota {
	for _, a := range all {
		for _, q := range a.quotas {
			if q.same(t) {
				return q
			}
		}
	}
	return &quota{Quota: hint.Quota{Name: strings.Clone(t.Name), Unit: strings.Clone(t.Unit), Limit: -1}, named: t.Window, factor: factor, perUnit: 1}
}
