package limit

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// This file is for Sets of several parts, each of which pays its own amount: what a call costs, and what it holds of each
// meter. The parts may share accounts, and have Vars.
//
// Example: requests 1/s, and tokens 100/s with a burst of 500. A call of the amounts 1 and 300 finds the request at
// once and 300 tokens in 2 s: it takes nothing and gets the moment in 2 s.
//
// An account that stands in two of the parts pays the sum of both amounts, in one take: two takes, one after the other,
// could each find enough where the sum is too much. Example: a pool of 500 is the meter "input" and the meter "output". A
// call that holds 300 and 300 waits for 500, the burst, and leaves a debt of 100.
//
// # Races
//
//	two takes         the locks decide. Sets and Vars all lock in the one order, so none waits in a circle
//	a take, Var.Set   the flat list is made anew if it is not that of now, under the locks, and so are its places
//	a take, Settle    the locks decide. Settle locks one meter's Set, and its watchers look at the line anew

// parts are those of a Set.
type parts struct {
	sets  []*Set
	names []string               // of the sets, for errors; "": it has none
	stand atomic.Pointer[places] // where the accounts of all stand
	plain []share                // of all, if each is a Bucket that stands in one of the sets; nil: it is not so plain
}

// places says for each account of a flat list in which of the parts it stands. It is kept with the list that it was made for,
// so that whoever meets another list sees that it has to be made anew. Without Vars there is one list for ever.
type places struct {
	of    *Set // the flat list, see Set.locked
	in    [][]int
	names []string // of the parts
}

// A share is a Bucket that pays the amount of that number, and under the locks of all what it was before it paid.
type share struct {
	bucket *Bucket
	amount int
	count  float64
	last   time.Time
}

// AddPart adds the accounts of other, to be paid by the next amount; a name is what errors call it. Foreign limiters in it
// are not paid. A Set that has parts gets accounts in no other way.
func (s *Set) AddPart(name string, other *Set) {
	if s.parts == nil {
		s.parts = new(parts)
	}
	p := s.parts
	p.sets, p.names = append(p.sets, other), append(p.names, name)
	p.stand.Store(nil)
	for _, a := range other.accounts {
		s.Join(a)
	}
	s.sole, p.plain = nil, nil
	if s.dyn == nil {
		p.plain = p.shares(s)
	}
}

// shares makes plain. An example: requests by a Bucket, and two meters that are Buckets of their own: three shares, of the
// amounts 0, 1 and 2. If both meters are one Bucket, its amount is a sum, and Pay goes the long way.
func (p *parts) shares(s *Set) (plain []share) {
	in := p.placesLocked(s).in // without Vars it needs no lock
	for i, a := range s.accounts {
		bucket, ok := a.(*Bucket)
		if !ok || len(in[i]) != 1 {
			return nil
		}
		plain = append(plain, share{bucket: bucket, amount: in[i][0]})
	}
	return plain
}

// pay is Pay of Buckets alone. All are locked, in the order of their ranks, before the first one pays.
//
// An example: buckets of 1, 500 and 40 units, and the amounts 1, 300 and 50. The first two have them, and are left with 0 and
// 200; the third has not. The first two are again what they were, and TakeBy finds the moment when all three have theirs.
func (p *parts) pay(now time.Time, amounts []int) bool {
	for i := range p.plain {
		p.plain[i].bucket.g.mu.Lock()
	}
	defer p.unlock()
	for i := range p.plain {
		one := &p.plain[i]
		s := &one.bucket.s
		one.count, one.last = s.count, s.last
		if !s.pay(now, amounts[one.amount]) {
			p.unpay(i)
			return false
		}
	}
	return p.plain != nil
}

// unpay makes the first n Buckets what they were before they paid. To give units back would round their counts.
func (p *parts) unpay(n int) {
	for _, one := range p.plain[:n] {
		one.bucket.s.count, one.bucket.s.last = one.count, one.last
	}
}

// unlock unlocks what pay has locked.
func (p *parts) unlock() {
	for i := range p.plain {
		p.plain[i].bucket.g.mu.Unlock()
	}
}

// placesLocked finds out for each account of a flat list, which are locked, in which of the parts it stands: by itself, or
// because a Var of the part holds it. Under the locks no Var is replaced.
func (p *parts) placesLocked(s *Set) *places {
	at := p.stand.Load()
	if at != nil && at.of == s {
		return at
	}
	at = &places{of: s, in: make([][]int, len(s.accounts)), names: p.names}
	for i, a := range s.accounts {
		for k, part := range p.sets {
			if part.has(a) || part.dyn != nil && part.dyn.holds(a) {
				at.in[i] = append(at.in[i], k)
			}
		}
	}
	p.stand.Store(at)
	return at
}

// holds reports whether one of the Vars holds a. It is asked once for each flat list, under the locks, so that a replacement
// is seen by the next take, which finds another list.
func (d *dynamic) holds(a Account) bool {
	return slices.ContainsFunc(d.vars, func(v *Var) bool { return v.held.Load().has(a) })
}

// A bill is what the accounts of a flat list pay, by their places in it. That of a Set without parts has one amount; the zero
// bill is nothing.
type bill struct {
	amounts []int
	parts   *places // nil: the first amount is for all
}

// billed locks all accounts that are to be paid, and returns them with what they pay. The caller unlocks them.
func (s *Set) billed(amounts []int) (*Set, bill) {
	flat, b := s.locked(), bill{amounts: amounts}
	if s.parts != nil {
		b.parts = s.parts.placesLocked(flat)
	}
	return flat, b
}

// of is what the account at a place pays, capped. Example: of the amounts 1, 300 and 200 an account of the second and third
// part pays 500.
func (b bill) of(place int) (n int) {
	switch {
	case b.amounts == nil:
		return 0
	case b.parts == nil:
		return b.amounts[0]
	}
	for _, k := range b.parts.in[place] {
		n += min(b.amounts[k], math.MaxInt-n)
	}
	return n
}

// named is an error of the account at a place, with the name of the first part in which it stands that has one. Of a pool
// that is two meters that is either of them: it is their sum that is too much.
func (b bill) named(err error, place int) error {
	if b.parts == nil {
		return err
	}
	for _, k := range b.parts.in[place] {
		if name := b.parts.names[k]; name != "" {
			return fmt.Errorf("throttle: meter %q: %s", name, strings.TrimPrefix(err.Error(), "throttle: "))
		}
	}
	return err
}
