package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// Of 200 that wait at 10/s, those go in order for whom the time suffices. The others fail at that moment with ErrClosed,
// nothing is sent afterwards, and nothing is left behind.
func TestShutdownWithTooLittleTime(t *testing.T) {
	const waiting, rate, patience = 200, 10, 10 * time.Second
	for name, start := range map[string]func(t *testing.T, j *journal) (shutdown func(context.Context) error){
		"Transport": func(t *testing.T, j *journal) func(context.Context) error {
			tr := &throttle.Transport{Base: newUpstream(20*time.Millisecond, always(200)), Limiter: throttle.NewLeaky(rate)}
			return callers(t, j, waiting, tr.Shutdown, func(ctx context.Context, i int) error {
				_, err := status(tr, ctx, fmt.Sprintf("http://h%d/", i%3))
				return err
			})
		},
		"Queue.Wait": func(t *testing.T, j *journal) func(context.Context) error {
			q := throttle.NewQueue(throttle.NewLeaky(rate), throttle.QueueOptions{})
			return callers(t, j, waiting, q.Shutdown, func(ctx context.Context, _ int) error { return q.Wait(ctx) })
		},
		"Queue.Do": func(t *testing.T, j *journal) func(context.Context) error {
			q := throttle.NewQueue(throttle.NewLeaky(rate), throttle.QueueOptions{MaxInFlight: 2})
			return callers(t, j, waiting, q.Shutdown, func(ctx context.Context, _ int) error {
				return q.Do(ctx, func(context.Context) error { time.Sleep(20 * time.Millisecond); return nil })
			})
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var j journal
			shutdown := start(t, &j)
			synctest.Wait()
			begin := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := shutdown(ctx); err != context.DeadlineExceeded || time.Since(begin) != patience {
				t.Errorf("%s: Shutdown returned %v after %v", name, err, time.Since(begin))
			}
			synctest.Wait()
			if n := j.failures(); n < waiting-102 || n > waiting-99 { // one went before
				t.Errorf("%s: %d failed by the end of the time, want 99 or 100", name, n)
			}
			time.Sleep(time.Minute)
			j.wg.Wait()
			went := j.sorted()
			for i, e := range went {
				if e.id != i || e.at.Sub(begin) > patience+20*time.Millisecond {
					t.Errorf("%s: call %d was the %d. and was done %v after the beginning", name, e.id, i, e.at.Sub(begin))
				}
			}
			for id := len(went); id < waiting; id++ {
				var e *throttle.Error
				if err := j.err(id); !errors.Is(err, throttle.ErrClosed) || !errors.As(err, &e) || e.Attempts != 0 {
					t.Errorf("%s: call %d: %v", name, id, err)
				}
			}
			if err := shutdown(t.Context()); err != nil {
				t.Errorf("%s: with nobody left: %v", name, err)
			}
			cancel()
			synctest.Wait()
			if left := leftBehind(); left != "" {
				t.Error(name, left)
			}
		})
	}
}

// callers sends n callers one after the other, who note when they are done.
func callers(t *testing.T, j *journal, n int, shutdown func(context.Context) error, call func(context.Context, int) error) func(context.Context) error {
	for i := range n {
		j.wg.Go(func() {
			if err := call(t.Context(), i); err != nil {
				j.fail(i, err)
				return
			}
			j.add(i)
		})
		synctest.Wait()
	}
	return shutdown
}

