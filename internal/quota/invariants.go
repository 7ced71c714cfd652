//go:build throttle_invariants

package quota

import (
	"fmt"
	"slices"
	"time"
)

// This file checks that a Book is sound. It is part of builds with the tag throttle_invariants alone, which are for tests.

func broken(format string, args ...any) {
	panic("throttle: invariant broken: " + fmt.Sprintf(format, args...))
}

// Check panics if what is counted does not agree with itself, or with the attempts under way: an attempt is counted in its scope, and in each quota of that scope, while it is under way.
func (l *Book) Check(inFlight int) {
	sum := 0
	for i, a := range l.scopes {
		if sum += a.inFlight; a.inFlight < 0 {
			broken("scope %d counts %d attempts", i, a.inFlight)
		}
		for _, q := range a.quotas {
			n := 0
			for _, b := range l.scopes {
				for _, its := range b.quotas { // an answer may advertise the same one twice
					if its == q {
						n += b.inFlight
					}
				}
			}
			if n == 0 && q.units != 0 || q.Unit != "" && q.units != float64(n) {
				broken("quota %q counts %v units in flight, its scopes %d attempts", q.Name, q.units, n)
			}
		}
	}
	if sum > inFlight {
		broken("the scopes count %d attempts, and %d are under way", sum, inFlight)
	}
}

// MayStart reports whether no quota holds a call back at now. It is false where that cannot be said without changing something: quotas begin
// new windows when they are asked.
func (l *Book) MayStart(now time.Time) bool {
	return l == nil || !slices.ContainsFunc(l.scopes, func(a *scope) bool { return len(a.quotas) > 0 || a.closedUntil.After(now) })
}
