package calls

import (
	"context"
	"sync/atomic"
	"testing"
)

func TestEach(t *testing.T) {
	var calls atomic.Int64
	Each(t.Context(), 100, 7, func() { calls.Add(1) })
	if got := calls.Load(); got != 100 {
		t.Errorf("%d calls, want 100", got)
	}
}

func TestEachEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	Each(ctx, 100, 1, func() {
		if calls++; calls == 3 {
			cancel()
		}
	})
	if calls != 3 {
		t.Errorf("%d calls, want none after the third, which ended it", calls)
	}
}
