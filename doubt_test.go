package throttle_test

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
)

// weaker is an upstream of which the client is told 100/s. From 5 s to 65 s it keeps less.
type weaker struct {
	less   int     // a second; 0: nothing else than told
	random float64 // share that is refused without a reason, at all times
	burst  int

	mu    sync.Mutex
	start time.Time
	model model
	sent  []time.Duration
	no    []bool
}

func (u *weaker) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(8*time.Millisecond + rand.N(4*time.Millisecond))
	u.mu.Lock()
	at, code := time.Since(u.start), 200
	if n := u.less; n > 0 && at >= 5*time.Second {
		u.model.set(map[bool]int{true: n, false: 100}[at < 65*time.Second])
	}
	if rand.Float64() < u.random || !u.model.take(at) {
		code = 429
	}
	u.sent, u.no = append(u.sent, at), append(u.no, code != 200)
	u.mu.Unlock()
	time.Sleep(10 * time.Millisecond)
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

// between counts what arrived and what of it was refused.
func (u *weaker) between(from, to time.Duration) (arrived, refused int) {
	for i, at := range u.sent {
		if from <= at && at < to {
			arrived++
			if u.no[i] {
				refused++
			}
		}
	}
	return arrived, refused
}

// run keeps 32 workers busy for 100 s and returns whether a rate was found beside the configured one, at a
// minute and at the end.
func (u *weaker) run(t *testing.T) (found [2]bool) {
	u.start = time.Now()
	u.model = limit{kind: gcra, n: 100, per: time.Second, burst: u.burst}.model()
	tr := &throttle.Transport{Base: u, Limiter: throttle.NewBucket(100, 10), Retry: throttle.Retry{MaxAttempts: 20}}
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for time.Since(u.start) < 100*time.Second {
				req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://a.test/", nil)
				if _, err := tr.RoundTrip(req); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i, at := range []time.Duration{time.Minute, 99 * time.Second} {
		time.Sleep(at - time.Since(u.start))
		for s := range tr.Stats() {
			found[i] = len(s.Learned) > 0
		}
	}
	wg.Wait()
	return found
}

// A configured limit that is refused again and again is tightened to what is found, and holds again
// alone when the upstream keeps it.
func TestConfiguredLimitIsTooHigh(t *testing.T) {
	for _, less := range []int{70, 40} {
		synctest.Test(t, func(t *testing.T) {
			u := &weaker{less: less, burst: 20}
			found := u.run(t)
			n, refused := u.between(10*time.Second, 60*time.Second)
			all, _ := u.between(85*time.Second, 100*time.Second)
			t.Logf("%d/s: %d of %d refused; %d in the last 15 s; %v", less, refused, n, all, found)
			if found != [2]bool{true, false} || refused > n/50 || n-refused < 48*less || all < 1480 {
				t.Error("want it found and at most 2 % refused, and 100/s as soon as they are there again")
			}
		})
	}
}

// Where the limit is right nothing is looked for: not for refusals of bursts that meet, and not for
// those at random, which no slower rate would avoid.
func TestConfiguredLimitIsRight(t *testing.T) {
	for _, c := range []struct {
		u    *weaker
		most float64 // share refused
		used int     // arrivals
	}{
		{&weaker{burst: 20}, 0, 9950},
		{&weaker{burst: 10}, 0.02, 9900},
		{&weaker{burst: 20, random: 0.01}, 0.02, 9700},
		{&weaker{burst: 20, random: 0.05}, 0.07, 9400},
		{&weaker{burst: 20, random: 0.1}, 0.13, 9200},
		{&weaker{burst: 20, random: 0.3}, 0.33, 8300},
	} {
		synctest.Test(t, func(t *testing.T) {
			u := c.u
			found := u.run(t)
			n, refused := u.between(0, 100*time.Second)
			t.Logf("burst %d, %.0f %% at random: %d of %d refused, %v", u.burst, 100*u.random, refused, n, found)
			if found != [2]bool{} || float64(refused) > c.most*float64(n) || n < c.used {
				t.Error("want it to be left alone")
			}
		})
	}
}
