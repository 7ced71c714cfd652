package inbound

import (
	"context"
	"fmt"
	"time"

	"github.com/go-throttle/throttle/inbound/keys"
)

// Sharing says where the keys of a [Keyed] are, for [NewSharedKeyed]. Its fields are those of the same names of a [Limit].
type Sharing struct {
	Store   keys.Store // not nil
	Name    string     // of the limits in it, not empty
	Mode    Mode       // what to do while it does not answer
	Servers int        // how many there are at least; 0: as many as the Store has counted
}

// NewSharedKeyed is [NewKeyed] for several servers: their limits of each key are in a store. Methods that take, look or forget may
// wait for it: one round trip, and a soft timeout of at most 100 ms. Keys are told apart by what fmt prints of them with the
// verb %#v, strings by themselves, so they must not hold pointers. Reserve makes no debts: its Reservation is OK only if the
// units are there, and Adjust and Settle take more only if there is more. NewSharedKeyed panics if NewKeyed would, or if a field of s makes no sense.
func NewSharedKeyed[K comparable](s Sharing, maxKeys int, limits ...string) *Keyed[K] {
	k := NewKeyed[K](maxKeys, limits...)
	if s.Store == nil {
		panic("throttle: inbound.NewSharedKeyed: the Store is nil")
	}
	var err error
	if k.stored, err = newStored(s.Store, s.Name, s.Mode, s.Servers, k.table, []string{""}); err != nil {
		panic("throttle: inbound.NewSharedKeyed: " + err.Error())
	}
	return k
}

// take takes units here, or from the store.
func (s *stored) take(hash uint64, key string, n int64, v *verdict) (h held) {
	now := time.Now()
	h.key = key
	s.ask(hash, 0, n, take, v, &h)
	if !h.open {
		return h
	}
	h.open = false
	if a := s.join(hash, 0, &h, n, false, now); a != nil {
		s.link.send(now)
		a.await(context.Background(), now, v, &h)
	} else {
		s.decide(hash, 0, n, v, &h)
	}
	return h
}

// look asks the store how things stand, or has it forget what is used. Without it, what is known here counts.
func (k *Keyed[K]) look(key K, forget bool, v *verdict) {
	if v.laws = &k.table.laws[0]; len(*v.laws) == 0 {
		return
	}
	hash, now := k.hash(key), time.Now()
	if !k.stored.lost(now) {
		h := held{key: textOf(key), known: true}
		if a := k.stored.join(hash, 0, &h, 0, forget, now); a != nil {
			k.stored.link.send(now)
			a.await(context.Background(), now, v, &h)
			return
		}
	}
	k.table.ask(hash, 0, 0, look, v)
}

// correct takes units more, if they are there, or gives some back with the next round trip, at most what counts then.
func (s *stored) correct(hash uint64, key string, n int64) {
	if n > 0 {
		var v verdict
		s.take(hash, key, n, &v)
		return
	}
	s.hands.give(hash, -n, keys.Mark{}, s)
	s.table.adjust(hash, 0, n)
}

// reserve is take, and keeps what settle needs.
func (s *stored) reserve(r *Reservation, key string) bool {
	if r.held = s.take(r.hash, key, r.units, &r.verdict); r.verdict.wait != 0 {
		return false
	}
	r.stored = s
	return true
}

// settle makes n units of those reserved. They go back to who has granted them.
func (s *stored) settle(r *Reservation, n int64) {
	if n >= r.units {
		s.correct(r.hash, r.held.key, n-r.units)
		return
	}
	if r.held.granted {
		s.hands.give(r.hash, r.units-n, r.held.then, s)
	}
	s.table.settle(r.hash, 0, r.held.charged, r.held.charged*n/r.units, &r.verdict)
}

// cancel is back for units that may have been taken long ago.
func (s *stored) cancel(r *Reservation) {
	if r.held.granted {
		s.hands.give(r.hash, r.units, r.held.then, s)
	}
	r.held.granted = false
	s.back(r.hash, 0, r.units, &r.verdict, &r.held)
}

// textOf is the text of a key by which all servers know it.
func textOf[K comparable](key K) string {
	if s, ok := any(key).(string); ok {
		return s
	}
	return fmt.Sprintf("%#v", key)
}
