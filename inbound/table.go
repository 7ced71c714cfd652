package inbound

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// A table holds what keys have used, in a fixed amount of memory. A key is known by a hash of 64 bits under a random
// seed; the key itself is not kept. Its slot has 16 bytes and a cell for each limit: 16 bytes, or 8 for each unit of a sliding
// limit that is logged.
//
// # Where a key is
//
// Slots come in sets of eight. A hash names two sets, and the key is in one of the 16 slots or nowhere. Two sets
// instead of one fill evenly: with a third of the slots free, which is so where memory allows, a key finds a slot
// until there are MaxKeys keys (see slotsFor). A counter bounds them to exactly that many.
//
// # The states of a slot
//
//	empty      nobody has it
//	in use     units of its key have not come back yet
//	idle       all have
//	protected  its key has come at least twice, and not too long ago (see protected)
//
// What happens to a key that is not in the table, in this order:
//
//	an empty slot, and fewer than MaxKeys keys   it gets the slot
//	an idle slot that is not protected           it gets the slot; who had it loses nothing
//	a slot in use that was silent for long       it gets the slot and what is used of it (see inheritLocked)
//	none of these                                it shares one slot with all others that find none
//
// So what a table admits is at most one key's limit for each of MaxKeys slots, and once more for all others together.
// A flood of new keys fills it, and goes on in the shared slot. Who was there before keeps its slot, and what it has
// left.
//
// # Locks and races
//
// The sets are divided among shards, each with a lock; both sets of a hash are in one shard, so an operation on a key
// takes one lock. The shared slots of the tiers have one more, which is taken under a shard's. Nothing is called out
// to under a lock. The moment is read before the lock, so moments arrive out of order; a cell never goes back.
//
//	two calls of one key          one is first under the lock; the other sees what it has taken
//	two new keys, one free slot   the first gets it
//	a key loses its slot while    the call's units go back to whoever has the key's hash now: nobody. They stay
//	a call wants to undo a take   used in the slot, to be on the safe side
//	Cleanup, a call               one is first; a key that is swept comes back as new, and only idle keys are swept
type table struct {
	laws    [][]law // by tier; at least one. These three are changed under all locks, see change.go
	words   int     // of a slot's cells: those of the tier that has most
	gen     uint32  // how often the laws have changed, and whether some are atOnce (see nextGen)
	maxKeys int64
	keys    atomic.Int64
	shards  []shard
	sets    uint64 // of each shard
	start   func() time.Time

	changing sync.Mutex // held by who replaces laws, before all others

	sharedMu sync.Mutex
	shared   []cell // by tier, each one a slot's
}

const (
	ways    = 8
	maxLaws = 3 // 16 bytes and three cells of 16 are 64 bytes

	mostBooked = int64(365 * 24 * time.Hour) // ns: no debt grows beyond what can be counted

	leastProtected = 60   // s
	mostKnown      = 3600 // s
	twice          = 1 << 15
)

// A shard is a part of the table with a lock of its own.
type shard struct {
	mu    sync.Mutex
	tags  []uint64 // hashes, eight of a set side by side; 0: empty
	seen  []visits
	words []uint64 // the cells, those of a slot side by side
	count counts
	_     [32]byte // so that two locks are not on one cache line
}

// visits are when a key has come, in whole seconds.
type visits struct {
	last  uint32 // since the table's first use
	known uint16 // from its first visit to the last, at most mostKnown; with twice if it has come more than once
	tier  uint16 // the laws that its cells are read by
}

// newTable makes a table for at most maxKeys keys.
func newTable(laws [][]law, maxKeys int) *table {
	t := &table{laws: laws, gen: nextGen(0, laws), maxKeys: int64(maxKeys), start: sync.OnceValue(time.Now)}
	for _, l := range laws {
		bind(l, t.start)
		words := wordsOf(l)
		t.words, t.shared = max(t.words, words), append(t.shared, make(cell, words))
	}
	slots := slotsFor(maxKeys, 16+8*t.words)
	shards := min(max(1, slots/1024), 64)
	t.sets = uint64(max(2, (slots+shards*ways-1)/(shards*ways)))
	t.shards = make([]shard, shards)
	for i := range t.shards {
		n := int(t.sets) * ways
		t.shards[i].tags, t.shards[i].seen = make([]uint64, n), make([]visits, n)
		t.shards[i].words = make([]uint64, n*t.words)
	}
	return t
}

