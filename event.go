package throttle

import (
	"context"
	"reflect"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/queue"
)

// An Event tells an observer about one step of one call. Fields that do not apply are zero. Reason names what holds
// a call back that waits, or is refused because it would have to:
//
//	"limit"               the limiter of its key
//	"limit:shared"        Transport.Limiter, which all keys pay
//	"limit:advertised"    a quota that responses advertise
//	"limit:found"         a rate found because the upstream throttles
//	"in-flight:found"     a number of calls in flight found because the upstream throttles those above it
//	"store"               a limit of package fleet, whose store has not answered yet
//	"gate:retry-after"    the gate is closed: the upstream has asked for a wait
//	"gate:throttled"      the same, and the upstream has throttled an attempt without asking for a wait
//	"gate:failing"        the same, and the upstream keeps failing
//	"gate:paused"         the same by Pause
//	"gate:reopening"      the gate lets the first calls through one by one
//	"gate:first-contact"  the upstream has not answered yet
//	"slot"                QueueOptions.MaxInFlight calls are in flight
//	"in-flight:load"      as many calls are in flight as QueueOptions.InFlight allows now
//	"meter:tokens"        the [Meter] of that name
//	"order"               only the calls before it
//
// Of several it is the one that lasts longest. A program must expect further words.
type Event struct {
	Key     string        // the call's key, at most 256 bytes
	Method  string        // the request's method
	Host    string        // the host of the request's URL
	Status  int           // the status of the last attempt's response; 0: no response
	Attempt int           // attempts sent so far
	Wait    time.Duration // the time waited, or still to wait
	Reason  string        // of Waiting, Waited and Refused: what holds the call, or held it at first; of Closed and Opened: the gate
	Err     error         // the attempt's error, or the reason why the call was refused
	Learned Learned       // the limit that was learned
}

// Learned is one limit that a key has learned from its upstream: a quota that responses advertise, or what was found because the upstream
// throttles: a rate, or with Unit "in-flight" a number of calls in flight. Beside a configured limit the hook hears of the first such
// rate (you configured 10/s; 9.6/s are accepted), of one 5 % lower after a minute, and of one 5 % higher, or rate.Inf (nothing lower is
// held any more), that has lasted for ten minutes.
type Learned struct {
	Name, Unit string        // as advertised; "": unset. "in-flight": Limit calls may be in flight
	Source     string        // the header field that advertises it, "body", or "throttled": found from 429s
	Limit      int64         // units in a window, or in flight; -1: unknown
	Remaining  int64         // units left in the window when last advertised; -1: unknown
	Reset      time.Duration // until the window ends; -1: unknown
	Window     time.Duration // the window's length; 0: unknown
	Rate       rate.Limit    // at which calls start because of it, in units per second; rate.Inf: not spaced
	Configured rate.Limit    // of "throttled": the slowest configured limit, if it is above Rate, so too high; 0: none of this package is
}

// Hooks are functions that observe the calls of a [Transport]; nil ones are skipped. Each runs in the
// goroutine of its call, with the request's ctx and never under a lock, so a slow hook delays that call
// alone. Hooks must be safe for concurrent use.
//
// A call that Waiting has announced is sent after Waited, or ended: Refused follows. It stands in line while
// Waiting runs, so its turn is not lost.
type Hooks struct {
	Waiting   func(context.Context, Event) // the call begins to wait in line, for Wait as predicted; 0: unknown
	Waited    func(context.Context, Event) // the call has waited in line and is sent now
	Refused   func(context.Context, Event) // the call is not sent, or not again in spite of Retrying; Err is the reason
	Throttled func(context.Context, Event) // the upstream throttled the attempt and asks for Wait; 0: for no time
	Failed    func(context.Context, Event) // the attempt got no response, or a 500, 502, 503, 504 or 408 (see Retry) that is not throttling
	Learned   func(context.Context, Event) // a limit is new, has another size, or is a found rate that was just cut; of a configured limit that is too high see Learned
	Retrying  func(context.Context, Event) // the call will be sent again, in about Wait
	Closed    func(context.Context, Event) // the attempt has closed its key's gate, which opens or tries a probe in Wait
	Opened    func(context.Context, Event) // it was a probe, and has opened the gate, closed for Wait; time alone opens one silently
}

// Join returns Hooks that call h's function first and then other's.
func (h Hooks) Join(other Hooks) Hooks {
	joined := reflect.ValueOf(&h).Elem()
	for place := range joined.NumField() {
		joined.Field(place).Set(reflect.ValueOf(both(h.at(place), other.at(place))))
	}
	return h
}

// A hook is one function of Hooks.
type hook = func(context.Context, Event)

// The places of the hooks: those of their fields in Hooks.
const (
	onWaiting = iota
	onWaited
	onRefused
	onThrottled
	onFailed
	onLearned
	onRetrying
	onClosed
	onOpened
)

// at returns the function at a place, by reflection, so that Join cannot forget a hook that is added later.
func (h *Hooks) at(place int) hook { return reflect.ValueOf(h).Elem().Field(place).Interface().(hook) }

// tell is what the hooks of waiting calls want to know.
func (h *Hooks) tell() (tell queue.Tell) {
	if h.Waiting != nil {
		tell |= queue.TellReason | queue.TellWait
	}
	if h.Waited != nil {
		tell |= queue.TellReason
	}
	return tell
}

// both returns a function that calls a and then b, and either may be nil.
func both(a, b hook) hook {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return func(ctx context.Context, e Event) { a(ctx, e); b(ctx, e) }
}
