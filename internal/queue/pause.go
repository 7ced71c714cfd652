package queue

import (
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// This file pauses keys by hand: one of them, or all. A pause is a closing of each key's own gate, so predictions,
// deadlines, the reopening and Stats see it as any other; only patience is not spent in it (upstream.State.Patience).
//
// # States
//
// A pause of one key is a state of its gate alone. A pause of all is put on the gates of all keys when it begins, which
// takes time in proportion to their number, and on those of later ones when they are made:
//
//	none    common.pause is nil
//	paused  until a moment; another Pause may make it later, and begins anew for keys that were resumed
//	over    that moment has passed, or all keys were resumed; the next key that is made, or Pause, drops it
//
// Example: all keys are paused for an hour, and key a is resumed after ten minutes. a goes on at once, also if it is
// dropped and made again meanwhile, because except has its name. Key b, first called after half an hour, waits for
// the other half.
//
// # Races
//
// The one lock of the table decides each of them.
//
//	Pause, and a new key       the key is in the table and is paused there, or finds common.pause when it is made
//	Pause of a new key, twice  both find it missing and make it; makeLocked keeps the first, and both pause that one
//	Pause, and a grant         one comes first; a call that goes first was sent in the older epoch of its gate
//	Resume, and the end        the gate is open already, and Resume finds nothing to do

// An everyPause is a pause of all keys.
type everyPause struct {
	until  time.Time
	except map[string]bool // keys that somebody has resumed since
}

// Pause closes the gate of a key for at least d, or those of all keys if key is "". A key that is not there is made, if it
// can be.
func (t *Table) Pause(key string, d time.Duration) {
	if d <= 0 {
		return
	}
	t.common.mu.Lock()
	defer t.common.mu.Unlock()
	if key != "" {
		if t.keys[key] == nil && t.makeLocked(key) != nil {
			return
		}
		now, q := time.Now(), &t.keys[key].queue
		q.pauseLocked(d, now)
		q.advanceLocked(now)
		return
	}
	now := time.Now()
	// All are closed before one is advanced: a key that leaves a pool must not let another one's call go.
	until := now.Add(min(d, 1<<62))
	if p := t.common.pause; p != nil {
		until = limit.Latest(until, p.until)
	}
	t.common.pause = &everyPause{until: until}
	for _, e := range t.order {
		e.queue.pauseLocked(until.Sub(now), now)
	}
	t.advanceLocked(now)
}

// Resume opens the gate of a key now, or those of all keys if key is "".
func (t *Table) Resume(key string) {
	t.common.mu.Lock()
	defer t.common.mu.Unlock()
	now := time.Now()
	if key == "" {
		t.common.pause = nil
		for _, e := range t.order {
			e.queue.resumeLocked(now)
		}
		t.advanceLocked(now)
		return
	}
	if p := t.common.pause; p != nil && p.until.After(now) {
		if p.except == nil {
			p.except = map[string]bool{}
		}
		p.except[key] = true
	}
	if e := t.keys[key]; e != nil {
		e.queue.resumeLocked(now)
		e.queue.advanceLocked(now)
	}
}

// advanceLocked lets go who may go, in all keys.
func (t *Table) advanceLocked(now time.Time) {
	for _, e := range t.order {
		e.queue.advanceLocked(now)
	}
}

// pauseNewLocked pauses a queue that is made while all are.
func (q *Queue) pauseNewLocked(now time.Time) {
	p := q.common.pause
	switch {
	case p == nil:
	case !p.until.After(now):
		q.common.pause = nil
	case !p.except[q.key]:
		q.up.Pause(p.until.Sub(now), now)
	}
}

// pauseLocked closes the gate for at least d; who may not wait so long leaves.
func (q *Queue) pauseLocked(d time.Duration, now time.Time) {
	q.up.Pause(d, now)
	q.expelLocked(now)
}

// resumeLocked opens the gate, and lets one call ask a quota that is spent. A host that is closed as a whole goes on to
// be for other keys.
func (q *Queue) resumeLocked(now time.Time) {
	q.resumeHostsLocked()
	q.up.Resume(now)
}
