package throttle

import (
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/hint"
)

const (
	maxLanes   = 16                  // sets of quotas that calls of one key fall under
	maxRoutes  = 256                 // beginnings of paths whose lane is remembered
	routeDepth = 3                   // segments of a path that tell routes apart
	maxWindow  = 31 * 24 * time.Hour // longer ones are not believed
	mixedLane  = 255                 // a beginning under which routes of several lanes lie
)

// learned is what a key has learned of its upstream's limits. It only holds
// calls back, beside the limiters that are configured. Guarded by the room's
// lock.
//
// A call falls under the quotas that its route was told of last: its lane. Lane 0
// has no quota: it is for routes of which nothing is known.
type learned struct {
	lanes  []*lane
	routes map[uint64]uint8 // hashes of host and beginnings of paths; nil while there is one lane but 0
	seed   maphash.Seed
	find   *finder // nil until a refusal came that no quota explains

	quick, slow time.Duration // round trips
}

// A lane is a set of quotas that calls pay together; it never changes.
type lane struct {
	quotas []*toldQuota
	out    int // calls under way
}

func newLearned() *learned {
	return &learned{lanes: []*lane{{}}, seed: maphash.MakeSeed()}
}

// spread is by how much calls may come closer to each other on their way.
func (l *learned) spread() time.Duration { return l.slow - l.quick }

