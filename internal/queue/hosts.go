package queue

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// This file holds the calls to a host whose refusal was about all of it, under whatever keys they are counted: a key for
// each channel of Discord's, say, and its global limit. Such hosts are rare, so they cost the others one comparison
// with nil: common.hosts. While there is one, all calls go the long way, which asks the whole list: soleLocked,
// unhinderedLocked, quick, easyLocked and soonLocked are short cuts to the same end, see TestShortWays.
//
// # States
//
//	none     common.hosts has no such host, and is nil if it has none at all
//	closed   until a moment that the upstream has advertised; a later refusal may make it later
//	open     that moment has passed; the calls of the host are counted, and paced from the second closing on
//	over     ten seconds after it opened, or after a call has last had to wait for the pace, when nobody stands in its
//	         pool; whoever looks at it next drops it
//
// A closing has no gate of its own. A key that has to do with the host puts it on its own gate (State.HoldUntil). So
// predictions, MaxPause, deadlines, the reopening and Stats see it as they see a Retry-After to the key itself. A
// key has to do with the host from the first call on that meets it there, or that waits for it when the closing begins.
// It looks at the closing then, when a call arrives, and before the head of its line goes: it may have grown since.
//
// Example: keys a and b are channels of discord.com. At 0 s a call of a is asked to wait for 5 s, with the scope
// global. The calls that wait in b's line stay there; those with deadlines within 5 s leave. At 3 s a first call of
// key c arrives, and waits too. At 5 s, with jitter of their own, the three gates open, each in pace or by slow start.
//
// # Pace
//
// When many keys open at once, each lets a first call go, and that alone may be too much for the host. So its keys share
// a pool, which counts what starts: what was accepted between two openings is what the host serves. From the second one on
// its calls start that far apart; after ten seconds without a closing twice as fast each ten seconds.
//
// Example: at 0 s 200 calls of 40 keys are too many for 50/s; the host is closed until 1 s. The 40 gates open, 50
// calls are accepted, the others throttled; it is closed until 2 s. 50 calls from 1 s to 2 s are 50/s: from 2 s on a
// call of some key starts each 20 ms, and none is throttled.
//
// # Races
//
// The one lock of the table decides each of them.
//
//	a grant in b, and the closing    one comes first; a call that goes first was sent in the older epoch of b's gate
//	b's own 429 of the same event    it is stale in b's gate: it makes the closing longer, and begins no epoch
//	two keys are asked at once       the later moment holds, and b's gate begins one epoch
//	b asks a foreign limiter         its waiter is in line: the gate is closed when the answer is looked at
//	b is dropped and made anew       its first call looks
//	Resume(b) in the closing         b goes on, the others do not; a later moment that is advertised holds b again
//	it closes, and a call's turn     the call's gate is closed, so it leaves the pool; the pace begins anew

// maxHosts is how many closings of hosts are kept. Of others the key of the call is held alone.
const maxHosts = 1024

// paceHeld is how long the pace of a host is held, and then doubled in, and for how long one that nobody waits for is
// kept: of a limit of 50/s by the second, 1 % of the calls are throttled then.
const paceHeld = 10 * time.Second

// A hostClosing is a time in which a whole host wants no calls, and its pace afterwards.
type hostClosing struct {
	until   time.Time
	status  uint16          // of the answer that said so
	keys    map[*Queue]bool // that have to do with it
	resumed map[*Queue]bool // keys for which somebody has ended it by hand

	opened  time.Time // when it had opened before the closing that began last; zero: never
	closed  time.Time // when that closing began
	served  int       // calls that were accepted between the two
	started int       // calls since then
	next    time.Time // the first start that the pace allows
	waited  time.Time // when a call has last had to wait for that
	pool    *pool     // of its keys
}

// gap is how far apart its calls start, in nanoseconds; 0: it has not opened twice.
//
// The calls in the time that the host was open may be a burst, which is too much. With the closing counted in they are
// too little, because a Retry-After in whole seconds is up to a second too long. The rate is the geometric mean of
// both. An example: 50 calls in 0.87 s, then closed for 1 s. 57/s and 27/s make 39/s. Where it is still too much, each
// closing brings it nearer: 500/s and 50/s make 158/s, then 158/s and 50/s make 89/s.
func (c *hostClosing) gap(now time.Time) float64 {
	if c.opened.IsZero() {
		return 0
	}
	open, all := c.closed.Sub(c.opened), c.until.Sub(c.opened)
	gap := math.Sqrt(float64(max(open, time.Millisecond))*float64(all)) / float64(max(1, c.served))
	return gap * math.Exp2(min(0, 1-float64(now.Sub(c.until))/float64(paceHeld)))
}

// start counts a call that starts as of at.
func (c *hostClosing) start(at, now time.Time) {
	if c.started++; !c.next.Before(at) {
		c.waited = now
	}
	c.next = limit.Latest(c.next, at).Add(time.Duration(c.gap(now)))
}

