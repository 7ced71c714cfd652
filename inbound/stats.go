package inbound

import "time"

// This file counts what a table has said, and looks over all of its slots: for Stats, Forget and Cleanup.

// counts are sums over the keys of a shard.
type counts struct{ admitted, refused, newcomers uint64 }

// addLocked counts a call. One that is asked for again, while it waits, counts as what became of it last: refused at 0
// s and let in at 1 s, it moves from one count to the other. So Admitted + Refused is the number of calls, at any moment.
func (c *counts) addLocked(m mode, v *verdict) {
	switch {
	case m == look:
		return
	case v.wait == 0, m == book && v.wait != never:
		c.admitted++
		if v.refused { // asked again: a newcomer is counted already
			c.refused--
			v.refused = false
			return
		}
	case !v.refused:
		c.refused++
		v.refused = true
	default:
		return // asked again
	}
	if v.shared {
		c.newcomers++
	}
}

// stats sums up what the shards have counted. Their locks are taken one after the other, so the sums are of no single
// moment; each call is in them once or not yet.
func (t *table) stats() (s Stats) {
	s.Keys = int(t.keys.Load())
	for i := range t.shards {
		c := t.shards[i].counted()
		s.Admitted += c.admitted
		s.Refused += c.refused
		s.Newcomers += c.newcomers
	}
	return s
}

// counted returns the counts of a shard. Only this takes its lock, so that Stats holds none while it adds.
func (s *shard) counted() counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// forget frees the slot of a key, whatever is used of it. Units that a call of the key still gives back later are lost,
// unless the key has come again: then they are its.
func (t *table) forget(hash uint64) {
	p := t.find(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := p.slot(hash); i >= 0 {
		t.dropLocked(p.shard, i)
	}
}

// dropLocked empties a slot.
func (t *table) dropLocked(s *shard, i int) {
	s.tags[i], s.seen[i] = 0, visits{}
	clear(t.cell(s, i))
	t.keys.Add(-1)
}

// sweep drops idle keys that have not come for that long. A key that has used units stays, however old: to drop it would
// give the units back.
func (t *table) sweep(maxAge time.Duration) (n int) {
	for i := range t.shards {
		n += t.sweepShard(&t.shards[i], maxAge)
	}
	return n
}

func (t *table) sweepShard(s *shard, maxAge time.Duration) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := t.now()
	for i, tag := range s.tags {
		last := time.Duration(s.seen[i].last) * time.Second
		if tag != 0 && time.Duration(now)-last >= maxAge && t.unusedLocked(place{shard: s}, i, now) {
			t.dropLocked(s, i)
			n++
		}
	}
	return n
}
