// Package store is what passes between package fleet and those who keep a fleet's limits: to write a [Store]. Programs that use
// one have nothing to do with it: fleet.Memory is one for one process, the module throttleredis has one for Redis and
// its kin.
package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// A Store keeps limits for many processes. It is the part that an engine fills in.
//
// Exchange takes in what a member knows of the limit of that name, and returns the units that the member is
// granted. It must be atomic for each name, and read the time from one clock for all members. If it has
// executed a (Member, Seq) before, it returns the first answer again and changes nothing; an older Seq gets an
// answer without units. It should obey ctx, and begin with [Request.Check]. It is called without locks, by several goroutines at once.
//
// The law that it keeps is described on fleet.Memory. A Store whose limiters should notice together that it does
// not answer has a method Breaker() *[Breaker] that returns always the same one; otherwise each limiter finds
// out by itself.
//
// A Store that can grant several limits in one step has a method
//
//	ExchangeAll(ctx context.Context, names []string, rs []Request) ([]Reply, error)
//
// of limits that are all different. It is Exchange for each, but atomic for all of them, and what a call needs is not
// granted by a limit that has it more than 0.8·W before the last of the others. An error is about all; with ErrLimit
// nothing was executed, and the limits are asked for one by one for a minute.
//
// A Store that passes pauses on by message has a method Listen(heard func([Pause])) (stop func()). After Listen it calls
// heard for each pause of any limit that begins or gets longer by more than 50 ms, until stop; some may be lost.
// Both return at once, and heard is called without locks. Listen is called while limiters are in use, and stop
// when none is.
//
// An error should match [ErrLimit] if the store has answered and only that limit is concerned.
type Store interface {
	Exchange(ctx context.Context, name string, r Request) (Reply, error)
}

// ErrLimit in the error of a [Store] means that the store answers, but cannot serve this limit: something else has its
// name, for example. Its limiter goes on as if the store were lost, and those of other limits are not concerned.
var ErrLimit = errors.New("throttle: the store of a fleet cannot serve this limit")

// A Request is what a member of a fleet tells the store, and what it asks for.
type Request struct {
	Member string     // who asks; random, one for each Limiter
	Seq    uint64     // of the member's requests, from 1
	Limit  rate.Limit // units per second, above 0 and finite
	Burst  int        // units, at least 1

	// Validity is W, the longest time from the date of a unit to its use. It is the same in all members.
	Validity time.Duration

	Need int // units that are usable at one moment, all or none; 0: none
	Want int // units beyond Need, which may have later dates
	Held int // units that the member has in hand

	Known Mark // of the newest Reply; zero: there was none

	Pause     time.Duration // nobody may send for so long, as the upstream has advertised; 0: nothing is known
	NotBefore time.Duration // if Tighten is set: the next unit's date from now, often negative
	Tighten   bool          // the upstream has advertised fewer units than the burst
	Back      int           // units that were paid for and not used; they count as never granted
	Unused    int           // the last of the units granted in Known, which Close gives back
}

// Check returns an error that matches [ErrLimit] if no store can keep such a limit: it is not above 0, not finite, or the
// burst takes more than 1e9 seconds to fill, which microseconds in a float cannot tell apart.
func (r Request) Check() error {
	if !(r.Limit > 0) || r.Limit >= rate.Inf || r.Burst < 1 || float64(r.Burst)/float64(r.Limit) > 1e9 {
		return fmt.Errorf("throttle: a fleet cannot share a limit of %v, burst %d: %w", r.Limit, r.Burst, ErrLimit)
	}
	return nil
}

// A Reply is what a store grants. All times count from the moment at which the store executed the request. You make one if you write a
// store of your own.
type Reply struct {
	Runs    []Run         // at most three; the first has the Need units if they are granted
	Retry   time.Duration // if Need is not granted: when it is worth asking again
	Pause   time.Duration // nobody may send for so long; 0: no pause
	Members int           // how many have asked of late, at least 1
	Known   Mark          // to be carried to the next request
}

// A Run is Count units. The k-th (from 0) is dated First + k·Every, and may be used from that moment on. A grant of 50
// units at 100/s that begins in 20 ms is Run{First: 20 * time.Millisecond, Every: 10 * time.Millisecond, Count: 50}.
type Run struct {
	First time.Duration // from the execution of the request; not negative
	Every time.Duration // 0: all at First
	Count int           // units
}

// A Mark is what a member carries from one exchange to the next, so that a store that has lost its state gets
// it back from the members. The moments are microseconds of the store's clock.
type Mark struct {
	Now   int64 // when the store answered
	Next  int64 // the date of the next unit that is not granted yet
	Pause int64 // until when nobody may send
}

// A Pause is a message of a [Store]: nobody may send for a while.
type Pause struct {
	Name  string        // of the limit
	Left  time.Duration // of the pause, when the message was sent
	Until int64         // its end, in microseconds of the store's clock
}

// A Breaker is where a [Store] keeps for package fleet what its limiters know together: whether it answers, how fast, and
// what it says by message. The zero Breaker is ready to use. It is safe for concurrent use and must not be copied.
type Breaker struct {
	once sync.Once
	of   any
}

// Of returns what made returned at the first call. It is for package fleet alone.
func (b *Breaker) Of(made func() any) any {
	b.once.Do(func() { b.of = made() })
	return b.of
}
