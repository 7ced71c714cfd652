package inbound

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/go-throttle/throttle/inbound/keys"
)

// Memory is a [keys.Store] in the memory of one process: for tests, for several servers in one process, and as the
// description of the law that every engine keeps. The zero Memory is ready to use. It is safe for concurrent use and must
// not be copied.
//
// # The law
//
// A key has for each of its limits what the table of a [Limit] has, exactly: see keys.Kind. A request takes its units
// if min(units, burst or window) are free in all limits, and of several requests that are alike as many as fit.
//
// What is lent beyond that, for a server to hold, is bounded by one account for each key: a bucket of a fifth of the
// burst that fills at a fifth of the rate, for windows a tenth of the units at a tenth of their rate, whichever is least
// of the limits. Units that are lent are missing in it until they are reported as used, or come back. So a client
// that stays below 80 % of rate and burst finds its units however many others hold. At a time no more is lent than a
// quarter of what is free, or a sixteenth if several servers use the key: what is left of a limit is for who comes first.
//
// What comes back is worth what has not come back by itself. A clock that went back by more than a second is healed: units
// that were used in its future count as used now. A limit of another kind than before begins anew; one that has changed its
// numbers keeps what was used. A key is forgotten two seconds after all of it is free.
type Memory struct {
	mu      sync.Mutex
	keys    map[string]*keyState
	swept   int64
	breaker keys.Breaker
	skew    time.Duration // of the clock, in tests
}

// Hold times.
const (
	holdAlone  = 2 * time.Second       // how long a server keeps units that are lent if no other one uses the key,
	holdShared = 20 * time.Millisecond // and otherwise
)

// A keyState is what an engine has of one key.
type keyState struct {
	laws    []law
	cells   []cell
	owner   string  // who took units last
	other   int64   // when another server had done so before, µs
	at      int64   // of lent, µs
	lent    float64 // missing in the account
	expires int64   // µs
}

// Ask implements [keys.Store]. It fails if ctx has ended.
func (m *Memory) Ask(ctx context.Context, rs []keys.Request) ([]keys.Reply, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now().Add(m.skew).UnixMicro()
	m.sweepLocked(now)
	replies := make([]keys.Reply, len(rs))
	for i := range rs {
		replies[i] = m.keyLocked(&rs[i]).ask(now, &rs[i])
	}
	return replies, nil
}

// Breaker returns what the users of this store have in common. Package inbound asks for it; programs do not.
func (m *Memory) Breaker() *keys.Breaker { return &m.breaker }

// sweepLocked forgets keys that are as new, each five seconds.
func (m *Memory) sweepLocked(now int64) {
	if now-m.swept < 5e6 {
		return
	}
	m.swept = now
	for name, k := range m.keys {
		if k.expires <= now {
			delete(m.keys, name)
		}
	}
}

// keyLocked is the state of a key, with the limits of a request.
func (m *Memory) keyLocked(r *keys.Request) *keyState {
	k := m.keys[r.Key]
	if k == nil {
		if m.keys == nil {
			m.keys = map[string]*keyState{}
		}
		k = new(keyState)
		m.keys[r.Key] = k
	}
	was, cells := k.laws, k.cells
	k.laws, k.cells = make([]law, len(r.Laws)), make([]cell, len(r.Laws))
	for i, l := range r.Laws {
		k.laws[i] = lawOf(l)
		if i < len(was) && was[i].kind == k.laws[i].kind && was[i].words == k.laws[i].words {
			k.cells[i] = cells[i]
		} else {
			k.cells[i] = make(cell, k.laws[i].words)
		}
	}
	return k
}

