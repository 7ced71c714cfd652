package throttle

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// quota is what both windows share: n units per time per.
type quota struct {
	c   core
	n   int64
	per time.Duration
}

func (q *quota) core() *core { return &q.c }

// start panics for nonsense, as time.NewTicker does.
func (q *quota) start(caller string, n int, per time.Duration) {
	if n < 1 {
		panic(fmt.Sprintf("throttle: %s: n %d must be at least 1", caller, n))
	}
	if per <= 0 {
		panic(fmt.Sprintf("throttle: %s: per %v must be above 0", caller, per))
	}
	q.c.init()
	q.n, q.per = int64(n), min(per, forever/4) // 36 years, so that sums do not overflow
}

// check returns the error of a cost that is negative or blocks for too long. The zero window has
// n = 0 and refuses all.
func (q *quota) check(n int) error {
	switch {
	case n < 0:
		return errNegative(n)
	case n > 0 && q.n == 0:
		return fmt.Errorf("throttle: cost %d can never be paid: the window was not made by its constructor", n)
	case n > 0 && times(q.windows(int64(n))-1, q.per) > maxSurplus:
		return fmt.Errorf("throttle: cost %d is above the %d per %v, and its surplus blocks windows for more than %v", n, q.n, q.per, maxSurplus)
	}
	return nil
}

// windows is ⌈units/n⌉: how many windows so many units fill.
func (q *quota) windows(units int64) int64 {
	w := units / q.n
	if units%q.n > 0 {
		w++
	}
	return w
}

func (q *quota) rate() rate.Limit {
	if q.n == 0 {
		return 0
	}
	return rate.Limit(float64(q.n) / q.per.Seconds())
}

// Notify implements [Notifier].
func (q *quota) Notify(changed func()) (stop func()) { return q.c.notify(changed) }

// times is k·per, capped so that sums of it do not overflow.
func times(k int64, per time.Duration) time.Duration {
	if k > int64(forever)/int64(per) {
		return forever
	}
	return time.Duration(k) * per
}

// plus is a + b for counts that are not negative, capped likewise.
func plus(a, b int64) int64 { return min(a, 1<<62-1) + min(b, 1<<62-1) }

// A FixedWindow admits n units per window of length per. A window starts with the first unit after
// the last one ended; it is not tied to the wall clock. An interval of length per that straddles two
// windows can see up to 2n units: where that must not be, use a [SlidingWindow].
//
// A cost above n goes when no window is open, and fills as many windows in a row as it needs. It is
// an error if (⌈cost/n⌉ − 1)·per is more than an hour.
//
// Make it with [NewFixedWindow]: the zero FixedWindow refuses every cost. It is safe for concurrent
// use and must not be copied.
type FixedWindow struct {
	quota
	start time.Time // of the current window, or of the last one
	used  int64     // units since start; more than n fill the windows that follow without a gap
}

// NewFixedWindow returns a limiter of n units per window of length per.
// It panics if n is below 1 or per is not above 0.
func NewFixedWindow(n int, per time.Duration) *FixedWindow {
	w := new(FixedWindow)
	w.quota.start("NewFixedWindow", n, per)
	return w
}

// at returns the window open at the given moment: its start, and the units used from it on. With no
// window open a new one would start now.
func (w *FixedWindow) at(now time.Time) (start time.Time, used int64) {
	if w.used == 0 {
		return now, 0
	}
	ended := int64(now.Sub(w.start) / w.per)
	if ended >= w.windows(w.used) {
		return now, 0
	}
	return w.start.Add(time.Duration(ended) * w.per), w.used - ended*w.n
}

func (w *FixedWindow) take(at time.Time, n int) {
	at = w.c.lift(at)
	w.c.last = at
	if start, used := w.at(at); n > 0 {
		w.start, w.used = start, plus(used, int64(n))
	}
}

func (w *FixedWindow) takeBy(at, now time.Time, n int) (time.Time, error) {
	return takeReady(w, at, now, n)
}

// giveBack counts the windows that ended since the units were taken: what those held is gone, and
// with it all of a cost that fits one window.
func (w *FixedWindow) giveBack(at, now time.Time, n int) {
	now = w.c.lift(now)
	start, used := w.at(now)
	ended := w.windows(int64(n)) // if no window is open
	if used > 0 {
		ended = int64(max(0, start.Sub(at)+w.per-1) / w.per)
	}
	if ended < w.windows(int64(n)) {
		w.start, w.used = start, max(0, used-(int64(n)-ended*w.n))
		w.c.last = now
	}
}

// after skips windows until the units fit, or until none is open for a cost above n. Under backlog
// windows follow each other without a gap, as under a debt.
func (w *FixedWindow) after(from time.Time, ahead int64, n int) time.Time {
	from = w.c.lift(from)
	if ahead == 0 && n == 0 {
		return from
	}
	start, used := w.at(from)
	used = plus(used, ahead)
	full := w.windows(used)
	if int64(n) <= w.n {
		full = w.windows(max(0, plus(used, int64(n))-w.n))
	}
	return latest(from, start.Add(times(full, w.per)))
}

func (w *FixedWindow) available(now time.Time) float64 {
	_, used := w.at(w.c.lift(now))
	return float64(w.n - used)
}

func (w *FixedWindow) fresh(now time.Time) bool {
	_, used := w.at(w.c.lift(now))
	return used == 0
}

// Take implements [Limiter]; ctx is not used. It errs for a negative cost, and for one above n that
// would block for more than an hour.
func (w *FixedWindow) Take(_ context.Context, n int) (wait time.Duration, err error) {
	return takeNow(w, n)
}

// Adjust implements [Adjuster]: n < 0 gives units of the open window back, n > 0 takes more and may
// leave a debt that fills the following windows.
func (w *FixedWindow) Adjust(n int) {
	w.c.change(func(now time.Time) {
		if w.n == 0 { // the zero one
			return
		}
		if n > 0 {
			w.take(now, n)
			return
		}
		start, used := w.at(now)
		w.start, w.used = start, max(0, used+int64(n))
	})
}
