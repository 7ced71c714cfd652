package fleet

import (
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/fleet/store"
	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/outage"
)

const (
	fade  = 500 * time.Millisecond // over which the demand is smoothed
	phi   = 0.8                    // the part of its share that a process uses without the store
	alone = 0.1                    // the part of the limit if the number of members was never known
)

// An account is the units in hand, what sends for more, and what says what may be done without them. This file has the
// sending and the saying. Its one lock guards all of it; doc.go tells the states and races.
type account struct {
	guard   limit.Guard
	owner   *Limiter
	last    time.Time // its clock, which never goes back
	limit   rate.Limit
	burst   int
	changed bool // SetLimit was called
	hand    hand
	beside  []limit.Account // who is asked or taken from at this moment, this one included; see limit.Dated
	units   int             // for so many units

	store   store.Store
	common  *breaker // of all limiters of the store
	breaker *breaker // common, or one of this limiter's own while the store answers all but this limit
	name    string
	member  string
	o       Options

	seq     uint64
	out     *exchange // the request that is out; nil: none, or it is given up
	retry   time.Time // what a call needs cannot be granted before
	apart   time.Time // until then it is not asked for together with others
	known   store.Mark
	knownAt time.Time // when that answer arrived
	members int
	closed  bool

	used    int       // units since the last request
	expired uint64    // units by then
	wasted  time.Time // when a request last found that units had expired
	asked   time.Time // when that was
	lastUse time.Time
	demand  float64 // smoothed units per second
	wanted  int     // of the last request
	got     int     // units of the newest answer
	low     int     // units in hand at which more are sent for; 0: only when a call needs some

	news struct { // for the store, sent with the next request
		pause time.Time // until when nobody may send
		tight time.Time // the next unit's date is not before; zero: nothing was advertised
		back  int
	}
	seen   names
	hears  bool // it is among the hearers, or about to be
	share  share
	err    error // of the latest answer
	lend   bool  // the latest short has said that units come without the store
	counts Stats
}

// init makes an account that has nothing. It panics for a limit that cannot be.
func (s *account) init(owner *Limiter, st store.Store, name string, r rate.Limit, burst int, o Options) {
	s.limit, s.burst = limit.CheckLimit("fleet.New", r, burst), burst
	owner.owned = limit.Own(s)
	s.owner, s.store, s.name, s.member, s.o = owner, st, name, newMember(), o
	s.common = breakerOf(st)
	s.breaker = s.common
}

// setLimit changes the rate that is used for predictions and sent along.
func (s *account) setLimit(r rate.Limit) {
	s.limit, s.changed = limit.CheckLimit("SetLimit", r, s.burst), true
}

// short sends for n units, a debt included, that are not in hand at a moment. It returns when to ask again, or a moment
// not after from if they may be used without the store. While the store answers, the moment to ask again is that of
// the soft timeout: an answer notifies before. After it the share decides, from which units may come at once.
//
// Example with a soft timeout of 20 ms: at 0 ms a call finds the hand empty, a request goes out, and the answer is
// 20 ms. At 2 ms the store's answer brings a unit dated 30 ms; the line is woken and asks again, and the unit's
// date is the answer, from the hand. Had the store been silent, the line would have asked at 20 ms, and the
// share would have said when its first unit is there. Later calls ask the share at once.
//
// Units for a moment that is further away than what is sent for now would be valid are not sent for: another limit of
// the same call is not ready before.
func (s *account) short(from time.Time, n int) time.Time {
	now := time.Now()
	s.lend = false
	if from.Sub(now) > horizon(s.o.Validity) {
		return from
	}
	s.giveUpLate(now)
	up, since, next := s.breaker.Look()
	if up {
		if s.out == nil && now.Before(s.retry) {
			s.listen()
			return s.retry
		}
		if s.out == nil {
			s.send(now, n, false)
		}
		return s.out.sent.Add(s.out.soft)
	}
	if s.breaker.Claim(now) {
		s.send(now, n, true)
	}
	if !next.After(now) {
		next = now.Add(outage.FirstGap) // somebody else's probe is under way
	}
	switch {
	case s.o.Mode == Closed:
		return limit.Latest(from, next)
	case from.Sub(now) > limit.MaxLate: // what may be used is asked when it is time
		return from
	case s.o.Mode == Alone:
		s.share.set(since, s.shareOf(), max(1, float64(s.burst)/float64(max(1, s.members))))
		if at := s.share.after(now, float64(n)); at.After(now) {
			return limit.Earliest(at, next)
		}
	}
	s.lend = true
	return from
}

// giveUpLate gives a request up that has had no answer for the soft timeout.
func (s *account) giveUpLate(now time.Time) {
	if s.out != nil && now.Sub(s.out.sent) >= s.out.soft {
		s.breaker.Lost(now, s.out.sent)
		s.out = nil
	}
}

