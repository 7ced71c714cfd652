package inbound

import (
	"fmt"
	"slices"
)

// This file puts new limits in the place of old ones, for keys that have used units of those.
//
// The laws of a table are read under the lock of any shard, and replaced under the locks of all: each call is judged by the old
// ones or by the new ones as a whole. That stops all calls for as long as the cells take, some milliseconds for 65,536 keys.
//
//	a take, new limits         the take is carried over, or is judged by the new ones
//	new limits, units go back  the mark of the take is of the old ones (gen): as many go back of what counts now
//	a request waits            it asks by the new ones, and the lines of the Limit are woken
//	fields                     tell of the laws that the request was judged by (verdict.laws), see policiesFor
//
// What is carried over is what was used, at most the new limit, so that nobody gets into debt by a change: who has used 60 of 100
// has 140 left of 200, or 20 of 80, or 0 of 50. Debts stay as they are. Each law goes on where one of the same time was,
// of the same kind if there are two, or else the one at its place in the list, if both times are new or gone. Another one begins
// with nothing used.

// SetLimits replaces Limits, for all keys at once and those that wait too. What a key has used stays used, at most as much as
// the new limit has: of "100/d window" with 60 used, "200/d window" leaves 140 and "50/d window" none until the window
// ends. A limit with another time is a new one, unless it is the only one at its place. Limits are written as in [Limit].Limits; if they
// make no sense the error says why, and the old ones hold on. Other tiers stay as they are. All requests of l stop for a moment, some
// milliseconds for 65,536 keys.
func (l *Limit) SetLimits(limits ...string) error {
	if err := l.compiled().change(0, limits); err != nil {
		return fmt.Errorf("throttle: inbound.Limit.SetLimits: %w", err)
	}
	return nil
}

// SetTier replaces the limits of one of Tiers while requests come, as SetLimits does. A tier that is not there is an error.
func (l *Limit) SetTier(name string, limits ...string) error {
	c := l.compiled()
	tier := c.parts[0].tiers[name]
	if tier == 0 {
		return fmt.Errorf("throttle: inbound.Limit.SetTier: %q is not in Tiers", name)
	}
	if err := c.change(tier, limits); err != nil {
		return fmt.Errorf("throttle: inbound.Limit.SetTier(%q): %w", name, err)
	}
	return nil
}

// SetLimits replaces the limits of all keys while they are in use, as [Limit.SetLimits] does.
func (k *Keyed[K]) SetLimits(limits ...string) error {
	laws, err := newKeyedLaws(limits)
	if k.stored != nil {
		err = errStored
	}
	if err != nil {
		return fmt.Errorf("throttle: inbound.Keyed.SetLimits: %w", err)
	}
	k.table.replace(0, laws)
	return nil
}

// change replaces the limits of a tier, and lets who waits ask again.
func (c *core) change(tier int, limits []string) error {
	if c.parts[0].stored != nil {
		return errStored
	}
	laws, err := newLaws(limits)
	if err != nil {
		return err
	}
	c.parts[0].table.replace(tier, laws)
	c.lines.wakeAll()
	return nil
}

// replace puts laws in the place of those of a tier.
func (t *table) replace(tier int, laws []law) {
	t.changing.Lock()
	defer t.changing.Unlock()
	all := slices.Clone(t.laws) // changed only under changing
	old := all[tier]
	all[tier] = laws
	gen := nextGen(t.gen, all)
	for k := range laws {
		if laws[k].born = gen; laws[k].kind == atOnce {
			if i := matching(laws, k, old); i >= 0 && old[i].kind == atOnce {
				laws[k].born = old[i].born
			}
		}
	}
	bind(laws, t.start)
	t.lockAll()
	defer t.unlockAll()
	t.stretchLocked(laws)
	now := t.now()
	for i := range t.shards {
		s := &t.shards[i]
		for k, tag := range s.tags {
			if tag != 0 && int(s.seen[k].tier) == tier {
				recount(laws, old, t.cell(s, k), now)
			}
		}
	}
	t.shared[tier] = slices.Grow(t.shared[tier], wordsOf(laws))[:max(wordsOf(laws), len(t.shared[tier]))]
	recount(laws, old, t.shared[tier], now)
	t.laws, t.gen = all, gen
}

