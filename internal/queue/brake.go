package queue

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	spinning   = 100                   // refusals
	spunWithin = time.Millisecond      // in that time are a loop, or may be one
	spinEnds   = 10 * time.Millisecond // without a refusal it has ended
	spinSleep  = time.Millisecond      // for that long each further refused call sleeps
	spinsLong  = time.Second / 4       // after that it is a loop, and not many callers at once
)

// A brake slows loops that call again as soon as they are refused. Such a loop would take all of a processor, and in a
// synctest bubble, where time stands still while anybody runs, it would never end. From the hundredth refusal within a
// millisecond on each refused call sleeps for one, under no lock. That ends when nobody has been refused for 10 ms. A key
// has a brake, and another one is for all calls whose key is not there. Calls that are let go do not meet it.
//
// Its bits are microseconds since common.base, and below them a count up to spinning: of the refusals since that moment,
// or, once it is full, of those that go on; then that moment is the last one's. An example: 99 refusals in 0.5 ms return at once, and so do 99
// more after 1 ms. Of 1,000 in 0.5 ms the last 901 return a millisecond later.
type brake struct {
	bits atomic.Uint64
	from atomic.Int64 // since when it is full, or was last
}

// # States
//
//	counting  fewer than spinning refusals since a moment less than spunWithin ago; after that the next one counts anew
//	full      until spinEnds have gone by without a refusal
//
// Two refusals at once: the one whose CompareAndSwap fails looks again, so each is counted once, and exactly one fills it.

// full counts a refusal at that moment, and reports whether it is to sleep.
func (b *brake) full(at time.Duration) bool {
	for {
		old := b.bits.Load()
		since, n := time.Duration(old>>7)*time.Microsecond, old&127
		switch {
		case n == spinning && at-since < spinEnds:
			since = at
		case n < spinning && at-since < spunWithin:
			n++
		default:
			since, n = at, 1
		}
		if b.bits.CompareAndSwap(old, uint64(since/time.Microsecond)<<7|n) {
			if n == spinning && old&127 < spinning {
				b.from.Store(int64(at))
			}
			return n == spinning
		}
	}
}

// loops reports whether a loop goes on around the refusals, as of at. Example: 10,000 callers who are refused at once are
// no loop. One who calls again each time, for 3 s, is one after the first quarter of a second.
func (b *brake) loops(at time.Duration) bool {
	old := b.bits.Load()
	since := time.Duration(old>>7) * time.Microsecond
	return old&127 == spinning && at-since < spinEnds && at-time.Duration(b.from.Load()) >= spinsLong
}

// slow ends a refused call that has arrived then (zero: it was not let in): it sleeps if b is full, or until ctx ends. One that
// has waited for a while is no part of a loop that spins, and time has gone on. Nobody else waits for it: the call has left the line, and
// holds neither slot nor units.
func (b *brake) slow(ctx context.Context, base, arrived time.Time) {
	if !arrived.IsZero() && time.Since(arrived) >= spunWithin || !b.full(time.Since(base)) || ctx.Err() != nil {
		return
	}
	timer := time.NewTimer(spinSleep)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Refused is to be called when a call has been refused, before its caller learns of it. No lock is held.
func (t *Table) Refused(ctx context.Context) { t.common.brake.slow(ctx, t.common.base, time.Time{}) }

// Refused is that of c, once Init was called. Before its first Arrive has found the key, and where Shutdown lets none be
// made, the brake is that of all.
func (c *Call) Refused(ctx context.Context) {
	b := &c.table.common.brake
	if c.entry != nil {
		b = &c.entry.queue.trouble().brake
	}
	b.slow(ctx, c.table.common.base, c.order.now)
}
