package fleet

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/outage"
)

// TestAsk: a call with nothing in hand is held for the round trip to the store, and no longer.
func TestAsk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := New(&link{m: new(Memory)}, "x", 1, 2, Options{})
		start := time.Now()
		for i := range 2 {
			if wait, err := l.Ask(t.Context(), 1); wait != 0 || err != nil {
				t.Errorf("call %d within the burst: %v, %v", i, wait, err)
			}
		}
		if took := time.Since(start); took > 8*time.Millisecond {
			t.Errorf("two calls took %v, want at most two round trips each, of 2ms", took)
		}
		start = time.Now()
		wait, err := l.Ask(t.Context(), 1)
		if took := time.Since(start); err != nil || wait < 900*time.Millisecond || wait > time.Second || took > 2*time.Millisecond {
			t.Errorf("a call beyond the burst: %v, %v after %v; want about 1s after a round trip", wait, err, took)
		}
		time.Sleep(wait)
		if wait, err := l.Ask(t.Context(), 1); wait != 0 || err != nil {
			t.Errorf("after the wait: %v, %v", wait, err)
		}
	})
}

// TestAskWithoutStore: a store that hangs delays one call by the soft timeout; then the share decides, at once.
func TestAskWithoutStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &link{m: new(Memory), hang: time.Now().Add(time.Hour), strict: true}
		l := New(store, "x", 100, 10, Options{Members: 1})
		start := time.Now()
		wait, err := l.Ask(t.Context(), 1)
		if took := time.Since(start); err != nil || took > 100*time.Millisecond {
			t.Fatalf("the first call: %v, %v after %v; want an answer within 100ms", wait, err, took)
		}
		time.Sleep(wait)
		start = time.Now()
		if wait, err := l.Ask(t.Context(), 1); wait != 0 || err != nil || time.Since(start) > 0 {
			t.Errorf("from the share: %v, %v after %v", wait, err, time.Since(start))
		}
	})
}

// TestAskLeaves: a call whose client has gone is not held, and takes nothing.
func TestAskLeaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &link{m: new(Memory), trip: func() time.Duration { return 20 * time.Millisecond }}
		l := New(store, "x", 1, 1, Options{})
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(5*time.Millisecond, func() { cancel(gone) })
		start := time.Now()
		if _, err := l.Ask(ctx, 1); !errors.Is(err, gone) || time.Since(start) != 5*time.Millisecond {
			t.Errorf("%v after %v, want the cause after 5ms", err, time.Since(start))
		}
		if used := l.Stats().Used; used != 0 {
			t.Errorf("%d units used", used)
		}
		_ = l.Close()
		if _, err := l.Ask(t.Context(), 1); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// TestAskAtOnce: many calls at once get exactly the burst, and nobody is held for longer than the soft timeout.
func TestAskAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := New(&link{m: new(Memory)}, "x", 1, 20, Options{})
		in := make(chan time.Duration, 100)
		start := time.Now()
		for range cap(in) {
			go func() {
				if wait, err := l.Ask(t.Context(), 1); wait == 0 && err == nil {
					in <- time.Since(start)
					return
				}
				in <- -1
			}()
		}
		admitted := 0
		for range cap(in) {
			if took := <-in; took >= 0 {
				admitted++
			}
		}
		if took := time.Since(start); admitted < 15 || admitted > 21 || took > outage.MostSoft {
			t.Errorf("%d of 100 admitted after %v, want about the burst of 20 within %v", admitted, took, outage.MostSoft)
		}
	})
}

var _ throttle.Limiter = (*Limiter)(nil)