// wordsOf is how many words the cells of some laws have together.
func wordsOf(laws []law) (n int) {
	for _, l := range laws {
		n += l.words
	}
	return n
}

// cell returns the cells of a slot, one after the other.
func (t *table) cell(s *shard, i int) cell { return s.words[i*t.words : (i+1)*t.words] }

// slotsFor is how many slots a table has: half as many more than keys, or up to 4,096 more, as far as 64 bytes a key and
// room for 12,800 slots of at least that size beside them go, which is 800 kB for slots of up to 64 bytes. The rest of the
// megabyte that a table may take is for shards and rounding. With 65,536 keys none of them is without a slot if there are
// one or two limits, and 1 in 700 if there are three or a log; of a million keys it is 1 in 28.
func slotsFor(maxKeys, size int) int {
	spare := maxKeys*max(0, 64-size) + 12_800*max(64, size)
	return max(2*ways, maxKeys+min(max(maxKeys/2, min(3*maxKeys, 4096)), spare/size))
}

// now is the moment, in ns since the table was first asked. In a testing/synctest bubble that is the bubble's clock.
func (t *table) now() int64 { return max(0, int64(time.Since(t.start()))) }

// A place is where a hash may be: two sets of a shard, by the number of their first slots.
type place struct {
	*shard
	a, b int
}

// find returns the place of a hash. Which shard and sets that are depends on the hash alone, so a key is always looked for
// where it was put. Nobody knows the seed, so nobody can choose keys that all have one place.
//
// Its parts choose shard and sets by multiplication, so the number of sets need not be a power of two. The second set
// depends on all bits, in another order, and is another one: a table of 16 slots is looked through as a whole.
func (t *table) find(hash uint64) place {
	s, low := bits.Mul64(hash, uint64(len(t.shards)))
	a, _ := bits.Mul64(low, t.sets)
	b, _ := bits.Mul64((hash^hash>>29)*0x9e3779b97f4a7c15, t.sets)
	if a == b {
		b = (a + 1) % t.sets
	}
	return place{&t.shards[s], int(a) * ways, int(b) * ways}
}

// slot returns the number of the hash's slot, or -1.
func (p place) slot(hash uint64) int {
	for i, tag := range p.tags[p.a : p.a+ways] {
		if tag == hash {
			return p.a + i
		}
	}
	for i, tag := range p.tags[p.b : p.b+ways] {
		if tag == hash {
			return p.b + i
		}
	}
	return -1
}

// A mode is what an operation does with units.
type mode uint8

const (
	take mode = iota // takes them if all laws have them
	look             // takes nothing
	book             // takes them in any case
)

// A verdict is what a table says of one call.
type verdict struct {
	wait    int64           // ns until the units fit; 0: they do
	gen     uint32          // of the laws that it was judged by
	shared  bool            // the key has no slot of its own
	refused bool            // the call is counted as refused; kept from one ask to the next
	noted   bool            // the visit of the key is noted already
	brief   bool            // asked for: rest and reset only if the units do not fit, as nobody reads them otherwise
	rest    [maxLaws]int64  // units left
	reset   [maxLaws]uint32 // s until the law's reset, rounded up
	then    [maxLaws]mark   // of the units that were taken, for back
	laws    *[]law          // those that it was judged by, with rest and reset
}

// judged is these laws; none: nobody needed rest and reset.
func (v *verdict) judged() []law {
	if v.laws == nil {
		return nil
	}
	return *v.laws
}

