package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/fleet/store"
	"github.com/go-throttle/throttle/internal/limit"
)

// This file is the way of a request to the store and of its answer back. The life of one:
//
//	send    under the account's lock: what is needed and what is to be passed on is put together
//	run     a goroutine of its own, without locks: the store is asked, for a second at most if it obeys ctx
//	finish  under the lock again: units go into the hand, and those who watch are notified after it
//
// Example with a round trip of 4 ms: a request of 0 ms is executed by the store at 3 ms, which grants a unit in 10
// ms, valid for 225 ms. The answer arrives at 4 ms. The unit may be used from 14 ms on, a millisecond later
// than the store meant, and until 0 + 10 + 225 = 235 ms, three milliseconds before the store's own end of it.
// So no clock is compared with another one, and no unit is used outside its time.

// hardWait is after what time the ctx of a request ends.
const hardWait = time.Second

// An exchange is one request under way.
type exchange struct {
	sent    time.Time
	soft    time.Duration
	breaker *breaker
	probe   bool      // the breaker's
	pause   time.Time // what it has passed on
	need    int
	want    int
}

// send starts a request for need units that a call waits for and as many more as seem useful. A request that is
// given up and replaced here goes on by itself; its units count when they come.
func (s *account) send(now time.Time, need int, probe bool) {
	parts := s.company(now, need, probe)
	x, r := s.request(now, need, probe)
	if len(parts) == 0 {
		go s.run(x, r)
		return
	}
	go runAll(append(parts, part{s, x, r}))
}

// request puts a request together.
func (s *account) request(now time.Time, need int, probe bool) (*exchange, store.Request) {
	s.hand.expire(now)
	held := s.hand.held
	if s.hand.expired > s.expired {
		s.expired, s.wasted = s.hand.expired, now
	}
	r := store.Request{
		Member: s.member, Limit: s.limit, Burst: s.burst, Validity: s.o.Validity,
		Need: need, Want: max(0, s.size(now, need)-held-need), Held: held,
	}
	_, soft := s.breaker.Times()
	x := &exchange{sent: now, soft: soft, breaker: s.breaker, probe: probe, need: need, want: r.Want}
	s.tell(&r, x, now)
	s.listen()
	s.out = x
	return x, r
}

// tell puts the news into a request, and its number. A pause stays among the news until an answer shows that it has
// arrived. Units that are back are reported once: if that request is lost they are too, because reporting them twice
// would make units of nothing.
func (s *account) tell(r *store.Request, x *exchange, now time.Time) {
	s.seq++
	s.counts.Trips++
	r.Seq, r.Known, r.Back = s.seq, s.known, s.news.back
	s.news.back = 0
	if s.news.pause.After(now) {
		r.Pause, x.pause = s.news.pause.Sub(now), s.news.pause
	}
	if t := s.news.tight; !t.IsZero() {
		r.Tighten, r.NotBefore = true, t.Sub(now)
		s.news.tight = time.Time{}
	}
}

// run is the goroutine of a request. It holds no lock while the store is asked.
func (s *account) run(x *exchange, r store.Request) {
	ctx, cancel := context.WithTimeout(context.Background(), hardWait)
	defer cancel()
	reply, err := s.store.Exchange(ctx, s.name, r)
	if err == nil {
		err = check(&reply, &r)
	}
	if x.probe {
		x.breaker.Ended()
	}
	s.update(func(now time.Time) { s.finish(now, x, &reply, err) })
}

// check returns what is impossible in a reply: a store that answers so is treated like one that fails for this limit.
func check(r *store.Reply, q *store.Request) error {
	units := 0
	for _, run := range r.Runs {
		last := float64(run.First) + float64(run.Every)*float64(max(0, run.Count-1))
		if run.Count < 0 || run.First < 0 || run.Every < 0 || last > float64(time.Hour) || run.Count > q.Need+q.Want {
			return fmt.Errorf("throttle: the store of a fleet granted %d units at %v, each %v: %w", run.Count, run.First, run.Every, store.ErrLimit)
		}
		units += run.Count
	}
	if units > q.Need+q.Want || r.Retry < 0 || r.Pause < 0 || r.Members < 1 {
		return fmt.Errorf("throttle: the store of a fleet granted %d units of %d, for %d members: %w", units, q.Need+q.Want, r.Members, store.ErrLimit)
	}
	return nil
}

