package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
)

func TestErrorText(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		e    throttle.Error
		want string
	}{
		{throttle.Error{Key: "x", Wait: 3 * time.Second, Attempts: 2, Err: throttle.ErrQueueFull}, `throttle: "x": queue full (predicted wait 3s, 2 attempts sent)`},
		{throttle.Error{Key: "x", Attempts: 1, Err: throttle.ErrRetryBudget}, `throttle: "x": retry budget spent (1 attempt sent)`},
		{throttle.Error{Wait: 90 * ms, Err: throttle.ErrWaitTooLong}, `throttle: wait too long (predicted wait 90ms)`},
		{throttle.Error{Key: "a\n", Err: throttle.ErrPaused}, `throttle: "a\n": upstream paused`},
		{throttle.Error{Key: "x", Err: context.Canceled}, `throttle: "x": context canceled`},
		{throttle.Error{Err: errors.New("store: down")}, `throttle: store: down`},
		{throttle.Error{Key: "x", Wait: time.Hour + 2*time.Second + 345*ms, Err: throttle.ErrPaused}, `throttle: "x": upstream paused (predicted wait 1h0m2s)`},
		{throttle.Error{}, `throttle: call ended`},
	} {
		if got := c.e.Error(); got != c.want {
			t.Errorf("%#v:\n got %s\nwant %s", c.e, got, c.want)
		}
	}
	for wait, want := range map[time.Duration]string{
		1: "1ns", 999: "999ns", 1234: "1.2µs", 123456: "123µs", 1234567: "1.2ms", 12345678: "12ms", 999999999: "1s",
		1234567890: "1.2s", 9999999999: "10s", 12345678901: "12s", -1: "", math.MaxInt64: "2562047h47m16.854775807s",
	} {
		e := throttle.Error{Wait: wait, Err: throttle.ErrWaitTooLong}
		text := "throttle: wait too long"
		if want != "" {
			text += fmt.Sprintf(" (predicted wait %s)", want)
		}
		if got := e.Error(); got != text {
			t.Errorf("%d ns: %s, want %s", wait, got, text)
		}
	}
}

// The sentinels match through an Error, and a deadline that cannot be met matches both of its names.
func TestErrorMatches(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	b := throttle.NewBucket(0.0001, 1)
	b.Allow()
	err := throttle.NewQueue(b, throttle.QueueOptions{}).Wait(ctx)
	var e *throttle.Error
	if !errors.As(err, &e) || !e.Timeout() || !errors.Is(err, throttle.ErrWaitTooLong) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if want := `throttle: too little time before the caller's deadline (predicted wait 2h46m40s)`; fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
	err = throttle.NewQueue(b, throttle.QueueOptions{MaxWait: time.Second}).Wait(t.Context())
	if !errors.As(err, &e) || e.Timeout() || !errors.Is(err, throttle.ErrWaitTooLong) {
		t.Errorf("got %v", err)
	}
}

func TestErrorWithoutReason(t *testing.T) {
	e := &throttle.Error{Key: "a.test"}
	if got, want := e.Error(), `throttle: "a.test": call ended`; got != want || e.Timeout() {
		t.Errorf("%s, timeout %v", got, e.Timeout())
	}
}

// The text of a refusal for want of time to answer names a wait of 100 ms and says that it would outlast a
// deadline that is a second away.
func TestHostileTextOfARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.NewBucket(10, 1), throttle.QueueOptions{})
		for range 20 {
			q.Do(t.Context(), func(context.Context) error { time.Sleep(3 * time.Second); return nil })
		}
		for range 5 { // somebody waits
			go q.Wait(t.Context())
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := q.Do(ctx, func(context.Context) error { return nil })
		if err == nil || strings.Contains(err.Error(), "the wait would outlast the caller's deadline") {
			t.Errorf("%v, a second before the deadline", err)
		}
	})
}
