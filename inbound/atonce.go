package inbound

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// This file bounds how many requests of a key are in flight, "4 at once". It is a law like others, whose cell has one word, the
// number in flight. A request takes a place, whatever it costs, unless it costs nothing, and gives it back when its handler
// returns, also by panic.
//
// Nobody knows when a place comes back. Its wait is the shortest there is, so that whoever may wait at all stands in line, and
// clients hear of a second. The line is woken when a handler returns.
//
//	a key with requests in flight    keeps its slot: it is neither idle nor inherited
//	a newcomer without a slot        takes one of the places that newcomers share, and gives that one back
//	new limits, requests in flight   they count on if the old limits have counted them. Others give nothing back (born)
//	a newcomer gets a slot           its requests in flight are not counted there: it may have twice as many until they end

// airborne is the mark of a place. No other mark begins so, because those begin with a moment.
const airborne = uint64(1) << 63

// newAtOnce reads "4 at once"; ok: it is of that kind.
func newAtOnce(text string) (l law, ok bool, err error) {
	words := strings.Fields(strings.ToLower(text))
	if len(words) != 3 || words[1] != "at" || words[2] != "once" {
		return l, false, nil
	}
	n, err := strconv.Atoi(words[0])
	if err != nil || n < 1 || n > maxCost || strings.Trim(words[0], "0123456789") != "" {
		return l, true, fmt.Errorf("%.100q is not a whole number from 1 to %d", words[0], maxCost)
	}
	return law{kind: atOnce, name: "at-once", words: 1, most: int64(n)}, true, nil
}

// full reports whether a visit lacks a place, so that nobody knows its wait.
func (v *visit) full() bool {
	for i, p := range v.core.parts {
		a := &v.asked[i].verdict
		laws := a.judged()
		for k := 0; !p.shadow && a.wait > 0 && k < len(laws); k++ {
			if laws[k].kind == atOnce && a.rest[k] <= 0 {
				return true
			}
		}
	}
	return false
}

// gap is how long the first in line does not ask, unless it is woken.
func (v *visit) gap() time.Duration {
	if v.full() {
		return maxAskGap
	}
	return min(time.Duration(v.wait), maxAskGap)
}

// land gives the places of a visit back, whatever its handler has done, and lets the next in line ask.
func (v *visit) land() {
	for i, p := range v.core.parts {
		if a := &v.asked[i]; a.took {
			p.table.land(a.hash, a.tier, &a.verdict)
		}
	}
	v.core.lines.wake(v.asked[0].hash)
}

// guard calls a function of the user's, before the handler, and gives the places of a visit back if it panics.
func (v *visit) guard(f func()) {
	returned := false
	defer func() {
		if !returned {
			v.land()
		}
	}()
	f()
	returned = true
}

// land gives the place of a take back, if that was one.
func (t *table) land(hash uint64, tier int, v *verdict) {
	if !v.airborne() {
		return
	}
	p := t.find(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	if v.shared {
		t.sharedMu.Lock()
		defer t.sharedMu.Unlock()
		t.landLocked(tier, t.shared[tier], v)
	} else if i := p.slot(hash); i >= 0 {
		t.landLocked(int(p.seen[i].tier), t.cell(p.shard, i), v)
	}
}

// landLocked is land in the cells of the key. The take has no place any more.
func (t *table) landLocked(tier int, cells cell, v *verdict) {
	if !v.airborne() {
		return
	}
	for _, l := range t.laws[tier] {
		if l.kind == atOnce && l.born <= v.gen && cells[l.at] > 0 {
			cells[l.at]--
		}
	}
	v.then = [maxLaws]mark{}
}

// airborne reports whether a take has got a place.
func (v *verdict) airborne() bool {
	for k := range v.then {
		if v.then[k][0] == airborne {
			return true
		}
	}
	return false
}

// withAtOnce is the lowest bit of table.gen: some of the laws need places. What is above it counts.
const withAtOnce = 1

// nextGen is the gen of a table after that of other laws.
func nextGen(gen uint32, all [][]law) uint32 {
	gen = gen&^withAtOnce + 2
	for _, laws := range all {
		for _, l := range laws {
			if l.kind == atOnce {
				gen |= withAtOnce
			}
		}
	}
	return gen
}
