package throttle_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
)

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
