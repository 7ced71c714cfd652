package queue

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// A line has one timer, only while somebody waits, and stops it when the last one leaves.
func TestLineTimer(t *testing.T) {
	for name, leave := range map[string]func(q *Queue, b *limit.Bucket, cancel func()){
		"cancelled":     func(_ *Queue, _ *limit.Bucket, cancel func()) { cancel() },
		"turned away":   func(q *Queue, _ *limit.Bucket, _ func()) { q.Pause(24 * time.Hour) },
		"granted":       func(_ *Queue, b *limit.Bucket, _ func()) { b.SetLimit(1e9) },
		"never granted": func(_ *Queue, b *limit.Bucket, _ func()) { b.SetLimit(0) },
	} {
		synctest.Test(t, func(t *testing.T) {
			b := bucket(0.1, 1)
			q := New(testConfig(Options{}), setOf(b))
			q.Wait(t.Context(), &Want{Cost: 1})
			if q.line != nil {
				t.Errorf("%s: there is a line, but nobody waits", name)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() { q.Wait(ctx, &Want{Cost: 1}) })
			}
			synctest.Wait()
			timer := q.line.timer
			time.Sleep(10 * time.Second)
			synctest.Wait()
			locked(q.common, func() {
				if q.line.timer != timer || q.line.Len() != 9 {
					t.Errorf("%s: %d wait, same timer %t", name, q.line.Len(), q.line.timer == timer)
				}
			})
			leave(q, b, cancel)
			wg.Wait()
			conserved(t, q)
			if timer.Stop() {
				t.Errorf("%s: the timer was still running", name)
			}
		})
	}
}

// If a timer is late, the units are taken as of the moment it was due, so nothing of the rate is lost.
// A late timer is played by calling the line back at that time.
func TestLateTimer(t *testing.T) {
	for _, late := range []time.Duration{0, time.Millisecond, limit.MaxLate, 8 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			q := New(testConfig(Options{}), setOf(bucket(100, 1)))
			q.Wait(t.Context(), &Want{Cost: 1})
			begin := time.Now()
			var log journal
			for i := range 3 {
				log.wait(q, t.Context(), i)
			}
			locked(q.common, func() { q.line.timer.Stop() })
			time.Sleep(time.Until(begin.Add(10*time.Millisecond + late)))
			q.line.wakeUp()
			log.wg.Wait()
			lost := max(0, late-limit.MaxLate)
			want := []time.Duration{10*time.Millisecond + late, 20*time.Millisecond + lost, 30*time.Millisecond + lost}
			for i, e := range log.sorted() {
				if got := e.at.Sub(begin); got != want[i] {
					t.Errorf("late by %v: call %d after %v, want %v", late, i, got, want[i])
				}
			}
		})
	}
}

// A timer that came late is asked for less often, and nothing is lost by that. One that is exact, as
// those in a bubble are, is not.
func TestLateTimerRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := New(testConfig(Options{}), setOf(bucket(100_000, 1)))
		for range 301 {
			go q.Wait(ctx, &Want{Cost: 1})
		}
		waiting := func(after time.Duration, want int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if n := q.Stats().Waiting; n != want {
				t.Fatalf("%d wait, want %d", n, want)
			}
		}
		waiting(0, 300)
		waiting(10*time.Microsecond, 299)
		waiting(10*time.Microsecond, 298)
		q.line.timer.Stop() // it was due in 10 us
		time.Sleep(time.Millisecond)
		q.line.wakeUp()
		waiting(0, 198)
		waiting(99*time.Microsecond, 198)
		waiting(time.Microsecond, 188)
		cancel()
		synctest.Wait()
	})
}

// A late timer is made up for, by 5 ms at most.
func TestAsOf(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct{ noted, want time.Time }{
		{time.Time{}, now},
		{now.Add(time.Second), now}, // woken early, by an event
		{now, now},
		{now.Add(-time.Millisecond), now.Add(-time.Millisecond)},
		{now.Add(-limit.MaxLate), now.Add(-limit.MaxLate)},
		{now.Add(-time.Second), now.Add(-limit.MaxLate)},
	} {
		if got := asOf(c.noted, now); !got.Equal(c.want) {
			t.Errorf("advertised %v: as of %v, want %v", c.noted.Sub(now), got.Sub(now), c.want.Sub(now))
		}
	}
}