// ask is the one way in: it takes n units of a key, or says how long to wait. The moment is read before the lock: a
// caller that waits for the lock for a microsecond is judged as of a microsecond ago, which is never too generous.
//
// A look at a key that is not in the table says what a take would find there: all units in an empty or idle slot, what
// is left in one that would be inherited, or the shared slot.
func (t *table) ask(hash uint64, tier int, n int64, m mode, v *verdict) {
	now := t.now()
	p := t.find(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	at := uint32(now / int64(time.Second))
	i := p.slot(hash)
	switch {
	case i >= 0:
		if int(p.seen[i].tier) != tier {
			t.switchLocked(p, i, tier, now)
		}
		if m != look && !v.noted {
			p.seen[i].again(at)
		}
	default:
		if i = t.settleLocked(p, hash, tier, at, now, m); i < 0 {
			t.askShared(tier, n, now, m, v)
			p.count.addLocked(m, v)
			return
		}
	}
	v.shared = false
	if p.tags[i] != hash { // a look at what a new key would find
		clean := [maxLaws * maxLogged]uint64{}
		if p.tags[i] != 0 && !t.unusedLocked(p, i, now) {
			copy(clean[:], t.cell(p.shard, i))
		}
		t.judgeLocked(tier, clean[:], n, now, look, v)
		return
	}
	t.judgeLocked(tier, t.cell(p.shard, i), n, now, m, v)
	p.count.addLocked(m, v)
}

// askShared is ask for a key without a slot.
func (t *table) askShared(tier int, n, now int64, m mode, v *verdict) {
	t.sharedMu.Lock()
	defer t.sharedMu.Unlock()
	v.shared = true
	t.judgeLocked(tier, t.shared[tier], n, now, m, v)
}

// judgeLocked asks all laws, and takes from all or from none.
func (t *table) judgeLocked(tier int, cells cell, n, now int64, m mode, v *verdict) {
	v.wait, v.gen, v.laws = 0, t.gen, &t.laws[tier]
	laws := *v.laws
	for i := range laws {
		v.wait = max(v.wait, laws[i].wait(cells[laws[i].at:], now, n))
	}
	if m == book && v.wait > mostBooked {
		v.wait = never
	}
	if m == book && v.wait != never || m == take && v.wait == 0 {
		for i := range laws {
			laws[i].take(cells[laws[i].at:], now, n, &v.then[i])
		}
	}
	if v.brief && v.wait == 0 {
		return
	}
	for i := range laws {
		rest, reset := laws[i].rest(cells[laws[i].at:], now)
		v.rest[i], v.reset[i] = rest, wholeSeconds(reset)
	}
}

// wholeSeconds rounds up.
func wholeSeconds(ns int64) uint32 {
	return uint32(min((ns+int64(time.Second)-1)/int64(time.Second), 1<<31))
}

// back returns n units of a call that was admitted and does not go. It counts as refused then, and the verdict says
// what is left.
func (t *table) back(hash uint64, tier int, n int64, v *verdict) {
	now := t.now()
	p := t.find(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count.admitted--
	p.count.refused++
	v.refused = true
	if v.shared {
		t.sharedMu.Lock()
		defer t.sharedMu.Unlock()
		t.correctLocked(tier, t.shared[tier], now, n, 0, v)
		t.landLocked(tier, t.shared[tier], v)
		t.judgeLocked(tier, t.shared[tier], 0, now, look, v)
	} else if i := p.slot(hash); i >= 0 {
		t.lessLocked(p, i, tier, now, n, 0, v)
		tier = int(p.seen[i].tier)
		t.landLocked(tier, t.cell(p.shard, i), v)
		t.judgeLocked(tier, t.cell(p.shard, i), 0, now, look, v)
	}
}

// turnAway counts a call that is refused without having been asked for, once. Such calls are those that find a line
// before them which is too long.
func (t *table) turnAway(hash uint64, v *verdict) {
	if v.refused {
		return
	}
	p := t.find(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count.refused++
	v.refused = true
}

// hashOf is the hash of a key in a tier. 0 means empty, so it is nobody's hash. Tiers are apart: a key that changes its
// tier begins anew.
//
// Two keys with one hash are one key. With 65,536 keys in a table and 10^8 others that come, the probability that any of
// these meets one that is there is 65,536 · 10^8 ÷ 2^64, which is 4·10^-7.
func hashOf(seed maphash.Seed, key string, tier int) uint64 {
	return spread(maphash.String(seed, key), tier)
}

func spread(hash uint64, tier int) uint64 {
	return max(1, hash^uint64(tier)*0xd6e8feb86659fd93)
}
