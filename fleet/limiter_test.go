package fleet

import (
	"context"
	"testing"
	"time"

	"github.com/go-throttle/throttle"
)

// inHand returns a limiter that has a thousand million units in hand, for as long as a test or benchmark may take.
func inHand(tb testing.TB) *Limiter {
	tb.Helper()
	l := New(new(Memory), "x", 1e6, 1e6, Options{})
	l.account.update(func(now time.Time) {
		l.account.hand.add(run{first: now, until: now.Add(time.Hour), every: 1, count: 1e9})
	})
	return l
}

// TestTakeDoesNotAllocate: with units in hand a call allocates nothing.
func TestTakeDoesNotAllocate(t *testing.T) {
	l, ctx := inHand(t), context.Background()
	q := throttle.NewQueue(l, throttle.QueueOptions{})
	before := l.Stats().Used
	if n := testing.AllocsPerRun(1000, func() { q.Wait(ctx) }); n != 0 {
		t.Errorf("Wait allocates %v times", n)
	}
	if used := l.Stats().Used - before; used != 1001 {
		t.Errorf("%d units used", used)
	}
}

// BenchmarkWait compares a call with units in hand with one of a Bucket.
func BenchmarkWait(b *testing.B) {
	for name, lim := range map[string]throttle.Limiter{"bucket": throttle.NewBucket(1e6, 1e9), "fleet": inHand(b)} {
		b.Run(name, func(b *testing.B) {
			q, ctx := throttle.NewQueue(lim, throttle.QueueOptions{}), context.Background()
			b.ReportAllocs()
			for range b.N {
				q.Wait(ctx)
			}
		})
	}
}
