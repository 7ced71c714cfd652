package quota

import (
	"slices"
	"strings"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/limit"
)

// This file is what a Book makes of an answer.

// maxWindow is the longest window that is believed.
const maxWindow = 31 * 24 * time.Hour

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
		l.routes.silentFirst = a.Well >= outvoted
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
		l.routes.throttled.wasServed(r)
	}
	if b := l.routes.known[r]; b.own && b.scope != id && l.scope(b.scope).closedUntil.After(now) {
		return id, news, false // it was sent before its route was closed, and does not open it: the next answer moves it
	}
	return id, news, l.routes.vote(r, id)
}

// missing takes in an answer that advertises nothing, to an attempt of scope id.
func (l *Book) missing(id uint8, a *Answer, now time.Time) (moved bool) {
	if len(l.routes.known) == 0 && l.routes.throttled.row == 0 {
		return false
	}
	r := RouteOf(a.Host, a.Path)
	b := l.routes.known[r]
	if !b.own {
		b.scope = 0
	}
	if a.Throttled {
		for _, q := range l.scope(b.scope).quotas {
			q.row = 0
		}
		return false
	}
	l.routes.throttled.wasServed(r)
	for _, q := range l.scope(b.scope).quotas {
		q.missing(a.Counted && id == b.scope, a.Cost, a.Sent, now)
	}
	return l.routes.vote(r, 0)
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

// scopeFor finds the scope of those quotas, or makes it; nil if there is no place.
func (l *Book) scopeFor(advertised []hint.Quota, factor float64, now time.Time) (uint8, *scope) {
	if id := l.scopes.find(advertised); id > 0 {
		return id, l.scopes[id]
	}
	a := new(scope)
	for i := range advertised {
		a.quotas = append(a.quotas, l.scopes.quotaFor(&advertised[i], factor))
	}
	return l.addScope(a, now)
}

// addScope gives a scope a number; nil if there is no place.
func (l *Book) addScope(a *scope, now time.Time) (uint8, *scope) {
	id := l.scopes.add(a, now)
	if id == 0 {
		return 0, nil
	}
	l.routes.forget(id) // of the one that was there
	return id, a
}

// CloseRoute takes in a throttled answer with a time, and closes its route for that, if it is meant for the route alone
// and the route has no quotas: then ok is true, and id its scope from now on. searching and forget are as in throttledRoute.refused.
func (l *Book) CloseRoute(r Route, searching bool, until, now time.Time) (id uint8, ok, forget bool) {
	alone, forget := l.routes.throttled.refused(r, searching)
	if !alone {
		return 0, false, false
	}
	b := l.routes.known[r]
	if !b.own {
		id, made := l.addScope(new(scope), now)
		if made == nil {
			return 0, false, forget
		}
		b = beginning{scope: id, own: true}
		l.routes.set(r, b)
	}
	a := l.scope(b.scope)
	if len(a.quotas) > 0 {
		return b.scope, false, forget
	}
	a.closedUntil = limit.Latest(a.closedUntil, until)
	return b.scope, true, forget
}
