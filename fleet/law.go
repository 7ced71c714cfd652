package fleet

import (
	"math"
	"time"

	"github.com/go-throttle/throttle/fleet/store"
)

const (
	second   = int64(time.Second / time.Microsecond)
	maxHeal  = 600 * second       // how far ahead a store believes what members carry
	maxPause = 24 * 3600 * second // how long a pause is believed
	maxAhead = 30 * time.Second   // how far ahead units are dated for a call that waits
	window   = 2 * second         // in which members are counted
	forget   = 60 * second        // members that have not asked for so long
)

// horizon is how far ahead units are dated that no call waits for yet, and the share of the validity that a
// unit has. The rest of the validity pays for the floor, see state.lend.
func horizon(validity time.Duration) time.Duration { return validity / 5 * 4 }

// state is one limit in a store, in microseconds of the store's clock: a schedule of dates, one unit each
// 1/rate; next is the first that is not granted yet (GCRA, ITU-T I.371, with next = TAT − τ + T). An
// idle limit falls behind, by a burst at most: those units are dated now.
//
//	1000/s, burst 1, W 250 ms; two members that want all they can get, at 0 s
//	A asks for 1 and 300 more   its half of the 200 units ahead: dates 0 ... 99 ms
//	B asks for the same         100 ... 199 ms
//	A at 75 ms, 25 in hand      75 more: 200 ... 274 ms
//	C at 80 ms, 1, its first    dated now, on loan: the next date moves from 275 to 276 ms
type state struct {
	next, pause, seen int64
	healed            int64 // what members carry from before is believed
	limit             float64
	burst             int
	loaned            int   // units lent since repaid was last passed
	repaid            int64 // the schedule's end at the latest loan
	win               int64 // the number of the current window
	count, before     int   // members in it and in the one before
	members           map[string]*record
	raised            bool // the latest request has made the pause longer, worth a message
}

// A record is what the store knows of a member.
type record struct {
	seq   uint64
	reply store.Reply
	last  int64 // the date of its last unit
	at    int64 // when it last asked
	win   int64 // in which window
}

// exchange is the whole law for one limit.
func (s *state) exchange(now int64, r store.Request) store.Reply {
	g := s.begin(now, &r)
	return g.end(&r, g.wait)
}

// begin is the first half of the law: the schedule is repaired, the member is found and counted, what it tells is taken
// in, and the date of what it needs is found. A repeated request stops after the second step.
func (s *state) begin(now int64, r *store.Request) grant {
	s.raised = false
	s.heal(now, r.Known)
	m := s.meet(now, r.Member)
	g := grant{state: s, now: now, every: 1e6 / float64(r.Limit), m: m, again: m.seq >= r.Seq}
	if !g.again {
		s.learn(now, r)
		g.start(r)
	}
	return g
}

// end is the second half: what the member needs and wants gets dates. latest is when the last of the limits that are
// granted together has what is needed, from now.
//
// Example: a call pays 10/s, which has a unit now, and 10,000 a day, which has one in 8 s. The second one is granted.
// The first one would expire long before the other is there, so it is not: the member asks for it again in 8 s.
func (g *grant) end(r *store.Request, latest float64) store.Reply {
	s := g.state
	switch {
	case g.again && g.m.seq == r.Seq:
		return g.m.reply
	case g.again:
		return store.Reply{Members: s.size(), Known: store.Mark{Now: g.now, Next: s.next, Pause: s.pause}}
	}
	reply := store.Reply{Members: s.size()}
	if g.wait >= latest-float64(horizon(r.Validity).Microseconds()) && g.need(r, &reply) {
		g.ahead(r, &reply)
	}
	if len(reply.Runs) > 0 {
		s.next = g.now + up(g.rel)
	}
	if s.pause > g.now {
		reply.Pause = time.Duration(s.pause-g.now) * time.Microsecond
	}
	reply.Known = store.Mark{Now: g.now, Next: s.next, Pause: s.pause}
	g.m.seq, g.m.reply = r.Seq, reply
	return reply
}

// idle reports whether the limit has been full for a minute.
func (s *state) idle(now int64) bool {
	return now-max(s.next, s.pause) > int64(float64(s.burst)*1e6/s.limit)+forget
}

// up rounds up to a microsecond: dates are never early. A rounding error of the floats is not rounded up.
func up(us float64) int64 { return int64(math.Ceil(us - 1e-6)) }

// heal repairs the schedule after the store has lost its state or its clock has gone back. What a member
// carries is believed if it is newer than what the state has seen, or from before the last repair: the members
// come one after the other, and the last one may know most.
func (s *state) heal(now int64, k store.Mark) {
	if back := s.seen - now; back > second {
		s.next, s.pause, s.repaid = s.next-back, s.pause-back, s.repaid-back
		s.healed = s.seen
	}
	if s.seen == 0 || k.Now > s.seen {
		s.healed = max(s.healed, now, k.Now)
	}
	s.seen = now
	if k.Now == 0 || k.Now > s.healed {
		return
	}
	if back := k.Now - now; back > second {
		k.Next, k.Pause = k.Next-back, k.Pause-back
	}
	s.next = max(s.next, min(k.Next, now+maxHeal))
	s.pause = max(s.pause, min(k.Pause, now+maxPause))
}

