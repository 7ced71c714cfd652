package inbound

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-throttle/throttle/inbound/keys"
)

// A Mode says what a server may do while the store of its limits does not answer.
type Mode int

const (
	Alone  Mode = iota // a part of each key's limits, by the table of this server: limit ÷ servers
	Closed             // nothing: requests are refused until the store answers
	Open               // anything: requests are let in
)

// stored is what a Limit or a Keyed has beside its table if its keys' units are in a store, for several servers. Package
// keys says what passes between them, Memory by what law, and hand.go and link.go how this server uses it.
//
// # The way of a request
//
//  1. A key that finds no slot in the table is not asked for: the table decides, by what all newcomers share. So a flood
//     of invented keys is a bounded number of keys in the store.
//  2. Units of the key in hand, lent by the store, are taken.
//  3. The newest answer of the store says for how long the cost does not fit: it is refused without asking.
//  4. The store does not answer, as somebody has found out in the last second: the mode decides.
//  5. The store is asked. Requests of a key join, and all keys of a moment go in one round trip. A request waits for its
//     answer, for a soft timeout at most (see package outage); then, or if the store has too much to do, the mode decides.
//
// The table counts what this server lets in, so it knows who uses units, and what to refuse if the mode is Alone.
type stored struct {
	link   *link
	name   string
	mode   Mode
	expect int    // servers
	id     string // of this server
	table  *table
	laws   [][]keys.Law // by tier
	tiers  []string     // their names

	greeted atomic.Int64 // when the servers were last counted: Unix nanoseconds
	counted atomic.Int64 // servers, as of then; 0: never
	alone   atomic.Uint64

	hands hands
}

// held is what a request knows of one stored part: what it has to give back, and whether the store has to be asked.
type held struct {
	key     string
	known   bool      // the key had a slot before
	open    bool      // nothing here knows whether it goes
	granted bool      // by the store: the units go back there
	charged int64     // units in the table
	then    keys.Mark // of the answer that granted them
}

// errStored is why limits in a store are not replaced here: the servers would have different ones.
var errStored = errors.New("limits in a Store change with the programs of all servers")

// countEach is how often servers are counted.
const countEach = 10 * time.Second

// newStored makes what a part needs to use a store. It returns what cannot be in one.
func newStored(k keys.Store, name string, m Mode, servers int, t *table, tiers []string) (*stored, error) {
	switch {
	case name == "":
		return nil, errors.New("the Name is empty, by which servers with a Store know the limit")
	case m < Alone || m > Open:
		return nil, fmt.Errorf("the Mode is %d; there are Alone, Closed and Open", m)
	case servers < 0:
		return nil, fmt.Errorf("there are %d Servers, must not be negative", servers)
	}
	var id [4]byte
	rand.Read(id[:])
	s := &stored{link: linkOf(k), name: name, mode: m, expect: servers, id: hex.EncodeToString(id[:]), table: t, tiers: tiers}
	s.hands.most = t.maxKeys + 64
	for _, laws := range t.laws {
		var sent []keys.Law
		for i := range laws {
			l := &laws[i]
			if l.kind > logged || l.kind != bucket && l.per%int64(time.Microsecond) != 0 {
				return nil, fmt.Errorf("the limit %q cannot be in a Store: it is of requests at once, of the calendar, or of parts of a microsecond", l.name)
			}
			sent = append(sent, l.sent())
		}
		s.laws = append(s.laws, sent)
	}
	return s, nil
}

// nameOf is the name of a key in the store. The key itself may be an address of a person, or a mebibyte that somebody has
// sent, so it is a hash of fixed length.
func (s *stored) nameOf(tier int, key string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q ", s.name, s.tiers[tier])
	h.Write([]byte(key))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
}

// servers is how many servers there are, as far as is known: as many as were counted or are expected, and without
// either 10.
func (s *stored) servers() int64 {
	if n := max(s.counted.Load(), int64(s.expect)); n > 0 {
		return n
	}
	return 10
}