// after is when a call starts behind so many others.
func (c *hostClosing) after(ahead int64, from time.Time) time.Time {
	return limit.Latest(from, c.next).Add(time.Duration(min(float64(ahead)*c.gap(from), float64(limit.Forever/2))))
}

// join makes q one of the keys whose calls are counted and paced.
func (c *hostClosing) join(q *Queue) {
	c.keys[q] = true
	if l := q.line; l != nil && !slices.ContainsFunc(l.stakes, func(s stake) bool { return s.pool == c.pool }) {
		l.take(stake{pool: c.pool})
	}
}

// over reports whether c has nothing to say any more.
func (c *hostClosing) over(now time.Time) bool {
	return c.pool.lines == 0 && now.Sub(limit.Latest(c.until, c.waited)) > paceHeld
}

// closeHostLocked takes in that the host wants no calls until then, and lets the keys whose calls wait for it see a new
// closing. A moment that has passed since the answer came holds nobody. An answer to a call that was sent before the
// host opened last makes it close again, but belongs to the event before: nothing is measured from it.
func (t *Table) closeHostLocked(host string, sent, until time.Time, status uint16, now time.Time) {
	c := t.common.hostLocked(host, now)
	if c == nil || !until.After(now) {
		return
	}
	isNew := !c.until.After(now)
	switch {
	case !isNew:
		c.served--
	case sent.Before(c.until):
		if longer := until.Sub(c.until); !c.opened.IsZero() {
			c.opened, c.closed = c.opened.Add(longer), c.closed.Add(longer)
		}
	default:
		c.opened, c.closed, c.served, c.started, c.next = c.until, now, c.started-1, 0, time.Time{}
	}
	if until.After(c.until) {
		c.until, c.status, c.resumed = until, status, nil
	}
	if !isNew {
		return // each key looks before it lets a call go
	}
	for _, e := range t.order {
		if q := &e.queue; q.line != nil && (c.keys[q] || q.line.waitsFor(hostName(host))) {
			c.join(q)
			t.common.stirLine(q.line)
			q.lookLocked(now)
		}
	}
	t.common.settle(now) // after all gates are closed: a key that leaves a pool must not let another one's call go
}

// hostLocked is the closing of a host, made if there is none; nil: too many are kept.
func (r *common) hostLocked(host string, now time.Time) *hostClosing {
	name := hostName(host)
	if c := r.hosts[name]; c != nil && !c.over(now) {
		return c
	}
	r.dropHostsLocked(now)
	if len(r.hosts) >= maxHosts {
		return nil
	}
	if r.hosts == nil {
		r.hosts = map[string]*hostClosing{}
	}
	c := &hostClosing{keys: map[*Queue]bool{}, pool: r.newPool(nil, 0)}
	c.pool.pace, r.hosts[name] = c, c
	return c
}

// dropHostsLocked forgets the closings that are over.
func (r *common) dropHostsLocked(now time.Time) {
	for name, c := range r.hosts {
		if c.over(now) {
			delete(r.hosts, name)
		}
	}
	if len(r.hosts) == 0 {
		r.hosts = nil
	}
}

// meetLocked puts the closing of a host, if there is one, on the gate of q. A call of q is about to ask for its turn
// there. It is called only if some host is closed.
func (q *Queue) meetLocked(host string, now time.Time) {
	if c := q.common.hosts[hostName(host)]; c != nil {
		c.join(q)
		q.lookLocked(now)
		q.advanceLocked(now)
	}
}

// lookLocked does the same with all closings that q has to do with.
func (q *Queue) lookLocked(now time.Time) {
	held := false
	for _, c := range q.common.hosts {
		if c.over(now) {
			q.common.dropHostsLocked(now)
		} else if c.keys[q] && !c.resumed[q] {
			held = q.up.HoldUntil(c.until, c.status, now) || held
		}
	}
	if held {
		q.expelLocked(now)
	}
}

// resumeHostsLocked ends the closings of hosts for q alone.
func (q *Queue) resumeHostsLocked() {
	for _, c := range q.common.hosts {
		if c.resumed == nil {
			c.resumed = map[*Queue]bool{}
		}
		c.resumed[q] = true
	}
}

// waitsFor reports whether a call in the line is for the host of that name.
func (l *lineup) waitsFor(name string) bool {
	for c := range l.All() {
		if url := c.Of.also().url; url != nil && hostName(url.Host) == name {
			return true
		}
	}
	return false
}

// hostName is what all ways to write a host have in common: lower case, without a scheme's default port and
// without a final dot. So a closing of discord.com is one of Discord.com:443 too.
func hostName(host string) string {
	host = strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(host), ":443"), ":80")
	return strings.TrimSuffix(host, ".")
}

// believed is the moment until which a host that asks for so long a wait is closed.
func believed(wait time.Duration, now time.Time) time.Time {
	return now.Add(min(wait, limit.MaxBelief))
}
