//go:build throttle_invariants

package upstream

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// This file checks that a State is sound. It is part of builds with the tag throttle_invariants alone,
// which are for tests; in all others invariants_off.go stands in its place.

func broken(format string, args ...any) {
	panic("throttle: invariant broken: " + fmt.Sprintf(format, args...))
}

// Check panics if what is counted does not agree with itself, or with the number of attempts that are
// under way; a negative number is not known.
func (s *State) Check(inFlight int) {
	if inFlight < 0 {
		inFlight = math.MaxInt
	}
	s.gate.Check(inFlight)
	if s.learned != nil {
		s.learned.check(inFlight)
	}
}

// check: an attempt is counted in its scope, and in each quota of that scope, while it is under way.
func (l *learner) check(inFlight int) {
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

// MayStart reports whether nothing here holds a call back at now. It is false where that cannot be
// said without changing something: quotas begin new windows when they are asked.
func (s *State) MayStart(now time.Time) bool {
	if l := s.learned; l != nil {
		if slices.ContainsFunc(l.scopes, func(a *scope) bool { return len(a.quotas) > 0 || a.closedUntil.After(now) }) || s.search.Next().After(now) {
			return false
		}
	}
	return s.gate.MayStart(now)
}
