package throttle_test

import (
	"context"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
)

// Cost and priority in one ctx do not disturb each other, and the latest of each counts.
func TestCostAndPriorityInOneContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var costs []int
		far := &remote{take: func(_ context.Context, n int) (time.Duration, error) {
			costs = append(costs, n)
			return 0, nil
		}}
		q := throttle.NewQueue(throttle.All(throttle.NewLeaky(1), far), throttle.QueueOptions{})
		q.Wait(t.Context())
		costs = nil
		var log journal
		ctx := throttle.WithPriority(throttle.WithCost(t.Context(), 7), 9)
		ctx = throttle.WithCost(throttle.WithPriority(ctx, -3), 5)
		log.wait(q, throttle.WithPriority(t.Context(), -4), 0)
		log.wait(q, ctx, 1)
		log.wait(q, throttle.WithPriority(t.Context(), -2), 2)
		log.wg.Wait()
		if got := log.ids(); !slices.Equal(got, []int{2, 1, 0}) || !slices.Equal(costs, []int{1, 5, 1}) {
			t.Errorf("%v went with costs %v, want the second one to have priority -3 and cost 5", got, costs)
		}
	})
}

// Priorities beyond 32 bits count as the nearest that fits: they do not wrap around.
func TestPrioritiesBeyond32Bits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.NewLeaky(1), throttle.QueueOptions{})
		q.Wait(t.Context())
		var log journal
		for i, p := range []int{math.MinInt, math.MinInt32, 0, math.MaxInt32, math.MaxInt, math.MinInt32 + 1, math.MaxInt32 - 1} {
			log.wait(q, throttle.WithPriority(t.Context(), p), i)
		}
		log.wg.Wait()
		if got, want := log.ids(), []int{3, 4, 6, 2, 5, 0, 1}; !slices.Equal(got, want) {
			t.Errorf("order %v, want %v", got, want)
		}
	})
}
