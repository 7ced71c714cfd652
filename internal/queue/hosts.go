package queue

import (
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
//	over     that moment has passed; whoever looks at it next drops it
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

// maxHosts is how many closings of hosts are kept. Of others the key of the call is held alone.
const maxHosts = 1024

// A hostClosing is a time in which a whole host wants no calls.
type hostClosing struct {
	until   time.Time
	status  uint16          // of the answer that said so
	resumed map[*Queue]bool // keys for which somebody has ended it by hand
}

// closeHostLocked takes in that the host wants no calls until then, and lets the keys whose calls wait for it see a new
// closing.
func (t *Table) closeHostLocked(host string, until time.Time, status uint16, now time.Time) {
	r := &t.common
	name := hostName(host)
	c := r.hosts[name]
	isNew := c == nil || !c.until.After(now)
	if isNew {
		r.dropHostsLocked(now)
		if len(r.hosts) >= maxHosts {
			return
		}
		if r.hosts == nil {
			r.hosts = map[string]*hostClosing{}
		}
		c = new(hostClosing)
		r.hosts[name] = c
	}
	if until.After(c.until) {
		c.until, c.status, c.resumed = until, status, nil
	}
	if !isNew {
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
		if !c.until.After(now) {
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
	if c := q.common.hosts[name]; c != nil && q.holdLocked(c, now) {
		q.expelLocked(now)
	}
}

// lookLocked does the same for all calls that wait in the line of q.
func (q *Queue) lookLocked(now time.Time) {
	held := false
	for name, c := range q.common.hosts {
		held = q.line.waitsFor(name) && q.holdLocked(c, now) || held
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