// With time enough all who wait go, and Shutdown returns when the last body is closed. New calls fail at once, and make
// no key.
func TestShutdownDrains(t *testing.T) {
	for _, slots := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			var made atomic.Int32 // limiters of the host that is called only after Shutdown
			base := &closesIdle{RoundTripper: newUpstream(10*time.Millisecond, always(200))}
			tr := &throttle.Transport{
				Base: base, Queue: throttle.QueueOptions{MaxInFlight: slots},
				LimiterFor: func(key string) throttle.Limiter {
					if key == "new" {
						made.Add(1)
					}
					return throttle.NewLeaky(10)
				},
			}
			var wg sync.WaitGroup
			for i := range 10 {
				wg.Go(func() {
					resp, err := tr.RoundTrip(request(t.Context(), "GET", "http://x/"))
					if err != nil {
						t.Error(i, err)
						return
					}
					time.Sleep(time.Second)
					io.Copy(io.Discard, resp.Body) // to the end is enough
				})
			}
			synctest.Wait()
			begin := time.Now()
			wg.Go(func() {
				time.Sleep(100 * time.Millisecond)
				for _, host := range []string{"http://x/", "http://new/"} {
					_, err := status(tr, t.Context(), host)
					var e *throttle.Error
					if !errors.Is(err, throttle.ErrClosed) || !errors.As(err, &e) || e.Key != host[7:len(host)-1] {
						t.Errorf("a new call: %v", err)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				if _, err := status(tr, ctx, "http://x/"); !errors.Is(err, context.Canceled) {
					t.Errorf("a new call whose ctx is done: %v", err)
				}
			})
			if err := tr.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			want := 900*time.Millisecond + 10*time.Millisecond + time.Second
			if slots > 0 {
				want = 5 * 1010 * time.Millisecond
			}
			if got := time.Since(begin); got < want || got > want+100*time.Millisecond {
				t.Errorf("slots %d: Shutdown returned after %v, want %v", slots, got, want)
			}
			wg.Wait()
			if base.closed != 1 || made.Load() != 0 {
				t.Errorf("idle connections were closed %d times, and %d limiters made after it", base.closed, made.Load())
			}
			if s := statsOf(t, tr); s.Waiting != 0 || s.InFlight != 0 || s.Sent != 10 || s.Refused != 1 {
				t.Errorf("Stats: %+v", s)
			}
		})
	}
}

// Nothing has been called: Shutdown returns nil at once, whatever its ctx, and so does another one.
func TestShutdownOfNothing(t *testing.T) {
	done, cancel := context.WithCancel(t.Context())
	cancel()
	tr, q := &throttle.Transport{Base: answers(200)}, throttle.NewQueue(nil, throttle.QueueOptions{})
	for range 2 {
		for _, shutdown := range []func(context.Context) error{tr.Shutdown, q.Shutdown} {
			if err := shutdown(done); err != nil {
				t.Error(err)
			}
		}
	}
	if err := q.Wait(t.Context()); !errors.Is(err, throttle.ErrClosed) || err.Error() != "throttle: shut down" {
		t.Error(err)
	}
	if err := q.Do(t.Context(), func(context.Context) error { return nil }); !errors.Is(err, throttle.ErrClosed) {
		t.Error(err)
	}
	if _, err := status(tr, t.Context(), "http://x/"); !errors.Is(err, throttle.ErrClosed) || err.Error() != `throttle: "x": shut down` {
		t.Error(err)
	}
}

// The first ctx that ends counts for all who have called Shutdown; one whose ctx is done fails the others at once.
func TestShutdownTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.NewLeaky(1), throttle.QueueOptions{})
		var j journal
		for i := range 100 {
			j.wait(q, t.Context(), i)
		}
		j.wg.Go(func() {
			q.Do(t.Context(), func(context.Context) error { return nil })
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		soon, cancelSoon := context.WithTimeout(t.Context(), 5*time.Second+time.Millisecond)
		defer cancelSoon()
		begin := time.Now()
		var wg sync.WaitGroup
		for _, c := range []struct {
			ctx  context.Context
			want error
		}{{ctx, nil}, {soon, context.DeadlineExceeded}, {t.Context(), nil}} {
			wg.Go(func() {
				if err := q.Shutdown(c.ctx); err != c.want || time.Since(begin) != 5*time.Second+time.Millisecond {
					t.Errorf("%v after %v, want %v after 5.001s", err, time.Since(begin), c.want)
				}
			})
		}
		wg.Wait()
		j.wg.Wait()
		if n := len(j.sorted()); n != 6 || j.failures() != 94 {
			t.Errorf("%d went, %d failed", n, j.failures())
		}
	})
	synctest.Test(t, func(t *testing.T) { // with a ctx that is done, while one is under way
		tr := &throttle.Transport{Base: newUpstream(time.Second, always(503)), Limiter: throttle.NewLeaky(1)}
		var c calls
		c.send(t.Context(), tr, "first")
		c.send(t.Context(), tr, "second")
		done, cancel := context.WithCancel(t.Context())
		cancel()
		if err := tr.Shutdown(done); err != context.Canceled || time.Since(c.start) != 0 {
			t.Errorf("%v after %v", err, time.Since(c.start))
		}
		if err := tr.Shutdown(t.Context()); err != nil || time.Since(c.start) != time.Second {
			t.Errorf("%v after %v, want nil after the answer", err, time.Since(c.start))
		}
		c.wg.Wait()
		if at, err := c.at("first"); err == nil || err.Error() != "status 503" || at != time.Second {
			t.Errorf("%v at %v, want the answer without a retry", err, at)
		}
		if at, err := c.at("second"); !errors.Is(err, throttle.ErrClosed) || at != 0 {
			t.Errorf("%v at %v, want ErrClosed at once", err, at)
		}
	})
}

