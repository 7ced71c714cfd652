package queue

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// againAfter has a call refused because of its deadline, and returns the time after which it is asked to come back.
func againAfter(t *testing.T, q *Queue, ctx context.Context, want *Want) time.Duration {
	t.Helper()
	var again time.Duration
	q.common.Error = func(_ string, wait time.Duration, _ int, reason error) error {
		again = wait
		return reason
	}
	ctx, cancel := context.WithTimeout(ctx, 1)
	defer cancel()
	if err := q.Wait(ctx, want); !errors.Is(err, q.common.Errors.Deadline) {
		t.Fatalf("refused with %v", err)
	}
	return again
}

// One turn after the other at the rate, forgotten when they are over, and fewer when somebody joins the line.
func TestAgainTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		q := New(testConfig(Options{}), setOf(bucket(10, 1)))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		unit := &Want{Cost: 1}
		q.Wait(ctx, unit)
		expect := func(what string, want *Want, after time.Duration) {
			t.Helper()
			if got := againAfter(t, q, ctx, want); (got - after).Abs() > 2*ms {
				t.Errorf("%s: again after %v, want %v", what, got, after)
			}
		}
		expect("the first", unit, 100*ms)
		expect("the second", unit, 200*ms)
		expect("one of three units", &Want{Cost: 3}, 300*ms) // which a burst of 1 lets go as one, for a debt
		expect("one behind it", unit, 600*ms)
		time.Sleep(300 * ms) // the bucket is full, and two or three of the six are no longer expected
		q.Wait(ctx, unit)
		if got := againAfter(t, q, ctx, unit); got < 300*ms || got > 600*ms {
			t.Errorf("after half of the turns: again after %v", got)
		}
		time.Sleep(time.Second)
		q.Wait(ctx, unit)
		expect("when all turns are over", unit, 100*ms)
		done := make(chan error)
		go func() { done <- q.Wait(ctx, unit) }()
		synctest.Wait()
		expect("behind one that has joined, perhaps the same", unit, 200*ms)
		<-done
	})
}

// A flow that was not refused before is not put behind those of another, and shares the rate with them from then on.
func TestAgainOfFlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		q := New(testConfig(Options{}), setOf(bucket(10, 1)))
		a, b, high := &Want{Cost: 1, Flow: "a"}, &Want{Cost: 1, Flow: "b"}, &Want{Cost: 1, Flow: "c", Priority: 1}
		q.Wait(t.Context(), a)
		for i := range 100 {
			if got, want := againAfter(t, q, t.Context(), a), time.Duration(i+1)*100*ms; (got - want).Abs() > 2*ms {
				t.Fatalf("a's call %d: again after %v, want %v", i, got, want)
			}
		}
		for i, c := range []struct {
			want  *Want
			after time.Duration
		}{{b, 100 * ms}, {b, 300 * ms}, {b, 500 * ms}, {high, 100 * ms}, {high, 200 * ms}, {b, 900 * ms}} {
			if got := againAfter(t, q, t.Context(), c.want); (got - c.after).Abs() > 101*ms {
				t.Errorf("%d: again after %v, want %v", i, got, c.after)
			}
		}
	})
}

// What is remembered is bounded: flows, keys, and how far ahead a turn is.
func TestAgainIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(testConfig(Options{}), setOf(bucket(10, 1)))
		q.Wait(t.Context(), &Want{Cost: 1})
		for i := range 20000 {
			flow := ""
			if i%2 == 0 {
				flow = fmt.Sprint(i)
			}
			if got := againAfter(t, q, t.Context(), &Want{Cost: 1, Flow: flow}); got > askedWithin+time.Second {
				t.Fatalf("call %d is asked to come after %v", i, got)
			}
		}
		locked(q.common, func() {
			if n := len(*q.common.asked[q]); n > mostAsked {
				t.Errorf("%d flows are remembered", n)
			}
		})
		time.Sleep(askedWithin + time.Minute)
		q.Wait(t.Context(), &Want{Cost: 1})
		if got := againAfter(t, q, t.Context(), &Want{Cost: 1}); got > 101*time.Millisecond {
			t.Errorf("after all: again after %v", got)
		}
		locked(q.common, func() {
			if n := len(*q.common.asked[q]); n != 1 {
				t.Errorf("%d flows are remembered when their turns are over", n)
			}
		})
	})
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(Options{})
		c.Limits = func(string) (Limits, error) {
			own := setOf(bucket(0.001, 1))
			return Limits{All: own, Own: own}, nil
		}
		table := NewTable(c)
		refuse := func(key string) {
			table.add(key)
			q := table.Get(key)
			q.Wait(t.Context(), &Want{Cost: 1})
			ctx, cancel := context.WithTimeout(t.Context(), 1)
			defer cancel()
			q.Wait(ctx, &Want{Cost: 1})
		}
		for i := range 3 * mostAskers {
			refuse(fmt.Sprint(i))
		}
		if n := len(table.common.asked); n != mostAskers {
			t.Errorf("%d keys are remembered, want %d", n, mostAskers)
		}
		time.Sleep(time.Hour)
		for i := range mostAskers {
			refuse(fmt.Sprint("later ", i))
		}
		if n := len(table.common.asked); n > mostAskers {
			t.Errorf("%d keys are remembered, want at most %d", n, mostAskers)
		}
	})
}
