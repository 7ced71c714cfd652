package throttle

import (
	"context"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// A FixedWindow admits n units in each window of length per. A window starts with the first unit after the
// previous one ended; it is not tied to the wall clock. An interval of length per that straddles two windows
// may see up to 2n units: use a [SlidingWindow] if that is too many.
//
// A cost above n goes when no window is open, and fills as many windows in a row as it needs. If
// (⌈cost/n⌉ − 1)·per is more than an hour, the cost is an error.
//
// Make it with [NewFixedWindow]: the zero FixedWindow errs for every cost. It is safe for concurrent use
// and must not be copied.
type FixedWindow struct{ window limit.FixedWindow }

// NewFixedWindow returns a limiter of n units per window of length per, as in NewFixedWindow(300, time.Minute).
// It panics if n is below 1, or per below 100 µs, as a number without its unit is.
func NewFixedWindow(n int, per time.Duration) *FixedWindow {
	w := new(FixedWindow)
	w.window.Init("NewFixedWindow", n, per)
	return w
}

// Take implements [Limiter]; ctx is not used. It returns an error for a negative cost, and for one above n
// that would fill windows for more than an hour.
func (w *FixedWindow) Take(_ context.Context, n int) (wait time.Duration, err error) {
	return limit.TakeNow(&w.window, n)
}

// Adjust implements [Adjuster], for calls whose cost is known afterwards: n < 0 gives back units of the open
// window; n > 0 takes more, and may leave a debt that fills the windows that follow.
func (w *FixedWindow) Adjust(n int) { w.window.Adjust(n) }

// Notify implements [Notifier], as [Bucket.Notify] does, for code without a [Queue].
func (w *FixedWindow) Notify(changed func()) (stop func()) { return w.window.Notify(changed) }

// SetLimit changes the window to n units per length per from now on, and re-times sleeping callers. The units
// of the open window stay used, and it ends per after it began. SetLimit panics if [NewFixedWindow] would.
func (w *FixedWindow) SetLimit(n int, per time.Duration) { w.window.SetLimit(n, per) }

// String returns the limit as [ParseLimit] reads it, such as "100/s window".
func (w *FixedWindow) String() string { return w.window.String() }

// A SlidingWindow admits at most n units in any half-open interval of length per, exactly. To do so, it
// remembers the moment of every unit for that long, 8 bytes each. A [Bucket] that never exceeded the same
// limit would have to leave a part of it unused, as large as its burst.
//
// An upstream counts requests when they arrive, and they may arrive closer together than they were sent. So make per
// longer than the documented window, by as much as latencies differ; otherwise the upstream throttles some requests.
//
// A cost above n goes when the window is empty, and fills it again and again until it is paid. If
// (⌈cost/n⌉ − 1)·per is more than an hour, the cost is an error.
//
// Make it with [NewSlidingWindow]: the zero SlidingWindow errs for every cost. It is safe for concurrent
// use and must not be copied.
type SlidingWindow struct{ window limit.SlidingWindow }

// NewSlidingWindow returns a limiter of n units in any interval of length per, as in NewSlidingWindow(300,
// 61*time.Second). It panics if n is below 1, or per below 100 µs, as a number without its unit is.
func NewSlidingWindow(n int, per time.Duration) *SlidingWindow {
	w := new(SlidingWindow)
	w.window.Init("NewSlidingWindow", n, per)
	return w
}

// Take implements [Limiter]; ctx is not used. It returns an error for a negative cost, and for one above n
// that would fill the window for more than an hour.
func (w *SlidingWindow) Take(_ context.Context, n int) (wait time.Duration, err error) {
	return limit.TakeNow(&w.window, n)
}

// Adjust implements [Adjuster]: n < 0 reduces a debt first and then gives back the oldest units, so that
// the rest is remembered longest; n > 0 takes more, and may leave a debt.
func (w *SlidingWindow) Adjust(n int) { w.window.Adjust(n) }

// Notify implements [Notifier], as [Bucket.Notify] does, for code without a [Queue].
func (w *SlidingWindow) Notify(changed func()) (stop func()) { return w.window.Notify(changed) }

// SetLimit changes the window to n units per length per from now on, and re-times sleeping callers. Units stay
// used until they are per old; a longer window does not know those that the shorter one has forgotten.
// SetLimit panics if [NewSlidingWindow] would.
func (w *SlidingWindow) SetLimit(n int, per time.Duration) { w.window.SetLimit(n, per) }

// String returns the limit as [ParseLimit] reads it, such as "5000/h sliding".
func (w *SlidingWindow) String() string { return w.window.String() }
