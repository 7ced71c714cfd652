package queue

import (
	"cmp"
	"strings"
	"time"

	"github.com/go-throttle/throttle/internal/upstream"
)

const (
	maxKeys     = 65536       // keys kept beside those with calls waiting or in flight
	idleAfter   = time.Minute // a key unused for so long may be dropped
	foreignIdle = time.Hour   // the same, where its limiter is foreign or something was learned: nobody can say whether that is as new
	evictTries  = 16          // keys that are looked at to find the one to drop
	sweepEvery  = 16          // accesses from one look at a key that may be idle to the next
	sweepMost   = 8           // idle keys dropped at one access
)

// A Table holds the queues of a Transport's keys. They share one lock, so that finding the key, its gate and
// its limiter is one critical section of about 100 ns. http.Transport locks its idle connections in the
// same way.
//
// Keys are made by their first use and dropped without a goroutine. Every sweepEvery-th access looks at the
// next key, all the way round, and drops it if it is idle. When the table is full, a new key takes the
// place of the one that is worth least among the next evictTries. An example: 65,536 hosts are known, and a
// crawler meets another one. 16 hosts are looked at; one was not used for two minutes and its limiter
// is full again: it goes, and nothing is lost.
type Table struct {
	common   common
	keys     map[string]*entry
	order    []*entry // the same, for the hand to go round
	hand     int
	recent   *entry // that of the last call; nil if it was dropped
	gone     counts // of keys that were dropped
	accesses uint
	most     int // maxKeys, but in tests
}

// An entry is a queue in a table.
type entry struct {
	used    time.Duration // when last, counted from common.base
	balance balance       // of the retry budget
	queue   Queue
}

// NewTable returns a table without keys.
func NewTable(c Config) *Table {
	t := &Table{keys: map[string]*entry{}, most: tableSize()}
	t.common.Config, t.common.base, t.common.keyed = c, time.Now(), true
	if c.Shared != nil || c.MaxInFlight > 0 {
		t.common.all = t.common.newPool(c.Shared, c.MaxInFlight)
		t.common.stakes = []stake{{pool: t.common.all, byCost: true}}
	}
	guardTable(t)
	return t
}

// idle reports whether nothing would be lost by dropping the key.
//
// An example: a key of a Bucket of 1 unit an hour that was used two minutes ago is not idle: its unit
// is not back. A key without a limit of its own that has been unused for a minute is.
func (e *entry) idle(now time.Time) bool {
	unused := e.unused(now)
	if unused < idleAfter || (e.queue.own.Foreign() > 0 || e.queue.up.Scopes() > 0) && unused < foreignIdle {
		return false
	}
	return e.queue.asNewLocked(now)
}

// unused is for how long.
func (e *entry) unused(now time.Time) time.Duration { return now.Sub(e.queue.common.base) - e.used }

// worth ranks keys that are not busy by what is lost when they are dropped. An open one in use is worth
// most: a flood of hosts that throttle must not slow those that work.
//
// From the least:
//
//	0  open, and unused for a minute: its limiter is all that is lost
//	1  closed until a probe succeeds that may go now: the next call there would find out anew
//	2  closed for a time that the upstream has named: a new key would call too early
//	3  open and in use
//	4  paused by hand: who did it relies on that
func (e *entry) worth(now time.Time) int {
	switch gate := e.queue.up.Closing(now); {
	case (gate.Cause == upstream.Open || gate.Over) && e.unused(now) >= idleAfter:
		return 0
	case gate.Cause == upstream.Open || gate.Over:
		return 3
	case gate.Probing && gate.Left == 0:
		return 1
	case gate.Cause == upstream.ForRetryAfter:
		return 2
	case gate.Cause == upstream.ForPause:
		return 4
	}
	return 1
}

// findLocked returns the entry of key, or nil.
//
// recent saves the map for a program that calls one host: its 1,000 calls in a row find the key by one comparison of strings,
// which is a twentieth of a RoundTrip's instructions.
func (t *Table) findLocked(key string) *entry {
	e := t.recent
	if e == nil || e.queue.key != key {
		if e = t.keys[key]; e == nil {
			return nil
		}
		t.recent = e
	}
	return e
}

// usedLocked notes that e is used at that moment, counted from common.base. Nothing but that moment is kept of a use: a list
// in the order of use would cost writes to other keys' entries.
func (t *Table) usedLocked(e *entry, since time.Duration) {
	e.used = since
	if t.accesses++; t.accesses%sweepEvery == 0 {
		t.sweepLocked(since)
	}
}

// nextLocked moves the hand to the next key, all the way round.
func (t *Table) nextLocked() *entry {
	if t.hand++; t.hand >= len(t.order) {
		t.hand = 0
	}
	return t.order[t.hand]
}

