package fleet

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-throttle/throttle/fleet/store"
	"github.com/go-throttle/throttle/internal/limit"
)

// This file asks for several limits of one call in one request, if the store can grant them in one step. It begins where
// one of them has to send: the queue holds the locks of all that a call pays, so it can be seen which of the others
// lack units too. Each of them has a request of its own in it, with its own number, and takes its own answer in, so all
// that doc.go says of states and races holds for each.
//
// Example: All of 10/s and 10,000 a day. A call finds both hands empty: one request for both. Both units come, dated 0
// and 40 ms, and the call goes at 40 ms. Had the second one been dated 8 s, the first one would not have been granted:
// it would have expired. It is asked for again when the second one is there.
//
//	one of the limits cannot be served   nobody knows which: they are asked for one by one for a minute
//	the same limit twice in a call       the queue pays it once
//	a limit that is alone by itself      it is not asked for together with others, and asks by itself

// A joiner is a Store that grants several limits in one step; see Store.
type joiner interface {
	ExchangeAll(ctx context.Context, names []string, rs []store.Request) ([]store.Reply, error)
}

// mostTogether is how many limits one request is for.
const mostTogether = 8

// A part is one limit's part of a request for several.
type part struct {
	s *account
	x *exchange
	r store.Request
}

// company is the parts of the others in a request that s is about to send, under the locks of all: those that lack units
// too, or in a request that is ahead of need those that will soon send one. It is nil if s goes alone.
func (s *account) company(now time.Time, need int, probe bool) (parts []part) {
	if _, ok := s.store.(joiner); !ok || probe || !s.sociable(now) {
		return nil
	}
	for _, a := range s.beside {
		o, ok := a.(*account)
		if !ok || o == s || o.common != s.common || o.out != nil || !o.sociable(now) || len(parts) == mostTogether-1 || o.name == s.name {
			continue
		}
		if slices.ContainsFunc(parts, func(p part) bool { return p.s.name == o.name }) {
			continue
		}
		o.hand.expire(now)
		short := 0
		if o.Lacks(now, o.units) {
			short = o.units + o.hand.debt
		}
		if need > 0 && (short == 0 || now.Before(o.retry)) || need == 0 && o.hand.held > 2*max(s.low, o.low) {
			continue
		}
		x, r := o.request(now, short, false)
		parts = append(parts, part{o, x, r})
	}
	return parts
}

// sociable reports whether s may be asked for together with others.
func (s *account) sociable(now time.Time) bool {
	up, _, _ := s.breaker.Look()
	return up && s.breaker == s.common && !s.closed && !now.Before(s.apart)
}

// runAll is run for several. Limits that were granted nothing, because another one takes longer, come last: when the line
// is woken it finds the other's date.
func runAll(parts []part) {
	ctx, cancel := context.WithTimeout(context.Background(), hardWait)
	defer cancel()
	names, rs := make([]string, len(parts)), make([]store.Request, len(parts))
	for i, p := range parts {
		names[i], rs[i] = p.s.name, p.r
	}
	replies, err := parts[0].s.store.(joiner).ExchangeAll(ctx, names, rs)
	if err == nil && len(replies) != len(parts) {
		err = store.ErrLimit
	}
	for _, late := range []bool{false, true} {
		for i, p := range parts {
			reply, err := store.Reply{}, err
			if err == nil {
				reply = replies[i]
				err = check(&reply, &p.r)
			}
			if late == (err == nil && len(reply.Runs) == 0) {
				p.s.update(func(now time.Time) { p.s.finishPart(now, p, &reply, err) })
			}
		}
	}
}

// finishPart is finish, but for an error that may be another limit's.
func (s *account) finishPart(now time.Time, p part, reply *store.Reply, err error) {
	if !errors.Is(err, store.ErrLimit) {
		s.finish(now, p.x, reply, err)
		return
	}
	if s.out == p.x {
		s.out = nil
	}
	s.apart = now.Add(time.Minute)
	s.news.back += p.r.Back
	if p.r.Tighten {
		s.news.tight = limit.Latest(s.news.tight, p.x.sent.Add(p.r.NotBefore))
	}
}
