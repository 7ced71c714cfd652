package queue

import (
	"math"
	"strings"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// This file holds the calls to a host whose refusal was about all of it, under whatever keys they are counted: a key for
// each channel of Discord's, say, and its global limit. Such hosts are rare, so they cost the others one comparison
// with nil: common.hosts.
//
// # States
//
//	none     common.hosts has no such host, and is nil if it has none at all
//	closed   until a moment that the upstream has advertised; a later refusal may make it later
//	open     that moment has passed; the calls of the host are counted, and paced from the second closing on
//	over     ten seconds after it opened, or after a call has last had to wait for the pace; whoever looks at it next
//	         drops it
//
// A closing has no gate of its own. A key that has to do with the host puts it on its own gate (State.HoldUntil). So
// predictions, MaxPause, deadlines, the reopening and Stats see it as they see a Retry-After to the key itself. A
// key looks at it
//
//   - when it begins, if calls of the key wait for the host: who may not wait that long leaves at once;
//   - when a call arrives, first or again, by the host of that call;
//   - before the head of its line goes, by the hosts that calls in it wait for: it may have grown since.
//
// Example: keys a and b are channels of discord.com. At 0 s a call of a is asked to wait for 5 s, with the scope
// global. The calls that wait in b's line stay there; those with deadlines within 5 s leave. At 3 s a first call of
// key c arrives, and waits too. At 5 s, with jitter of their own, the three gates open, each in pace or by slow start.
//
// # Pace
//
// When many keys open at once, each lets a first call go, and that alone may be too much for the host. So its calls are
// counted from one opening to the next: what was accepted between them is what the host serves. From then on the
// calls of all keys start that far apart; after ten seconds without a closing twice as fast each ten seconds.
// Each key books one moment for its head when nothing else holds that call. A moment that was not used lapses.
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
//	a closing, and a booked moment   the moment is void; after the closing the key books anew
//	its head leaves, booked          the next head of that key has the moment

// maxHosts is how many closings of hosts are kept. Of others the key of the call is held alone.
const maxHosts = 1024

// paceHeld is how long the pace of a host is held, and then doubled in, and for how long one that nobody waits for is
// kept: of a limit of 50/s by the second, 1 % of the calls are throttled then.
const paceHeld = 10 * time.Second

// A hostClosing is a time in which a whole host wants no calls, and its pace afterwards.
type hostClosing struct {
	until   time.Time
	status  uint16          // of the answer that said so
	resumed map[*Queue]bool // keys for which somebody has ended it by hand

	opened   time.Time            // when it had opened before the closing that began last; zero: never
	closed   time.Time            // when that closing began
	measured time.Time            // the opening up to which calls have been counted
	accepted int                  // calls since then, less those throttled
	rate     float64              // of all its calls, a second; 0: not known
	next     time.Time            // the first moment that nobody has booked
	waited   time.Time            // when a call last had to wait for its moment
	booked   map[*Queue]time.Time // by the keys that have to do with it; zero: none
}

// begin begins a closing of c, which is open or new. A moment that was booked is void.
func (c *hostClosing) begin(now time.Time) {
	c.measure()
	c.opened, c.closed = c.until, now
	for q := range c.booked {
		c.booked[q] = time.Time{}
	}
}

// measure finds the rate from what was accepted between the last two openings, once after the second, and begins to
// count anew.
//
// The calls in the time that the host was open may be a burst, which is too much. With the closing counted in they are
// too little, because a Retry-After in whole seconds is up to a second too long. The rate is the geometric mean of
// both. An example: 50 calls in 0.87 s, then closed for 1 s. 57/s and 27/s make 39/s. Where it is still too much, each
// closing brings it nearer: 500/s and 50/s make 158/s, then 158/s and 50/s make 89/s.
func (c *hostClosing) measure() {
	if c.measured.Equal(c.until) {
		return
	}
	if !c.opened.IsZero() {
		open, all := c.closed.Sub(c.opened).Seconds(), c.until.Sub(c.opened).Seconds()
		c.rate = float64(max(1, c.accepted)) / math.Sqrt(max(open, 0.001)*all)
	}
	c.measured, c.accepted, c.next = c.until, 0, c.until
}

// join makes q one of the keys whose calls are counted and paced.
func (c *hostClosing) join(q *Queue) {
	if _, ours := c.booked[q]; !ours {
		c.booked[q] = time.Time{}
	}
}

// over reports whether c has nothing to say any more.
func (c *hostClosing) over(now time.Time) bool {
	return now.Sub(limit.Latest(c.until, c.waited)) > paceHeld
}

// turn is the moment booked for the head of q; zero: it need not wait for one.
func (c *hostClosing) turn(q *Queue, now time.Time) time.Time {
	at, ours := c.booked[q]
	if !ours || c.until.After(now) {
		return time.Time{}
	}
	if c.measure(); c.rate == 0 {
		return time.Time{}
	}
	gap := time.Duration(1e9 / c.rate * math.Exp2(min(0, 1-now.Sub(c.until).Seconds()/paceHeld.Seconds())))
	if at.Before(now.Add(-gap - limit.MaxLate)) {
		at = limit.Latest(c.next, now)
		c.next, c.booked[q] = at.Add(gap), at
	}
	if at.After(now) {
		c.waited = now
	}
	return at
}

// hostTurnLocked is the moment at which the host of q lets its head go, which nothing else holds; zero: at once.
//
// A key whose Bucket is empty books nothing: its moment would pass unused, and another key could have had it. The
// limiters are asked first, and take nothing.
func (q *Queue) hostTurnLocked(h *Holds, cost int32, now time.Time) (at time.Time) {
	if q.common.hosts == nil {
		return at
	}
	if m, err := q.dues().ready(h, now, cost); err != nil || m.After(now) {
		return at // it would book a moment that it cannot use
	}
	for _, c := range q.common.hosts {
		at = limit.Latest(at, c.turn(q, now))
	}
	return at
}

// countLocked counts a call of q that starts, at its hosts. Its moment is used up, and the next head books another.
func (q *Queue) countLocked() {
	for _, c := range q.common.hosts {
		if _, ours := c.booked[q]; ours {
			c.accepted++
			c.booked[q] = time.Time{}
		}
	}
}

// closeHostLocked takes in that the host wants no calls until then, and lets the keys whose calls wait for it see a new
// closing. A moment that has passed since the answer came holds nobody. An answer to a call that was sent before the
// host opened last makes it close again, but belongs to the event before: nothing is measured from it.
func (t *Table) closeHostLocked(host string, sent, until time.Time, status uint16, now time.Time) {
	if !until.After(now) {
		return
	}
	r := &t.common
	name := hostName(host)
	c := r.hosts[name]
	isNew := c == nil || !c.until.After(now)
	if isNew {
		r.dropHostsLocked(now)
		if c = r.hosts[name]; c == nil && len(r.hosts) >= maxHosts {
			return
		}
		if r.hosts == nil {
			r.hosts = map[string]*hostClosing{}
		}
		if c == nil {
			c = &hostClosing{booked: map[*Queue]time.Time{}}
			r.hosts[name] = c
		}
		if !sent.Before(c.until) {
			c.accepted--
			c.begin(now)
		} else if c.measured.Equal(c.until) {
			c.measured = until
		}
	}
	if until.After(c.until) {
		c.until, c.status, c.resumed = until, status, nil
	}
	if !isNew {
		c.accepted--
		return // each key looks before it lets a call go
	}
	for _, e := range t.order {
		if q := &e.queue; q.line != nil && q.line.waitsFor(name) {
			q.advanceLocked(now)
		}
	}
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
	name := hostName(host)
	c := q.common.hosts[name]
	if c == nil {
		return
	}
	c.join(q)
	if q.holdLocked(c, now) {
		q.expelLocked(now)
	}
}

// lookLocked does the same for all calls that wait in the line of q.
func (q *Queue) lookLocked(now time.Time) {
	held := false
	for name, c := range q.common.hosts {
		if !q.line.waitsFor(name) {
			continue
		}
		c.join(q)
		held = q.holdLocked(c, now) || held
	}
	if held {
		q.expelLocked(now)
	}
}

// holdLocked closes the gate of q for c, and reports whether the gate did not know that yet.
func (q *Queue) holdLocked(c *hostClosing, now time.Time) bool {
	if !c.until.After(now) {
		q.common.dropHostsLocked(now)
		return false
	}
	return !c.resumed[q] && q.up.HoldUntil(c.until, c.status, now)
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

// A waitedFor is the hosts that calls in a line wait for: mostly one, which is a string to compare. A host that
// was waited for stays until the line ends.
type waitedFor struct {
	host string
	more map[string]bool // further ones, of a Key that joins hosts
}

// note adds a host.
func (f *waitedFor) note(host string) {
	switch {
	case f.host == host:
	case f.host == "":
		f.host = host
	case f.more == nil:
		f.more = map[string]bool{host: true}
	default:
		f.more[host] = true
	}
}

// waitsFor reports whether the host of that name is one of them.
func (f *waitedFor) waitsFor(name string) bool {
	if hostName(f.host) == name {
		return true
	}
	for host := range f.more {
		if hostName(host) == name {
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
