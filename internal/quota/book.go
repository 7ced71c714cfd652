// Package quota is what a key has learned of the quotas that its upstream advertises.
//
//	book.go scope.go   the Book, and which calls fall under the same quotas
//	route.go           which routes belong to which of them, and times that are meant for one route alone
//	quota.go           one quota: what is known of it
//	answer.go          what it makes of an answer
//	send.go            when calls may start under it, and the count of those that do
//	meter.go           quotas that mirror a meter of the key
//	seen.go            what observers see, and what can be foreseen
//
// A quota can only hold calls back. Nothing here reads a clock or has a lock: moments are given by the caller, who guards a Book with a
// lock of its own.
package quota

import (
	"slices"
	"strings"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/limit"
)

// maxWindow is the longest window that is believed.
const maxWindow = 31 * 24 * time.Hour

// A Book is what a key has learned of its upstream's quotas, by scopes. A call may start when all quotas of its scope let it. A nil
// Book knows nothing, and may be asked.
//
// What is learned may be wrong or out of date, and can only slow calls down. So whatever is advertised next
// replaces it, one answer that contradicts its neighbours is outvoted by the next, and nothing is kept that does
// not say when it ends (useful).
type Book struct {
	scopes []*scope // by number; 0 has no quotas

	routes      map[Route]beginning // which of them calls fall under
	throttled   throttledRoute      // the route that was throttled last
	silentFirst bool                // the key's first answers advertised nothing: its unknown routes are free

	// The quickest and the slowest round trip, see trip. Calls that start in order may arrive closer together by
	// as much as these differ.
	quick, slow time.Duration
}

// New returns a Book that knows nothing.
func New() *Book {
	return &Book{scopes: []*scope{{}}}
}

// trip notes a round trip. A slow one is forgotten in time, by 1/256 of the difference with each that is
// quicker.
func (l *Book) trip(d time.Duration) {
	if d <= 0 {
		return
	}
	if l.quick == 0 || d < l.quick {
		l.quick = d
	}
	if d > l.slow {
		l.slow = d
	} else {
		l.slow -= (l.slow - d) / 256
	}
}

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

// An Answer is what an attempt has shown.
type Answer struct {
	Quotas                        []hint.Quota  // that it advertises
	RetryAfter                    time.Duration // 0: it names no time
	Served, Throttled, Overloaded bool          // by its outcome
	Dated                         bool          // it has a Date: the upstream's clock is known

	// Its start.
	Counted bool  // by Take
	Scope   uint8 // that it started in
	Cost    int   // units
	Sent    time.Time

	Trip         time.Duration // 0: not measured
	Host, Path   string        // its route
	InFlight     int           // attempts under way, this one included
	Known        time.Duration // how long ago the first call of the key came
	All, Well    float64       // attempts that the key has sent, and those that were served: they may all have been under a quota that is new
	WindowFactor float64       // how much faster than evenly long windows are used

	// Counter returns the meter of the key that an advertised quota mirrors; nil: it mirrors none. Nil: there are no meters.
	Counter func(*hint.Quota) Counter
}

// Observe ends an attempt in the quotas that have counted it, and takes in what its answer advertises, or that it advertises nothing. It
// returns the scope that its quotas make, those that observers should know of (new ones, and those whose limit or header
// field has changed), and whether calls that wait may fall under another scope now.
func (l *Book) Observe(a *Answer, now time.Time) (in uint8, news []Known, moved bool) {
	if a.Counted {
		in = a.Scope
		if a.Overloaded && len(a.Quotas) == 0 {
			// An upstream that was overloaded has probably not counted it. If it has, the next answer advertises less. Example:
			// 100 calls at 10/s advertised, and five of them meet a 529. They take 9.5 s instead of 10.2.
			l.Undo(a.Scope, a.Cost, a.Sent)
		} else {
			l.ended(a.Scope, a.Cost, a.Sent)
		}
	}
	if len(a.Quotas) > 0 && len(l.scopes) == 1 {
		l.silentFirst = a.Well >= outvoted
	}
	in, news, moved = l.observe(in, a, now)
	l.trip(a.Trip)
	return in, news, moved
}

