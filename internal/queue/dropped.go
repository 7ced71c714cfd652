package queue

import (
	"hash/maphash"
	"math"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// dropped remembers what the limiters of queues that were dropped had spent. A queue made again under
// the same key has a new limiter with all its units. Without this, a key that is dropped from a full
// table and made again at each of its calls would get a burst each time.
//
// It never lets a key have more than its limit:
//   - A record says how many units were missing and when the last of them is back. It brings a new
//     limiter into a state in which no call starts earlier than it would have before
//     (limit.Set.Spend). When that moment is over the old limiter would have been as new.
//   - Records are found by a hash of the key. Keys of one hash share a record, of the larger debt.
//   - A set that is full of records still needed puts the one that is over first into its record for
//     all keys, which is of the larger debt again. So it is forgotten whose debt it is, never the debt.
//
// A key that was never dropped begins with all its units, unless its set has overflowed: then it may
// wait as another key would. With 65,536 records nobody does while 15,000 are in use, and one new key
// in 20 while 32,000 are. A record takes 16 bytes. There are as many as the table has keys, from
// the first one on that has to be kept.
//
// The zero value is ready to use. The lock of the table guards it.
type dropped struct {
	seed maphash.Seed
	sets []recordSet
}

const (
	leastSets = 128                // 16 KiB
	nextHash  = 0x9e3779b97f4a7c15 // from the hash of a key's slowest limiter to that of the next one
)

// A recordSet is looked through as a whole. Its first record is for all keys.
type recordSet [8]record

// A record is a limit.Spent. The zero record is over.
type record struct {
	sum   uint32        // of the hash
	units float32       // missing, rounded up
	until time.Duration // since common.base
}

// keep remembers q, which is dropped at now from a table of so many keys.
// An example: a Bucket of 10/s and burst 100 that has spent 60 units is kept as 60 units until now + 6
// s. A Bucket that is full owes nothing and needs no record.
func (d *dropped) keep(q *Queue, keys int, now time.Time) {
	for name, own := range q.ownSets {
		for i, s := range own.Spent(now) {
			if !s.Until.After(now) {
				continue
			}
			if d.sets == nil {
				d.seed, d.sets = maphash.MakeSeed(), make([]recordSet, max(leastSets, keys/len(recordSet{})))
			}
			set, sum := d.find(name, i)
			set.put(record{sum, roundUp(s.Units), s.Until.Sub(q.common.base)}, now.Sub(q.common.base))
		}
	}
}

// ownSets yields the limiters that no other key pays: those that are paid by cost, under the key, and each meter's under
// another name.
//
// An example: a key has 10/s, and meters of input and output tokens. Its records are those of "key", "key\x00input" and
// "key\x00output", so that the limiters of two meters are not mistaken for each other whatever their rates are.
func (q *Queue) ownSets(yield func(name string, s *limit.Set) bool) {
	if !yield(q.key, q.own) || q.meters == nil {
		return
	}
	for _, one := range q.meters.each {
		if !yield(q.key+"\x00"+one.Name, one.Limits) {
			return
		}
	}
}

// recall makes q, which is new, begin with no more units than it would have if it had not been dropped.
// Records are not taken out when they are read: if the key is dropped again it has at least that debt,
// or the record is over.
func (d *dropped) recall(q *Queue, now time.Time) {
	if d.sets == nil {
		return
	}
	for name, own := range q.ownSets {
		own.Spend(now, func(i int) limit.Spent {
			set, sum := d.find(name, i)
			r := set.get(sum, now.Sub(q.common.base))
			return limit.Spent{Units: int64(r.units), Until: q.common.base.Add(r.until)}
		})
	}
}

// find returns the set and the sum of a key's limiter number i.
// The low bits choose the set, the high ones the sum. Two keys share a record if both agree: among 8
// records of a set that is one chance in 600 million. The seed is random, so nobody can choose hosts
// that meet in one set.
func (d *dropped) find(key string, i int) (set *recordSet, sum uint32) {
	h := maphash.String(d.seed, key) + uint64(i)*nextHash
	return &d.sets[h%uint64(len(d.sets))], uint32(h >> 32)
}

// get returns the larger debt of those records that may be meant by sum and are not over.
func (s *recordSet) get(sum uint32, now time.Duration) (r record) {
	for i, its := range s {
		if (i == 0 || its.sum == sum) && its.until > now {
			r = r.most(its)
		}
	}
	return r
}

// put enters r in the place of its sum, or of the record that is over first.
//
// An example with seven places taken, all needed until 12:05 or later but one, of 12 units until 12:01.
// A new record of 3 units until 12:09 takes that place. What was there goes into record 0: 12 units
// until 12:01. The next one that must give way, 5 units until 12:06, makes record 0 12 units until
// 12:06. Until then every key of this set begins with 12 units missing or more: too many for most of
// them, too few for none.
func (s *recordSet) put(r record, now time.Duration) {
	place := &s[1]
	for i := range s[1:] {
		its := &s[1+i]
		if its.sum == r.sum {
			place = its
			break
		}
		if its.until < place.until {
			place = its
		}
	}
	switch {
	// what was there is over: nothing to keep
	case place.until <= now:
	case place.sum == r.sum:
		r = r.most(*place)
	// the record for all keys is over: it begins anew with what gives way
	case s[0].until <= now:
		s[0] = *place
	default:
		s[0] = s[0].most(*place)
	}
	*place = r
}

// most is the larger debt of the two in both respects.
func (r record) most(other record) record {
	return record{r.sum, max(r.units, other.units), max(r.until, other.until)}
}

// roundUp is exact up to 16 million.
// A float32 has 24 bits: 16,777,217 becomes 16,777,218. A debt may be made larger, never smaller.
func roundUp(units int64) float32 {
	units = min(units, 1<<62)
	f := float32(units)
	if int64(f) < units {
		f = math.Nextafter32(f, math.MaxFloat32)
	}
	return f
}