// add makes one more tier.
func (t *table) add(laws []law) {
	t.changing.Lock()
	defer t.changing.Unlock()
	all := append(slices.Clone(t.laws), laws)
	gen := t.gen | nextGen(0, all)&withAtOnce // marks of others stay good
	bind(laws, t.start)
	t.lockAll()
	defer t.unlockAll()
	t.stretchLocked(laws)
	t.shared = append(t.shared, make(cell, wordsOf(laws)))
	t.laws, t.gen = all, gen
}

// stretchLocked makes room for laws that need larger cells than there are.
func (t *table) stretchLocked(laws []law) {
	words := wordsOf(laws)
	if words <= t.words {
		return
	}
	for i := range t.shards {
		s := &t.shards[i]
		wide := make([]uint64, len(s.tags)*words)
		for k := range s.tags {
			copy(wide[k*words:], t.cell(s, k))
		}
		s.words = wide
	}
	t.words = words
}

// recount makes the cells of some laws those of others, in their place.
func recount(laws, from []law, cells cell, now int64) {
	var old [maxLaws * maxLogged]uint64
	copy(old[:], cells)
	clear(cells)
	carry(laws, cells, from, old[:], now)
}

// lockAll takes the locks of all shards, in their order, and last that of the shared slots. Nobody else holds two shards'.
func (t *table) lockAll() {
	for i := range t.shards {
		t.shards[i].mu.Lock()
	}
	t.sharedMu.Lock()
}

func (t *table) unlockAll() {
	t.sharedMu.Unlock()
	for i := range t.shards {
		t.shards[i].mu.Unlock()
	}
}

// current is the laws that hold now.
func (t *table) current() [][]law {
	t.changing.Lock()
	defer t.changing.Unlock()
	return t.laws
}

// carry fills empty cells of some laws by what was used of others.
func carry(laws []law, cells cell, from []law, old cell, now int64) {
	for k := range laws {
		if i := matching(laws, k, from); i >= 0 && !from[i].fresh(old[from[i].at:], now) {
			laws[k].carry(cells[laws[k].at:], &from[i], old[from[i].at:], now)
		}
	}
}

// matching is which of the old laws goes on in the kth of the new ones; -1: none.
func matching(laws []law, k int, from []law) int {
	named := func(all []law, name string) int {
		return slices.IndexFunc(all, func(l law) bool { return l.name == name })
	}
	l := &laws[k]
	alike := func(o law) bool { return o.name == l.name && o.kind == l.kind }
	if k < len(from) && alike(from[k]) {
		return k
	}
	if i := slices.IndexFunc(from, alike); i >= 0 {
		return i
	}
	i := named(from, l.name)
	if i < 0 && k < len(from) && named(laws, from[k].name) < 0 {
		i = k
	}
	return i
}

// carry makes a cell of that of another law. If both count in the same way, units come back when they would have; otherwise they
// count as used now.
func (l *law) carry(c cell, o *law, old cell, now int64) {
	switch {
	case l.kind == atOnce || o.kind == atOnce:
		if l.kind == o.kind {
			c[0] = old[0]
		}
	case l.kind == bucket && o.kind == bucket:
		missing := o.missing(old, now)
		debt := max(0, missing-float64(o.most))
		set(c, max(now, int64(old[0])), min(missing-debt, float64(l.most))+debt)
	case l.kind == o.kind && l.per == o.per && l.kind == window:
		start, used := o.open(old, now)
		c[0], c[1] = uint64(start), uint64(l.atMost(o, used))
	case l.kind == dated && o.kind == dated && l.cal.unit == o.cal.unit && l.cal.zone.String() == o.cal.zone.String():
		start, used, _ := o.dated(old, now)
		c[0], c[1] = uint64(start), uint64(l.atMost(o, used))
	case l.kind == o.kind && l.per == o.per && l.kind == sliding:
		start, before, since := o.turn(old, now)
		c[0], c[1] = uint64(start), uint64(min(before, l.most))<<32|uint64(l.atMost(o, since))
	case l.kind == logged && o.kind == logged && l.per == o.per: // the latest moments
		n := min(l.most, o.most)
		copy(c[l.most-n:l.most], old[o.most-n:o.most])
	default:
		rest, _ := o.rest(old, now)
		var m mark
		l.take(c, now, min(o.most-rest, l.most), &m)
	}
}

// atMost is how many units of another law count: what is no debt is at most the limit.
func (l *law) atMost(o *law, used int64) int64 {
	debt := max(0, used-o.most)
	return min(used-debt, l.most) + debt
}