// finish takes an answer in, also one that comes late. Dates count from its arrival, so they are never early, and
// their validity from the sending, so it is never long: a unit whose answer was under way for its whole
// validity is worth nothing.
func (s *account) finish(now time.Time, x *exchange, reply *store.Reply, err error) {
	if s.out == x {
		s.out = nil
	}
	took := now.Sub(x.sent)
	if err != nil || took > x.soft {
		s.counts.Failed++
	}
	if s.err = err; err != nil {
		s.failed(now, x, err)
		return
	}
	s.breaker = s.common
	s.breaker.Answered(now, took, x.soft)
	if reply.Known.Now > s.known.Now || reply.Known.Now < s.known.Now-second {
		s.known, s.knownAt = reply.Known, now
	}
	s.members = reply.Members
	if s.news.pause.Equal(x.pause) {
		s.news.pause = time.Time{}
	}
	s.retry = now.Add(reply.Retry)
	if reply.Pause > 0 {
		s.counts.Expired += uint64(s.hand.pause(now.Add(min(reply.Pause, limit.MaxBelief))))
	}
	s.addAll(now, x, reply)
	if s.news.pause.After(now) {
		s.sendAhead(now)
	}
}

// failed takes an error in. If the store has answered, and cannot serve this limit alone, this limiter goes on as if it
// were lost, and the others do not.
//
// Example: somebody has stored a text under the name of one limit of 10,000. Its requests fail after 1 ms each. With one
// breaker for all, each such error would send all limiters to their shares, until the next answer.
func (s *account) failed(now time.Time, x *exchange, err error) {
	if !errors.Is(err, store.ErrLimit) {
		s.common.Lost(now, x.sent)
		return
	}
	s.common.Answered(now, now.Sub(x.sent), x.soft)
	if s.breaker == s.common {
		s.breaker = new(breaker)
	}
	s.breaker.Lost(now, x.sent)
}

// addAll puts the granted units into the hand, and decides when to send for more: when a quarter is left, or what
// is used during one and a half round trips. Example: 48 units at 240 a second and a round trip of 10 ms: a
// quarter is 12 units, 50 ms, so the next ones are there long before.
func (s *account) addAll(now time.Time, x *exchange, reply *store.Reply) {
	got := 0
	for _, r := range reply.Runs {
		got += r.Count
		until := x.sent.Add(r.First + validity(s.o.Validity))
		if s.closed {
			continue
		}
		s.hand.add(run{first: now.Add(r.First), until: until, every: r.Every, count: r.Count})
	}
	s.counts.Granted += uint64(got)
	s.got = got
	switch rtt, _ := s.breaker.Times(); {
	case x.want == 0:
		s.low = 0
	case got == 0: // others hold what there is: ask less often
		s.low /= 2
	case got > 1:
		s.low = max(got/4, min(got/2, int(1.5*rtt.Seconds()*s.demand)), 1)
	}
}

// validity is how long after its date a unit is used at the latest: nine tenths of W, as the rest pays for units
// on loan and for timers that come late.
func validity(w time.Duration) time.Duration {
	return w/10*9 - max(0, limit.MaxLate-w/50)
}

// close is Limiter.Close. It tells the store how many units of the end of the schedule are unused; the store takes
// them back if no other member was granted units since, otherwise they expire. Those are units of the newest answer
// at most: between older ones others may have got theirs. Nothing is reported to a store that
// does not answer.
func (s *account) close() (err error) {
	var r store.Request
	up := false
	s.update(func(now time.Time) {
		if s.closed || s.limit == rate.Inf || s.limit == 0 {
			s.closed = true
			return
		}
		s.closed = true
		s.hand.expire(now)
		up, _, _ = s.breaker.Look()
		r = store.Request{
			Member: s.member, Limit: s.limit, Burst: s.burst, Validity: s.o.Validity,
			Unused: min(s.hand.empty(), s.got),
		}
		s.tell(&r, &exchange{}, now)
	})
	if !up || r.Unused+r.Back == 0 && r.Pause == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), hardWait)
	defer cancel()
	_, err = s.store.Exchange(ctx, s.name, r)
	return err
}
