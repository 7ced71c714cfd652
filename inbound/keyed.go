package inbound

import (
	"fmt"
	"hash/maphash"
	"time"
)

// A Keyed is what stands behind a Limit, without HTTP: limits for each of many keys, in a fixed amount of memory. It
// is for gRPC interceptors, message queues, logins. Its methods take the time of one lock that few keys share, and
// allocate nothing. It is safe for concurrent use, starts no goroutine and needs no cleanup.
//
//	logins := inbound.NewKeyed[string](0, "5/1m burst 5", "100/24h window")
//	if !logins.Allow(user, 1) {
//		return errTooManyAttempts
//	}
//
// Keys that are equal are one key. Only hashes are kept.
type Keyed[K comparable] struct {
	table  *table
	seed   maphash.Seed
	stored *stored // nil: table counts
}

// NewKeyed returns limits, each in the words of throttle.Limit, that hold for each key; without any, every key may
// take all it wants. At most maxKeys keys have units of their own, 0: 65,536; newcomers above that share what one key
// has, see the package documentation. NewKeyed panics, naming what is wrong, if a limit does not parse, if there are
// more than three, or if maxKeys is negative.
func NewKeyed[K comparable](maxKeys int, limits ...string) *Keyed[K] {
	laws, err := newKeyedLaws(limits)
	if err == nil && (maxKeys < 0 || maxKeys > mostKeys) {
		err = fmt.Errorf("maxKeys is %d, must be from 0 to %d", maxKeys, mostKeys)
	}
	if err != nil {
		panic("throttle: inbound.NewKeyed: " + err.Error())
	}
	if maxKeys == 0 {
		maxKeys = defaultKeys
	}
	return &Keyed[K]{table: newTable([][]law{laws}, maxKeys), seed: maphash.MakeSeed()}
}

// newKeyedLaws is newLaws without requests in flight: nobody tells a Keyed when they end.
func newKeyedLaws(limits []string) ([]law, error) {
	laws, err := newLaws(limits)
	for _, l := range laws {
		if l.kind == atOnce && err == nil {
			err = fmt.Errorf("%q: a Keyed has no requests that end; a Limit has", limits)
		}
	}
	return laws, err
}

// hash is the hash of a key. Strings have a shorter way, and both are under the random seed of this Keyed, so nobody can
// choose keys that meet.
func (k *Keyed[K]) hash(key K) uint64 {
	if s, ok := any(key).(string); ok {
		return hashOf(k.seed, s, 0)
	}
	return spread(maphash.Comparable(k.seed, key), 0)
}

// Allow takes n units of a key if all of its limits have them, and reports whether it did. A negative n counts as 1.
func (k *Keyed[K]) Allow(key K, n int) bool { return k.Take(key, n) == 0 }

// Take takes n units of a key if all of its limits have them, and returns 0. Otherwise it takes nothing and returns how
// long to wait before it is worth asking again: who waits that long gets them, unless others of the key came
// first. It is negative if n can never be paid, because what it exceeds the burst or window by takes more than an hour.
// A negative n counts as 1.
func (k *Keyed[K]) Take(key K, n int) (wait time.Duration) {
	v := verdict{brief: true}
	if k.stored != nil {
		k.stored.take(k.hash(key), textOf(key), units(n), &v)
	} else {
		k.table.ask(k.hash(key), 0, units(n), take, &v)
	}
	return waitOf(v.wait)
}

// units is a cost as tables count it: a mistake does not open the door.
func units(n int) int64 {
	if n < 0 {
		return 1
	}
	return int64(n)
}

// Reserve takes n units of a key, as a debt if they are not there; the Reservation says how long to wait before using
// them. A negative n counts as 1.
func (k *Keyed[K]) Reserve(key K, n int) Reservation {
	r := Reservation{table: k.table, hash: k.hash(key), units: units(n)}
	if k.stored != nil {
		if !k.stored.reserve(&r, textOf(key)) {
			return Reservation{}
		}
		r.until = k.table.now()
		return r
	}
	k.table.ask(r.hash, 0, r.units, book, &r.verdict)
	r.until = k.table.now()
	if r.verdict.wait == never {
		r.table = nil
	} else {
		r.until += r.verdict.wait
	}
	return r
}

