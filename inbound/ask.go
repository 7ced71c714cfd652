package inbound

import (
	"context"
	"fmt"
	"time"

	"github.com/go-throttle/throttle/inbound/keys"
)

// An ask is a request to the store for one key, of all requests of one cost that have come since the one before was sent.
// The lock of the key's shard guards it.
//
//	joined   requests come; it is in the link's queue      sent takes it out
//	sent     it is on its way                              finish: answer or error
//	done     requests claim what was granted               nobody has it any more
//
// One without a hand counts servers. One of no requests gives units back.
type ask struct {
	s     *stored
	hash  uint64
	tier  int
	name  string // of the key in the store
	each  int64
	hand  *hand
	ready chan struct{} // closed when it is done

	forget bool

	back int64     // of one of no requests: units that are not of the hand
	then keys.Mark // the mark of their take, or of the answer

	count int64 // requests that wait for it
	sent  time.Time
	done  bool
	left  int64 // requests that were granted, and have not claimed it yet
	err   error
}

// join makes a request wait for the next ask of its key, which the link has to send; nil: there are too many.
func (s *stored) join(hash uint64, tier int, h *held, n int64, forget bool, now time.Time) *ask {
	sh := s.hands.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	hand := s.hands.handLocked(sh, hash, now)
	if hand == nil {
		return nil
	}
	if hand.name == "" {
		hand.name, hand.tier = s.nameOf(tier, h.key), tier
	}
	for _, a := range hand.asks {
		if a.each == n && !forget && !a.forget {
			a.count++
			hand.count += n
			return a
		}
	}
	a := &ask{s: s, hash: hash, tier: tier, name: hand.name, each: n, hand: hand, count: 1, forget: forget, ready: make(chan struct{})}
	if !s.link.add(a, h.known) {
		return nil
	}
	hand.asks = append(hand.asks, a)
	hand.count += n
	return a
}

