package inbound

// This file decides who has a slot: table.go tells the rules. Its functions need the lock of the shard. An example with
// two slots and a limit of 10/s burst 10:
//
//	0 s      a comes three times, and b once     both slots are taken
//	0.5 s    c comes                             all units of a and b are back. a came more than once and keeps its
//	                                             slot, c gets that of b
//	0.5 s    d comes                             c has used a unit, so d gets none: it shares
//	0.7 s    d comes again                       c's unit is back, and d gets the slot
//	61 s     e and f come                        a was silent for a minute: both get slots

// settleLocked gives a hash that is not in the table a slot, or returns -1. A look only says which slot it would be.
func (t *table) settleLocked(p place, hash uint64, tier int, at uint32, now int64, m mode) int {
	i := t.emptyLocked(p, m)
	if i >= 0 && m == look {
		return i
	}
	if i < 0 {
		if i = t.replaceLocked(p, tier, at, now); i < 0 || m == look {
			return i
		}
		if t.unusedLocked(p, i, now) {
			clear(t.cell(p.shard, i))
		}
	}
	p.tags[i], p.seen[i] = hash, visits{last: at, tier: uint16(tier)}
	return i
}

// emptyLocked returns an empty slot of the emptier set, and counts one key more; -1: there is none, or there are
// enough keys.
func (t *table) emptyLocked(p place, m mode) int {
	a, inA := p.gap(p.a)
	b, inB := p.gap(p.b)
	if inB > inA {
		a = b
	}
	switch {
	case a < 0:
		return -1
	case m == look:
		if t.keys.Load() >= t.maxKeys {
			return -1
		}
	case t.keys.Add(1) > t.maxKeys:
		t.keys.Add(-1)
		return -1
	}
	return a
}

// gap returns the first empty slot of a set and how many there are. Dropped keys leave gaps anywhere in a set.
func (p place) gap(set int) (slot, n int) {
	slot = -1
	for i, tag := range p.tags[set : set+ways] {
		if tag == 0 {
			if n++; slot < 0 {
				slot = set + i
			}
		}
	}
	return slot, n
}

// replaceLocked chooses the slot whose key has to go: an idle one if there is one, otherwise one that may be inherited; of
// these the one that was silent for longest.
func (t *table) replaceLocked(p place, tier int, at uint32, now int64) int {
	best, bestIdle, silent := -1, false, uint32(0)
	for k := range 2 * ways {
		i := p.a + k
		if k >= ways {
			i = p.b + k - ways
		}
		if p.tags[i] == 0 || p.seen[i].protected(at) {
			continue
		}
		idle := t.unusedLocked(p, i, now)
		if !idle && !t.inheritLocked(p, i, tier, at, now) {
			continue
		}
		if s := since(p.seen[i].last, at); best < 0 || idle && !bestIdle || idle == bestIdle && s > silent {
			best, bestIdle, silent = i, idle, s
		}
	}
	return best
}

// again notes one more visit.
func (v *visits) again(at uint32) {
	v.known = uint16(min(uint32(v.known&^twice)+since(v.last, at), mostKnown)) | twice
	v.last = max(v.last, at)
}

// protected reports whether a key keeps its slot while it has nothing used. One that came once does not. Others keep
// it after their last visit for twice as long as they had been known then, from a minute to two hours: a client that
// comes each ten minutes has its slot from the second visit on. A flood cannot push it out, however often each of its
// keys comes.
func (v *visits) protected(at uint32) bool {
	return v.known >= twice && since(v.last, at) < max(2*uint32(v.known-twice), leastProtected)
}

// since is the time from one moment to a later one.
func since(from, to uint32) uint32 {
	if to < from {
		return 0
	}
	return to - from
}

// inheritLocked reports whether a slot in use may go to a new key together with what is used of it. That keeps windows of
// hours and days from locking everybody out after a short flood, and makes no units: the slot still admits
// one key's limit. Its last key must have been silent for a minute, and have used at most half of each limit, so
// that nobody gets rid of what it has used up; and it must be of the same tier.
//
// Example: 5000/d window, and 65,536 keys that came once and never again. From a minute later on a new key gets a slot
// of theirs, with one unit used of 5,000, and not a part of the shared one until tomorrow.
func (t *table) inheritLocked(p place, i, tier int, at uint32, now int64) bool {
	if int(p.seen[i].tier) != tier || since(p.seen[i].last, at) < leastProtected {
		return false
	}
	cells := t.cell(p.shard, i)
	for j, laws := 0, t.laws[tier]; j < len(laws); j++ {
		c := cells[laws[j].at:]
		if rest, _ := laws[j].rest(c, now); 2*rest < laws[j].most || laws[j].kind == atOnce && c[0] > 0 {
			return false
		}
	}
	return true
}

// unusedLocked reports whether nothing of any law is used.
func (t *table) unusedLocked(p place, i int, now int64) bool {
	cells := t.cell(p.shard, i)
	for j, laws := 0, t.laws[p.seen[i].tier]; j < len(laws); j++ {
		if !laws[j].fresh(cells[laws[j].at:], now) {
			return false
		}
	}
	return true
}
