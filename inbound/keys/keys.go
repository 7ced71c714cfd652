// Package keys is what passes between package inbound and those who keep the limits of keys for several servers: to write a
// [Store]. Programs that use one have nothing to do with it: inbound.Memory is one for one process, the module throttleredis
// has one for Redis and its kin.
package keys

import (
	"context"
	"errors"

	fleet "github.com/go-throttle/throttle/fleet/store"
)

// A Store keeps the limits of many keys for many servers. It is the part that an engine fills in.
//
// Ask executes requests, in their order, and answers each. Each of them has to be atomic; all together need not be. They
// should go to the engine in one round trip. The time is that of one clock for all servers, in microseconds. An error is
// about all of them, and leaves open which were executed; an error about one key is in its Reply. It should obey ctx. It
// is called without locks, by several goroutines at once, with at most 200 requests.
//
// The law that it keeps is described on inbound.Memory. A Store whose users should notice together that the engine does not
// answer, and ask in the same round trips, has a method Breaker() *[Breaker] that returns always the same one; otherwise
// each inbound.Limit does so by itself.
type Store interface {
	Ask(ctx context.Context, rs []Request) ([]Reply, error)
}

// A Breaker is where a [Store] keeps for package inbound what its users have in common. It is that of fleet/store.
type Breaker = fleet.Breaker

// ErrKey in a [Reply] means that the engine answers, but cannot serve this key: something else has its name, for example.
var ErrKey = errors.New("throttle: the store cannot serve this key")

// A Request is what a server asks for one key. It takes Each units for each of Count requests, as many of them as fit, in
// all Laws or in none; with Count 0 it only looks. Each may be more than fits: then it is taken when nothing is used, for one
// request, and leaves a debt.
type Request struct {
	Key    string // its name in the engine: up to 32 letters, digits, "-" and "_"
	Server string // who asks: 8 hexadecimal digits
	Laws   []Law  // one to three

	Forget bool // before all else: nothing is used

	Each  int64 // units, from 0 to 2,147,483,647
	Count int64 // requests

	Lease int64 // units beyond, if all of Count fit: as many as the key may lend
	Used  int64 // units that were lent before and are used since the last request; below 0 if units in Back were never lent
	Back  int64 // units granted before that are not used; they count as never taken, as far as they have not come back
	Then  Mark  // of the reply that granted them
}

// A Kind is how a [Law] counts.
type Kind int

// The kinds, with the numbers that are kept for each. Moments are microseconds of the engine's clock, and 0 before a key is used.
const (
	Bucket  Kind = iota // a moment, and the units missing then, with a fraction
	Window              // the start of the window, and the units used since
	Sliding             // the start of the window, the units of the window before, and the units since
	Log                 // for each unit the moment at which it comes back, in order
)

// A Law is one limit, as an engine uses it for each request: the limit may have changed since the one before.
type Law struct {
	Kind Kind    // how it counts
	Most int64   // the burst of a bucket, the units of a window
	Rate float64 // of a bucket: units per nanosecond
	Per  int64   // of a window: its length, in microseconds
}

// Numbers is how many numbers are kept for a limit, for engines that store them side by side; see [Kind].
func (l Law) Numbers() int {
	switch l.Kind {
	case Sliding:
		return 3
	case Log:
		return int(l.Most)
	}
	return 2
}

// Fits reports whether a mark can be one of these limits. An engine asks before it takes units back: if it is false they are
// not, because their server has other limits now.
func (m Mark) Fits(laws []Law) bool {
	if len(m.Cells) != len(laws) {
		return false
	}
	for i, l := range laws {
		if len(m.Cells[i]) != l.Numbers() {
			return false
		}
	}
	return true
}

// A Mark is the state of a key at a moment, from which a server reckons until it asks again.
type Mark struct {
	Now   int64       // microseconds of the engine's clock
	Cells [][]float64 // by law: its numbers, see [Kind]
}

// A Reply says what was taken, and how things stand after it, so that the server knows by itself how long a request has to
// wait.
type Reply struct {
	Granted int64 // requests
	Leased  int64 // units
	Alone   bool  // no other server has taken units of the key in the last two seconds
	Mark    Mark  // after it
	Err     error // it matches [ErrKey]; nil: all else is right
}
