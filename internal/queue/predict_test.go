package queue_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/throttletest"
)

// Overload with equal timeouts: more calls come than the limit lets through, and each has the same
// time to live. A line that admits whoever can start before its deadline starts all of them too late:
// the limit is used up by calls that die in flight. So a call counts its round trip too, and leaves
// when its turn comes too late.

// A load is one cell of the overload table.
type load struct {
	limiter string
	percent int           // of the limit, that is asked for
	trip    time.Duration // the mean round trip
	random  bool          // exponential round trips; else all are equal
}

func (l load) String() string {
	kind := "constant"
	if l.random {
		kind = "exponential"
	}
	return fmt.Sprintf("%s/%d%%/%v/%s", l.limiter, l.percent, l.trip, kind)
}

const (
	overloadRate    = 100             // calls a second that the limit lets through
	overloadTimeout = 2 * time.Second // of each call
	overloadWarmUp  = 5 * time.Second
	overloadRun     = 15 * time.Second
)

// served is what became of the calls of the measured time, per second.
type served struct{ served, sent, died float64 }

// run sends calls at an even pace and counts.
func (l load) run() served {
	var ok, sent, died atomic.Int64
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(1, 2))
	trip := func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		if l.random {
			return time.Duration(rng.ExpFloat64() * float64(l.trip))
		}
		return l.trip
	}
	measured := func() bool { return false }
	work := func(ctx context.Context) error {
		timer := time.NewTimer(trip())
		defer timer.Stop()
		in := measured()
		if in {
			sent.Add(1)
		}
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			if in {
				died.Add(1)
			}
			return ctx.Err()
		}
	}
	call := l.client(work)
	start := time.Now()
	measured = func() bool {
		t := time.Since(start)
		return t >= overloadWarmUp && t < overloadWarmUp+overloadRun
	}
	one := func() {
		ctx, cancel := context.WithTimeout(context.Background(), overloadTimeout)
		defer cancel()
		if call(ctx) == nil && measured() {
			ok.Add(1)
		}
	}
	for range int(overloadRate * overloadTimeout.Seconds()) { // the line as it would be after a while
		go one()
	}
	gap := time.Second * 100 / time.Duration(overloadRate*l.percent)
	for time.Since(start) < overloadWarmUp+overloadRun {
		go one()
		time.Sleep(gap)
	}
	time.Sleep(2 * overloadTimeout)
	synctest.Wait()
	per := overloadRun.Seconds()
	return served{float64(ok.Load()) / per, float64(sent.Load()) / per, float64(died.Load()) / per}
}

// client returns what makes one call.
func (l load) client(work func(context.Context) error) func(context.Context) error {
	var limiter throttle.Limiter
	switch l.limiter {
	case "Bucket", "Queue.Do", "Group":
		limiter = throttle.NewBucket(overloadRate, 10)
	case "Leaky":
		limiter = throttle.NewLeaky(overloadRate)
	case "FixedWindow":
		limiter = throttle.NewFixedWindow(overloadRate, time.Second)
	case "SlidingWindow":
		limiter = throttle.NewSlidingWindow(overloadRate, time.Second)
	}
	if l.limiter == "Queue.Do" {
		q := throttle.NewQueue(limiter, throttle.QueueOptions{})
		return func(ctx context.Context) error { return q.Do(ctx, work) }
	}
	tr := &throttle.Transport{
		Limiter: limiter,
		Retry:   throttle.Retry{MaxAttempts: 1},
		Base: roundTrip(func(r *http.Request) (*http.Response, error) {
			if err := work(r.Context()); err != nil {
				return nil, err
			}
			return answer(r, http.StatusOK), nil
		}),
	}
	return func(ctx context.Context) error {
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://upstream.test/", nil)
		resp, err := tr.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
}

func TestOverload(t *testing.T) {
	for _, limiter := range []string{"Bucket", "Leaky", "FixedWindow", "SlidingWindow", "Queue.Do"} {
		for _, percent := range []int{101, 120, 200, 1000} {
			for _, trip := range []time.Duration{20 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond} {
				for _, random := range []bool{false, true} {
					l := load{limiter, percent, trip, random}
					t.Run(l.String(), func(t *testing.T) {
						if percent != 120 || trip > 20*time.Millisecond || random {
							race.Long(t)
						}
						synctest.Test(t, l.test)
					})
				}
			}
		}
	}
}

func (l load) test(t *testing.T) {
	got := l.run()
	t.Logf("%5.1f/s served, %5.1f/s sent, %4.1f/s died in flight", got.served, got.sent, got.died)
	least := 0.95 * overloadRate
	if l.random {
		least = 0.85 * overloadRate
	}
	if got.served < least {
		t.Errorf("served %.1f/s, want at least %.0f/s", got.served, least)
	}
}

// TestOverloadSlower has the round trip grow tenfold while the line is as long as the timeout: calls
// that die then show that they must start earlier.
func TestOverloadSlower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var trip atomic.Int64
		trip.Store(int64(50 * time.Millisecond))
		var late atomic.Int64 // served in the last ten seconds
		call := load{limiter: "Bucket"}.client(func(ctx context.Context) error {
			select {
			case <-time.After(time.Duration(trip.Load())):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		start := time.Now()
		for time.Since(start) < time.Minute {
			if time.Since(start) > 30*time.Second {
				trip.Store(int64(500 * time.Millisecond))
			}
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), overloadTimeout)
				defer cancel()
				if call(ctx) == nil && time.Since(start) > 50*time.Second {
					late.Add(1)
				}
			}()
			time.Sleep(time.Second / 120)
		}
		time.Sleep(2 * overloadTimeout)
		if got := float64(late.Load()) / 10; got < 95 {
			t.Errorf("%.1f/s served after the round trip has grown, want at least 95/s", got)
		}
	})
}

