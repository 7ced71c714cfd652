package account

import (
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

// Init panics for nonsense, as time.NewTicker does; caller is the constructor to be named.
func (q *quota) Init(caller string, n int, per time.Duration) {
	if n < 1 {
		panic(fmt.Sprintf("throttle: %s: n %d must be at least 1", caller, n))
	}
	if per <= 0 {
		panic(fmt.Sprintf("throttle: %s: per %v must be above 0", caller, per))
	}
	q.n, q.per = int64(n), min(per, Forever/4) // 36 years, so that sums do not overflow
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

// Notify has changed called after each change.
func (q *quota) Notify(changed func()) (stop func()) { return q.c.notify(changed) }

// times is k·per, capped at Forever so that sums of it do not overflow.
func times(k int64, per time.Duration) time.Duration {
	if k > int64(Forever)/int64(per) {
		return Forever
	}
	return time.Duration(k) * per
}

// plus is a + b for counts that are not negative, capped likewise.
func plus(a, b int64) int64 { return min(a, 1<<62-1) + min(b, 1<<62-1) }
