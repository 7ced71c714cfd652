// Package learn holds what one key has learned of its upstream's limits: quotas that answers tell of,
// windows that have to be guessed, and a rate that is found from refusals alone. It can only hold
// calls back, beside the limiters that are configured.
//
//	Learner    all of it: which calls fall under which quotas (routes, lanes)
//	ToldQuota  one quota: told.go sends within it, hear.go takes in what is told, guess.go its window
//	Finder     the search for a rate that only refusals tell of
//
// Nothing here has a lock: the queue that owns a Learner guards it.
package learn

import (
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/moment"
)

const (
	MaxLanes   = 16                  // sets of quotas that calls of one key fall under
	maxRoutes  = 256                 // beginnings of paths whose lane is remembered
	routeDepth = 3                   // segments of a path that tell routes apart
	maxWindow  = 31 * 24 * time.Hour // longer ones are not believed
	mixedLane  = 255                 // a beginning under which routes of several lanes lie
)

// A Learner is what a key has learned of its upstream's limits. It only holds
// calls back, beside the limiters that are configured. Guarded by its owner's
// lock.
//
// A call falls under the quotas that its route was told of last: its lane. Lane 0
// has no quota: it is for routes of which nothing is known.
type Learner struct {
	Lanes  []*Lane
	routes map[uint64]uint8 // hashes of host and beginnings of paths; nil while there is one lane but 0
	seed   maphash.Seed
	Finder *Finder // nil until a refusal came that no quota explains

	quick, slow time.Duration // round trips
}

// A Lane is a set of quotas that calls pay together; it never changes.
type Lane struct {
	Quotas []*ToldQuota
	Out    int // calls under way
}

// New returns a Learner that knows nothing.
func New() *Learner {
	return &Learner{Lanes: []*Lane{{}}, seed: maphash.MakeSeed()}
}

// spread is by how much calls may come closer to each other on their way.
func (l *Learner) spread() time.Duration { return l.slow - l.quick }

