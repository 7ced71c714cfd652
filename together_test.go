package throttle

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/gate"
)

// These tests are about mechanisms that meet; TestSoak makes all of them meet at random.

type slowForeign struct {
	mu    sync.Mutex
	delay time.Duration
	f     func(i int) time.Duration
	n     int
}

func (z *slowForeign) Take(ctx context.Context, n int) (time.Duration, error) {
	if z.delay > 0 {
		time.Sleep(z.delay)
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.n++
	return z.f(z.n), nil
}

func alwaysOK() baseFunc {
	return func(req *http.Request) (*http.Response, error) { return reply(req, 200), nil }
}

func goAndNote(t *testing.T, tr *Transport, ctx context.Context, url string, start time.Time, at *time.Duration) {
	go func() {
		code, err := status(tr, ctx, url)
		if err != nil {
			t.Log(url, code, err, time.Since(start))
			return
		}
		*at = time.Since(start)
	}()
}

// a higher-priority key enters the shared line while another's head asks, and is never woken.
func TestSharedLineWakesWhoCameWhileAnotherAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &slowForeign{delay: 100 * time.Millisecond, f: func(i int) time.Duration {
			if i == 1 {
				return 500 * time.Millisecond
			}
			return 0
		}}
		tr := &Transport{Limiter: f, Base: alwaysOK()}
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		var a, b time.Duration
		goAndNote(t, tr, ctx, "http://a/", start, &a)
		synctest.Wait()
		goAndNote(t, tr, WithPriority(ctx, 1), "http://b/", start, &b)
		time.Sleep(time.Hour)
		synctest.Wait()
		if a == 0 || b == 0 {
			t.Errorf("stuck: a %v b %v", a, b)
		}
		cancel()
		synctest.Wait()
	})
}

// a key's own foreign limiter blocks all other keys through the shared line.
func TestForeignLimiterOfOneKeyDoesNotBlockOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{Limiter: NewBucket(1000, 1000), Base: alwaysOK(), LimiterFor: func(key string) Limiter {
			if key == "a" {
				return &slowForeign{f: func(int) time.Duration { return time.Hour }}
			}
			return nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		var a, b time.Duration
		goAndNote(t, tr, ctx, "http://a/", start, &a)
		time.Sleep(10 * time.Millisecond)
		goAndNote(t, tr, ctx, "http://b/", start, &b)
		time.Sleep(time.Minute)
		synctest.Wait()
		if b == 0 {
			t.Error("b has not gone after a minute, with 1,000 units there")
		}
		cancel()
		synctest.Wait()
	})
}

// units taken for a foreign asking and given back are not told to other lines.
func TestUnitsOfARefusedAskingReachOtherLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := NewBucket(rate.Every(time.Hour), 1)
		qa := NewQueue(All(lim, &slowForeign{delay: 100 * time.Millisecond, f: func(int) time.Duration { return 20 * time.Second }}), QueueOptions{})
		qb := NewQueue(lim, QueueOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		go qa.Wait(ctx)
		time.Sleep(50 * time.Millisecond)
		start := time.Now()
		if err := qb.Wait(t.Context()); err != nil || time.Since(start) > time.Second {
			t.Error(err, time.Since(start))
		}
	})
}

// spin of the timer while told longer than believed, MaxPause 24 h.
func TestToldLongerThanBelievedIsTriedAfterADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		tr := &Transport{Retry: Retry{MaxPause: 24 * time.Hour}, Base: baseFunc(func(req *http.Request) (*http.Response, error) {
			n++
			if n == 1 {
				return reply(req, 429, "Retry-After", "180000"), nil
			}
			return reply(req, 200), nil
		})}
		start := time.Now()
		code, err := status(tr, t.Context(), "http://a/")
		if waited := time.Since(start); code != 429 || err != nil || waited < 24*time.Hour { // its patience ends then too
			t.Errorf("%d %v after %v", code, err, waited)
		}
	})
}

// Failed's Status.
func TestFailedHookHasItsOwnAttemptsStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		tr := &Transport{Base: baseFunc(func(req *http.Request) (*http.Response, error) {
			n++
			switch n {
			case 1:
				return reply(req, 503), nil
			case 2:
				return nil, context.DeadlineExceeded
			}
			return reply(req, 200), nil
		}), Hooks: Hooks{Failed: func(_ context.Context, e Event) {
			if e.Attempt == 2 && e.Status != 0 {
				t.Error("Status of another attempt:", e.Status, e.Err)
			}
		}}}
		status(tr, t.Context(), "http://a/")
	})
}

// a counted reopening that ends with calls out leaves flying > 0 for ever: the key is never idle.
func TestKeyIsIdleAfterACountedReopening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{Retry: Retry{MaxAttempts: 1}, Base: baseFunc(func(req *http.Request) (*http.Response, error) {
			switch req.URL.Path {
			case "/429":
				return reply(req, 429, "Retry-After", "1"), nil
			case "/slow":
				time.Sleep(10 * time.Second)
				return reply(req, 502), nil
			case "/fail":
				return reply(req, 502), nil
			}
			return reply(req, 200), nil
		})}
		do := func(p string) { status(tr, t.Context(), "http://a/"+p) }
		do("429")
		time.Sleep(2 * time.Second)
		do("") // the first of the reopening: allowed 2
		go do("slow")
		synctest.Wait()
		k := tr.table.keys["a"]
		do("fail") // ends the reopening
		time.Sleep(time.Minute)
		time.Sleep(10 * time.Hour)
		synctest.Wait()
		tr.table.Mu.Lock()
		defer tr.table.Mu.Unlock()
		if !k.idle(time.Now()) {
			t.Errorf("never idle: %+v", *k.Gate.Trouble)
		}
	})
}

// a late probe's answer is taken for one of the reopening's calls.
func TestLateProbeIsNoneOfTheReopening(t *testing.T) {
	var g gate.Gate
	now := time.Now()
	g.Trouble = new(gate.Trouble)
	g.Shut(gate.Failing, now, now)
	g.Probing = true
	g.Start(1, now, now, 0)
	now = now.Add(2 * time.Second)
	g.Start(1, now, now, 0) // the second probe
	g.Learn(gate.Report{Outcome: gate.Success}, now, 0)
	g.Start(1, now, now, 0)                             // the first of the reopening
	g.Learn(gate.Report{Outcome: gate.Success}, now, 0) // first probe's late answer
	if g.Flying != 1 {
		t.Errorf("flying %d, one call is out", g.Flying)
	}
}

// A late echo that tells no time leaves the reopening paced at the rate that was found.
func TestLateEchoLeavesTheReopeningPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{Retry: Retry{MaxAttempts: 1}, Base: baseFunc(func(req *http.Request) (*http.Response, error) {
			if req.URL.Path == "/late" {
				time.Sleep(2 * time.Second)
				return reply(req, 429), nil
			}
			time.Sleep(20 * time.Millisecond)
			return reply(req, 429, "Retry-After", "1"), nil
		})}
		go status(tr, t.Context(), "http://a.test/")
		status(tr, t.Context(), "http://a.test/late")
		if got := tr.table.keys["a.test"].Gate.Mode; got != gate.Paced {
			t.Errorf("the gate reopens by way %d, want %d", got, gate.Paced)
		}
	})
}
