// Package outage finds out that a store does not answer, for all that use it, and that it is there again.
package outage

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Times of a Breaker.
const (
	leastSoft = 20 * time.Millisecond  // the soft timeout is four round trips, but not less,
	MostSoft  = 100 * time.Millisecond // and not more
	FirstGap  = 250 * time.Millisecond // until a store that does not answer is tried again, doubling
	mostGap   = time.Second
	mostHung  = 4 // probes that may hang at a time: a client may ignore the end of its ctx
)

// A Breaker is what the users of one store know together: whether it answers, and how fast. When one of them
// has waited in vain for a soft timeout (four smoothed round trips, 20 to 100 ms), none waits any more. One
// request is tried after 250 ms, then after twice as long up to 1 s, and the first answer within the soft
// timeout ends it. The zero Breaker is ready to use.
//
// Example with a round trip of 2 ms: a store hangs at 0 s. A call that needs units then waits until 20 ms. From
// there on nobody waits, who has not asked yet neither: a limiter of package fleet uses its share. Probes go at 0.27, 0.8
// and 1.8 s and hang as well. The store goes on at 2 s: the late answers show it, the next probe goes at once, and at
// its answer all are back.
type Breaker struct {
	mu    sync.Mutex
	down  bool
	since time.Time     // when it went down
	up    time.Time     // when it last came back; zero: it was never lost
	next  time.Time     // when the next probe may go
	gap   time.Duration // until the one after it
	rtt   time.Duration // smoothed; 0: not known
	hung  int           // probes under way
}

// Look reports whether the store answers. If it does not, since says from when on, and next when a probe may go.
func (b *Breaker) Look() (up bool, since, next time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.down, b.since, b.next
}

// Times returns the smoothed round trip and the soft timeout.
func (b *Breaker) Times() (rtt, soft time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rtt == 0 {
		return 0, MostSoft
	}
	return b.rtt, min(max(4*b.rtt, leastSoft), MostSoft)
}

// Claim reports whether the caller is the one that sends the probe that is due.
func (b *Breaker) Claim(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.down || now.Before(b.next) || b.hung >= mostHung {
		return false
	}
	b.hung++
	b.next = now.Add(b.gap + rand.N(b.gap/4))
	b.gap = min(2*b.gap, mostGap)
	return true
}

// Lost notes that a request has failed, or has had no answer for the soft timeout. One that was sent before the
// store came back says nothing of it now.
func (b *Breaker) Lost(now, sent time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down || sent.Before(b.up) {
		return
	}
	b.down, b.since, b.gap = true, now, FirstGap
	b.next = now.Add(b.gap)
}

// Ended notes that a probe is over, however.
func (b *Breaker) Ended() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hung--
}

// Answered notes an answer. One that took longer than the soft timeout shows that the store is there again, so it
// is tried at once; but it does not count as up, or a store that is always slow would delay calls again
// and again. If it took no longer than a soft timeout may be, later ones are longer: a store that has moved to another
// place, 25 ms away instead of 1 ms, is there again at the third answer.
func (b *Breaker) Answered(now time.Time, took, soft time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if took > soft {
		if b.down && b.hung <= 1 {
			b.next = now
		}
		if b.down && took <= MostSoft {
			b.learn(took)
		}
		return
	}
	if b.down {
		b.down, b.up = false, now
	}
	b.learn(took)
}

// learn smooths the round trip.
func (b *Breaker) learn(took time.Duration) {
	if b.rtt == 0 {
		b.rtt = took
	}
	b.rtt = max(b.rtt+(took-b.rtt)/8, time.Nanosecond)
}
