package fleet

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/fleet/store"
	"github.com/go-throttle/throttle/internal/limit"
)

// A Mode says what a process may do while its store does not answer.
type Mode int

const (
	Alone  Mode = iota // use 0.8 · limit ÷ members, from an empty bucket
	Closed             // nothing: calls wait until the store answers
	Open               // anything: calls are not limited, for upstreams that mind less than the callers do
)

// Options change how a Limiter works. The zero value has the defaults.
type Options struct {
	// Mode says what to do while the store does not answer; 0: Alone.
	Mode Mode

	// Members is how many processes to expect before the store was ever reached, for Alone. 0: unknown, and
	// then its part is a tenth of the limit.
	Members int

	// Validity is W, the longest time from the date of a unit to its use; 0: 250 ms. It must be at least
	// 20 ms and several round trips, and the same in all processes. A longer one needs fewer round trips
	// and admits more in a short window.
	Validity time.Duration
}

// ErrClosed is what Take returns after Close.
var ErrClosed = errors.New("throttle: the fleet's limiter is closed")

// A Limiter is this process's part in one limit that many processes share through a [store.Store]. To a Queue or a
// Transport it is a limiter like those of package throttle: use it as Transport.Limiter, from LimiterFor, in
// All, or in NewQueue. It is a Limiter, an Adjuster, a Notifier and an Observer in the sense of that package.
//
// No call waits for the store: while one request to the store is out, a call waits for its answer, at most for
// the soft timeout; then [Options].Mode says how it goes on. A Limiter has a goroutine only while such a
// request is out, and sends none while nobody takes units.
//
// Make it with [New]. It is safe for concurrent use.
type Limiter struct {
	owned
	account account
}

// owned hands the account to package throttle.
type owned = limit.Owned

// New returns the limiter of this process for the limit of that name in s: limit units per second, with bursts
// of burst units, over all processes. All of them should name the same limit and burst; if they differ, the
// latest request counts. Under [rate.Inf] the store is not asked. New panics if limit is negative or NaN, if
// burst is below 1 (below 0 under rate.Inf), if an option makes no sense, or if s is nil.
func New(s store.Store, name string, limit rate.Limit, burst int, o Options) *Limiter {
	switch {
	case s == nil:
		panic("throttle: fleet.New: the store is nil")
	case o.Mode < Alone || o.Mode > Open:
		panic(fmt.Sprintf("throttle: fleet.New: Options.Mode is %d; there are Alone, Closed and Open", o.Mode))
	case o.Members < 0:
		panic(fmt.Sprintf("throttle: fleet.New: Options.Members is %d, must not be negative", o.Members))
	case o.Validity != 0 && (o.Validity < 20*time.Millisecond || o.Validity > time.Minute):
		panic(fmt.Sprintf("throttle: fleet.New: Options.Validity is %v, must be from 20ms to 1m", o.Validity))
	}
	if o.Validity == 0 {
		o.Validity = 250 * time.Millisecond
	}
	l := new(Limiter)
	l.account.init(l, s, name, limit, burst, o)
	return l
}

// newMember draws the name of a member.
func newMember() string {
	var b [8]byte
	rand.Read(b[:]) // crypto/rand: it never fails
	return hex.EncodeToString(b[:])
}

// Take consumes n units if they are in hand and returns 0. Otherwise it sends for them and returns how long to
// wait before it is worth asking again; Notify says sooner if there is news. It does not block, and ctx is not
// used. It returns an error for a negative cost, for a limit of 0, for a cost whose surplus over the burst
// takes more than an hour, and after Close.
func (l *Limiter) Take(_ context.Context, n int) (wait time.Duration, err error) {
	return limit.TakeNow(&l.account, n)
}

// Adjust takes n more units, as a debt if they are not in hand; a negative n gives units back to the store, with
// the next request.
func (l *Limiter) Adjust(n int) {
	l.account.update(func(now time.Time) { l.account.Adjust(now, n) })
}

// Notify has changed called after each change of the units in hand, until stop.
func (l *Limiter) Notify(changed func()) (stop func()) { return l.account.Notify(changed) }

// String returns the limit as ParseLimit of package throttle reads it, and "shared".
func (l *Limiter) String() string { return l.account.String() }

// Limit returns the rate in units per second.
func (l *Limiter) Limit() (limit rate.Limit) {
	l.account.locked(func() { limit = l.account.limit })
	return limit
}

// SetLimit changes the rate, in units per second, from now on; units in hand stay. Call it in every process: the
// store follows the latest request. It panics if New would.
func (l *Limiter) SetLimit(limit rate.Limit) {
	l.account.update(func(time.Time) { l.account.setLimit(limit) })
}

// Close gives the units in hand back to the store and ends the Limiter: Take returns [ErrClosed] from then on.
// It waits for the store's answer, for a second at most, and returns its error. A second call does nothing. It need
// not be called: without it the units in hand expire, and nobody uses them.
func (l *Limiter) Close() error { return l.account.close() }

// Stats is a snapshot of a Limiter. The counts are since New.
type Stats struct {
	Mode    string        // "shared"; while the store does not answer "alone", "closed" or "open"
	Members int           // processes that use the limit, as the store has said; 0: it never has
	Held    int           // units in hand
	Debt    int           // units used that the next ones in hand will pay for
	Paused  time.Duration // nobody may send for so long

	// Excess is the term of the bound that the fleet adds: in any window of length L at most burst + limit·L +
	// Excess units are used, Excess = limit·W + 1.
	Excess float64

	RoundTrip time.Duration // to the store, smoothed
	Trips     uint64        // requests to the store
	Failed    uint64        // those that failed or came back too late to be of use
	Err       error         `json:"-"` // of the latest one that has come back; nil: it was answered
	Granted   uint64        // units
	Used      uint64        // units that calls have taken, those of the share included
	Expired   uint64        // units that nobody has used in time, or that a pause has dropped
	Alone     uint64        // units used while the store did not answer
}

// Stats returns a snapshot, for metrics and to see in Err why a limit goes on alone. It does not ask the store.
func (l *Limiter) Stats() (s Stats) {
	l.account.locked(func() { s = l.account.stats(time.Now()) })
	return s
}
