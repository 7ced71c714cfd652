package fleet

import (
	"math"
	"slices"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/limit"
)

// Observe passes on what the upstream says in an answer to a call that this Limiter has paid for. A time not to send
// (Retry-After) stops all processes. If the answer names the quota that it is for (Scope), that quota must have been in
// ten answers before, and in all of them: a quota of some routes holds those routes, in this process alone. Remaining
// units, of a quota that counts requests, can only tighten the limit. sent, when the call was sent, is not used. A
// Transport calls Observe by itself. With a [File] it returns when a pause is in the file, after the soft timeout at most.
func (l *Limiter) Observe(h hint.Hint, sent time.Time) {
	remaining := int64(math.MaxInt64)
	for _, q := range h.Quotas {
		if q.Remaining >= 0 && (q.Unit == "" || q.Unit == "requests") {
			remaining = min(remaining, q.Remaining)
		}
	}
	pause := time.Duration(0)
	l.account.locked(func() {
		all := l.account.seen.covers(&h)
		if h.Throttled && (h.Scope == "" || all) {
			pause = min(h.RetryAfter, limit.MaxBelief)
		}
		if pause <= 0 && remaining < int64(l.account.burst) {
			l.account.tighten(time.Now(), remaining)
		}
	})
	if pause > 0 {
		l.account.update(func(now time.Time) { l.account.stopAll(now, pause) })
		l.account.passOn()
	}
}

// names are the quotas that every answer so far has advertised. It is guarded by the account's lock.
//
// Example: an API has one policy, "default". Each answer advertises it, so it is about all calls, and a 429 that names it
// stops the fleet. Another API has a quota for searches and one for the rest, each advertised on its own routes: the
// first answer of the other kind shows that neither is about all calls.
type names struct {
	answers int
	common  []string
}

const (
	sure     = 10 // answers that must have advertised a quota before it is believed to be about all calls
	mostSame = 8  // names that are kept
)

// covers takes an answer in, and reports whether the quota that it names as its limit is about all calls.
func (n *names) covers(h *hint.Hint) bool {
	if len(h.Quotas) == 0 {
		return false
	}
	has := func(name string) bool {
		return slices.ContainsFunc(h.Quotas, func(q hint.Quota) bool { return q.Name == name })
	}
	if n.answers++; n.answers == 1 {
		for _, q := range h.Quotas[:min(len(h.Quotas), mostSame)] {
			n.common = append(n.common, q.Name)
		}
	}
	n.common = slices.DeleteFunc(n.common, func(name string) bool { return !has(name) })
	return n.answers > sure && slices.Contains(n.common, h.Scope)
}

// tighten notes that the upstream has so many units left, less than the burst. The date of the next unit says
// that in one number, and the latest counts: with 3 units left at 10/s it is 200 ms ago.
func (s *account) tighten(now time.Time, remaining int64) {
	every := 1e9 / float64(s.limit)
	if ahead := float64(1-remaining) * every; ahead > -float64(limit.Forever) && ahead < float64(limit.Forever) {
		s.news.tight = limit.Latest(s.news.tight, now.Add(time.Duration(ahead)))
	}
}

// stopAll stops this process, and passes the pause on at once.
func (s *account) stopAll(now time.Time, pause time.Duration) {
	s.counts.Expired += uint64(s.hand.pause(now.Add(pause)))
	s.news.pause = limit.Latest(s.news.pause, now.Add(pause))
	s.sendAhead(now)
}

// passOn waits until the pause is in the file, or the soft timeout is over: the program may end with this answer, without Close,
// and its next run has to know. Other stores are for processes that live, and nobody waits for them.
func (s *account) passOn() {
	if _, ok := s.store.(*File); !ok {
		return
	}
	news, stop := s.changes()
	defer stop()
	_, soft := s.common.Times()
	late := time.NewTimer(soft)
	defer late.Stop()
	for s.passing() {
		select {
		case <-news:
		case <-late.C:
			return
		}
	}
}

// passing reports whether a pause is on its way to a store that answers, or goes there next.
func (s *account) passing() (yes bool) {
	s.locked(func() {
		up, _, _ := s.breaker.Look()
		yes = up && s.out != nil && !s.news.pause.IsZero()
	})
	return yes
}
