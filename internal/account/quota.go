package account

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// quota is what both windows share: N units per time Per.
type quota struct {
	c   Core
	N   int64
	Per time.Duration
}

// Core implements [Account].
func (q *quota) Core() *Core { return &q.c }

// Init panics for nonsense, as time.NewTicker does; caller is the constructor to be named.
func (q *quota) Init(caller string, n int, per time.Duration) {
	if n < 1 {
		panic(fmt.Sprintf("throttle: %s: n %d must be at least 1", caller, n))
	}
	if per <= 0 {
		panic(fmt.Sprintf("throttle: %s: per %v must be above 0", caller, per))
	}
	q.c.init()
	q.N, q.Per = int64(n), min(per, Forever/4) // 36 years, so that sums do not overflow
}

// Check returns the error of a cost that is negative or blocks for too long. The zero window has
// N = 0 and refuses all.
func (q *quota) Check(n int) error {
	switch {
	case n < 0:
		return errNegative(n)
	case n > 0 && q.N == 0:
		return fmt.Errorf("throttle: cost %d can never be paid: the window was not made by its constructor", n)
	case n > 0 && times(q.windows(int64(n))-1, q.Per) > maxSurplus:
		return fmt.Errorf("throttle: cost %d is above the %d per %v, and its surplus blocks windows for more than %v", n, q.N, q.Per, maxSurplus)
	}
	return nil
}

// windows is ⌈units/N⌉: how many windows so many units fill.
func (q *quota) windows(units int64) int64 {
	w := units / q.N
	if units%q.N > 0 {
		w++
	}
	return w
}

// Rate implements [Account].
func (q *quota) Rate() rate.Limit {
	if q.N == 0 {
		return 0
	}
	return rate.Limit(float64(q.N) / q.Per.Seconds())
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
