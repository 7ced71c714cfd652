package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
)

// askTime is the longest that a foreign limiter takes to answer.
const askTime = 30 * time.Millisecond

// A foreign is a limiter that is not the library's: it takes time, and may fail.
type foreign struct {
	w       *world
	name    string
	inner   *throttle.Bucket
	slow    time.Duration // at most
	heeds   bool          // its ctx
	adjusts bool

	// guarded by the world's lock
	taken, returned, started int // units
	watches                  map[int]func()
	count                    int
}

type (
	adjustingForeign struct{ *foreign }
	notifyingForeign struct{ *foreign }
	fullForeign      struct{ adjustingForeign }
)

func (w *world) newForeign(plain bool) (*foreign, throttle.Limiter) {
	f := &foreign{w: w, inner: throttle.NewBucket(rate.Limit(5+w.n(60)), 1+w.n(12)), heeds: w.one(2), watches: map[int]func(){}}
	if w.one(2) {
		f.slow = askTime
	}
	kind := w.n(4)
	if !plain {
		kind = 2 + w.n(2)
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

func (f *foreign) Take(ctx context.Context, n int) (wait time.Duration, err error) {
	f.w.locked(func() { f.w.asking++ })
	defer func() {
		f.w.mu.Lock()
		defer f.w.mu.Unlock()
		if f.w.asking--; err == nil && wait == 0 {
			f.taken += n
		}
		f.w.happened()
	}()
	if d := f.w.dur(0, f.slow); d > 0 {
		if !f.heeds {
			ctx = context.Background()
		}
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	switch f.w.n(300) {
	case 0:
		return 0, errors.New("the foreign limiter is out of order")
	case 1:
		return -1, nil
	}
	return f.inner.Take(ctx, n)
}

func (f adjustingForeign) Adjust(n int) {
	f.w.locked(func() { f.returned -= n })
	f.inner.Adjust(n)
}

func (f fullForeign) Adjust(n int) {
	f.adjustingForeign.Adjust(n)
	f.changed()
}

func (f notifyingForeign) Notify(changed func()) func() { return f.notify(changed) }

func (f fullForeign) Notify(changed func()) func() { return f.notify(changed) }

func (f *foreign) notify(changed func()) (stop func()) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.count++
	id := f.count
	f.watches[id] = changed
	return func() { f.w.locked(func() { delete(f.watches, id) }) }
}

// changed calls who listens.
func (f *foreign) changed() {
	var tell []func()
	f.w.locked(func() { tell = slices.Collect(maps.Values(f.watches)) })
	for _, changed := range tell {
		changed()
	}
}

func (f *foreign) meddle() {
	f.w.note("%s gets another limit", f.name)
	f.inner.SetLimit(rate.Limit(5 + f.w.n(60)))
	for _, changed := range slices.Collect(maps.Values(f.watches)) {
		changed()
	}
}
