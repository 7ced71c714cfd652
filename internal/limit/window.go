package limit

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// A window is what the states of both windows share: n units per time per. A fixed window counts them from the first
// unit after the last window has ended, a sliding one remembers when each was taken. What a cost above n fills, and what
// can never be paid, is the same for both.
type window struct {
	clock
	n   int64 // 0: the zero window, which no constructor has made
	per time.Duration

	changed bool // SetLimit was called, so the window is not fresh any more
}

// shortestWindow is the shortest that a window may be. A number of seconds without its unit, up to 86,400, is shorter, and
// nothing can be timed so finely: the timers of Linux have a slack of 50 µs.
const shortestWindow = 100 * time.Microsecond

// init panics for nonsense, as time.NewTicker does; caller is the constructor that the message names.
func (w *window) init(caller string, n int, per time.Duration) {
	if n < 1 {
		panic(fmt.Sprintf("throttle: %s: n %d must be at least 1", caller, n))
	}
	if per < shortestWindow {
		panic(fmt.Sprintf("throttle: %s: per %v must be at least %v; a number alone is nanoseconds, so write 60*time.Second", caller, per, shortestWindow))
	}
	w.n, w.per = int64(n), min(per, Forever/4) // 36 years, so that sums do not overflow
}

// Check counts the windows beyond its own that a cost fills: 25 units of 10 per minute fill three, so the
// surplus blocks for two minutes. The zero window has n = 0 and refuses every unit.
func (w *window) Check(n int) error {
	switch {
	case n < 0:
		return errNegative(n)
	case n > 0 && w.n == 0:
		return fmt.Errorf("throttle: cost %d can never be paid: the window was not made by its constructor", n)
	case n > 0 && times(w.windows(int64(n))-1, w.per) > maxSurplus:
		return fmt.Errorf("throttle: cost %d is above the %d per %v, and its surplus blocks windows for more than %v", n, w.n, w.per, maxSurplus)
	}
	return nil
}

// windows is ⌈units/n⌉: how many windows so many units fill. Example: 21 units of 10 per minute fill three; the third
// holds one of them and has nine left.
func (w *window) windows(units int64) int64 {
	full := units / w.n
	if units%w.n > 0 {
		full++
	}
	return full
}

// Rate implements State. Example: 100 per minute are 1.67 units per second in the long run, in whatever bursts; the zero
// window lets no unit go.
func (w *window) Rate() rate.Limit {
	if w.n == 0 {
		return 0
	}
	return rate.Limit(float64(w.n) / w.per.Seconds())
}

// Size implements State.
func (w *window) Size() (units float64, window time.Duration) { return float64(w.n), w.per }

// times is k·per, capped at Forever so that sums of it do not overflow.
func times(k int64, per time.Duration) time.Duration {
	if k > int64(Forever)/int64(per) {
		return Forever
	}
	return time.Duration(k) * per
}

// plus is a + b for counts that are not negative, capped below 2⁶³.
func plus(a, b int64) int64 { return min(a, 1<<62-1) + min(b, 1<<62-1) }
