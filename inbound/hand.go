package inbound

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-throttle/throttle/inbound/keys"
)

// A hand is what this server knows of one key of a store: the state in the newest answer, and the units that it holds. There
// are as many as keys were asked for of late, and no more than slots of the table. If there are enough, a new one takes the
// place of one that holds nothing.
//
// # A lease
//
// Units that were lent are used by the next requests of the key, without asking. How many are asked for is what the key needs
// in a second, by its requests since it asked last, or in 10 ms if the store has said that other servers use the key too. They
// are held for two seconds, or 20 ms, from the moment of asking. What is left then goes back with the next round trip of any
// key.
//
// Example: a client sends 5/s to one server, limit 20/s burst 20. The second request asks for 5 more, and gets 4, a fifth of
// the burst. The next four cost no round trip.
//
// What the fields say then is the state in the newest answer, as it would be now if nobody else had come, and the units in
// hand.
//
// # Locks and races
//
// Hands are divided among shards, each with a lock, which also guards the asks of its keys. The lock of the link is taken
// under it. Nothing is called out to.
//
//	answer, a request gives up      one is first. The request takes what it has got, or nobody claims it: it goes
//	                                back to the store
//	answer, answer of an older ask  the later moment of the store counts; units of both
//	lease ends, a request           one is first; what has ended is not used
//	a hand is dropped, a request    one is first; a key without a hand asks
//	answer, a Reservation ends      its units go back by the mark of the answer that granted them, and are never in hand
type hand struct {
	name string // of the key in the store
	tier int

	cells   cell      // in the newest answer; nil: there was none
	mark    keys.Mark // the same
	arrived time.Time // when it came
	lag     int64     // ns that it took at most to come, so that the engine's clock may be ahead by as much
	alone   bool      // it says that no other server uses the key
	until   time.Time // when the lease ends

	units int64     // in hand
	of    keys.Mark // of the answer that brought them, the oldest of several
	lent  int64     // that the store believes to be in hand, since the last ask
	count int64     // units that requests wanted since the last ask
	asked time.Time // when that was

	asks []*ask // not sent yet
	out  int    // asks under way
}

// hands are those of all keys.
type hands struct {
	most   int64
	n      atomic.Int64
	shards [64]handShard
}

type handShard struct {
	mu  sync.Mutex
	all map[uint64]*hand
}

// believed is how long an answer can refuse requests: what others give back, and what an operator changes, is seen then.
const believed = 10 * time.Second

func (a *hands) shard(hash uint64) *handShard { return &a.shards[hash%uint64(len(a.shards))] }

// A finding is what hands know about a request.
type finding int

const (
	open    finding = iota // the store has to be asked
	granted                // by units in hand, or nothing is wanted
	refused
)

// ask takes units in hand, or says what the newest answer says. In any case the verdict tells what is left, as far as is
// known here.
func (a *hands) ask(hash uint64, laws []law, n int64, m mode, now time.Time, v *verdict, got *held) finding {
	s := a.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.all[hash]
	if h == nil || h.cells == nil {
		v.full(laws)
		return open
	}
	if n <= h.units && now.Before(h.until) {
		if m == take {
			h.units, h.count, got.then = h.units-n, h.count+n, h.of
		}
		n = 0
	}
	h.judge(laws, n, now, 0, v)
	switch {
	case n == 0:
		return granted
	case v.wait <= h.lag || v.tightest(laws) > 0 || now.Sub(h.arrived) > believed:
		return open
	}
	return refused
}

// tightest is how many units are left of the limit that has least. While it is none, nobody takes any, so the answer that
// said so is right until one comes back; otherwise others may have taken some since.
func (v *verdict) tightest(laws []law) (n int64) {
	n = math.MaxInt64
	for i := range laws {
		n = min(n, v.rest[i])
	}
	return n
}

// full is the verdict on a key that has used nothing.
func (v *verdict) full(laws []law) {
	v.wait = 0
	for i := range laws {
		v.rest[i], v.reset[i] = laws[i].most, 0
	}
}