// ask decides what can be decided here. If h.open is set afterwards, the store has to be asked.
func (s *stored) ask(hash uint64, tier int, n int64, m mode, v *verdict, h *held) {
	h.open, h.granted, h.charged = false, false, 0
	v.laws = &s.table.laws[tier] // with a store they do not change
	laws := *v.laws
	own := false
	if h.known, own = s.table.place(hash, tier, m); len(laws) == 0 || !own {
		s.table.ask(hash, tier, n, m, v)
		if m == take && v.wait == 0 {
			h.charged = n
		}
		return
	}
	v.shared, v.noted = false, true
	if neverFits(laws, n) {
		s.hands.ask(hash, laws, 0, look, time.Now(), v, h)
		v.wait = never
		s.table.turnAway(hash, v)
		return
	}
	now := time.Now()
	switch found := s.hands.ask(hash, laws, n, m, now, v, h); {
	case m == look:
	case found == refused:
		s.table.turnAway(hash, v)
	case found == granted || n == 0:
		h.granted = true
		s.count(hash, tier, n, v, h)
	case s.lost(now):
		s.decide(hash, tier, n, v, h)
	default:
		v.wait, h.open = 0, true
	}
}

// neverFits reports whether a cost is too high whatever is used.
func neverFits(laws []law, n int64) bool {
	var clean [maxLogged]uint64
	for i := range laws {
		if laws[i].wait(clean[:], 0, n) == never {
			return true
		}
	}
	return false
}

// count notes in the table what was let in.
func (s *stored) count(hash uint64, tier int, n int64, v *verdict, h *held) {
	own := verdict{brief: true, noted: true, refused: v.refused}
	s.table.ask(hash, tier, n, book, &own)
	h.charged, v.then, v.shared, v.refused, v.gen = n, own.then, own.shared, own.refused, own.gen
}

// lost reports whether the store does not answer. Whoever finds that it is time to try it again has that done.
func (s *stored) lost(now time.Time) bool {
	if up, _, _ := s.link.Look(); up {
		return false
	}
	if s.link.Claim(now) {
		go s.link.run([]*ask{s.greeting(s.greets(now))}, true)
	}
	return true
}

// decide lets the mode decide: the store does not answer, or cannot be asked for one more key.
//
// Alone charges the table, which has counted what this server let in, with as many units as there are servers. Example:
// 100/m burst 20 and four servers. Each lets 5 requests of a client in at once, and then 25 a minute. A limit of 5/s
// even charges 4 units, three of them as a debt: one request in 800 ms.
func (s *stored) decide(hash uint64, tier int, n int64, v *verdict, h *held) {
	s.alone.Add(1)
	laws := s.table.laws[tier]
	switch s.mode {
	case Open:
		v.full(laws)
		s.count(hash, tier, n, v, h)
	case Closed:
		_, _, next := s.link.Look()
		v.wait = max(int64(time.Millisecond), int64(time.Until(next)))
		for i := range laws {
			v.rest[i], v.reset[i] = 0, wholeSeconds(v.wait)
		}
		s.table.turnAway(hash, v)
	default:
		servers := s.servers()
		units := min(n*servers, max(n, affordable(laws)))
		s.table.ask(hash, tier, units, take, v)
		if v.wait == 0 {
			h.charged = units
		}
		for i := range laws {
			v.rest[i] /= servers
		}
	}
}

// affordable is the highest cost that leaves a debt of no more than an hour.
func affordable(laws []law) int64 {
	most := int64(maxCost)
	for i := range laws {
		l := &laws[i]
		hour := maxSurplus * l.perNs
		if l.kind != bucket {
			hour = float64(l.most) * float64(int64(maxSurplus)/l.per)
		}
		most = min(most, l.most+int64(min(hour, maxCost)))
	}
	return most
}

// back gives back the units of a request that does not go. What the store has granted goes back there at once, and
// counts as never taken: many requests that another limit refuses would keep as many units from other servers.
func (s *stored) back(hash uint64, tier int, n int64, v *verdict, h *held) {
	own := verdict{then: v.then, shared: v.shared, gen: v.gen}
	s.table.back(hash, tier, h.charged, &own)
	v.refused = true
	if h.granted {
		s.hands.put(hash, n, h.then, time.Now(), s)
		s.link.send(time.Now())
		for i, l := range s.table.laws[tier] {
			v.rest[i] = min(l.most, v.rest[i]+n)
		}
	} else {
		v.rest, v.reset = own.rest, own.reset
	}
	h.granted, h.charged = false, 0
}

// place gives a key a slot if it can. It reports whether the key had one, and whether it has.
func (t *table) place(hash uint64, tier int, m mode) (had, has bool) {
	now := t.now()
	p := t.find(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	at := uint32(now / int64(time.Second))
	if i := p.slot(hash); i >= 0 {
		if m != look {
			p.seen[i].again(at)
		}
		return true, true
	}
	return false, t.settleLocked(p, hash, tier, at, now, m) >= 0
}
