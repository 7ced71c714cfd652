package throttle_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
)

// These tests are about calls that need several things which keys share.

// Calls that take of several shared limits, each of another amount, all go: two of them never wait for each other.
func TestSharedLimitsDoNotDeadlock(t *testing.T) {
	for seed := range race.Pick(uint64(20), 60) {
		r := rand.New(rand.NewPCG(seed, 1))
		var buckets []*throttle.Bucket
		for range 4 {
			buckets = append(buckets, throttle.NewBucket(rate.Limit(1+r.IntN(20)), 1+r.IntN(10)))
		}
		const keys = 6
		meters := map[string][]throttle.Meter{}
		for k := range keys {
			for i, b := range buckets {
				if n := r.IntN(18); n < 9 {
					key := fmt.Sprint("k", k)
					meters[key] = append(meters[key], throttle.Meter{Name: fmt.Sprint(i), Limiter: b, Hold: func(*http.Request) int { return n }})
				}
			}
		}
		tr := &throttle.Transport{
			Limiter: throttle.NewBucket(rate.Limit(1+r.IntN(20)), 1+r.IntN(10)),
			Meters:  func(key string) []throttle.Meter { return meters[key] },
		}
		synctest.Test(t, func(t *testing.T) {
			tr.Base = roundTripper(func(req *http.Request) (*http.Response, error) { return reply(req, 200), nil })
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			var served atomic.Int64
			for i := range 20 * keys {
				go func() {
					if code, err := status(tr, throttle.WithCost(ctx, 1+i%4), fmt.Sprintf("http://k%d/", i%keys)); err == nil && code == 200 {
						served.Add(1)
					}
				}()
			}
			<-ctx.Done()
			synctest.Wait()
			if n := served.Load(); n != 20*keys {
				t.Errorf("seed %d: %d of %d calls were served in an hour", seed, n, 20*keys)
			}
		})
	}
}

// A worker that uses all of a limit, or two that use the one slot, leave nobody in line at times, and still a host that
// failed once and is well again is served in seconds.
func TestHostThatFailedOnceIsServedBesideOneWorker(t *testing.T) {
	for workers, tr := range map[int]*throttle.Transport{1: {Limiter: throttle.NewBucket(10, 1)}, 2: {MaxInFlight: 1}} {
		tr.Retry.MaxAttempts = 1
		reply := func(host string, n int) (time.Duration, bool) {
			return 10 * time.Millisecond, host != "once" || n > 1
		}
		inTown(t, tr, reply, func(w *town) {
			w.call(w.ctx, "once")
			w.work(w.ctx, workers, "live", time.Second)
			time.Sleep(time.Second)
			ctx, cancel := context.WithTimeout(w.ctx, 3*time.Second)
			defer cancel()
			if !w.call(ctx, "once") {
				t.Errorf("%d workers: not served in 3 s", workers)
			}
		})
	}
}

// A twoRoutes is an upstream with a quota of two calls in 100 s for route /x of its host a, and none elsewhere.
type twoRoutes struct {
	start time.Time
	mu    sync.Mutex
	at    map[string][]time.Duration // guarded by mu
}

// note counts a call there, and returns when all of them came.
func (u *twoRoutes) note(where string, calls ...time.Duration) []time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.at[where] = append(u.at[where], calls...)
	return slices.Clone(u.at[where])
}

func (u *twoRoutes) RoundTrip(req *http.Request) (*http.Response, error) {
	where := req.URL.Host + req.URL.Path
	at := u.note(where, time.Since(u.start).Round(time.Second))
	if where != "a/x" {
		return reply(req, 200), nil
	}
	return reply(req, 200, "X-RateLimit-Limit", "2", "X-RateLimit-Remaining", fmt.Sprint(max(0, 2-len(at))),
		"X-RateLimit-Reset", fmt.Sprint(100-int(time.Since(u.start).Seconds()))), nil
}

// atTwoRoutes runs f once both routes of host a are known. send puts n calls into the line.
func atTwoRoutes(t *testing.T, tr *throttle.Transport, f func(u *twoRoutes, send func(ctx context.Context, n int, url string))) {
	synctest.Test(t, func(t *testing.T) {
		u := &twoRoutes{start: time.Now(), at: map[string][]time.Duration{}}
		tr.Base = u
		var calls sync.WaitGroup
		for _, path := range []string{"x", "y", "y", "y", "y"} {
			status(tr, t.Context(), "http://a/"+path)
		}
		f(u, func(ctx context.Context, n int, url string) {
			for range n {
				calls.Go(func() { status(tr, ctx, "http://"+url) })
			}
			synctest.Wait()
		})
		calls.Wait()
	})
}

// A route whose quota is back takes its turn at what its host shares with others at once, and not when the next call of
// the host's other routes goes.
func TestRouteIsBackInItsTurn(t *testing.T) {
	tr := &throttle.Transport{Limiter: throttle.NewBucket(1, 1)}
	atTwoRoutes(t, tr, func(u *twoRoutes, send func(context.Context, int, string)) {
		status(tr, context.Background(), "http://a/x") // spent until 100 s
		for i := range 60 {
			send(context.Background(), 3, fmt.Sprintf("b%d/", i))
		}
		send(throttle.WithPriority(context.Background(), 1), 1, "a/x")
		send(context.Background(), 3, "a/y")
		time.Sleep(200 * time.Second)
		if at := u.note("a/x"); len(at) < 3 || at[2] > 105*time.Second {
			t.Errorf("a call of the highest priority, whose quota is back at 100 s, went at %v", at)
		}
	})
}

