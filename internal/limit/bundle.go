package limit

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"
)

// A Bundle is several Sets that a call pays together, each by its own amount: what a call costs, and what it holds of
// each meter. It takes from all of them or from none. The Sets may share accounts, and have Vars. It must not be changed
// once it is in use.
//
// Amounts stand in the order of the Sets. Example: requests 1/s, and tokens 100/s with a burst of 500. A call of the
// amounts 1 and 300 finds the request at once and 300 tokens in 2 s: it takes nothing and gets the moment in 2 s.
//
// # How one account is paid by several Sets
//
// All accounts are locked at once, in the order of their ranks, as those of a Set are. An account that stands in two of the
// Sets pays the sum of both amounts, in one take: two takes, one after the other, could each find enough where the sum
// is too much. Example: a pool of 500 is the meter "input" and the meter "output". A call that holds 300 and 300 waits
// for 500, the burst, and leaves a debt of 100.
//
// # Races
//
//	two takes                  the locks decide. Bundles, Sets and Vars all lock in the one order, so none waits in a circle
//	a take, Var.Set            as for a Set: the flat list is made anew if it is not that of now, under the locks
//	a take, Settle             the locks decide. Settle locks one meter's Set, and its watchers look at the line anew
type Bundle struct {
	sets   []*Set
	names  []string               // of the Sets, for errors; "": it has none
	all    Set                    // the accounts of all of them, in the order of their ranks
	stands atomic.Pointer[stands] // which of the Sets an account of all stands in
	plain  []share                // of all, if each is a Bucket that stands in one of the Sets; nil: it is not so plain
}

// A share is a Bucket that pays the amount of that number, and under the locks of all what it was before it paid.
type share struct {
	bucket *Bucket
	amount int
	count  float64
	last   time.Time
}

// stands says for each account of a flat list in which of the Sets it stands. It is kept with the list that it was made for,
// so that whoever meets another list sees that it has to be made anew. Without Vars there is one list for ever.
type stands struct {
	of *Set // the flat list, see Set.locked
	in [][]int
}

// Add adds a Set, to be paid by the next amount; a name is what errors call it. Foreign limiters in it are not paid.
func (b *Bundle) Add(name string, s *Set) {
	b.sets, b.names = append(b.sets, s), append(b.names, name)
	for _, a := range s.accounts {
		b.all.Join(a)
	}
	b.plain = b.shares()
}

// shares makes plain. An example: requests by a Bucket, and two meters that are Buckets of their own: three shares, of the
// amounts 0, 1 and 2. If both meters are one Bucket, its amount is a sum, and Pay goes the long way.
func (b *Bundle) shares() (plain []share) {
	if b.all.dyn != nil {
		return nil
	}
	in := b.placeLocked(&b.all).in // without Vars it needs no lock
	for i, a := range b.all.accounts {
		bucket, ok := a.(*Bucket)
		if !ok || len(in[i]) != 1 {
			return nil
		}
		plain = append(plain, share{bucket: bucket, amount: in[i][0]})
	}
	return plain
}

// Pay is TakeBy as of now, if the units are there, and takes nothing otherwise. It is the whole cost of a call that need not
// wait, so Buckets are asked without a detour.
func (b *Bundle) Pay(now time.Time, amounts []int) bool {
	if b.plain != nil && b.payPlain(now, amounts) {
		return true
	}
	m, err := b.TakeBy(now, now, amounts)
	return err == nil && !m.After(now)
}

// payPlain is Pay of Buckets alone. All are locked, in the order of their ranks, before the first one pays.
//
// An example: buckets of 1, 500 and 40 units, and the amounts 1, 300 and 50. The first two have them, and are left with 0 and
// 200; the third has not. The first two are again what they were, and TakeBy finds the moment when all three have theirs.
func (b *Bundle) payPlain(now time.Time, amounts []int) bool {
	for i := range b.plain {
		b.plain[i].bucket.g.mu.Lock()
	}
	defer b.unlockPlain()
	for i := range b.plain {
		p := &b.plain[i]
		s := &p.bucket.s
		p.count, p.last = s.count, s.last
		if !s.pay(now, amounts[p.amount]) {
			b.unpay(i)
			return false
		}
	}
	return true
}

// unpay makes the first n Buckets what they were before they paid. To give units back would round their counts.
func (b *Bundle) unpay(n int) {
	for _, p := range b.plain[:n] {
		p.bucket.s.count, p.bucket.s.last = p.count, p.last
	}
}

// unlockPlain unlocks what payPlain has locked.
func (b *Bundle) unlockPlain() {
	for i := range b.plain {
		b.plain[i].bucket.g.mu.Unlock()
	}
}

// Len is how many Sets there are, and so how many amounts a call has. It does not change once the Bundle is in use, as
// nothing else of it does.
func (b *Bundle) Len() int { return len(b.sets) }

