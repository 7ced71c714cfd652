package account

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// JoinForeign adds a limiter of another kind. A second one without Adjust is an error: if the later
// of two refuses, what the earlier one took would be lost.
func (s *Set) JoinForeign(l takes) error {
	end := len(s.Foreign)
	if end > 0 && !gives(s.Foreign[end-1]) {
		if end--; !gives(l) {
			return fmt.Errorf("%T and %T both lack Adjust; at most one limiter may, because units that it took cannot be given back", s.Foreign[end], l)
		}
	}
	s.Foreign = slices.Insert(s.Foreign, end, l)
	return nil
}

// gives reports whether l can give units back.
func gives(l takes) bool {
	_, ok := l.(adjusts)
	return ok
}

// Merge adds the limiters of another set.
func (s *Set) Merge(other *Set) error {
	for _, o := range other.Accounts {
		s.Join(o)
	}
	for _, l := range other.Foreign {
		if err := s.JoinForeign(l); err != nil {
			return err
		}
	}
	return nil
}

// Take takes n units from all limiters, or from none and returns the longest of their waits.
func (s *Set) Take(ctx context.Context, n int) (time.Duration, error) {
	now := time.Now()
	m, err := s.TakeBy(now, now, n)
	if err != nil || m.After(now) {
		return max(0, m.Sub(now)), err
	}
	given := false
	defer func() {
		if !given {
			s.GiveBack(m, time.Now(), n)
		}
	}()
	wait, err := TakeForeign(ctx, s.Foreign, n)
	given = err == nil && wait == 0
	return wait, err
}

// Silent reports whether one of the foreign limiters cannot tell that what it said before no longer
// holds.
func (s *Set) Silent() bool {
	return slices.ContainsFunc(s.Foreign, func(l takes) bool { _, tells := l.(notifies); return !tells })
}

// TakeForeign asks foreign limiters one after the other. If one refuses, or panics, what those
// before it gave goes back. No lock may be held.
func TakeForeign(ctx context.Context, ls []takes, n int) (wait time.Duration, err error) {
	paid := 0
	defer func() {
		if paid < len(ls) {
			Adjust(ls[:paid], -n)
		}
	}()
	for _, l := range ls {
		wait, err = l.Take(ctx, n)
		if err == nil && wait < 0 {
			err = fmt.Errorf("throttle: %T.Take returned the negative wait %v", l, wait)
		}
		if err != nil || wait > 0 {
			return max(0, wait), err
		}
		paid++
	}
	return 0, nil
}

// Adjust adjusts those limiters that can be.
func Adjust[L any](ls []L, n int) {
	for _, l := range ls {
		if l, ok := any(l).(adjusts); ok {
			l.Adjust(n)
		}
	}
}

// Watch has changed called by those that can tell of changes, until stop.
func Watch[L any](ls []L, changed func()) (stop func()) {
	var stops []func()
	for _, l := range ls {
		if l, ok := any(l).(notifies); ok {
			if stop := l.Notify(changed); stop != nil {
				stops = append(stops, stop)
			}
		}
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}