// judge says by the newest answer how long n units have to wait, and what is left, with the units in hand and others that
// are granted and not claimed yet.
func (h *hand) judge(laws []law, n int64, now time.Time, others int64, v *verdict) {
	at := h.mark.Now*1000 + int64(now.Sub(h.arrived))
	v.wait = 0
	for i := range laws {
		c := h.cells[laws[i].at:]
		v.wait = max(v.wait, laws[i].wait(c, at, n))
		rest, reset := laws[i].rest(c, at)
		v.rest[i], v.reset[i] = min(laws[i].most, rest+h.units+others), wholeSeconds(reset)
	}
}

// handLocked returns the hand of a key, a new one if there is none; nil: there are enough. A new one looks at a few others,
// in no order, and drops those that are of no use.
func (a *hands) handLocked(s *handShard, hash uint64, now time.Time) *hand {
	if h := s.all[hash]; h != nil {
		return h
	}
	if s.all == nil {
		s.all = map[uint64]*hand{}
	}
	tries := 4
	for other, h := range s.all {
		if h.useless(now, a.n.Load() >= a.most) {
			delete(s.all, other)
			a.n.Add(-1)
		}
		if tries--; tries == 0 {
			break
		}
	}
	if a.n.Add(1) > a.most {
		a.n.Add(-1)
		return nil
	}
	h := new(hand)
	s.all[hash] = h
	return h
}

// useless reports whether nothing is lost without it: nobody asks, nothing is in hand, and what it knows is old; or little, if
// there are enough. Units that nobody has fetched for a minute are given up; they stay used.
func (h *hand) useless(now time.Time, enough bool) bool {
	idle := now.Sub(h.asked)
	return len(h.asks) == 0 && h.out == 0 && (h.units == 0 && (enough || idle > believed) || idle > time.Minute)
}

// put gives units back that the store has granted: they are in hand, their time is over, and the link sends them back. Those that
// join a lease go back with it.
func (a *hands) put(hash uint64, n int64, then keys.Mark, now time.Time, s *stored) {
	sh := a.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if h := sh.all[hash]; h != nil && n > 0 {
		if h.units == 0 { // otherwise somebody has done so, or they join a lease
			s.link.add(&ask{s: s, hash: hash, tier: h.tier, name: h.name, hand: h, ready: make(chan struct{})}, true)
		}
		h.addLocked(s, hash, n, then, now)
	}
}

// addLocked has units more in hand, all of them until the earlier of the moments. The link knows each hand that has some.
func (h *hand) addLocked(s *stored, hash uint64, n int64, then keys.Mark, until time.Time) {
	if h.units == 0 || then.Now < h.of.Now {
		h.of = then
	}
	if h.units == 0 || until.Before(h.until) {
		h.until = until
		s.link.owe(owed{s, hash, until})
	}
	h.units += n
}

// give gives units back that nobody may use here: nobody knows how many of them still count, but the store. then is the mark
// of their take; without one all that the newest answer counts may come back.
func (a *hands) give(hash uint64, n int64, then keys.Mark, s *stored) {
	sh := a.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	h := sh.all[hash]
	if h == nil || h.cells == nil || n <= 0 {
		return
	}
	if then.Now == 0 {
		then = h.mark
	}
	s.link.give(&ask{s: s, hash: hash, tier: h.tier, name: h.name, hand: h, ready: make(chan struct{}), back: min(n, maxCost), then: then})
}

// returning is an ask that gives back what is left of a lease; nil: nothing is, or there is a newer one.
func (s *stored) returning(hash uint64, now time.Time) *ask {
	sh := s.hands.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	h := sh.all[hash]
	if h == nil || h.units == 0 || now.Before(h.until) {
		return nil
	}
	return &ask{s: s, hash: hash, tier: h.tier, name: h.name, hand: h, ready: make(chan struct{})}
}