// A costly call that its host's own limit holds, with another route's calls that may go, does not stop the program.
func TestCostlyCallBesideAnotherRoute(t *testing.T) {
	own := throttle.NewBucket(0.9, 5)
	tr := &throttle.Transport{Limiter: throttle.NewBucket(1, 1), LimiterFor: func(key string) throttle.Limiter {
		if key == "a" {
			return own
		}
		return nil
	}}
	atTwoRoutes(t, tr, func(u *twoRoutes, send func(context.Context, int, string)) {
		send(context.Background(), 10, "b/")
		send(throttle.WithCost(context.Background(), 5), 1, "a/x")
		send(throttle.WithPriority(context.Background(), 1), 20, "a/y")
	})
}

// The units of a limit that two hosts share are saved for the costly call whose turn has come, also from calls whose turns come at
// another limit.
func TestUnitsAreSavedFromTurnsElsewhere(t *testing.T) {
	pair := throttle.NewBucket(10, 20)
	tr := &throttle.Transport{Limiter: throttle.NewBucket(100, 1), LimiterFor: func(key string) throttle.Limiter {
		if key == "crowded" {
			return nil
		}
		return pair
	}}
	inTown(t, tr, healthy(100*time.Millisecond), func(w *town) {
		w.work(w.ctx, 20, "crowded", time.Second)
		for i := range 5 { // each of them comes anew
			w.work(w.ctx, 1, fmt.Sprint("cheap", i), time.Second)
		}
		time.Sleep(10 * time.Second)
		if d := w.takes(throttle.WithCost(w.ctx, 20), "costly"); d > 2500*time.Millisecond {
			t.Errorf("a call of 20 units of 10/s took %v", d)
		}
	})
}

// Two flows get the same of what they share, although each of their calls needs two shared limits, whichever of these holds them
// at the moment, and a third flow needs the first limit alone.
func TestFlowsAreEvenWithTwoSharedLimits(t *testing.T) {
	for _, c := range []struct {
		all, allBurst, some, someBurst int
		trip                           time.Duration
	}{
		{15, 3, 8, 2, 155 * time.Millisecond},
		{19, 9, 10, 9, 52 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%d and %d a second", c.all, c.some), func(t *testing.T) {
			some := throttle.NewBucket(rate.Limit(c.some), c.someBurst)
			tr := &throttle.Transport{
				Limiter: throttle.NewBucket(rate.Limit(c.all), c.allBurst),
				LimiterFor: func(key string) throttle.Limiter {
					if key == "other" {
						return nil
					}
					return some
				},
			}
			inTown(t, tr, func(string, int) (time.Duration, bool) { return c.trip, true }, func(w *town) {
				var a, b atomic.Int64
				flow := func(name, host string, served *atomic.Int64) {
					ctx := throttle.WithFlow(w.ctx, name)
					for range 8 {
						w.wg.Go(func() {
							for w.call(ctx, host) {
								served.Add(1)
							}
						})
					}
				}
				flow("a", "one", &a)
				flow("a", "two", &a)
				flow("b", "two", &b)
				flow("c", "other", new(atomic.Int64))
				time.Sleep(time.Second) // the burst is spent
				a.Store(0)
				b.Store(0)
				time.Sleep(50 * time.Second)
				if a, b := a.Load(), b.Load(); max(a-b, b-a) > 8 {
					t.Errorf("in 50 s one flow gets %d calls, the other %d", a, b)
				}
			})
		})
	}
}

// What is foretold behind higher priorities comes true, or is said to be unknown: eighth turns may come sooner.
func TestPredictionBehindHigherPriorities(t *testing.T) {
	for name, others := range map[string]int{"nobody else": 0, "older ones of its priority": 20} {
		tr := &throttle.Transport{Limiter: throttle.NewBucket(10, 1)}
		inTown(t, tr, healthy(time.Millisecond), func(w *town) {
			w.crowd(w.ctx, others, "old")
			w.crowd(throttle.WithPriority(w.ctx, 1), 80, "high")
			p := tr.Predict("new", 1)
			d := w.takes(w.ctx, "new")
			if off := (p - d).Abs(); p >= 0 && off > max(100*time.Millisecond, d/20) || p < 0 && others == 0 {
				t.Errorf("%s: foretold %v, took %v", name, p, d)
			}
		})
	}
}

// Dead hosts that share a limit of their own beside the one for all get a tenth of that for all, and no more, while a live one wants it.
func TestDeadHostsWithTwoSharedLimits(t *testing.T) {
	theirs := throttle.NewBucket(6, 1)
	tr := &throttle.Transport{Limiter: throttle.NewBucket(10, 1), Retry: throttle.Retry{MaxAttempts: 1}}
	tr.LimiterFor = func(host string) throttle.Limiter {
		if host == "well" {
			return nil
		}
		return theirs
	}
	reply := func(host string, _ int) (time.Duration, bool) { return 10 * time.Millisecond, host == "well" }
	inTown(t, tr, reply, func(w *town) {
		w.call(w.ctx, "well")
		for i := range 20 {
			w.work(w.ctx, 2, fmt.Sprint("dead", i), 100*time.Millisecond)
		}
		time.Sleep(10 * time.Second) // all of them have failed
		w.work(w.ctx, 5, "well", 0)
		time.Sleep(100 * time.Second)
		if n := w.between(10*time.Second, 110*time.Second); n < 892 {
			t.Errorf("the live host has %d of 1,000 units, want 892", n)
		}
	})
}
