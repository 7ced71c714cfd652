package recipes

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttletest"
)

// TestAgain: 200 jobs come at once, at 10 a second and with room for five seconds in line. All are done, none is
// throttled, and the last one little later than it must.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := throttletest.NewServer(perSecond(10))
		client := &http.Client{Transport: &throttle.Transport{
			Base: upstream, Limiter: throttle.NewBucket(10, 1), Queue: throttle.QueueOptions{MaxWait: 5 * time.Second},
		}}
		var calls atomic.Int64
		took := all(t, 200, func(int) error {
			return Again(t.Context(), func(ctx context.Context) error {
				calls.Add(1)
				return status(client.Do(get(t, "http://api.test/").WithContext(ctx)))
			})
		})
		t.Logf("200 jobs took %v and %d calls", took, calls.Load())
		if took < 19900*time.Millisecond || took > 40*time.Second || calls.Load() < 201 {
			t.Errorf("200 jobs took %v and %d calls, want about 20s and more than 200", took, calls.Load())
		}
		none(t, upstream, 200)
	})
}

// TestAgainEnds: what Again does with each kind of error.
func TestAgainEnds(t *testing.T) {
	own := errors.New("the call's own")
	refused := func(wait time.Duration) error { return &throttle.Error{Err: throttle.ErrWaitTooLong, Wait: wait} }
	for name, c := range map[string]struct {
		errs []error // of one call after the other
		want error
		took time.Duration
	}{
		"none":              {errs: []error{nil}},
		"its own":           {errs: []error{own}, want: own},
		"without a time":    {errs: []error{&throttle.Error{Err: throttle.ErrClosed}}, want: throttle.ErrClosed},
		"refused and done":  {errs: []error{refused(time.Second), refused(2 * time.Second), nil}, took: 3 * time.Second},
		"refused and wrong": {errs: []error{refused(time.Second), own}, want: own, took: time.Second},
		"ctx ends":          {errs: []error{refused(time.Second), refused(time.Hour)}, want: context.DeadlineExceeded, took: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				n := 0
				start := time.Now()
				err := Again(ctx, func(context.Context) error { n++; return c.errs[n-1] })
				if took := time.Since(start); !errors.Is(err, c.want) || took != c.took || n != len(c.errs) {
					t.Errorf("%v after %d calls and %v, want %v after %d and %v", err, n, took, c.want, len(c.errs), c.took)
				}
			})
		})
	}
}
