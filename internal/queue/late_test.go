package queue_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
)

// trippy is an upstream whose round trip can be set; it obeys ctx.
type trippy struct{ trip atomic.Int64 }

func (u *trippy) work(ctx context.Context) error {
	timer := time.NewTimer(time.Duration(u.trip.Load()))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (u *trippy) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := u.work(r.Context()); err != nil {
		return nil, err
	}
	return answer(r, http.StatusOK), nil
}

// ownKind is a limiter of the user's own: a bucket behind a Take of their own.
type ownKind struct{ b *throttle.Bucket }

func (f ownKind) Take(ctx context.Context, n int) (time.Duration, error) { return f.b.Take(ctx, n) }
func (f ownKind) Adjust(n int)                                           { f.b.Adjust(n) }

func fetch(tr http.RoundTripper, timeout time.Duration, url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	resp, err := tr.RoundTrip(req)
	if err == nil {
		resp.Body.Close()
	}
	return err
}

// Some slow answers, then a quick upstream, hardly any load, and a limiter of the user's own: every
// call with a deadline is refused for ever, although none has to wait.
func TestHostileForeignIsStuck(t *testing.T) {
	for _, c := range []struct {
		slow  time.Duration
		calls int
	}{{900 * time.Millisecond, 1}, {5 * time.Second, 6}, {time.Minute, 6}} { // a cold start; slow; hanging
		t.Run(c.slow.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := new(trippy)
				tr := &throttle.Transport{Base: up, Limiter: ownKind{throttle.NewBucket(100, 100)}, Retry: throttle.Retry{MaxAttempts: 1}}
				up.trip.Store(int64(c.slow))
				for range c.calls {
					fetch(tr, 10*time.Second, "http://api/")
				}
				up.trip.Store(int64(10 * time.Millisecond))
				ok, calls := 0, race.Pick(600, 3600)
				for range calls {
					if fetch(tr, 2*time.Second, "http://api/") == nil {
						ok++
					}
					time.Sleep(time.Second)
				}
				if ok < calls-100 {
					t.Errorf("%d of %d calls served, one a second at a limit of 100/s, 10 ms each with 2 s of time", ok, calls)
				}
			})
		})
	}
}

// The same with a shared limiter: another key is always waiting for it, so every call of this one has to.
func TestHostileSharedIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := new(trippy)
		tr := &throttle.Transport{Base: up, Limiter: throttle.NewBucket(100, 1), Retry: throttle.Retry{MaxAttempts: 1}}
		up.trip.Store(int64(5 * time.Second))
		for range 6 {
			fetch(tr, 10*time.Second, "http://a/")
		}
		up.trip.Store(int64(10 * time.Millisecond))
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for range 5 { // a batch job without deadlines keeps the limit busy
			wg.Go(func() {
				for ctx.Err() == nil {
					fetch(tr, time.Hour, "http://b/")
				}
			})
		}
		ok := 0
		calls := race.Pick(150, 600)
		for range calls {
			if fetch(tr, 2*time.Second, "http://a/") == nil {
				ok++
			}
			time.Sleep(time.Second)
		}
		cancel()
		wg.Wait()
		if ok < calls-30 {
			t.Errorf("%d of %d calls of the key served; each waits some 50 ms, takes 10 ms and has 2 s", ok, calls)
		}
	})
}

// Quick calls of a high priority with 2 s each, beside slow ones with a minute each or without a deadline.
func TestHostileQuickBesideSlow(t *testing.T) {
	for _, slow := range []time.Duration{time.Minute, 1000 * time.Hour} {
		t.Run(slow.String(), func(t *testing.T) { quickBesideSlow(t, slow) })
	}
}

func quickBesideSlow(t *testing.T, slow time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.NewBucket(10, 1), throttle.QueueOptions{})
		bg, stop := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() {
				for bg.Err() == nil {
					ctx, cancel := context.WithTimeout(bg, slow)
					q.Do(ctx, func(ctx context.Context) error { time.Sleep(3 * time.Second); return nil })
					cancel()
				}
			})
		}
		time.Sleep(time.Minute)
		ok := 0
		for range 200 {
			ctx, cancel := context.WithTimeout(throttle.WithPriority(context.Background(), 1), 2*time.Second)
			if q.Do(ctx, func(context.Context) error { time.Sleep(20 * time.Millisecond); return nil }) == nil {
				ok++
			}
			cancel()
			time.Sleep(500 * time.Millisecond)
		}
		stop()
		wg.Wait()
		if ok < 190 {
			t.Errorf("%d of 200 quick calls served; each is the next but one, and takes 20 ms of its 2 s", ok)
		}
	})
}

// A slow spell, then a quick upstream and 60 % of a limit asked for, calls at random moments: how
// many are turned away whose wait and answer would take less than a third of their time?
func TestHostileAfterSlowSpell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := new(trippy)
		tr := &throttle.Transport{Base: up, Limiter: throttle.NewLeaky(2), Retry: throttle.Retry{MaxAttempts: 1}}
		rng := rand.New(rand.NewPCG(1, 2))
		var wg sync.WaitGroup
		var n, long atomic.Int64
		start := time.Now()
		up.trip.Store(int64(4 * time.Second))
		for time.Since(start) < 6*time.Minute {
			quick := time.Since(start) > time.Minute
			if quick {
				up.trip.Store(int64(50 * time.Millisecond))
			}
			wg.Go(func() {
				err := fetch(tr, 6*time.Second, "http://api/")
				if quick {
					n.Add(1)
					if errors.Is(err, throttle.ErrWaitTooLong) {
						long.Add(1)
					}
				}
			})
			time.Sleep(time.Duration(rng.ExpFloat64() / 1.2 * float64(time.Second)))
		}
		wg.Wait()
		if got := long.Load(); got > n.Load()/50 {
			t.Errorf("%d of %d calls turned away for their 6 s; answers take 50 ms, and no wait is above 2 s or so", got, n.Load())
		}
	})
}

// No load at all, one slow answer, and a 503 that would be retried in time.
func TestHostileRetryLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := new(trippy)
		n := 0
		tr := &throttle.Transport{Base: roundTrip(func(r *http.Request) (*http.Response, error) {
			n++
			if err := up.work(r.Context()); err != nil {
				return nil, err
			}
			if n == 2 {
				return answer(r, 503), nil
			}
			return answer(r, 200), nil
		})}
		up.trip.Store(int64(1200 * time.Millisecond)) // name, dial, handshake, a cold lambda
		fetch(tr, 3*time.Second, "http://api/")
		up.trip.Store(int64(20 * time.Millisecond))
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://api/", nil)
		resp, err := tr.RoundTrip(req)
		if err != nil || resp.StatusCode != 200 {
			t.Errorf("%d attempts, %v; the first one took 20 ms of 3 s, nobody else calls", n-1, resp.StatusCode)
		}
	})
}