// sweepLocked looks at one key and drops it if it is idle, and then a few more: where one is idle, others are
// too.
//
// An example: 1,000 keys, all idle, and calls to one other key. Every 16th call drops up to 8 keys, so
// 2,000 calls empty the table, and no call pays for more than 8.
func (t *Table) sweepLocked(since time.Duration) {
	now := t.common.base.Add(since)
	for range min(sweepMost, len(t.order)) {
		e := t.nextLocked()
		if !e.idle(now) {
			return
		}
		t.dropLocked(t.hand)
	}
}

// evictLocked drops, of the next keys that are not busy, the one worth least; of equals the least recently
// used.
//
// Looking at 16 of 65,536 does not find the least of all, but most likely one of the lesser: if one key
// in four is idle, 16 looks miss all of them once in a hundred times. Busy keys are never dropped; if
// all 16 are busy the table grows by one for now.
func (t *Table) evictLocked(now time.Time) {
	var least *entry
	at := 0 // the place of least
	for range min(evictTries, len(t.order)) {
		e := t.nextLocked()
		if !e.queue.busyLocked() && (least == nil || cmp.Or(cmp.Compare(e.worth(now), least.worth(now)), cmp.Compare(e.used, least.used)) < 0) {
			least, at = e, t.hand
		}
	}
	if least != nil {
		t.dropLocked(at)
	}
}

// dropLocked takes the entry at that place in order out of the table. Its place goes to the last one.
// An example: of a, b, c, d the table drops b. The last, d, takes its place: a, d, c. Nothing else
// moves, so it costs the same with 65,536 keys.
func (t *Table) dropLocked(place int) {
	e, last := t.order[place], len(t.order)-1
	t.gone.add(e.queue.countsLocked())
	t.order[place] = t.order[last]
	t.order[last] = nil
	t.order = t.order[:last]
	delete(t.keys, e.queue.key)
	delete(t.common.asked, &e.queue)
	for _, c := range t.common.hosts {
		delete(c.keys, &e.queue)
		delete(c.resumed, &e.queue)
	}
	if t.recent == e {
		t.recent = nil
	}
}

// Predict is Queue.Predict of a key. Of one that is not there, a queue is asked that nobody else will ever see.
func (t *Table) Predict(key string, n int) (wait time.Duration, known bool) {
	q := t.Get(key)
	if q == nil && n > 0 {
		l, err := t.common.Limits(key)
		if err != nil {
			return 0, false
		}
		q = t.unknown(key, l)
	}
	return q.Predict(n)
}

// unknown returns a queue as makeLocked does of a key.
func (t *Table) unknown(key string, l Limits) *Queue {
	t.common.mu.Lock()
	defer t.common.mu.Unlock()
	now := t.common.now()
	q := &Queue{key: key}
	q.init(&t.common, l, now.Sub(t.common.base))
	q.firstContactLocked(len(t.keys) >= t.most, now)
	return q
}

// Get returns the queue of key, or nil. It does not count as a use.
func (t *Table) Get(key string) *Queue {
	t.common.mu.Lock()
	defer t.common.mu.Unlock()
	if e := t.keys[key]; e != nil {
		return &e.queue
	}
	return nil
}

// makeLocked makes the queue of a key. Its limits are the user's to make, so the lock is released meanwhile. If two calls
// meet a new key at once, both make limits. The first one's stay, and the other's are never paid.
func (t *Table) makeLocked(key string) (err error) {
	var l Limits
	t.common.unlocked(func() { l, err = t.common.Limits(key) })
	if err == nil && t.keys[key] == nil { // another caller may have been faster
		t.addLocked(key, l, t.common.now())
	}
	return err
}

// unlocked calls f without the lock, which its caller holds.
func (r *common) unlocked(f func()) {
	r.mu.Unlock()
	defer r.mu.Lock()
	f()
}

// addLocked adds a key, which is not there and whose calls pay l. A new key of a full table begins with one call
// instead of its burst, and those behind it are paced by what they pay by cost; one without any limit begins with
// a few calls until the first answer (State.FirstContact).
func (t *Table) addLocked(key string, l Limits, now time.Time) *entry {
	e := &entry{used: now.Sub(t.common.base)}
	e.queue.key = strings.Clone(key)
	e.queue.init(&t.common, l, e.used)
	t.sweepLocked(e.used)
	full := len(t.keys) >= t.most
	if full {
		t.evictLocked(now)
		if len(t.keys) >= t.most {
			t.evictLocked(now) // to shrink after a rush of busy keys
		}
	}
	e.queue.firstContactLocked(full, now)
	e.queue.pauseNewLocked(now)
	t.keys[e.queue.key], t.order = e, append(t.order, e)
	return e
}

// firstContactLocked is State.FirstContact; full: the table is. A meter is a limit of ours, so calls before the first answer
// are not held back where there is one. An example: a key with 100,000 tokens a minute and nothing else. Its first 50 calls, of
// 2,000 tokens each, go at once, as 50 calls would before a Bucket of 50.
func (q *Queue) firstContactLocked(full bool, now time.Time) {
	if full || q.meters == nil {
		q.up.FirstContact(full, now)
	}
}