// Trip notes a round trip. A slow one is forgotten in time.
func (l *Learner) Trip(d time.Duration) {
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

// Ready returns when a call of n units may go in that lane, not before at.
func (l *Learner) Ready(id uint8, n int, at, now time.Time) time.Time {
	for _, q := range l.Lanes[id].Quotas {
		at = q.ready(n, at, now, l.slack(q))
	}
	if l.Finder != nil {
		at = moment.Latest(at, l.Finder.next)
	}
	return at
}

// slack is the spread, as far as it matters for q.
func (l *Learner) slack(q *ToldQuota) time.Duration { return min(l.spread(), q.window/16) }

// Take counts a start.
func (l *Learner) Take(id uint8, n int, at time.Time) {
	a := l.Lanes[id]
	a.Out++
	for _, q := range a.Quotas {
		q.take(n, at, l.slack(q))
	}
	if l.Finder != nil {
		l.Finder.take(n, at)
	}
}

// Undo takes back a start as of at.
func (l *Learner) Undo(id uint8, n int, at time.Time) {
	a := l.Lanes[id]
	a.Out--
	for _, q := range a.Quotas {
		q.undo(n, at)
	}
	if l.Finder != nil {
		l.Finder.undo()
	}
}

// Landed notes that a call has ended, whatever its answer.
func (l *Learner) Landed(id uint8, n int) {
	a := l.Lanes[id]
	a.Out--
	for _, q := range a.Quotas {
		q.landed(n)
	}
}

// Spent returns until when a quota of the lane has nothing left; zero if all have.
func (l *Learner) Spent(id uint8, now time.Time) (until time.Time) {
	for _, q := range l.Lanes[id].Quotas {
		until = moment.Latest(until, q.spent(now))
	}
	return until
}

// After predicts when a call starts that has so many units before it. Those of
// other lanes wait for quotas of their own.
func (l *Learner) After(id uint8, from time.Time, before Before, n int) time.Time {
	at := from
	for _, q := range l.Lanes[id].Quotas {
		at = moment.Latest(at, q.after(from, before.Lane, n, l.slack(q)))
	}
	if l.Finder != nil {
		then := *l.Finder // to look ahead must not end its hold
		at = moment.Latest(at, moment.Latest(from, then.next).Add(moment.UnitTime(int(min(before.All, 1<<31)), rate.Limit(then.Rate(from)))))
	}
	return at
}

// Hear takes in the quotas that the answer to an attempt at p, in lane id, has told,
// and returns the lane they make, and what is worth telling. before is how many
// attempts the key has sent so far.
func (l *Learner) Hear(told []hint.Quota, id uint8, p Place, before float64, now time.Time) (lane uint8, news []Known) {
	told = slices.DeleteFunc(slices.Clone(told), func(t hint.Quota) bool { return !Useful(&t) })
	if len(told) == 0 {
		return id, nil
	}
	for i := range told {
		if told[i].Window > maxWindow {
			told[i].Window = 0
		}
	}
	mine := l.Lanes[id]
	if !mine.matches(told) {
		if id, mine = l.join(told, now); mine == nil {
			return 0, nil
		}
	}
	for i, q := range mine.Quotas {
		t := told[i]
		changed := q.leftAt.IsZero() || q.Source != t.Source || q.Limit != t.Limit
		t.Name, t.Unit = q.Name, q.Unit // its own may keep a whole header alive
		if t.Source == q.Source {
			t.Source = q.Source
		} else {
			t.Source = strings.Clone(t.Source)
		}
		q.hear(t, p, now, before, l.slack(q))
		if changed {
			news = append(news, q.view(now, l.slack(q)))
		}
	}
	l.teach(p.Host, p.Path, id)
	return id, news
}

// Useful reports whether a quota can be kept: one of nothing, without an end, cannot.
func Useful(t *hint.Quota) bool {
	switch {
	case strings.HasPrefix(t.Source, "Beta-"): // told, and not enforced
		return false
	case t.Remaining < 0 && (t.Limit <= 0 || t.Window <= 0 && t.Rate <= 0):
		return false
	case t.Limit <= 0 && t.Remaining <= 0:
		return t.Reset > 0
	}
	return t.Reset > 0 || t.Window > 0 || t.Rate > 0
}

// matches reports whether the lane is of just those quotas, in that order.
func (a *Lane) matches(told []hint.Quota) bool {
	return slices.EqualFunc(a.Quotas, told, func(q *ToldQuota, t hint.Quota) bool { return q.is(&t) })
}

func (q *ToldQuota) is(t *hint.Quota) bool {
	return q.Name == t.Name && q.Unit == t.Unit && q.named == t.Window
}

// join finds the lane of the quotas told, or makes it; nil if there is no place.
func (l *Learner) join(told []hint.Quota, now time.Time) (uint8, *Lane) {
	for i, a := range l.Lanes[1:] {
		if a.matches(told) {
			return uint8(i + 1), a
		}
	}
	a := new(Lane)
	for i := range told {
		a.Quotas = append(a.Quotas, l.quota(&told[i]))
	}
	if len(l.Lanes) < MaxLanes {
		l.Lanes = append(l.Lanes, a)
		return uint8(len(l.Lanes) - 1), a
	}
	return l.replace(a, now)
}

// replace puts a in the place of the lane that was told of least recently, if it
// is not in use. The waiters of a lane count as its users by what they will find:
// another lane's quotas.
func (l *Learner) replace(a *Lane, now time.Time) (uint8, *Lane) {
	oldest := 0
	for i, b := range l.Lanes {
		if b.Out == 0 && (oldest == 0 || b.heard().Before(l.Lanes[oldest].heard())) {
			oldest = i
		}
	}
	if oldest == 0 {
		return 0, nil
	}
	l.Lanes[oldest] = a
	for h, id := range l.routes {
		if id == uint8(oldest) {
			delete(l.routes, h)
		}
	}
	return uint8(oldest), a
}

func (a *Lane) heard() (last time.Time) {
	for _, q := range a.Quotas {
		last = moment.Latest(last, q.leftAt)
	}
	return last
}

// quota finds a quota in any lane, or makes it.
func (l *Learner) quota(t *hint.Quota) *ToldQuota {
	for _, a := range l.Lanes {
		for _, q := range a.Quotas {
			if q.is(t) {
				return q
			}
		}
	}
	return &ToldQuota{Quota: hint.Quota{Name: strings.Clone(t.Name), Unit: strings.Clone(t.Unit), Limit: -1}, named: t.Window, perCall: 1}
}

// Shut stops the quotas of a lane that a refusal is about, and reports whether the
// gate may stay open: it closes for a time that is told without a quota.
func (l *Learner) Shut(id uint8, h *hint.Hint, now time.Time) (done bool) {
	for _, q := range l.Lanes[id].Quotas {
		if q.found { // it may be longer than any reset that was told
			q.found, q.doubt = false, time.Second
		}
	}
	if h.Scope == "" && h.RetryAfter > 0 {
		return false
	}
	for _, q := range l.Lanes[id].Quotas {
		switch {
		case h.Scope != "" && q.Name != h.Scope, h.Scope == "" && q.left >= 1, len(h.Quotas) == 0:
		case h.RetryAfter > 0:
			q.shut, done = moment.Latest(q.shut, now.Add(moment.Jittered(h.RetryAfter))), true
		case q.roll:
			q.shut, done = moment.Latest(q.shut, now.Add(askAgain)), true
		case q.until.After(now):
			q.shut, done = moment.Latest(q.shut, q.until), true
		}
	}
	return done
}

// Resume lets calls go again that a refusal has stopped.
func (l *Learner) Resume(now time.Time) {
	for _, a := range l.Lanes {
		for _, q := range a.Quotas {
			q.shut, q.next = time.Time{}, moment.Earliest(q.next, now)
			q.left = max(q.left, 1) // one goes, and its answer tells
		}
	}
	if l.Finder != nil {
		l.Finder.since, l.Finder.next = moment.Earliest(l.Finder.since, now), moment.Earliest(l.Finder.next, now)
	}
}

// Explains reports whether a refusal in that lane is one that a quota foretold.
func (l *Learner) Explains(id uint8, now time.Time) bool {
	return slices.ContainsFunc(l.Lanes[id].Quotas, func(q *ToldQuota) bool { return q.left < 1 || q.shut.After(now) })
}

// view is what observers see of the quota.
func (q *ToldQuota) view(now time.Time, spread time.Duration) Known {
	s := Known{
		Name: q.Name, Unit: q.Unit, Source: q.Source,
		Limit: q.Limit, Remaining: q.Remaining, Reset: -1, Window: q.Window,
		Rate: rate.Limit(min(q.pace(now, spread), float64(rate.Inf))),
	}
	if q.Remaining >= 0 {
		s.Remaining = int64(min(max(0, q.left), 1<<63-1024)) // the largest float64 that fits
	}
	if end := moment.Latest(q.until, q.shut); !end.IsZero() {
		s.Reset = max(0, end.Sub(now))
	}
	return s
}

// View is what observers see of the finder.
func (f *Finder) View(now time.Time) Known {
	return Known{Source: "refusals", Limit: -1, Remaining: -1, Reset: -1, Rate: rate.Limit(f.Rate(now))}
}

// All is what observers see.
func (l *Learner) All(now time.Time) (all []Known) {
	seen := map[*ToldQuota]bool{}
	for _, a := range l.Lanes {
		for _, q := range a.Quotas {
			if !seen[q] {
				seen[q] = true
				q.turn(now)
				all = append(all, q.view(now, l.slack(q)))
			}
		}
	}
	if l.Finder != nil {
		all = append(all, l.Finder.View(now))
	}
	return all
}
