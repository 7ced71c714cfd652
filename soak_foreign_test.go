package throttle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// soakAsking is the longest that a foreign limiter takes to answer.
const soakAsking = 30 * time.Millisecond

// A soakForeign is a limiter that is not the library's: it takes time, and may fail.
type soakForeign struct {
	s       *soak
	name    string
	inner   *Bucket
	slow    time.Duration // at most
	heeds   bool          // its ctx
	adjusts bool

	// guarded by the soak's lock
	taken, returned, started int // units
	watches                  map[int]func()
	count                    int
}

type (
	adjustingForeign struct{ *soakForeign }
	notifyingForeign struct{ *soakForeign }
	fullForeign      struct{ adjustingForeign }
)

func (s *soak) newForeign(plain bool) (*soakForeign, Limiter) {
	f := &soakForeign{s: s, inner: NewBucket(rate.Limit(5+s.n(60)), 1+s.n(12)), heeds: s.one(2), watches: map[int]func(){}}
	if s.one(2) {
		f.slow = soakAsking
	}
	kind := s.n(4)
	if !plain {
		kind = 2 + s.n(2)
	}
	f.adjusts = kind >= 2
	f.name = fmt.Sprintf("foreign %s of %v/s, slow %v", strings.Fields("plain notifying adjusting full")[kind], f.inner.Limit(), f.slow)
	switch kind {
	case 0:
		return f, f
	case 1:
		return f, notifyingForeign{f}
	case 2:
		return f, adjustingForeign{f}
	}
	return f, fullForeign{adjustingForeign{f}}
}

func (f *soakForeign) Take(ctx context.Context, n int) (wait time.Duration, err error) {
	c := callOf(ctx)
	f.s.locked(c.prepay)
	defer func() {
		f.s.mu.Lock()
		defer f.s.mu.Unlock()
		c.asks--
		if err != nil || wait != 0 {
			c.unpay()
		} else {
			f.taken += n
		}
		f.s.happened()
	}()
	if d := f.s.dur(0, f.slow); d > 0 {
		if !f.heeds {
			ctx = context.Background()
		}
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	switch f.s.n(300) {
	case 0:
		return 0, errors.New("the foreign limiter is out of order")
	case 1:
		return -1, nil
	}
	return f.inner.Take(ctx, n)
}

func (f adjustingForeign) Adjust(n int) {
	f.s.locked(func() { f.returned -= n })
	f.inner.Adjust(n)
}

func (f fullForeign) Adjust(n int) {
	f.adjustingForeign.Adjust(n)
	f.changed()
}

func (f notifyingForeign) Notify(changed func()) func() { return f.notify(changed) }

func (f fullForeign) Notify(changed func()) func() { return f.notify(changed) }

func (f *soakForeign) notify(changed func()) (stop func()) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	f.count++
	id := f.count
	f.watches[id] = changed
	return func() { f.s.locked(func() { delete(f.watches, id) }) }
}

// changed tells who listens.
func (f *soakForeign) changed() {
	var tell []func()
	f.s.locked(func() { tell = slices.Collect(maps.Values(f.watches)) })
	for _, changed := range tell {
		changed()
	}
}

func (f *soakForeign) meddle() {
	f.s.tell("%s gets another limit", f.name)
	f.inner.SetLimit(rate.Limit(5 + f.s.n(60)))
	for _, changed := range slices.Collect(maps.Values(f.watches)) {
		changed()
	}
}