// ask executes one request.
func (k *keyState) ask(now int64, r *keys.Request) keys.Reply {
	ns := now * 1000
	if k.heal(now); r.Forget {
		k.forget()
	}
	if now-k.at > holdAlone.Microseconds() {
		k.owner = "" // whatever that server held is over
	}
	k.account(now, r.Used+r.Back)
	if r.Back > 0 && r.Then.Fits(r.Laws) {
		for i := range k.laws {
			k.laws[i].back(k.cells[i], k.laws[i].then(&r.Then, i), ns, r.Back, r.Back)
		}
	}
	reply := keys.Reply{Granted: k.grant(ns, r), Alone: k.alone(now, r)}
	if reply.Granted == r.Count && r.Lease > 0 {
		reply.Leased = max(0, min(r.Lease, k.lendable(ns, reply.Alone)))
		k.take(ns, reply.Leased)
		k.lent += float64(reply.Leased)
	}
	reply.Mark.Now = now
	k.expires = now
	for i := range k.laws {
		reply.Mark.Cells = append(reply.Mark.Cells, k.laws[i].numbers(k.cells[i]))
		k.expires = max(k.expires, k.laws[i].over(k.cells[i])/1000)
	}
	rate, _ := k.share()
	k.expires = max(k.expires, now+int64(math.Ceil(k.lent/rate/1000))) + holdAlone.Microseconds()
	return reply
}

// forget makes the key a new one.
func (k *keyState) forget() {
	k.owner, k.other, k.at, k.lent = "", 0, 0, 0
	for _, c := range k.cells {
		clear(c)
	}
}

// grant takes what fits of the requests.
func (k *keyState) grant(ns int64, r *keys.Request) (n int64) {
	free, least := k.free(ns), int64(math.MaxInt64)
	for i := range k.laws {
		least = min(least, k.laws[i].most)
	}
	switch {
	case r.Each == 0:
		return r.Count
	case r.Each <= least:
		n = min(r.Count, free/r.Each)
	case r.Count > 0 && k.fits(ns, r.Each):
		n = 1
	}
	k.take(ns, n*r.Each)
	return n
}

// fits reports whether n units fit all laws, of a smaller one as a debt.
func (k *keyState) fits(ns, n int64) bool {
	for i := range k.laws {
		if k.laws[i].wait(k.cells[i], ns, n) > 0 {
			return false
		}
	}
	return true
}

// free is how many units fit all laws.
func (k *keyState) free(ns int64) int64 {
	free := int64(math.MaxInt64)
	for i := range k.laws {
		rest, _ := k.laws[i].rest(k.cells[i], ns)
		free = min(free, rest)
	}
	return free
}

func (k *keyState) take(ns, n int64) {
	var m mark
	for i := range k.laws {
		if n > 0 {
			k.laws[i].take(k.cells[i], ns, n, &m)
		}
	}
}

// share is the account of units that are lent: units per nanosecond, and the burst.
func (k *keyState) share() (rate, burst float64) {
	rate, burst = math.Inf(1), math.Inf(1)
	for i := range k.laws {
		l := &k.laws[i]
		r, b := l.perNs/5, math.Floor(float64(l.most)/5)
		if l.kind != bucket {
			r, b = float64(l.most)/float64(l.per)/10, math.Floor(float64(l.most)/10)
		}
		rate, burst = min(rate, r), min(burst, b)
	}
	return rate, burst
}

// account brings the account up to a moment; n units are no longer lent.
func (k *keyState) account(now, n int64) {
	rate, _ := k.share()
	k.lent = max(0, k.lent-max(0, float64(now-k.at)*1000)*rate-float64(n))
	k.at = max(k.at, now)
}

// lendable is how many units may be lent now.
func (k *keyState) lendable(ns int64, alone bool) int64 {
	_, burst := k.share()
	part := int64(16)
	if alone {
		part = 4
	}
	return min(k.free(ns)/part, int64(math.Floor(burst-k.lent+tiny)))
}

// alone notes who takes units, and reports whether nobody else has of late.
func (k *keyState) alone(now int64, r *keys.Request) bool {
	if r.Count > 0 && r.Server != k.owner {
		if k.owner != "" {
			k.other = now
		}
		k.owner = r.Server
	}
	return now-k.other > holdAlone.Microseconds()
}

// heal has nothing used in the future: if the clock went back, all moments do. Up to a second is what clocks differ by.
func (k *keyState) heal(now int64) {
	back := k.at - now
	if back < 1e6 {
		return
	}
	k.at, k.other = now, min(k.other, now)
	for i := range k.laws {
		k.laws[i].shift(k.cells[i], back*1000)
	}
}
