package upstream

import "time"

// Foreseeable reports whether Predict knows when so many more calls of a scope will have started: no answer has to come
// first that nobody can foresee, as a probe's, those that a slow start waits for, or one that says when units are back;
// and no limit is searched for, whose rate is not known yet. What is paced is known: by a configured limit, a quota
// whose window is advertised, or a rate that was found and is held. How long an outage lasts is known to nobody, so the
// time until the next probe is the least that a call waits, and not what to show to a user.
//
// Example: after a closing without a known limit, one call goes, and each success lets one more be in flight. When the
// first goes is known, and for the second it is not.
func (s *State) Foreseeable(scope uint8, calls int64, now time.Time) bool {
	if s.search.On() && !s.search.Foreseeable() {
		return false
	}
	if s.learned != nil {
		for _, q := range s.learned.scope(scope).quotas {
			if !q.lapsed(now) && !q.foreseeable(float64(calls), now) {
				return false
			}
		}
	}
	return s.gate.Foreseeable(calls, s.pace(now))
}

// foreseeable is Foreseeable of so many calls before one quota. Example: after 4 of 20 calls a minute the window is said
// to end in 12 s, after 5 in 15 s. Units may come back one by one, which the next answers will show. So when the 15 that
// are left will have gone is known, and when the 16th goes is not.
func (q *quota) foreseeable(calls float64, now time.Time) bool {
	if q.rolling {
		return q.window > 0
	}
	return !q.resetMoves || calls*q.charge(1) <= q.remaining(now)
}

// LatestScope is the scope whose quotas were advertised last; 0: nothing is learned. A call whose route is not known is
// most likely one of those. Example: /search was advertised its quota 2 s ago and /core another one just now: /core's.
func (s *State) LatestScope() (id uint8) {
	if s.learned == nil {
		return 0
	}
	var last time.Time
	for i, a := range s.learned.scopes {
		for _, q := range a.quotas {
			if q.heard.After(last) {
				id, last = uint8(i), q.heard
			}
		}
	}
	return id
}
