package queue

import (
	"hash/maphash"
	"math"
	"time"

	"github.com/go-throttle/throttle/internal/account"
)

// Dropped remembers what the limiters of queues that were dropped had spent. A queue made again under
// the same key has a new limiter with all its units. Without this, a key that is dropped from a full
// table and made again at each of its calls would get a burst each time.
//
// It never lets a key have more than its limit:
//   - A record says how many units were missing and when the last of them is back. It brings a new
//     limiter into a state in which no call starts earlier than it would have before
//     (account.Set.Spend). When that moment is over the old limiter would have been as new.
//   - Records are found by a hash of the key. Keys of one hash share a record, of the larger debt.
//   - A set that is full of records still needed puts the one that is over first into its record for
//     all keys, which is of the larger debt again. So it is forgotten whose debt it is, never the debt.
//
// A key that was never dropped begins with all its units, unless its set has overflowed: then it may
// wait as another key would. With 65,536 records nobody does while 15,000 are in use, and one new key
// in 20 while 32,000 are. A record takes 16 bytes. There are as many as the table has keys, from
// the first one on that has to be kept.
//
// The zero value is ready to use. Room.Mu guards it.
type Dropped struct {
	seed maphash.Seed
	sets []recordSet
}

const (
	leastSets = 128                // 16 KiB
	nextHash  = 0x9e3779b97f4a7c15 // from the hash of a key's slowest limiter to that of the next one
)

// A recordSet is looked through as a whole. Its first record is for all keys.
type recordSet [8]record

// A record is an account.Spent. The zero record is over.
type record struct {
	sum   uint32        // of the hash
	units float32       // missing, rounded up
	until time.Duration // since Room.Base
}

// Keep remembers q, which is dropped at now from a table of so many keys.
func (d *Dropped) Keep(q *Queue, keys int, now time.Time) {
	for i, s := range q.Own.Spent(now) {
		if !s.Until.After(now) {
			continue
		}
		if d.sets == nil {
			d.seed, d.sets = maphash.MakeSeed(), make([]recordSet, max(leastSets, keys/len(recordSet{})))
		}
		set, sum := d.find(q.Key, i)
		set.put(record{sum, roundUp(s.Units), s.Until.Sub(q.Room.Base)}, now.Sub(q.Room.Base))
	}
}

// Recall makes q, which is new, begin with no more units than it would have if it had not been dropped.
func (d *Dropped) Recall(q *Queue, now time.Time) {
	if d.sets == nil {
		return
	}
	q.Own.Spend(now, func(i int) account.Spent {
		set, sum := d.find(q.Key, i)
		r := set.get(sum, now.Sub(q.Room.Base))
		return account.Spent{Units: int64(r.units), Until: q.Room.Base.Add(r.until)}
	})
}

// find returns the set and the sum of a key's limiter number i.
func (d *Dropped) find(key string, i int) (set *recordSet, sum uint32) {
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
	case place.until <= now:
	case place.sum == r.sum:
		r = r.most(*place)
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
func roundUp(units int64) float32 {
	units = min(units, 1<<62)
	f := float32(units)
	if int64(f) < units {
		f = math.Nextafter32(f, math.MaxFloat32)
	}
	return f
}
