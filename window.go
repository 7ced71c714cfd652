package throttle

import (
	"context"
	"time"

	"github.com/go-throttle/throttle/internal/account"
)

// A FixedWindow admits n units per window of length per. A window starts with the first unit after
// the last one ended; it is not tied to the wall clock. An interval of length per that straddles two
// windows can see up to 2n units: where that must not be, use a [SlidingWindow].
//
// A cost above n goes when no window is open, and fills as many windows in a row as it needs. It is
// an error if (⌈cost/n⌉ − 1)·per is more than an hour.
//
// Make it with [NewFixedWindow]: the zero FixedWindow refuses every cost. It is safe for concurrent
// use and must not be copied.
type FixedWindow struct{ window account.FixedWindow }

// NewFixedWindow returns a limiter of n units per window of length per.
// It panics if n is below 1 or per is not above 0.
func NewFixedWindow(n int, per time.Duration) *FixedWindow {
	w := new(FixedWindow)
	w.window.Init("NewFixedWindow", n, per)
	return w
}

// Take implements [Limiter]; ctx is not used. It errs for a negative cost, and for one above n that
// would block for more than an hour.
func (w *FixedWindow) Take(_ context.Context, n int) (wait time.Duration, err error) {
	return account.TakeNow(&w.window, n)
}

// Adjust implements [Adjuster]: n < 0 gives units of the open window back, n > 0 takes more and may
// leave a debt that fills the following windows.
func (w *FixedWindow) Adjust(n int) { w.window.Adjust(n) }

// Notify implements [Notifier].
func (w *FixedWindow) Notify(changed func()) (stop func()) { return w.window.Notify(changed) }

// A SlidingWindow admits at most n units in any half-open interval of length per, exactly: it keeps
// the moment of every unit until per has passed, 8 bytes each. It never refuses what the limit
// allows; a [Bucket] that never broke it would have to leave burst of the n unused.
//
// An upstream counts when requests arrive, and they come closer to each other on the way: make per
// longer than what it documents, by as much as latencies differ, or some will be refused.
//
// A cost above n goes when the window is empty, and fills it again and again until it is paid. It is
// an error if (⌈cost/n⌉ − 1)·per is more than an hour.
//
// Make it with [NewSlidingWindow]: the zero SlidingWindow refuses every cost. It is safe for
// concurrent use and must not be copied.
type SlidingWindow struct{ window account.SlidingWindow }

// NewSlidingWindow returns a limiter of n units in any interval of length per.
// It panics if n is below 1 or per is not above 0.
func NewSlidingWindow(n int, per time.Duration) *SlidingWindow {
	w := new(SlidingWindow)
	w.window.Init("NewSlidingWindow", n, per)
	return w
}

// Take implements [Limiter]; ctx is not used. It errs for a negative cost, and for one above n that
// would block for more than an hour.
func (w *SlidingWindow) Take(_ context.Context, n int) (wait time.Duration, err error) {
	return account.TakeNow(&w.window, n)
}

// Adjust implements [Adjuster]: n < 0 lessens a debt and then gives the oldest units back, so that
// what remains is blocked the longest; n > 0 takes more and may leave a debt.
func (w *SlidingWindow) Adjust(n int) { w.window.Adjust(n) }

// Notify implements [Notifier].
func (w *SlidingWindow) Notify(changed func()) (stop func()) { return w.window.Notify(changed) }