// shareOf is the rate at which this process may go without the store.
func (s *account) shareOf() float64 {
	if n := max(s.members, s.o.Members); n > 0 {
		return float64(s.limit) * phi / float64(n)
	}
	return float64(s.limit) * alone
}

// spend gives what short has promised under the same lock, and reports whether it did. The breaker is not asked
// again, because another limiter may have found the store well in between.
func (s *account) spend(at time.Time, n int) bool {
	if !s.lend {
		return false
	}
	s.lend = false
	if s.o.Mode == Alone {
		s.share.take(at, float64(n))
	}
	s.counts.Used += uint64(n)
	s.counts.Alone += uint64(n)
	return true
}

// taken notes that n units were taken from the hand. When that runs low it sends for more, so that no call has to wait.
func (s *account) taken(at time.Time, n int) {
	s.used += n
	s.lastUse = at
	s.counts.Used += uint64(n)
	if s.hand.held <= s.low && s.low > 0 {
		s.sendAhead(time.Now())
	}
}

// returned notes that n of the units taken were not used; kept of them are in hand again.
func (s *account) returned(n, kept int) {
	s.counts.Used -= uint64(n)
	s.counts.Expired += uint64(n - kept)
	s.used = max(0, s.used-n)
}

// sendAhead sends a request that no call waits for, if none is out and the store answers.
func (s *account) sendAhead(now time.Time) {
	if l := s.limit; s.out != nil || s.closed || l <= 0 || l == rate.Inf {
		return
	}
	if up, _, _ := s.breaker.Look(); up {
		s.send(now, 0, false)
	}
}

// beyond predicts when so many units more than are in hand will be there: what is missing comes at the rate of late, but
// at least at an even share and at most at the whole rate. Example: 100/s, 4 members, 40 units a second of late: 20 units
// beyond the hand take half a second.
func (s *account) beyond(from time.Time, units float64) time.Time {
	r := float64(s.limit)
	pace := min(r, max(s.demand, r/float64(max(1, s.members))))
	if up, _, _ := s.breaker.Look(); !up {
		switch s.o.Mode {
		case Open:
			return from
		case Closed:
			return from.Add(limit.Forever)
		}
		pace = s.shareOf()
	}
	if units/pace > limit.Forever.Seconds() {
		return from.Add(limit.Forever)
	}
	return from.Add(time.Duration(units / pace * 1e9))
}

// size updates the demand, and returns how many units to have in hand: what is used within the horizon. If a call
// finds the hand empty right after the last unit was used, others wait behind it: twice as many as last time, and
// no less than an even part. If a line waits while units are there, half as many again, so that a member which
// has little gets its part. Below 4 nothing is held ahead, because too much of it would expire.
//
// If units have expired since the last request, something else holds the line, such as a local limit beside this
// one: then it is what was used since, and a quarter more. For a while after that the even part is no target.
func (s *account) size(now time.Time, need int) int {
	rtt, _ := s.breaker.Times()
	used := float64(s.used)
	if e := now.Sub(s.asked).Seconds(); !s.asked.IsZero() && e > 0 {
		sample := used / e
		s.demand = sample + (s.demand-sample)*math.Exp(-e/fade.Seconds())
	}
	s.asked, s.used = now, 0
	far := horizon(s.o.Validity).Seconds()
	want := s.demand * far
	switch {
	case need > 0 && now.Sub(s.lastUse) <= 2*rtt+time.Millisecond:
		want = max(want, 2*float64(s.wanted))
		if now.Sub(s.wasted) > 8*s.o.Validity {
			want = max(want, far*float64(s.limit)/float64(max(1, s.members)))
		}
	case need == 0 && s.guard.Watched():
		want = max(want, 1.5*float64(s.wanted))
	}
	if now.Equal(s.wasted) {
		want = min(want, 1.25*used+float64(need))
	}
	want = min(want, far*float64(s.limit), 1<<20)
	s.wanted = max(need, int(want))
	if want < 4 {
		return 0
	}
	return int(want)
}

// stats is Limiter.Stats with the lock.
func (s *account) stats(now time.Time) Stats {
	c := s.counts
	s.hand.expire(now)
	c.Held, c.Debt = s.hand.held, s.hand.debt
	c.Expired += s.hand.expired
	c.Members, c.Mode = s.members, "shared"
	if up, _, _ := s.breaker.Look(); !up {
		c.Mode = [...]string{"alone", "closed", "open"}[s.o.Mode]
	}
	c.RoundTrip, _ = s.common.Times()
	c.Err = s.err
	c.Paused = max(0, s.hand.paused.Sub(now))
	if s.limit < rate.Inf {
		c.Excess = float64(s.limit)*s.o.Validity.Seconds() + 1
	}
	return c
}