// A pause delays who drains; Resume lets them go; without it they fail when the time is over.
func TestShutdownDuringAPause(t *testing.T) {
	for name, resume := range map[string]bool{"resumed": true, "not resumed": false} {
		synctest.Test(t, func(t *testing.T) {
			tr := &throttle.Transport{Base: newUpstream(0, always(200)), Limiter: throttle.NewLeaky(10)}
			tr.Pause("", time.Hour)
			var c calls
			c.send(t.Context(), tr, "a", "b")
			if resume {
				time.AfterFunc(2*time.Second, func() { tr.Resume("") })
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			err := tr.Shutdown(ctx)
			if took := time.Since(c.start); resume && (err != nil || took != 2100*time.Millisecond) || !resume && (err != context.DeadlineExceeded || took != 5*time.Second) {
				t.Errorf("%s: %v after %v", name, err, took)
			}
			c.wg.Wait()
			for _, host := range []string{"a", "b"} {
				if _, err := c.at(host); resume != (err == nil) || !resume && !errors.Is(err, throttle.ErrClosed) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

// Retries of calls that are in go on while there is time. When it is over, a call that rests before its retry gets its
// last answer at that moment, and Reason says why.
func TestShutdownAndRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, nil)
		up.answer = func(n int, req *http.Request) (*http.Response, error) {
			switch {
			case req.URL.Path == "/never" || n <= 2:
				return reply(req, 503), nil
			case req.URL.Path == "/dead":
				return nil, io.ErrUnexpectedEOF
			}
			return reply(req, 200), nil
		}
		tr := &throttle.Transport{Base: up, Retry: throttle.Retry{Backoff: func() throttle.Backoff { return constant(3 * time.Second) }}}
		var wg sync.WaitGroup
		for path, want := range map[string]struct {
			code int
			err  error
			at   time.Duration
		}{"/soon": {200, nil, 6 * time.Second}, "/never": {503, nil, 8 * time.Second}} {
			wg.Go(func() {
				resp, err := tr.RoundTrip(request(t.Context(), "GET", "http://x"+path))
				if err != nil || resp.StatusCode != want.code || up.now() > want.at {
					t.Errorf("%s: %v, %v at %v, want %d by %v", path, resp, err, up.now(), want.code, want.at)
					return
				}
				if reason := throttle.Reason(resp); want.code == 503 && !errors.Is(reason, throttle.ErrClosed) || want.code == 200 && reason != nil {
					t.Errorf("%s: reason %v", path, reason)
				}
				resp.Body.Close()
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		if err := tr.Shutdown(ctx); err != context.DeadlineExceeded || up.now() != 8*time.Second {
			t.Errorf("%v at %v", err, up.now())
		}
		wg.Wait()
		if up.now() != 8*time.Second {
			t.Errorf("the last one ended at %v", up.now())
		}
	})
}

// The time is over while a call is between two attempts, wherever that is: it gets its last answer, or its error.
func TestShutdownBetweenAttempts(t *testing.T) {
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for name, set := range map[string]func(tr *throttle.Transport, shutdown func()){
		"in Check": func(tr *throttle.Transport, shutdown func()) {
			tr.Retry.Check = func(*http.Request, *http.Response, error) throttle.Verdict { shutdown(); return throttle.Default }
		},
		"in Backoff": func(tr *throttle.Transport, shutdown func()) {
			tr.Retry.Backoff = func() throttle.Backoff { shutdown(); return constant(time.Second) }
		},
		"in Retrying": func(tr *throttle.Transport, shutdown func()) {
			tr.Hooks.Retrying = func(context.Context, throttle.Event) { shutdown() }
		},
	} {
		for _, answer := range []int{429, 503, 0} {
			synctest.Test(t, func(t *testing.T) {
				sent := 0
				tr := &throttle.Transport{Base: baseFunc(func(req *http.Request) (*http.Response, error) {
					if sent++; answer == 0 {
						return nil, io.ErrUnexpectedEOF
					}
					return reply(req, answer), nil
				})}
				shut := false
				set(tr, func() {
					if err := tr.Shutdown(done); err != context.Canceled {
						t.Error(err)
					}
					shut = true
				})
				start := time.Now()
				code, err := status(tr, t.Context(), "http://x/")
				switch took := time.Since(start); {
				case !shut:
					t.Errorf("%s after %d: not asked", name, answer)
				case name == "in Backoff" && answer == 429: // the second one asks it
					if code != 429 || sent != 2 {
						t.Errorf("%d, %v after %v, sent %d times", code, err, took, sent)
					}
				case took != 0, sent != 1, answer != 0 && (code != answer || err != nil), answer == 0 && !errors.Is(err, io.ErrUnexpectedEOF):
					t.Errorf("%s after %d: %d, %v after %v, sent %d times", name, answer, code, err, took, sent)
				}
				if err := tr.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Tasks of a Group go in order until the time is over; then those that wait leave unrun.
func TestShutdownOfAGroup(t *testing.T) {
	for _, enough := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			q := throttle.NewQueue(throttle.NewLeaky(10), throttle.QueueOptions{})
			g, ctx := throttle.NewGroup(t.Context(), q)
			var ran atomic.Int32
			for range 50 {
				g.Go(ctx, func(context.Context) error { ran.Add(1); time.Sleep(30 * time.Millisecond); return nil })
			}
			patience, want, wantErr := time.Minute, int32(50), error(nil)
			if !enough {
				patience, want, wantErr = 2*time.Second+time.Millisecond, 21, throttle.ErrClosed
			}
			end, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			begin := time.Now()
			err := q.Shutdown(end)
			if enough && (err != nil || time.Since(begin) != 4930*time.Millisecond) || !enough && (err != context.DeadlineExceeded || time.Since(begin) != patience) {
				t.Errorf("enough time %t: %v after %v", enough, err, time.Since(begin))
			}
			if err := g.Wait(); !errors.Is(err, wantErr) || ran.Load() != want {
				t.Errorf("enough time %t: the group says %v, %d ran, want %d", enough, err, ran.Load(), want)
			}
			g, ctx = throttle.NewGroup(t.Context(), q)
			g.Go(ctx, func(context.Context) error { t.Error("a new task ran"); return nil })
			if err := g.Wait(); !errors.Is(err, throttle.ErrClosed) {
				t.Error(err)
			}
			conserved(t, q)
			if left := leftBehind(); left != "" {
				t.Error(left)
			}
		})
	}
}

// Calls that wait while a limiter of another package is asked leave when the time is over; what it gives then goes back.
func TestShutdownWhileALimiterIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &foreignBucket{Bucket: throttle.NewBucket(1000, 1000), latency: 300 * time.Millisecond}
		own := throttle.NewBucket(0.001, 100)
		q := throttle.NewQueue(throttle.All(f, own), throttle.QueueOptions{})
		var j journal
		for i := range 5 {
			j.wait(q, t.Context(), i)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		if err := q.Shutdown(ctx); err != context.DeadlineExceeded || time.Since(j.start) != 400*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(j.start))
		}
		if err := q.Shutdown(t.Context()); err != nil || time.Since(j.start) != 400*time.Millisecond {
			t.Errorf("%v after %v, want nil at once", err, time.Since(j.start))
		}
		j.wg.Wait()
		time.Sleep(time.Second)
		if n := len(j.sorted()); n != 1 || j.failures() != 4 || !errors.Is(j.err(1), throttle.ErrClosed) || f.given != 1 || own.Tokens() < 99 {
			t.Errorf("%d went, %d failed, the limiters gave %d and %v are left", n, j.failures(), f.given, own.Tokens())
		}
	})
}

// Calls come, go, fail, rest and are cancelled at random while one or more shut down. Everybody ends, nothing is sent
// after the end, and a nil says that nobody was left.
func TestShutdownAtRandom(t *testing.T) {
	for seed := range race.Pick(uint64(6), 60) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 5))
			inside, ended := atomic.Int32{}, atomic.Bool{}
			base := baseFunc(func(req *http.Request) (*http.Response, error) {
				if ended.Load() {
					t.Errorf("seed %d: sent after the end", seed)
				}
				var wait, code int
				fmt.Sscanf(req.URL.Path, "/%d/%d", &wait, &code)
				time.Sleep(time.Duration(wait) * time.Millisecond)
				return reply(req, code), nil
			})
			tr := &throttle.Transport{Base: base, Queue: throttle.QueueOptions{MaxInFlight: rng.IntN(4)}}
			if rng.IntN(2) == 0 {
				tr.Limiter = throttle.NewBucket(100, 5)
			}
			if rng.IntN(2) == 0 {
				tr.LimiterFor = func(string) throttle.Limiter { return throttle.NewLeaky(50) }
			}
			var wg sync.WaitGroup
			for range 200 {
				at, path := time.Duration(rng.IntN(2000))*time.Millisecond, fmt.Sprintf("http://h%d/%d/%d", rng.IntN(5), rng.IntN(100), []int{200, 200, 200, 429, 503}[rng.IntN(5)])
				patience, reads := time.Duration(rng.IntN(20_000))*time.Millisecond, time.Duration(rng.IntN(50))*time.Millisecond
				wg.Go(func() {
					time.Sleep(at)
					inside.Add(1)
					defer inside.Add(-1)
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					resp, err := tr.RoundTrip(request(ctx, "GET", path))
					if err == nil {
						time.Sleep(reads)
						resp.Body.Close()
					}
				})
			}
			for range 1 + rng.IntN(3) {
				at, patience := time.Duration(rng.IntN(3000))*time.Millisecond, time.Duration(rng.IntN(5000))*time.Millisecond
				wg.Go(func() {
					time.Sleep(at)
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					begin := time.Now()
					if err := tr.Shutdown(ctx); err == nil {
						ended.Store(true)
					} else if err != context.DeadlineExceeded || time.Since(begin) != patience {
						t.Errorf("seed %d: %v after %v of %v", seed, err, time.Since(begin), patience)
					}
				})
			}
			wg.Wait()
			for s := range tr.Stats() {
				if s.Waiting != 0 || s.InFlight != 0 {
					t.Errorf("seed %d: left behind: %+v", seed, s)
				}
			}
			if err := tr.Shutdown(t.Context()); err != nil {
				t.Error(seed, err)
			}
			synctest.Wait()
			if left := leftBehind(); left != "" {
				t.Error(seed, left)
			}
		})
	}
}

// Many calls end at the very moment of Shutdown. It always learns of the last one.
func TestShutdownSeesTheLastCall(t *testing.T) {
	for range 300 {
		tr := &throttle.Transport{Base: &stubBase{resp: &http.Response{StatusCode: 200, Body: http.NoBody}}, Key: func(*http.Request) string { return "x" }}
		var wg, begun sync.WaitGroup
		for range 4 {
			begun.Add(1)
			wg.Go(func() {
				for i := range 50 {
					if _, err := tr.RoundTrip(request(t.Context(), "GET", "http://x/")); err != nil {
						return
					}
					if i == 0 {
						begun.Done()
					}
				}
			})
		}
		begun.Wait()
		if err := tr.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
	}
}