// meet finds the record of a member, and counts it in this window. Members count for two windows, 2 to 4 s, so that
// one that asks every second is always among them, and one that has died soon is not. Their records are kept
// for a minute: longer than any client repeats a request by itself.
func (s *state) meet(now int64, member string) *record {
	if win := now / window; win != s.win {
		s.before = 0
		if win == s.win+1 {
			s.before = s.count
		}
		s.win, s.count = win, 0
		for id, m := range s.members {
			if now-m.at > forget {
				delete(s.members, id)
			}
		}
	}
	m := s.members[member]
	if m == nil {
		m = &record{win: -1, last: -forget}
		if s.members == nil {
			s.members = map[string]*record{}
		}
		s.members[member] = m
	}
	if m.win != s.win {
		m.win = s.win
		s.count++
	}
	m.at = now
	return m
}

// size is how many members there are: those of this window, or of the last one if it had more.
func (s *state) size() int { return max(1, s.count, s.before) }

// learn takes in what a member tells: a changed limit, a pause, units that are back, fewer units than the burst.
// A changed limit keeps the units that are used: 10 units ahead are 100 ms at 100/s and 200 ms at 50/s.
func (s *state) learn(now int64, r *store.Request) {
	if limit := float64(r.Limit); limit != s.limit {
		if s.limit > 0 {
			s.next = now + up(float64(s.next-now)*s.limit/limit)
		}
		s.limit = limit
	}
	s.burst = r.Burst
	every := 1e6 / s.limit
	if r.Unused > 0 && s.next == r.Known.Next {
		s.next -= int64(float64(r.Unused) * every)
	}
	if r.Back > 0 {
		s.next -= int64(float64(r.Back) * every)
	}
	if r.Tighten {
		s.next = max(s.next, now+r.NotBefore.Microseconds())
	}
	if r.Pause > 0 {
		until := now + min(r.Pause.Microseconds(), maxPause)
		s.raised = until > s.pause+slack.Microseconds()
		s.pause = max(s.pause, until)
	}
}

// A grant is one exchange under way. Its dates are relative to now, as floats: absolute microseconds of our days
// leave a float no more than a quarter of one.
type grant struct {
	*state
	m     *record
	now   int64
	every float64 // microseconds a unit
	rel   float64 // the date of the next unit, from now
	wait  float64 // that of what is needed
	lent  bool    // which is on loan
	again bool    // the request was executed before, or a later one
}

// start finds the date of the next unit: not before the pause is over, and no further back than the burst. What a
// call waits for gets one date: that of the last of its units, or if it costs more than the burst that of the
// burst's last one, and the rest is a debt.
func (g *grant) start(r *store.Request) {
	next := max(g.next, g.pause, g.now-int64(float64(r.Burst-1)*g.every))
	g.rel = float64(next - g.now)
	if r.Need <= 0 {
		return
	}
	g.wait = max(0, g.rel+float64(min(r.Need, r.Burst)-1)*g.every)
	if g.lent = g.wait > 0 && g.lends(r); g.lent {
		g.wait = 0
	}
}

// need grants what a call waits for. It reports whether more may follow.
func (g *grant) need(r *store.Request, reply *store.Reply) bool {
	if r.Need <= 0 {
		return true
	}
	if most := float64(maxAhead.Microseconds()); g.wait > most {
		reply.Retry = time.Duration(g.wait-most/2) * time.Microsecond
		return false
	}
	g.rel += float64(r.Need) * g.every
	if g.lent {
		g.loaned += r.Need
		g.repaid = g.now + up(g.rel)
	}
	g.add(reply, g.wait, 0, r.Need)
	return true
}

// lends is the floor: a member that has had nothing of late gets its first units at once, though all dates near
// now are granted. The schedule moves back by as many, so in the long run nothing is added. In a short window
// it is: at most a tenth of the rate times the horizon, or one unit. A tenth of the validity is kept for that.
func (g *grant) lends(r *store.Request) bool {
	if recent := g.now - r.Validity.Microseconds(); g.pause > recent || g.m.last > recent {
		return false // after a pause all members come at once
	}
	if g.now >= g.repaid {
		g.loaned = 0
	}
	most := max(1, int(horizon(r.Validity).Seconds()*float64(r.Limit)/10))
	return g.loaned+r.Need <= most
}

// ahead grants units that no call waits for yet: up to the member's part of what lies within the horizon, so
// that nobody holds much of what others could use, and a part that is granted is soon spent. The part is rounded
// down: of 10 units for 8 members each may hold 1. If each might hold 2, those who ask first in a round would
// have 2 and the others 1, in every round.
//
// Example: 100/s and W = 250 ms make 20 units within the horizon. Of 4 members each may hold 5. If one of them
// alone wants units, it holds 5 at a time, but gets all: it asks four times as often.
func (g *grant) ahead(r *store.Request, reply *store.Reply) {
	far := float64(horizon(r.Validity).Microseconds())
	part := max(1, int(far/g.every/float64(g.size())))
	want := min(r.Want, part-r.Held-r.Need)
	if want > 0 && g.rel <= 0 {
		n := min(want, int(min(-g.rel/g.every+1e-9, 1<<30))+1)
		g.add(reply, 0, 0, n)
		g.rel, want = g.rel+float64(n)*g.every, want-n
	}
	if want > 0 && g.rel > 0 && g.rel <= far {
		n := min(want, int((far-g.rel)/g.every)+1)
		g.add(reply, g.rel, g.every, n)
		g.rel += float64(n) * g.every
	}
}

// add adds a run to the reply.
func (g *grant) add(reply *store.Reply, first, every float64, n int) {
	run := store.Run{
		First: time.Duration(up(first)) * time.Microsecond,
		Every: time.Duration(math.Ceil(every * 1000)),
		Count: n,
	}
	reply.Runs = append(reply.Runs, run)
	g.m.last = max(g.m.last, g.now+up(first+float64(n-1)*every))
}
