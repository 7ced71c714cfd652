package inbound

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// This file is Limit.Plan: which limits a key has is asked of a function of the user's, and remembered for a while. Each list of
// limits is a tier of the table, so a key's slot says by which laws its cells count; the first call under another plan carries
// them over, as new limits do (see change.go).
//
// # States of a key, locks and races
//
//	unknown   its first request asks, and all others of it wait for the answer, or until their clients leave
//	known     for PlanFor after an answer, and for a second after an error
//	due       the next request asks; others go by the old answer meanwhile
//
// The function is called without a lock. mu guards the rest.
//
//	two requests of a key ask       one has put up asking[hash]; the other waits or takes the old answer
//	the one who asks leaves         if that is why the function has failed, the answer is not kept, and the next one asks
//	the function panics             so too; the request ends
//	nobody knows, and it fails      the plan of the key's slot holds, if it has one
//	the plan changes, one waits     in line it asks by the new one, within a second
//	the last list has no more keys  its tier is free for another list. A request that came with it counts by that one
type plans struct {
	ask   func(*http.Request) ([]string, error)
	keep  time.Duration
	table *table

	failed atomic.Uint64

	mu         sync.Mutex
	now, older map[uint64]known // by hash; older ones go when now is full
	most       int              // of each
	asking     map[uint64]chan struct{}
	tiers      map[string]int // by text
	free       []int          // tiers that were given up
	lookAgain  int64          // when to look for such
}

// known is what was said of a key.
type known struct {
	until int64 // on the clock of the table
	tier  int
}

const (
	defaultPlanFor = time.Minute
	afterError     = time.Second
	maxPlans       = 1000
)

var errPlans = errors.New("there are more than 1,000 lists of limits in use")

// newPlans makes the memory of a Limit's Plan.
func newPlans(l *Limit, t *table, keys int) *plans {
	p := &plans{
		ask: l.Plan, keep: l.PlanFor, table: t, most: (keys + 1) / 2,
		now: map[uint64]known{}, asking: map[uint64]chan struct{}{}, tiers: map[string]int{},
	}
	if p.keep == 0 {
		p.keep = defaultPlanFor
	}
	return p
}

// of is the tier of a request.
func (p *plans) of(r *http.Request, hash uint64) int {
	for {
		tier, ask, answered := p.look(hash)
		switch {
		case ask:
			return p.renew(r, hash, tier)
		case answered == nil:
			return tier
		}
		select {
		case <-answered:
		case <-r.Context().Done():
			return p.table.tierOf(hash)
		}
	}
}

// look is what is known of a key, and whether to ask now or to wait until somebody has.
func (p *plans) look(hash uint64) (tier int, ask bool, answered chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k, ok := p.now[hash]
	if !ok {
		if k, ok = p.older[hash]; ok {
			p.putLocked(hash, k)
		}
	}
	switch answered = p.asking[hash]; {
	case ok && (answered != nil || p.table.now() < k.until):
		return k.tier, false, nil
	case answered != nil:
		return 0, false, answered
	}
	p.asking[hash] = make(chan struct{})
	if !ok {
		k.tier = p.table.tierOf(hash)
	}
	return k.tier, true, nil
}

// latest is the tier that a key has got since it had this one.
func (p *plans) latest(hash uint64, tier int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, all := range []map[uint64]known{p.older, p.now} {
		if k, ok := all[hash]; ok {
			tier = k.tier
		}
	}
	return tier
}

// putLocked remembers what is known of a key.
func (p *plans) putLocked(hash uint64, k known) {
	if p.now[hash] = k; len(p.now) >= p.most {
		p.now, p.older = map[uint64]known{}, p.now
	}
}

// renew asks, and keeps the answer, or after an error what was known.
func (p *plans) renew(r *http.Request, hash uint64, tier int) int {
	keep := time.Duration(-1)
	defer func() { p.answer(hash, tier, keep) }()
	limits, err := p.ask(r)
	next := 0
	if err == nil {
		next, err = p.tierOf(limits)
	}
	switch {
	case err == nil:
		tier, keep = next, p.keep
	case r.Context().Err() == nil:
		keep = afterError
	}
	if err != nil {
		p.failed.Add(1)
	}
	return tier
}

// answer ends the asking for a key.
func (p *plans) answer(hash uint64, tier int, keep time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if keep >= 0 {
		p.putLocked(hash, known{p.table.now() + int64(keep), tier})
	}
	close(p.asking[hash])
	delete(p.asking, hash)
}

// tierOf is the tier of a list of limits; none is Limits. A list is parsed once. If there are too many, those that neither a
// slot nor what is known of a key names make room.
func (p *plans) tierOf(limits []string) (int, error) {
	if len(limits) == 0 {
		return 0, nil
	}
	text := strings.Join(limits, ", ")
	p.mu.Lock()
	defer p.mu.Unlock()
	if tier, ok := p.tiers[text]; ok {
		return tier, nil
	}
	laws, err := newLaws(limits)
	if err != nil {
		return 0, err
	}
	tier := len(p.tiers) + len(p.free) + 1 // 0 is Limits
	if tier <= maxPlans {
		p.table.add(laws)
	} else if tier = p.freeLocked(); tier >= 0 {
		p.table.replace(tier, laws) // a request that was held up may have come back to it
	} else {
		return 0, errPlans
	}
	p.tiers[text] = tier
	return tier, nil
}

// freeLocked forgets the lists that nobody has, and returns the tier of one; -1: there is none. It looks through the whole table, so it
// does that once a second at most. Idle keys lose their slots, and nothing with them.
func (p *plans) freeLocked() int {
	now := p.table.now()
	if len(p.free) == 0 && now >= p.lookAgain {
		p.lookAgain = now + int64(time.Second)
		p.table.sweep(max(p.keep, leastProtected*time.Second))
		used := p.table.tiersInUse()
		for _, all := range []map[uint64]known{p.now, p.older} {
			for hash, k := range all {
				if used[k.tier] = used[k.tier] || now < k.until; now >= k.until {
					delete(all, hash)
				}
			}
		}
		for text, tier := range p.tiers {
			if !used[tier] {
				delete(p.tiers, text)
				p.free = append(p.free, tier)
			}
		}
	}
	if n := len(p.free) - 1; n >= 0 {
		tier := p.free[n]
		p.free = p.free[:n]
		return tier
	}
	return -1
}

// tiersInUse are those that slots have.
func (t *table) tiersInUse() map[int]bool {
	used := map[int]bool{}
	t.lockAll()
	defer t.unlockAll()
	for i := range t.shards {
		for k, tag := range t.shards[i].tags {
			if tag != 0 {
				used[int(t.shards[i].seen[k].tier)] = true
			}
		}
	}
	return used
}

// tierOf is the tier of the slot that a key has; 0: it has none.
func (t *table) tierOf(hash uint64) int {
	p := t.find(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := p.slot(hash); i >= 0 {
		return int(p.seen[i].tier)
	}
	return 0
}

// switchLocked carries the cells of a slot over to another tier.
func (t *table) switchLocked(p place, i, tier int, now int64) {
	recount(t.laws[tier], t.laws[p.seen[i].tier], t.cell(p.shard, i), now)
	p.seen[i].tier = uint16(tier)
}