// observe is Observe of an attempt of scope id that has ended.
func (l *Book) observe(id uint8, a *Answer, now time.Time) (in uint8, news []Known, moved bool) {
	if len(a.Quotas) == 0 {
		return id, nil, (a.Served || a.Throttled) && l.missing(id, a, now)
	}
	advertised := slices.DeleteFunc(slices.Clone(a.Quotas), func(t hint.Quota) bool { return !useful(&t) })
	if len(advertised) == 0 {
		return id, nil, false
	}
	for i := range advertised {
		if advertised[i].Window > maxWindow {
			advertised[i].Window = 0
		}
	}
	own := l.scope(id)
	id %= unspaced
	if !own.matches(advertised) { // its route is advertised other quotas than those that it started under
		if id, own = l.scopeFor(advertised, a.WindowFactor, now); own == nil {
			return 0, nil, false
		}
	}
	for i, q := range own.quotas {
		t := advertised[i]
		changed := q.leftAt.IsZero() || q.Source != t.Source || q.Limit != t.Limit
		t.Name, t.Unit = q.Name, q.Unit // the answer's own may keep a whole header in memory
		if t.Source == q.Source {
			t.Source = q.Source
		} else {
			t.Source = strings.Clone(t.Source)
		}
		q.spread = min(l.slow-l.quick, q.window/16) // no more of a window is given up for it
		q.observe(t, a, now)
		if changed {
			news = append(news, q.view(now))
		}
	}
	r := RouteOf(a.Host, a.Path)
	if a.Served {
		l.throttled.wasServed(r)
	}
	if b := l.routes[r]; b.own && b.scope != id && l.scope(b.scope).closedUntil.After(now) {
		return id, news, false // it was sent before its route was closed, and does not open it: the next answer moves it
	}
	return id, news, l.vote(r, id)
}

// missing takes in an answer that advertises nothing, to an attempt of scope id.
func (l *Book) missing(id uint8, a *Answer, now time.Time) (moved bool) {
	if len(l.routes) == 0 && l.throttled.row == 0 {
		return false
	}
	r := RouteOf(a.Host, a.Path)
	b := l.routes[r]
	if !b.own {
		b.scope = 0
	}
	if a.Throttled {
		for _, q := range l.scope(b.scope).quotas {
			q.row = 0
		}
		return false
	}
	l.throttled.wasServed(r)
	for _, q := range l.scope(b.scope).quotas {
		q.missing(a.Counted && id == b.scope, a.Cost, a.Sent, now)
	}
	return l.vote(r, 0)
}

// Useful reports whether one of those quotas can be kept.
func Useful(advertised []hint.Quota) bool {
	return slices.ContainsFunc(advertised, func(t hint.Quota) bool { return useful(&t) })
}

// useful reports whether a quota can be kept. It must say how much there is, a limit or what remains, and over
// what time, a reset, a window or a rate: "0 remaining" without an end would stop calls for ever.
func useful(t *hint.Quota) bool {
	switch {
	case strings.HasPrefix(t.Source, "Beta-"): // advertised, and not enforced
		return false
	case t.Remaining < 0 && (t.Limit <= 0 || t.Window <= 0 && t.Rate <= 0):
		return false
	case t.Limit <= 0 && t.Remaining <= 0:
		return t.Reset > 0
	}
	return t.Reset > 0 || t.Window > 0 || t.Rate > 0
}

// CloseQuotas closes the quotas of a scope that a throttled answer is about, and reports whether the gate may
// stay open. With quotas advertised for this scope:
//
//	429, Retry-After: 5, and it names the quota "search"   that quota is closed for 5 s, others go on
//	429, Retry-After: 5                                    the gate's: it does not say which quota
//	429, Retry-After: 5, and 0 remain, reset in an hour    the gate's; after 5 s one call asks that quota
//	429, and 0 remain, reset in 8 s                        that quota is closed for 8 s
//	429, and 0 remain of a rolling quota                   closed for a moment: units come back one by one
//	429, and some remain                                   the gate's: the quota does not explain it
//
// A Retry-After gets jitter, because all who share the quota have got the same; a reset does not, or a part of
// each window would be lost. One who is alone starts no more than the limit in any short window, so if that is
// throttled, its units do not all come back at once.
func (l *Book) CloseQuotas(id uint8, h *hint.Hint, now time.Time) (done bool) {
	for _, q := range l.scope(id).quotas {
		if q.left < 1 && q.alone(now) {
			q.notASecondUntil, q.rolling = now.Add(notASecond), q.rolling || q.Window > 0 && q.Window <= shortWindow
		}
	}
	for _, q := range l.scope(id).quotas {
		if h.Scope == "" || q.Name == h.Scope {
			q.comeBack(h.RetryAfter, now)
		}
	}
	if h.Scope == "" && h.RetryAfter > 0 {
		return false
	}
	for _, q := range l.scope(id).quotas {
		switch {
		case h.Scope != "" && q.Name != h.Scope, h.Scope == "" && q.left >= 1, len(h.Quotas) == 0:
		case h.RetryAfter > 0:
			q.closedUntil, done = limit.Latest(q.closedUntil, now.Add(limit.Jittered(h.RetryAfter))), true
		case q.rolling:
			q.closedUntil, done = limit.Latest(q.closedUntil, now.Add(q.pause)), true
		case q.back.After(now):
			q.closedUntil, done = limit.Latest(q.closedUntil, q.back), true
		case q.until.After(now):
			q.closedUntil, done = limit.Latest(q.closedUntil, q.until), true
		}
	}
	return done
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