// trip notes a round trip. A slow one is forgotten in time.
func (l *learned) trip(d time.Duration) {
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

// ready returns when a call of n units may go in that lane, not before at.
func (l *learned) ready(id uint8, n int, at, now time.Time) time.Time {
	for _, q := range l.lanes[id].quotas {
		at = latest(at, q.ready(n, at, now, l.slack(q)))
	}
	if l.find != nil {
		at = latest(at, l.find.next)
	}
	return at
}

// slack is the spread, as far as it matters for q.
func (l *learned) slack(q *toldQuota) time.Duration { return min(l.spread(), q.window/16) }

// take counts a start.
func (l *learned) take(id uint8, n int, at time.Time) {
	a := l.lanes[id]
	a.out++
	for _, q := range a.quotas {
		q.take(n, at, l.slack(q))
	}
	if l.find != nil {
		l.find.take(n, at)
	}
}

// undo takes back a start as of at.
func (l *learned) undo(id uint8, n int, at time.Time) {
	a := l.lanes[id]
	a.out--
	for _, q := range a.quotas {
		q.undo(n, at)
	}
	if l.find != nil {
		l.find.undo()
	}
}

// landed notes that a call has ended, whatever its answer.
func (l *learned) landed(id uint8, n int) {
	a := l.lanes[id]
	a.out--
	for _, q := range a.quotas {
		q.landed(n)
	}
}

// spent returns until when a quota of the lane has nothing left; zero if all have.
func (l *learned) spent(id uint8, now time.Time) (until time.Time) {
	for _, q := range l.lanes[id].quotas {
		if u, yes := q.spent(now); yes {
			until = latest(until, u)
		}
	}
	return until
}

// after predicts when a call starts that has so many units before it. Those of
// other lanes wait for quotas of their own.
func (l *learned) after(id uint8, from time.Time, before before, n int) time.Time {
	at := from
	for _, q := range l.lanes[id].quotas {
		at = latest(at, q.after(from, before.lane, n, l.slack(q)))
	}
	if l.find != nil {
		then := *l.find // to look ahead must not end its hold
		at = latest(at, latest(from, then.next).Add(unitTime(int(min(before.all, 1<<31)), rate.Limit(then.rate(from)))))
	}
	return at
}

// hear takes in the quotas that an answer has told, to a request in lane id and
// sent then, and returns the lane they make, and what is worth telling.
func (l *learned) hear(told []hint.Quota, id uint8, p place, before float64, now time.Time) (lane uint8, news []Learned) {
	told = slices.DeleteFunc(slices.Clone(told), func(t hint.Quota) bool { return !useful(&t) })
	if len(told) == 0 {
		return id, nil
	}
	for i := range told {
		if told[i].Window > maxWindow {
			told[i].Window = 0
		}
	}
	mine := l.lanes[id]
	if !mine.matches(told) {
		if id, mine = l.join(told, now); mine == nil {
			return 0, nil
		}
	}
	for i, q := range mine.quotas {
		t := told[i]
		changed := q.Source != t.Source || q.Limit != t.Limit || q.Window != t.Window
		if changed {
			t.Name, t.Unit, t.Source = strings.Clone(t.Name), strings.Clone(t.Unit), strings.Clone(t.Source)
		} else {
			t.Name, t.Unit, t.Source = q.Name, q.Unit, q.Source // its own may keep a whole header alive
		}
		q.hear(t, p, now, before, l.slack(q))
		if changed {
			news = append(news, q.learned(now, l.slack(q)))
		}
	}
	l.teach(p.host, p.path, id)
	return id, news
}

// useful reports whether a quota can be kept: one of nothing, without an end, cannot.
func useful(t *hint.Quota) bool {
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
func (a *lane) matches(told []hint.Quota) bool {
	return slices.EqualFunc(a.quotas, told, func(q *toldQuota, t hint.Quota) bool { return q.is(&t) })
}

func (q *toldQuota) is(t *hint.Quota) bool {
	return q.Name == t.Name && q.Unit == t.Unit && q.named == t.Window
}

// join finds the lane of the quotas told, or makes it; nil if there is no room.
func (l *learned) join(told []hint.Quota, now time.Time) (uint8, *lane) {
	for i, a := range l.lanes[1:] {
		if a.matches(told) {
			return uint8(i + 1), a
		}
	}
	a := new(lane)
	for i := range told {
		a.quotas = append(a.quotas, l.quota(&told[i]))
	}
	if len(l.lanes) < maxLanes {
		l.lanes = append(l.lanes, a)
		return uint8(len(l.lanes) - 1), a
	}
	return l.replace(a, now)
}

// replace puts a in the place of the lane that was told of least recently, if it
// is not in use. The waiters of a lane count as its users by what they will find:
// another lane's quotas.
func (l *learned) replace(a *lane, now time.Time) (uint8, *lane) {
	oldest := 0
	for i, b := range l.lanes {
		if i > 0 && b.out == 0 && (oldest == 0 || b.heard().Before(l.lanes[oldest].heard())) {
			oldest = i
		}
	}
	if oldest == 0 {
		return 0, nil
	}
	l.lanes[oldest] = a
	for h, id := range l.routes {
		if id == uint8(oldest) {
			delete(l.routes, h)
		}
	}
	return uint8(oldest), a
}

func (a *lane) heard() (last time.Time) {
	for _, q := range a.quotas {
		last = latest(last, q.leftAt)
	}
	return last
}

// quota finds a quota in any lane, or makes it.
func (l *learned) quota(t *hint.Quota) *toldQuota {
	for _, a := range l.lanes {
		for _, q := range a.quotas {
			if q.is(t) {
				return q
			}
		}
	}
	return &toldQuota{Quota: hint.Quota{Name: strings.Clone(t.Name), Unit: strings.Clone(t.Unit), Limit: -1}, named: t.Window, perCall: 1}
}

// shut stops the quotas of a lane that a refusal is about, and reports whether the
// gate may stay open: it closes for a time that is told without a quota.
func (l *learned) shut(id uint8, h *hint.Hint, now time.Time) (done bool) {
	for _, q := range l.lanes[id].quotas {
		if q.found { // it may be longer than any reset that was told
			q.found, q.doubt = false, time.Second
		}
	}
	if h.Scope == "" && h.RetryAfter > 0 {
		return false
	}
	for _, q := range l.lanes[id].quotas {
		switch {
		case h.Scope != "" && q.Name != h.Scope, h.Scope == "" && q.left >= 1, len(h.Quotas) == 0:
		case h.RetryAfter > 0:
			q.shut, done = latest(q.shut, now.Add(later20(h.RetryAfter))), true
		case q.roll:
			q.shut, done = latest(q.shut, now.Add(askAgain)), true
		case q.until.After(now):
			q.shut, done = latest(q.shut, q.until), true
		}
	}
	return done
}

// resume lets calls go again that a refusal has stopped.
func (l *learned) resume(now time.Time) {
	for _, a := range l.lanes {
		for _, q := range a.quotas {
			q.shut, q.next = time.Time{}, earliest(q.next, now)
			q.left = max(q.left, 1) // one goes, and its answer tells
		}
	}
	if l.find != nil {
		l.find.since, l.find.next = earliest(l.find.since, now), earliest(l.find.next, now)
	}
}

// explains reports whether a refusal in that lane is one that a quota foretold.
func (l *learned) explains(id uint8, now time.Time) bool {
	return slices.ContainsFunc(l.lanes[id].quotas, func(q *toldQuota) bool { return q.left < 1 || q.shut.After(now) })
}

// learned is what observers see of the quota.
func (q *toldQuota) learned(now time.Time, spread time.Duration) Learned {
	s := Learned{
		Name: q.Name, Unit: q.Unit, Source: q.Source,
		Limit: q.Limit, Remaining: q.Remaining, Reset: -1, Window: q.Window,
		Rate: rate.Limit(min(q.pace(now, spread), float64(rate.Inf))),
	}
	if q.Remaining >= 0 {
		s.Remaining = int64(max(0, q.left))
	}
	if end := latest(q.until, q.shut); !end.IsZero() {
		s.Reset = max(0, end.Sub(now))
	}
	return s
}

// learned is what observers see of the finder.
func (f *finder) learned(now time.Time) Learned {
	return Learned{Source: "refusals", Limit: -1, Remaining: -1, Reset: -1, Rate: rate.Limit(f.rate(now))}
}

// all is what observers see.
func (l *learned) all(now time.Time) (all []Learned) {
	seen := map[*toldQuota]bool{}
	for _, a := range l.lanes {
		for _, q := range a.quotas {
			if !seen[q] {
				seen[q] = true
				q.turn(now)
				all = append(all, q.learned(now, l.slack(q)))
			}
		}
	}
	if l.find != nil {
		all = append(all, l.find.learned(now))
	}
	return all
}
