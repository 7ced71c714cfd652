// Package quota is what a key has learned of the quotas that its upstream advertises.
//
//	heard.go               what the Book makes of an answer
//	book.go                the Book: which calls may start, and what observers see
//	scope.go route.go      which calls fall under the same quotas, and which routes belong to those
//	answer.go mirror.go    what one quota makes of an answer, and one that mirrors a meter of the key
//	send.go seen.go        when calls may start under it, and what observers see of it
//	window.go meter.go     what remains of it, and by its meter
//	quota.go starts.go     what is known of it, and own starts
//
// A quota can only hold calls back. Nothing here reads a clock or has a lock: moments are given by the caller, who guards a Book with a
// lock of its own.
//
// # States of a quota, all under the caller's lock
//
//	open   an answer leaves nothing -> spent
//	spent  the reset is due -> open
//	spent  back: a Retry-After, a guessed end, a minute of a doubtful reset -> asked, by one call
//	asked  its answer leaves something, or nothing -> open; spent, and no Retry-After asks again (held)
//	asked  it ends without a word of the quota: cancelled, lost, silent -> spent, and the next call asks
//	any    two windows without it; three answers, if one 429 alone said it -> lapsed
//
// A call asks all quotas of its scope, and each takes its part of the answer.
package quota

import (
	"net/url"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/limit"
)

// A Book is what a key has learned of its upstream's quotas, by scopes. A call may start when all quotas of its scope let it. A nil
// Book knows nothing, and may be asked.
//
// What is learned may be wrong or out of date, and can only slow calls down. So whatever is advertised next
// replaces it, one answer that contradicts its neighbours is outvoted by the next, and nothing is kept that does
// not say when it ends (useful).
type Book struct {
	scopes scopes
	routes routes // which of them calls fall under

	// The quickest and the slowest round trip, see trip. Calls that start in order may arrive closer together by
	// as much as these differ.
	quick, slow time.Duration
}

// New returns a Book that knows nothing.
func New() *Book {
	return &Book{scopes: scopes{{}}}
}

// Scope is ScopeOf the route of url; nil: it has none.
func (l *Book) Scope(url *url.URL) uint8 {
	if l == nil || url == nil || len(l.routes.known) == 0 {
		return 0
	}
	return l.ScopeOf(RouteOf(url.Host, url.Path))
}

// ScopeOf returns the scope of a route: that of the longest beginning that is known.
func (l *Book) ScopeOf(r Route) uint8 {
	if l == nil {
		return 0
	}
	return l.routes.scopeOf(r)
}

// Scopes is how many scopes there are; 0: nothing is learned.
func (l *Book) Scopes() int {
	if l == nil {
		return 0
	}
	return len(l.scopes)
}

// scope returns the scope of that number.
func (l *Book) scope(id uint8) *scope {
	if l == nil {
		return &nothing
	}
	return l.scopes[id%unspaced]
}

// nothing is scope 0 of a Book that is nil.
var nothing scope

// Any reports whether the scope has a quota.
func (l *Book) Any(id uint8) bool { return len(l.scope(id).quotas) > 0 }

// Ready returns when a call of n units may go in that scope, not before at.
func (l *Book) Ready(id uint8, n int, at, now time.Time) time.Time {
	a := l.scope(id)
	at = limit.Latest(at, a.closedUntil)
	for _, q := range a.quotas {
		at = q.ready(n, at, now, id < unspaced)
	}
	return at
}

// Take counts a start in all quotas of the scope. Its end must be noted by ended, or the start
// taken back by undo.
func (l *Book) Take(id uint8, n int, at time.Time) {
	a := l.scope(id)
	a.inFlight++
	for _, q := range a.quotas {
		q.take(n, at, id < unspaced)
	}
}

// Undo takes back a start that was not used.
func (l *Book) Undo(id uint8, n int, sent time.Time) {
	a := l.scope(id)
	a.inFlight--
	for _, q := range a.quotas {
		q.undo(n, sent)
	}
}

// ended notes that a call has ended, whatever its answer.
func (l *Book) ended(id uint8, n int, sent time.Time) {
	a := l.scope(id)
	a.inFlight--
	for _, q := range a.quotas {
		q.ended(n, sent)
	}
}

// Spent returns until when a quota of the scope has nothing left; zero if all have something. Of several it is the
// latest, because a call pays them all.
func (l *Book) Spent(id uint8, now time.Time) (until time.Time) {
	if a := l.scope(id); a.closedUntil.After(now) {
		until = a.closedUntil
	}
	for _, q := range l.scope(id).quotas {
		until = limit.Latest(until, q.spent(now))
	}
	return until
}

// After predicts when a call starts that has so many units of its scope before it.
func (l *Book) After(id uint8, from time.Time, before int64, n int) time.Time {
	at := limit.Latest(from, l.scope(id).closedUntil)
	for _, q := range l.scope(id).quotas {
		at = limit.Latest(at, q.after(from, before, n))
	}
	return at
}

// Resume lets calls go again that a throttled answer has stopped: one of each quota, whose answer shows
// what is left.
func (l *Book) Resume(now time.Time) {
	if l == nil {
		return
	}
	for _, a := range l.scopes {
		a.closedUntil = time.Time{}
		for _, q := range a.quotas {
			q.closedUntil, q.next = time.Time{}, limit.Earliest(q.next, now)
			q.back, q.asked, q.held = now, time.Time{}, false
			if q.rolling || q.aloneShort(now) {
				q.left = max(q.left, 1)
			}
		}
	}
}

// Explains reports whether a quota of that scope explains a throttled answer that came now: the answer advertises that
// less is left of it than a call of n units needs, or it is closed. Then no search is needed; the quota is known and only what
// others took of it was not. One that only throttled answers advertise explains none: each of them would explain itself.
func (l *Book) Explains(id uint8, n int, now time.Time) bool {
	a := l.scope(id)
	return a.closedUntil.After(now) || slices.ContainsFunc(a.quotas, func(q *quota) bool {
		return !q.refusals && (q.left < q.needs(n) && q.heard.Equal(now) || q.closedUntil.After(now))
	})
}

// Known lists each quota that has not lapsed once, although several scopes may share it.
func (l *Book) Known(now time.Time) (all []Known) {
	if l == nil {
		return nil
	}
	seen := map[*quota]bool{}
	for _, a := range l.scopes {
		if a.closedUntil.After(now) {
			all = append(all, Known{Source: "Retry-After", Limit: -1, Remaining: -1, Reset: a.closedUntil.Sub(now), Rate: rate.Inf})
		}
		for _, q := range a.quotas {
			if !seen[q] && !q.lapsed(now) {
				seen[q] = true
				q.turn(now)
				all = append(all, q.view(now))
			}
		}
	}
	return all
}

// Foreseeable reports whether it is known when so many more calls of a scope will have started under its quotas.
func (l *Book) Foreseeable(scope uint8, calls int64, now time.Time) bool {
	for _, q := range l.scope(scope).quotas {
		if !q.lapsed(now) && !q.foreseeable(float64(calls), now) {
			return false
		}
	}
	return true
}

// Latest is the scope whose quotas were advertised last; 0: nothing is learned. A call whose route is not known is
// most likely one of those. Example: /search was advertised its quota 2 s ago and /core another one just now: /core's.
func (l *Book) Latest() (id uint8) {
	if l == nil {
		return 0
	}
	var last time.Time
	for i, a := range l.scopes {
		for _, q := range a.quotas {
			if q.heard.After(last) {
				id, last = uint8(i), q.heard
			}
		}
	}
	return id
}
