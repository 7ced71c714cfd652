package throttle

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// joinForeign adds a limiter of another kind. A second one without Adjust is an error: if the later
// of two refuses, what the earlier one took would be lost.
func (s *set) joinForeign(l takes) error {
	end := len(s.foreign)
	if end > 0 && !gives(s.foreign[end-1]) {
		if end--; !gives(l) {
			return fmt.Errorf("%T and %T both lack Adjust; at most one limiter may, because units that it took cannot be given back", s.foreign[end], l)
		}
	}
	s.foreign = slices.Insert(s.foreign, end, l)
	return nil
}

// gives reports whether l can give units back.
func gives(l takes) bool {
	_, ok := l.(adjusts)
	return ok
}

// merge adds the limiters of another set.
func (s *set) merge(other *set) error {
	for _, o := range other.own {
		s.join(o)
	}
	for _, l := range other.foreign {
		if err := s.joinForeign(l); err != nil {
			return err
		}
	}
	return nil
}

// take takes n units from all limiters, or from none and returns the longest of their waits.
func (s *set) take(ctx context.Context, n int) (time.Duration, error) {
	now := time.Now()
	m, err := s.takeBy(now, now, n)
	if err != nil || m.After(now) {
		return max(0, m.Sub(now)), err
	}
	given := false
	defer func() {
		if !given {
			s.giveBack(m, time.Now(), n)
		}
	}()
	wait, err := takeForeign(ctx, s.foreign, n)
	given = err == nil && wait == 0
	return wait, err
}

// silent reports whether a foreign limiter cannot tell that what it said before no longer holds.
func (s *set) silent() bool {
	return slices.ContainsFunc(s.foreign, func(l takes) bool { _, tells := l.(notifies); return !tells })
}

// takeForeign asks foreign limiters one after the other. If one refuses, or panics, what those
// before it gave goes back. No lock may be held.
func takeForeign(ctx context.Context, ls []takes, n int) (wait time.Duration, err error) {
	paid := 0
	defer func() {
		if paid < len(ls) {
			adjust(ls[:paid], -n)
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

// adjust does so with those that can.
func adjust[L any](ls []L, n int) {
	for _, l := range ls {
		if l, ok := any(l).(adjusts); ok {
			l.Adjust(n)
		}
	}
}

// watch has changed called by those that can.
func watch[L any](ls []L, changed func()) (stop func()) {
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