// locked locks all accounts, and returns them with the Sets that they stand in. The caller unlocks them.
func (b *Bundle) locked() (*Set, [][]int) {
	s := b.all.locked()
	at := b.stands.Load()
	if at == nil || at.of != s {
		at = b.placeLocked(s)
		b.stands.Store(at)
	}
	return s, at.in
}

// placeLocked finds out for each account of s, which are locked, in which of the Sets it stands: by itself, or because
// a Var of the Set holds it. Under the locks no Var is replaced.
func (b *Bundle) placeLocked(s *Set) *stands {
	at := &stands{of: s, in: make([][]int, len(s.accounts))}
	for i, a := range s.accounts {
		for k, part := range b.sets {
			if part.has(a) || part.dyn != nil && part.dyn.holds(a) {
				at.in[i] = append(at.in[i], k)
			}
		}
	}
	return at
}

// holds reports whether one of the Vars holds a. It is asked once for each flat list, under the locks, so that a replacement
// is seen by the next take, which finds another list.
func (d *dynamic) holds(a Account) bool {
	for _, v := range d.vars {
		if v.held.Load().has(a) {
			return true
		}
	}
	return false
}

// sum is what an account pays that stands in those Sets, capped. Example: of the amounts 1, 300 and 200 an account of the
// second and third Set pays 500.
func sum(amounts []int, in []int) (n int) {
	for _, k := range in {
		if n += min(amounts[k], math.MaxInt-n); n == math.MaxInt {
			break
		}
	}
	return n
}

// TakeBy is Set.TakeBy of an amount for each Set: from all, or from none. As there, one pass finds the moment, because an
// account that is ready at a moment is ready at any later one until somebody takes.
func (b *Bundle) TakeBy(at, now time.Time, amounts []int) (time.Time, error) {
	s, in := b.locked()
	defer s.unlock()
	m, err := b.readyLocked(s, in, at, amounts)
	if err != nil {
		return m, err
	}
	return s.takeLocked(m, now, func(place int) int { return sum(amounts, in[place]) }), nil
}

// Ready is Set.Ready of an amount for each Set.
func (b *Bundle) Ready(at time.Time, amounts []int) (m time.Time, err error) {
	s, in := b.locked()
	defer s.unlock()
	return b.readyLocked(s, in, at, amounts)
}

// readyLocked is Ready for those who have the locks.
func (b *Bundle) readyLocked(s *Set, in [][]int, at time.Time, amounts []int) (m time.Time, err error) {
	for _, n := range amounts {
		if n < 0 {
			return at, errNegative(n)
		}
	}
	m = at
	asks := false
	for i, a := range s.accounts {
		n := sum(amounts, in[i])
		if err := stateOf(a).Check(n); err != nil {
			return at, b.named(err, in[i])
		}
		if s.asked(a, at, n) {
			asks = true
			continue
		}
		m = Latest(m, stateOf(a).After(at, 0, n))
	}
	if asks {
		m = s.askLocked(at, m, func(i int) int { return sum(amounts, in[i]) })
	}
	return m, nil
}

// named is an error of an account that stands in those Sets, with the name of the first that has one. Of a pool that is two
// meters that is either of them: it is their sum that is too much.
func (b *Bundle) named(err error, in []int) error {
	for _, k := range in {
		if name := b.names[k]; name != "" {
			return fmt.Errorf("throttle: meter %q: %s", name, strings.TrimPrefix(err.Error(), "throttle: "))
		}
	}
	return err
}

// GiveBack undoes an unused TakeBy that answered at. As Set.GiveBack it calls no watchers, so it may be called under the
// line's lock, which they would take.
func (b *Bundle) GiveBack(at, now time.Time, amounts []int) {
	s, in := b.locked()
	defer s.unlock()
	for i, a := range s.accounts {
		if n := sum(amounts, in[i]); n > 0 {
			stateOf(a).GiveBack(at, now, n)
		}
	}
}

// Settle corrects a take of held units as of at: n units is what it has cost. What was too much comes back, unless its
// window is over, and what was too little is taken now and may leave a debt. The watchers are called, so no lock may be
// held. Example: a window of 1,000 per minute, and a call of 0:50 that has held 500. At 0:55 it has cost 100, and 400
// units are there again. At 1:10 nothing comes back: the window of 1:00 has never been charged.
func (s *Set) Settle(at time.Time, held, n int) {
	for _, changed := range s.settleLocked(at, held, n) {
		(*changed)()
	}
}

// settleLocked is Settle without calling the watchers, which it returns. What was held and is right touches nothing.
func (s *Set) settleLocked(at time.Time, held, n int) (watchers []*func()) {
	if held == n {
		return nil
	}
	s = s.locked()
	defer s.unlock()
	now := time.Now()
	for _, a := range s.accounts {
		g, its := a.Parts()
		clock := its.Lift(now)
		if n < held {
			its.Refund(at, clock, held, held-n)
		} else {
			its.Adjust(clock, n-held)
		}
		its.Advance(clock)
		watchers = g.appendTo(watchers)
	}
	return watchers
}