// request is what the store is asked, from now on: nobody joins any more.
func (a *ask) request(now time.Time) keys.Request {
	r := keys.Request{Key: a.name, Server: a.s.id, Each: a.each, Forget: a.forget}
	if a.hand == nil {
		a.sent, r.Laws, r.Count = now, serversLaw, a.count
		return r
	}
	sh := a.s.hands.shard(a.hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	h := a.hand
	for i, other := range h.asks {
		if other == a {
			h.asks = append(h.asks[:i:i], h.asks[i+1:]...)
			break
		}
	}
	a.sent = now
	h.out++
	r.Laws, r.Count = a.s.laws[a.tier], a.count
	if a.back > 0 {
		r.Used, r.Back, r.Then = -a.back, a.back, a.then // they were not lent
		return r
	}
	r.Used, r.Back, r.Then = h.lent-h.units, h.units, h.of
	h.lent, h.units = 0, 0
	if a.count == 0 {
		return r
	}
	if d := now.Sub(h.asked); d < holdAlone {
		target := 10 * time.Millisecond
		if h.alone {
			target = time.Second
		}
		r.Lease = int64(float64(h.count) * float64(target) / float64(max(d, time.Millisecond)))
	}
	h.asked, h.count = now, 0
	return r
}

// finish takes the answer in.
func (a *ask) finish(now time.Time, r *keys.Reply, err error) {
	if err == nil {
		err = r.Err
	}
	if a.hand == nil {
		if err == nil && len(r.Mark.Cells) == 1 && len(r.Mark.Cells[0]) == 3 {
			a.s.counted.Store(int64(max(1, r.Mark.Cells[0][1], r.Mark.Cells[0][2])))
		}
		return
	}
	sh := a.s.hands.shard(a.hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	h := a.hand
	h.out--
	a.done = true
	defer close(a.ready)
	if err == nil {
		err = a.learnLocked(now, r)
	}
	if a.err = err; err != nil {
		return
	}
	a.then, a.left = r.Mark, min(r.Granted, a.count)
	until := now
	if r.Leased > 0 {
		hold := holdShared
		if r.Alone {
			hold = holdAlone
		}
		until = a.sent.Add(hold)
	}
	if more := (r.Granted-a.left)*a.each + r.Leased; more > 0 {
		h.lent += r.Leased
		h.addLocked(a.s, a.hash, more, r.Mark, until)
	}
}

// learnLocked takes in how things stand, unless a newer answer has. It returns what is impossible.
func (a *ask) learnLocked(now time.Time, r *keys.Reply) error {
	laws, h := a.s.table.laws[a.tier], a.hand
	if r.Granted < 0 || r.Leased < 0 || r.Mark.Now <= 0 || r.Mark.Now > 9e15 || len(r.Mark.Cells) != len(laws) {
		return fmt.Errorf("%w: it granted %d requests, and lent %d units", keys.ErrKey, r.Granted, r.Leased)
	}
	cells := make(cell, wordsOf(laws))
	for i := range laws {
		if !laws[i].read(cells[laws[i].at:], r.Mark.Cells[i]) {
			return fmt.Errorf("%w: it counts %v", keys.ErrKey, r.Mark.Cells[i])
		}
	}
	if h.cells == nil || r.Mark.Now >= h.mark.Now || r.Mark.Now < h.mark.Now-1e6 {
		h.cells, h.mark, h.arrived, h.alone = cells, r.Mark, now, r.Alone
		h.lag = int64(now.Sub(a.sent) + 2*time.Microsecond) // an engine cuts off parts of a microsecond
	}
	return nil
}

// claim ends the wait of one request for an ask that is done, and says what has become of it. An error leaves it open.
func (a *ask) claim(now time.Time, v *verdict) (in bool, err error) {
	sh := a.s.hands.shard(a.hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	switch laws := a.s.table.laws[a.tier]; {
	case !a.done:
		a.count--
		return false, errLate
	case a.err != nil:
		return false, a.err
	case a.left > 0:
		a.left--
		a.hand.judge(laws, 0, now, a.left*a.each, v)
		return true, nil
	default:
		a.hand.judge(laws, a.each, now, 0, v)
		v.wait = max(1, v.wait)
		return false, nil
	}
}

// serversLaw counts servers: each takes one unit in countEach, so the larger of two windows is how many there are.
var serversLaw = []keys.Law{{Kind: keys.Sliding, Most: 1 << 20, Per: countEach.Microseconds()}}

// greets is 1 if it is time to count this server, for one caller.
func (s *stored) greets(now time.Time) int64 {
	last := s.greeted.Load()
	if now.UnixNano()-last > int64(countEach) && s.greeted.CompareAndSwap(last, now.UnixNano()) {
		return 1
	}
	return 0
}

// greeting is an ask that counts servers, this one too if it is time.
func (s *stored) greeting(counted int64) *ask {
	return &ask{s: s, name: s.nameOf(0, "\x00servers"), each: 1, count: counted}
}

// await waits for the answer, for a soft timeout since the request came at most, and says what becomes of the request.
func (a *ask) await(ctx context.Context, since time.Time, v *verdict, h *held) {
	s := a.s
	_, soft := s.link.Times()
	late := time.NewTimer(soft - time.Since(since))
	defer late.Stop()
	select {
	case <-a.ready:
	case <-ctx.Done():
	case <-late.C:
	}
	now := time.Now()
	switch in, err := a.claim(now, v); {
	case in && a.each == 0: // a look
	case in:
		h.granted, h.then = true, a.then
		s.count(a.hash, a.tier, a.each, v, h)
	case err == nil:
		s.table.turnAway(a.hash, v)
	case ctx.Err() != nil:
		v.wait = 1
		s.table.turnAway(a.hash, v)
	case a.each == 0:
		s.table.ask(a.hash, a.tier, 0, look, v)
	default:
		if err == errLate {
			a.isLate(now, soft)
		}
		s.decide(a.hash, a.tier, a.each, v, h)
	}
}

// isLate says that the store does not answer, if it was asked that long ago.
func (a *ask) isLate(now time.Time, soft time.Duration) {
	if sent := a.sentAt(); !sent.IsZero() && now.Sub(sent) >= soft-leastGap {
		a.s.link.Lost(now, sent)
	}
}

func (a *ask) sentAt() time.Time {
	sh := a.s.hands.shard(a.hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return a.sent
}
