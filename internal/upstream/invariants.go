//go:build throttle_invariants

package upstream

import (
	"math"
	"time"
)

// This file checks that a State is sound. It is part of builds with the tag throttle_invariants alone,
// which are for tests.

// Check panics if what is counted does not agree with itself, or with the number of attempts that are
// under way; a negative number is not known.
func (s *State) Check(inFlight int) {
	if inFlight < 0 {
		inFlight = math.MaxInt
	}
	s.gate.Check(inFlight)
	if s.quotas != nil {
		s.quotas.Check(inFlight)
	}
}

// MayStart reports whether nothing here holds a call back at now. It is false where that cannot be
// said without changing something: quotas begin new windows when they are asked.
func (s *State) MayStart(now time.Time) bool {
	return s.quotas.MayStart(now) && !s.searching().Next().After(now) && s.gate.MayStart(now)
}