// TestOverloadNoWait has timeouts shorter than the round trips seen so far: calls that need not wait
// go all the same, and so find out when the upstream is quicker again.
func TestOverloadNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trip := time.Second
		call := load{limiter: "Bucket"}.client(func(ctx context.Context) error {
			select {
			case <-time.After(trip):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		for range 20 {
			if err := call(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		trip = 10 * time.Millisecond
		ok := 0
		for range 200 {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			if call(ctx) == nil {
				ok++
			}
			cancel()
		}
		if ok != 200 {
			t.Errorf("%d of 200 calls served", ok)
		}
	})
}

// TestOverloadLearned compares calls with timeouts and calls without, before limits that are not
// configured but advertised, or found because the upstream throttles. How a limit is found is random, so
// the middle one of five runs counts: one in fifty serves 0.92.
func TestOverloadLearned(t *testing.T) {
	race.Long(t)
	for _, c := range []struct {
		name    string
		limit   throttletest.Limit
		dialect throttletest.Dialect
	}{
		{"found", throttletest.Limit{N: 100, Burst: 10}, nil},
		{"found/window", throttletest.Limit{Kind: throttletest.Fixed, N: 100}, nil},
		{"advertised/1s", throttletest.Limit{Kind: throttletest.Fixed, N: 100}, throttletest.Draft08},
		{"advertised/10s", throttletest.Limit{Kind: throttletest.Fixed, N: 1000, Per: 10 * time.Second}, throttletest.Draft08},
		{"advertised/bucket", throttletest.Limit{N: 1000, Per: 10 * time.Second}, throttletest.XDelta},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ratios []float64
			for range 5 {
				synctest.Test(t, func(t *testing.T) {
					without := overloadLearned(c.limit, c.dialect, time.Hour)
					with := overloadLearned(c.limit, c.dialect, overloadTimeout)
					t.Logf("%.1f/s served with timeouts, %.1f/s without", with, without)
					ratios = append(ratios, with/without)
				})
			}
			slices.Sort(ratios)
			if got := ratios[len(ratios)/2]; got < 0.97 {
				t.Errorf("%.3f of what is served without timeouts is served with them, in the middle one of %.3f; want at least 0.97", got, ratios)
			}
		})
	}
}

// overloadLearned asks for 150 % of the limit and returns how many calls are served a second.
func overloadLearned(l throttletest.Limit, dialect throttletest.Dialect, timeout time.Duration) float64 {
	server := throttletest.NewServer(l)
	server.Latency = throttletest.Span{Min: 10 * time.Millisecond, Max: 25 * time.Millisecond}
	server.Advertise.Dialect = dialect
	rt := &throttle.Transport{Base: server}
	var ok atomic.Int64
	start := time.Now()
	for time.Since(start) < overloadWarmUp+overloadRun {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			code, err := get(ctx, rt, server.URL())
			if at := time.Since(start); err == nil && code == 200 && at >= overloadWarmUp && at < overloadWarmUp+overloadRun {
				ok.Add(1)
			}
		}()
		time.Sleep(time.Second / 150)
	}
	time.Sleep(time.Minute)
	return float64(ok.Load()) / overloadRun.Seconds()
}

// A roundTrip is a Base in one function.
type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// answer is a response with a short body; kv are header fields and their values.
func answer(req *http.Request, code int, kv ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(kv); i += 2 {
		h.Add(kv[i], kv[i+1])
	}
	if req.Body != nil {
		req.Body.Close()
	}
	return &http.Response{
		StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader("hello")), Request: req,
		ContentLength: 5, ProtoMajor: 1, ProtoMinor: 1,
	}
}

// get sends one request, reads the answer and returns its status.
func get(ctx context.Context, rt http.RoundTripper, url string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}