// Adjust corrects what a key has used, as is known afterwards: n > 0 takes n units more, as a debt if they are not there, and
// n < 0 gives −n back, at most what counts at this moment: of a window the units of the open one. A key that was forgotten, or
// has no slot, gets nothing back. A debt is remembered for a year at most.
//
// It does not know when the units were taken that it gives back. If the window may be another one by then, Reserve them and
// call [Reservation.Settle].
func (k *Keyed[K]) Adjust(key K, n int) {
	if k.stored != nil {
		k.stored.correct(k.hash(key), textOf(key), int64(n))
		return
	}
	k.table.adjust(k.hash(key), 0, int64(n))
}

// Tokens returns how many units a key could take now, by the limit that has the least left. It takes nothing, so use it
// to show what is left, not to decide. Without limits it is negative.
func (k *Keyed[K]) Tokens(key K) int {
	var v verdict
	if k.stored != nil {
		k.look(key, false, &v)
	} else {
		k.table.ask(k.hash(key), 0, 0, look, &v)
	}
	least := int64(-1)
	for i := range v.judged() {
		if least < 0 || v.rest[i] < least {
			least = v.rest[i]
		}
	}
	return int(least)
}

// Forget gives a key all its units back, as after a login that succeeded. Its slot is free.
func (k *Keyed[K]) Forget(key K) {
	if k.stored != nil {
		var v verdict
		k.look(key, true, &v)
	}
	k.table.forget(k.hash(key))
}

// Cleanup frees the slots of keys that have all their units and have not come for maxAge, and returns how many.
// Nothing needs it: an idle key gives way to a new one by itself. It takes one lock after another, each for as long
// as a few thousand keys take.
func (k *Keyed[K]) Cleanup(maxAge time.Duration) int { return k.table.sweep(maxAge) }

// Stats returns a snapshot, for metrics: how many keys there are, and how many calls were refused.
func (k *Keyed[K]) Stats() Stats { return k.table.stats() }

// A Reservation is n units of a key that are booked. Use it from one goroutine.
//
//	r := k.Reserve(customer, 1)
//	if d := r.Delay(); d < 0 || d > time.Minute {
//		r.Cancel()
//		return errTooMuch
//	}
//	time.Sleep(r.Delay())
type Reservation struct {
	table   *table // nil: nothing was booked
	hash    uint64
	units   int64
	until   int64
	verdict verdict
	stored  *stored
	held    held
}

// OK reports whether units were booked. It is false for a cost that can never be paid, and for a wait of more than a
// year.
func (r *Reservation) OK() bool { return r.table != nil }

// Delay returns how long to wait, from now, before the units may be used; 0: they may be now; negative: OK is false.
func (r *Reservation) Delay() time.Duration {
	if r.table == nil {
		return -1
	}
	return time.Duration(max(0, r.until-r.table.now()))
}

// Settle says, once, that the use of the units has cost n instead of those booked. What was too much comes back, as far as it has
// not come back by itself, and what was too little is taken now, as a debt if it is not there. A negative n leaves them as
// they are. After it Cancel does nothing.
//
//	r := k.Reserve(customer, estimate)
//	...
//	r.Settle(answer.Tokens)
func (r *Reservation) Settle(n int) {
	switch {
	case r.table == nil || n < 0:
	case r.stored != nil:
		r.stored.settle(r, int64(n))
	default:
		r.table.settle(r.hash, 0, r.units, int64(n), &r.verdict)
	}
	r.table = nil
}

// Cancel gives the units back, once. Call it only for units that were not used. What has come back by itself until then
// is not given again.
func (r *Reservation) Cancel() {
	switch {
	case r.table == nil:
	case r.stored != nil:
		r.stored.cancel(r)
	default:
		r.table.back(r.hash, 0, r.units, &r.verdict)
	}
	r.table = nil
}
