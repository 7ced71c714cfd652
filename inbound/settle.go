package inbound

import "slices"

// This file corrects what a key has used, once it is known what a request has cost. There are two ways:
//
//	settle   of units that are known by the mark of their take: what is too much goes back as far as it has not come back by
//	         itself, as if less had been taken then
//	adjust   of units of a key, whenever they were taken: what counts at this moment goes back, at most all of it
//
// What is too little is taken now, in both ways, whether it is there or not. Nothing of it is a visit: it neither protects a slot
// nor counts in Stats.
//
//	the key's slot is gone, units go back    nobody gets them: they went with the slot, or stay used in it
//	the slot is gone, more was used          the key gets a slot as a new one does, or shares
//	units came from the shared slot          settle corrects that one; adjust cannot know, and gives nothing back
//
// Example: 1000/h window, 400 units held at 0:10, and 150 used as is known at 0:12. 250 go back, to whom is there. At
// 1:15 nothing would: that window was never charged.

// settle corrects a take of held units that has cost n.
func (t *table) settle(hash uint64, tier int, held, n int64, v *verdict) {
	if n == held {
		return
	}
	now := t.now()
	p := t.find(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case v.shared:
		t.sharedMu.Lock()
		defer t.sharedMu.Unlock()
		t.correctLocked(tier, t.shared[tier], now, held, n, v)
	case n > held:
		t.moreLocked(p, hash, tier, now, n-held)
	default:
		if i := p.slot(hash); i >= 0 {
			t.lessLocked(p, i, tier, now, held, n, v)
		}
	}
}

// lessLocked makes n units of held ones in a slot. If its key has another plan by now, as many go back of what counts: a slot stays
// with its plan, as one of fewer units would forget what is used above them.
func (t *table) lessLocked(p place, i, tier int, now, held, n int64, v *verdict) {
	if own := int(p.seen[i].tier); own != tier {
		give(t.laws[own], t.cell(p.shard, i), now, held-n)
		return
	}
	t.correctLocked(tier, t.cell(p.shard, i), now, held, n, v)
}

// adjust takes n units more of a key, or gives −n back.
func (t *table) adjust(hash uint64, tier int, n int64) {
	now := t.now()
	p := t.find(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > 0 {
		t.moreLocked(p, hash, tier, now, n)
	} else if i := p.slot(hash); i >= 0 {
		give(t.laws[tier], t.cell(p.shard, i), now, -max(n, -maxCost))
	}
}

// moreLocked takes n units more of a key, which gets a slot if it has none.
func (t *table) moreLocked(p place, hash uint64, tier int, now, n int64) {
	i := p.slot(hash)
	if i < 0 {
		i = t.settleLocked(p, hash, tier, uint32(now/1e9), now, book)
	}
	if i >= 0 {
		t.correctLocked(int(p.seen[i].tier), t.cell(p.shard, i), now, 0, n, nil)
		return
	}
	t.sharedMu.Lock()
	defer t.sharedMu.Unlock()
	t.correctLocked(tier, t.shared[tier], now, 0, n, nil)
}

// correctLocked makes n units of held ones. The verdict is used only if that is less.
func (t *table) correctLocked(tier int, cells cell, now, held, n int64, v *verdict) {
	laws := t.laws[tier]
	switch {
	case n > held:
		for k := range laws {
			laws[k].charge(cells[laws[k].at:], now, n-held)
		}
	case v.gen != t.gen: // the mark is of other laws
		give(laws, cells, now, held-n)
	default:
		for k := range laws {
			laws[k].back(cells[laws[k].at:], v.then[k][:], now, held, held-n)
		}
	}
}

// give gives back n of the units that count now.
func give(laws []law, cells cell, now, n int64) {
	for k := range laws {
		laws[k].give(cells[laws[k].at:], now, n)
	}
}

// charge takes n units that were used already, whether they fit or not. More than what comes back in a year is not remembered, so
// that no debt grows beyond what can be counted.
func (l *law) charge(c cell, now, n int64) {
	most := float64(l.most)
	switch l.kind {
	case bucket:
		most += l.perNs * float64(mostBooked)
	case atOnce:
		return
	default:
		most += most * float64(mostBooked/l.per)
	}
	if l.wait(c, now, 1) <= mostBooked {
		var m mark
		l.take(c, now, min(n, int64(min(most, maxCost))), &m)
	}
}

// give gives back n of the units that count now, whoever took them. Of an estimate these are the latest, of a log the oldest,
// as in throttle.SlidingWindow: so those that stay are remembered longest, and no window holds too many.
func (l *law) give(c cell, now, n int64) {
	switch l.kind {
	case logged:
		l.giveLogged(c, now, n)
	case sliding:
		start, before, since := l.turn(c, now)
		newer := min(n, since)
		c[0], c[1] = uint64(start), uint64(max(0, before-(n-newer)))<<32|uint64(since-newer)
	default:
		then := [2]uint64{c[0], c[1]}
		l.back(c, then[:], now, n, n)
	}
}

// giveLogged reduces a debt first, by whole windows and then unit by unit. Example: 3/10s, five units of 0 s are 10 20 20. Of
// these one goes back: 10 10 20, and three more: 0 0 10.
func (l *law) giveLogged(c cell, now, n int64) {
	log := c[:l.most]
	if windows := min(n/l.most, (int64(log[0])-now-1)/l.per); windows > 0 {
		n -= windows * l.most
		for i := range log {
			log[i] -= uint64(windows * l.per)
		}
	}
	for ; n > 0 && int64(log[l.most-1]) > now+l.per; n-- {
		log[l.most-1] -= uint64(l.per)
		slices.Sort(log)
	}
	for i := range log {
		if int64(log[i]) > now && n > 0 {
			log[i], n = uint64(now), n-1
		}
	}
}
