package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
)

func TestByHost(t *testing.T) {
	for in, want := range map[string]string{
		"http://example.com/":         "example.com",
		"http://EXAMPLE.com/Path":     "example.com",
		"http://example.com:80/":      "example.com",
		"https://example.com:443/":    "example.com",
		"https://example.com:80/":     "example.com:80",
		"http://example.com:443/":     "example.com:443",
		"http://example.com:8080/":    "example.com:8080",
		"HTTP://example.com:80":       "example.com",
		"http://example.com./":        "example.com",
		"https://Example.COM.:443/":   "example.com",
		"https://Example.COM.:8443/":  "example.com:8443",
		"http://example.com:/":        "example.com",
		"http://user:pw@example.com/": "example.com",
		"http://[::1]/":               "[::1]",
		"http://[::1]:80/":            "[::1]",
		"http://[::1]:8080/":          "[::1]:8080",
		"https://[2001:DB8::A]:443/":  "[2001:db8::a]",
		"http://[fe80::1%25eth0]/":    "[fe80::1%eth0]",
		"http://127.0.0.1:80/":        "127.0.0.1",
		"http:///path":                "",
	} {
		u, err := url.Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := throttle.ByHost(&http.Request{URL: u, Host: "other"}); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
	if got := throttle.ByHost(&http.Request{}); got != "" {
		t.Errorf("nil URL: %q", got)
	}
}

func TestByCredential(t *testing.T) {
	key := func(url, auth string) string {
		req := request(t.Context(), "GET", url)
		if auth != "" {
			req.Header.Set("Authorization", auth)
		}
		return throttle.ByCredential(req)
	}
	a := key("http://API:80/", "Bearer secret-a")
	if a != key("http://api/other", "Bearer secret-a") {
		t.Error("not stable")
	}
	for _, other := range []string{key("http://api/", "Bearer secret-b"), key("http://api2/", "Bearer secret-a"), key("http://api/", "")} {
		if other == a {
			t.Errorf("%q stands for two credentials or hosts", a)
		}
	}
	if host, hash, ok := strings.Cut(a, "#"); host != "api" || !ok || len(hash) != 16 || strings.Contains(a, "secret") {
		t.Errorf("%q", a)
	}
	if got := key("http://api/", ""); got != "api" {
		t.Errorf("without a credential: %q", got)
	}
	if got := throttle.ByCredential(&http.Request{URL: &url.URL{Host: "api"}}); got != "api" {
		t.Errorf("nil Header: %q", got)
	}
}

// ByHeader tells credentials in a header of the upstream's own apart, and shows none of them.
func TestByHeader(t *testing.T) {
	byKey := throttle.ByHeader("x-api-key")
	key := func(value string) string {
		req := request(t.Context(), "GET", "http://API:80/")
		if value != "" {
			req.Header.Set("X-Api-Key", value)
		}
		return byKey(req)
	}
	a := key("secret-a")
	if a != key("secret-a") || a == key("secret-b") || !strings.HasPrefix(a, "api#") || strings.Contains(a, "secret") {
		t.Errorf("%q and %q", a, key("secret-b"))
	}
	if got := key(""); got != "api" {
		t.Errorf("without the header: %q", got)
	}
}

// The Host field is in Request.Host, whatever the header says (golang/go#29865): two hosts behind one address are two keys, and
// ways to write one are one.
func TestByHeaderHost(t *testing.T) {
	byHost := throttle.ByHeader("host")
	key := func(target, host string) string {
		req := request(t.Context(), "GET", target)
		req.Host = host
		req.Header.Set("Host", "not.sent")
		return byHost(req)
	}
	a := key("http://10.0.0.1/", "a.test")
	if !strings.HasPrefix(a, "10.0.0.1#") || a == key("http://10.0.0.1/", "b.test") || a == key("http://10.0.0.2/", "a.test") || a == key("http://10.0.0.1/", "a.test:81") {
		t.Errorf("%q and %q", a, key("http://10.0.0.1/", "b.test"))
	}
	for _, same := range []string{"A.Test", "a.test.", "a.test:80", "A.TEST.:80"} {
		if got := key("http://10.0.0.1/", same); got != a {
			t.Errorf("Host %q: %q, want %q", same, got, a)
		}
	}
	for _, own := range []string{"", "api.test", "API.test:443", "api.test."} {
		if got := key("https://api.test./", own); got != "api.test" {
			t.Errorf("Host %q: %q, want the key of the URL's host", own, got)
		}
	}
	if got := byHost(&http.Request{Host: "a.test"}); got != "" {
		t.Errorf("without a URL: %q", got)
	}
	for _, name := range []string{"content-length", "Transfer-Encoding", "trailer"} {
		func() {
			defer func() {
				if p := recover(); p == nil {
					t.Errorf("ByHeader(%q) does not panic", name)
				}
			}()
			throttle.ByHeader(name)
		}()
	}
}

// Keys are cut to 256 bytes, and two that differ only behind that stay two.
func TestLongKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("k", 300)
		var seen []string
		tr := &throttle.Transport{Base: newUpstream(0, always(200)), Key: func(req *http.Request) string { return long + req.URL.Path }}
		tr.LimiterFor = func(key string) throttle.Limiter { seen = append(seen, key); return nil }
		for _, path := range []string{"/a", "/b", "/a"} {
			status(tr, t.Context(), "http://x"+path)
		}
		n := 0
		for s := range tr.Stats() {
			if n++; len(s.Key) != 256 || !strings.HasPrefix(s.Key, long[:200]) {
				t.Errorf("key of %d bytes", len(s.Key))
			}
		}
		if n != 2 || len(seen) != 2 || len(seen[0]) != 256 || seen[0] == seen[1] {
			t.Errorf("%d keys, LimiterFor was given %q", n, seen)
		}
		whole := &throttle.Transport{Base: newUpstream(0, always(200)), Key: func(*http.Request) string { return long[:256] }}
		if status(whole, t.Context(), "http://x/"); statsOf(t, whole).Key != long[:256] {
			t.Error("a key of 256 bytes was cut")
		}
		for _, cut := range seen { // a key that is written like a cut one is another one
			twin := &throttle.Transport{Base: newUpstream(0, always(200)), Key: func(*http.Request) string { return cut }}
			if status(twin, t.Context(), "http://x/"); statsOf(t, twin).Key == cut || len(statsOf(t, twin).Key) != 256 {
				t.Errorf("%q and a longer key are one", cut)
			}
		}
		tr.Base.(*upstream).answer = always(429, "Retry-After", "3600")
		status(tr, t.Context(), "http://x/a")
		tr.Resume(long + "/a") // as Key gives it
		for s := range tr.Stats() {
			if s.Reason != "" {
				t.Errorf("still closed: %+v", s)
			}
		}
	})
}

func TestLongHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{Base: newUpstream(0, always(200))}
		status(tr, t.Context(), "http://"+strings.Repeat("h", 300))
		for s := range tr.Stats() {
			if len(s.Key) != 256 {
				t.Errorf("key of %d bytes", len(s.Key))
			}
		}
	})
}

// Each key has a line, a gate, slots and a budget of its own.
func TestKeysAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, func(_ int, req *http.Request) (*http.Response, error) {
			if req.URL.Host == "bad" {
				return reply(req, 429, "Retry-After", "60"), nil
			}
			return reply(req, 200), nil
		})
		made := map[string]int{}
		tr := &throttle.Transport{Base: up, Queue: throttle.QueueOptions{MaxInFlight: 1, MaxWaiting: 1}, LimiterFor: func(key string) throttle.Limiter {
			made[key]++
			return throttle.NewBucket(1, 1)
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 70*time.Second)
		defer cancel()
		go status(tr, ctx, "http://bad/")
		synctest.Wait()
		start := time.Now()
		for range 5 {
			if code, err := status(tr, t.Context(), "http://good/"); code != 200 {
				t.Error(code, err)
			}
		}
		if err := at(4*time.Second, start); err != nil {
			t.Error(err)
		}
		if made["bad"] != 1 || made["good"] != 1 {
			t.Errorf("limiters made: %v", made)
		}
	})
}

// A slot that one key holds is not another's.
func TestSlotsArePerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{Base: newUpstream(time.Second, always(200)), Queue: throttle.QueueOptions{MaxInFlight: 2}}
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() { status(tr, t.Context(), fmt.Sprintf("http://h%d/", i%3)) })
		}
		wg.Wait()
		if err := at(2*time.Second, start); err != nil { // 4 calls of each key, 2 at once
			t.Error(err)
		}
	})
}

// What the table does, see package queue: it keeps so many keys that are not busy, and looks at one that
// may be idle at each so many accesses.
const (
	maxKeys    = 65536
	sweepEvery = 16
)

// keys counts the keys that tr keeps.
func keys(tr *throttle.Transport) (n int) {
	for range tr.Stats() {
		n++
	}
	return n
}

// Keys are dropped on access, only if unused for a minute and as new.
func TestIdleKeysAreDropped(t *testing.T) {
	for _, c := range []struct {
		name string
		lim  func(string) throttle.Limiter
		busy func(tr *throttle.Transport, ctx context.Context) // makes key "old"
		rest time.Duration
		want bool // kept
	}{
		{name: "no limiter", rest: time.Minute},
		{name: "used 59 s ago", rest: 59 * time.Second, want: true},
		{name: "bucket full again", lim: func(string) throttle.Limiter { return throttle.NewBucket(1, 5) }, rest: time.Minute},
		{name: "bucket not full", lim: func(string) throttle.Limiter { return throttle.NewBucket(0.01, 5) }, rest: time.Minute, want: true},
		{name: "bucket full at last", lim: func(string) throttle.Limiter { return throttle.NewBucket(0.01, 5) }, rest: 101 * time.Second},
		{name: "window running", lim: func(string) throttle.Limiter { return throttle.NewFixedWindow(5, 2*time.Minute) }, rest: time.Minute, want: true},
		{name: "foreign", lim: func(string) throttle.Limiter { return bare{} }, rest: 59 * time.Minute, want: true},
		{name: "foreign, an hour", lim: func(string) throttle.Limiter { return bare{} }, rest: time.Hour},
		{name: "in flight", rest: time.Hour, want: true, busy: func(tr *throttle.Transport, ctx context.Context) {
			go status(tr, ctx, "http://old/hang")
		}},
		{name: "body open", rest: time.Hour, want: true, busy: func(tr *throttle.Transport, ctx context.Context) {
			tr.Queue.MaxInFlight = 5
			tr.RoundTrip(request(ctx, "GET", "http://old/"))
		}},
		{name: "waiting", rest: time.Hour, want: true, lim: func(string) throttle.Limiter { return throttle.NewBucket(1e-4, 1) }, busy: func(tr *throttle.Transport, ctx context.Context) {
			status(tr, ctx, "http://old/")
			go status(tr, ctx, "http://old/")
		}},
		{name: "closed", rest: time.Hour, want: true, busy: func(tr *throttle.Transport, ctx context.Context) {
			status(tr, ctx, "http://old/429")
		}},
		{name: "reopened", rest: 3 * time.Hour, busy: func(tr *throttle.Transport, ctx context.Context) {
			status(tr, ctx, "http://old/429")
		}},
		{name: "resting", rest: time.Hour, want: true, busy: func(tr *throttle.Transport, ctx context.Context) {
			tr.Retry.Backoff = func() throttle.Backoff { return constant(2 * time.Hour) }
			go status(tr, throttle.WithMaxAttempts(ctx, 2), "http://old/500")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := newUpstream(0, func(_ int, req *http.Request) (*http.Response, error) {
					switch req.URL.Path {
					case "/hang":
						<-req.Context().Done()
						return nil, req.Context().Err()
					case "/429":
						return reply(req, 429, "Retry-After", "7200"), nil
					case "/500":
						return reply(req, 500), nil
					}
					return reply(req, 200), nil
				})
				tr := &throttle.Transport{Base: up, LimiterFor: func(key string) throttle.Limiter {
					if c.lim == nil || key == "new" {
						return nil
					}
					return c.lim(key)
				}}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.busy == nil {
					status(tr, ctx, "http://old/")
				} else {
					c.busy(tr, ctx)
				}
				synctest.Wait()
				time.Sleep(c.rest)
				for range 10 * sweepEvery {
					status(tr, ctx, "http://new/")
					time.Sleep(time.Millisecond)
				}
				if _, kept := keyStats(tr, "old"); kept != c.want {
					t.Errorf("kept: %v, want %v", kept, c.want)
				}
			})
		})
	}
}

// A slow start that ends with calls still out does not count them for ever: the key is idle some day.
func TestKeyIsIdleAfterASlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{Limiter: willing{}, Retry: throttle.Retry{MaxAttempts: 1}, Base: baseFunc(func(req *http.Request) (*http.Response, error) {
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
		for _, path := range []string{"", "slow", "fail", "fail"} { // one; then two; then the last, which ends the reopening
			go do(path)
			synctest.Wait()
		}
		time.Sleep(10 * time.Hour)
		for range 10 * sweepEvery {
			status(tr, t.Context(), "http://used/")
		}
		if s, kept := keyStats(tr, "a"); kept {
			t.Errorf("never idle: %+v", s)
		}
	})
}

// Dropping and making a key again never lets a second burst through.
func TestDroppedKeysGetNoSecondBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, burst = 0.1, 20
		up := newUpstream(0, always(200))
		sent := map[string][]time.Duration{}
		made := 0
		tr := &throttle.Transport{Base: up, LimiterFor: func(string) throttle.Limiter { made++; return throttle.NewBucket(rate, burst) }}
		for round := range 40 {
			for i := range 10 {
				host := fmt.Sprint("h", (round+i)%7)
				for range 1 + (round*i)%4 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
					if _, err := status(tr, ctx, "http://"+host+"/"); err == nil {
						sent[host] = append(sent[host], up.now())
					}
					cancel()
				}
			}
			time.Sleep(time.Duration(round%9) * 30 * time.Second)
		}
		if made < 12 {
			t.Errorf("only %d keys were made: nothing was dropped", made)
		}
		for host, s := range sent {
			checkRate(t, host, s, rate, burst)
		}
	})
}

// The rate at which calls to an upstream went so far counts from the first call of its key, not from the
// first call of the Transport.
func TestFoundRateCountsFromTheFirstCall(t *testing.T) {
	for _, later := range []time.Duration{0, 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			tr := &throttle.Transport{Retry: throttle.Retry{MaxAttempts: 1}, Base: baseFunc(func(req *http.Request) (*http.Response, error) {
				if n++; n == 402 {
					return reply(req, 429), nil
				}
				return reply(req, 200), nil
			})}
			status(tr, t.Context(), "http://a")
			time.Sleep(later)
			for range 401 {
				status(tr, t.Context(), "http://b")
				time.Sleep(10 * time.Millisecond)
			}
			for s := range tr.Stats() {
				if s.Key == "b" && (len(s.Learned) != 1 || s.Learned[0].Rate < 90 || s.Learned[0].Rate > 110) {
					t.Errorf("%v after the Transport's first call, 100 calls a second led to %+v", later, s.Learned)
				}
			}
		})
	}
}

// One key that is never idle does not keep the others, nor do closings that are over.
func TestSweepGoesPastKeysThatStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, func(_ int, req *http.Request) (*http.Response, error) {
			switch req.URL.Host {
			case "long":
				<-req.Context().Done()
				return nil, req.Context().Err()
			case "used":
				return reply(req, 200), nil
			}
			return reply(req, 429, "Retry-After", "1"), nil
		})
		tr := &throttle.Transport{Base: up, Retry: throttle.Retry{MaxAttempts: 1}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go status(tr, ctx, "http://long/")
		synctest.Wait()
		for i := range 100 {
			status(tr, t.Context(), fmt.Sprintf("http://h%d/", i))
		}
		time.Sleep(time.Hour)
		for range 20 * 100 * sweepEvery {
			status(tr, t.Context(), "http://used/")
		}
		if n := keys(tr); n != 2 {
			t.Errorf("%d keys after an hour, want the 2 in use", n)
		}
	})
}

// Redirects to 200,000 hosts that each throttle for a day: what the table holds is bounded, those who
// use the library are not slowed.
func TestFloodOfHosts(t *testing.T) {
	race.Long(t)
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, nil)
		up.answer = func(n int, req *http.Request) (*http.Response, error) {
			up.sent = up.sent[:0] // not to be counted as memory
			if strings.HasPrefix(req.URL.Host, "good") {
				return reply(req, 200), nil
			}
			return reply(req, 429, "Retry-After", "86400"), nil
		}
		const hosts, rate = 200_000, 10.0
		tr := &throttle.Transport{Base: up, LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(rate, 10) }}
		begin := time.Now()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		slowest := time.Duration(0)
		for i := range hosts {
			host := fmt.Sprintf("http://h%d.example.com/", i)
			start := time.Now()
			if code, err := status(tr, t.Context(), host); code != 429 || err != nil {
				t.Fatal(code, err)
			}
			slowest = max(slowest, time.Since(start))
			if i%100 == 0 { // a host that works is used all the time
				time.Sleep(time.Second)
				start := time.Now()
				for range 3 {
					if code, err := status(tr, t.Context(), "http://good/"); code != 200 || err != nil {
						t.Fatal(code, err)
					}
				}
				if d := time.Since(start); d > 0 {
					t.Errorf("3 calls of a host already in the table took %v after %d hosts", d, i)
				}
			}
		}
		if slowest > 0 {
			t.Errorf("the first call to a new host was slowed by %v", slowest)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		n := keys(tr) // later: a key that somebody has looked at remembers what it had used by then
		if n > maxKeys {
			t.Errorf("%d keys, want at most %d", n, maxKeys)
		}
		each := float64(after.HeapAlloc-before.HeapAlloc) / float64(n)
		t.Logf("%d keys, %.0f bytes each, %v of virtual time", n, each, time.Since(begin))
		if each > 1100 {
			t.Errorf("%.0f bytes for each key kept", each)
		}
		// A host that is still known fails at once, one that is forgotten costs one 429.
		if _, err := status(tr, t.Context(), fmt.Sprintf("http://h%d.example.com/", hosts-1)); err == nil {
			t.Error("the last host's pause is forgotten")
		}
		runtime.KeepAlive(tr)
	})
}

// The first call of a key goes at once, although the table is full.
func TestFirstCallToHost65537(t *testing.T) {
	race.Long(t)
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{Base: newUpstream(0, always(200)), LimiterFor: func(string) throttle.Limiter {
			return throttle.NewBucket(rate.Every(time.Minute), 1)
		}}
		start := time.Now()
		for i := range 70_000 {
			status(tr, t.Context(), fmt.Sprintf("http://h%d.example.com/", i))
		}
		if d := time.Since(start); d > 0 {
			t.Errorf("the first calls to 70,000 hosts took %v, want no time", d)
		}
	})
}

// Both limiters are paid, and the shared one is not paid for a call that its own holds back.
func TestBothLimitersArePaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := throttle.NewBucket(10, 10)
		own := map[string]*throttle.Bucket{"a": throttle.NewBucket(1, 2), "b": throttle.NewBucket(5, 5)}
		tr := &throttle.Transport{Base: newUpstream(0, always(200)), Limiter: shared, LimiterFor: func(key string) throttle.Limiter { return own[key] }}
		for range 2 {
			status(tr, t.Context(), "http://a/")
			status(tr, throttle.WithCost(t.Context(), 2), "http://b/")
		}
		if s, a, b := shared.Tokens(), own["a"].Tokens(), own["b"].Tokens(); s != 4 || a != 0 || b != 1 {
			t.Errorf("tokens left: shared %v, a %v, b %v; want 4, 0, 1", s, a, b)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 999*time.Millisecond)
		defer cancel()
		if _, err := status(tr, ctx, "http://a/"); !errors.Is(err, throttle.ErrWaitTooLong) {
			t.Error(err)
		}
		if s := shared.Tokens(); s != 4 {
			t.Errorf("a call that its own limit holds back took %v of the shared one", 4-s)
		}
		s, _ := keyStats(tr, "a")
		if s.Limit != 1 || s.Tokens != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// The prediction counts those who wait for the shared limiter in other keys: a new key waits for one call of each, one
// more of a key for as many of the others as of its own.
func TestPredictionOverKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, &throttle.Transport{Limiter: throttle.NewBucket(1, 1)})
		for i := range 10 {
			c.send(t.Context(), fmt.Sprint("h", i%3), "")
		}
		start := time.Now()
		for _, call := range []struct {
			key  string
			wait time.Duration
		}{{"h1", 10 * time.Second}, {"new", 4 * time.Second}} {
			ctx, cancel := context.WithTimeout(t.Context(), call.wait-100*time.Millisecond)
			defer cancel()
			_, err := status(c.tr, ctx, "http://"+call.key+"/")
			var e *throttle.Error
			if !errors.As(err, &e) || !errors.Is(err, context.DeadlineExceeded) || (e.Wait-call.wait).Abs() > time.Millisecond || time.Since(start) != 0 {
				t.Errorf("%s: %v", call.key, err)
			}
			if ctx, cancel = context.WithTimeout(t.Context(), call.wait+1100*time.Millisecond); call.key == "new" {
				c.send(ctx, "new", "") // not later than predicted, but for an eighth turn
			}
			defer cancel()
		}
		c.wg.Wait()
	})
}

// Nobody starves: of two keys with endless lines, the one whose calls have a low priority gets every
// eighth turn; and of equal ones, each gets half.
func TestSharedLineIsFair(t *testing.T) {
	for _, c := range []struct {
		low  int
		want int // of 800
	}{{0, 400}, {-1, 100}} {
		synctest.Test(t, func(t *testing.T) {
			sent := map[string]int{}
			var mu sync.Mutex
			up := newUpstream(0, func(_ int, req *http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				sent[req.URL.Host]++
				return reply(req, 200), nil
			})
			tr := &throttle.Transport{Base: up, Limiter: throttle.NewLeaky(10)}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(80*time.Second, cancel)
			for _, host := range []string{"low", "high"} {
				for range 50 {
					go func() {
						for ctx.Err() == nil {
							ctx := ctx
							if host == "low" {
								ctx = throttle.WithPriority(ctx, c.low)
							}
							status(tr, ctx, "http://"+host+"/")
						}
					}()
				}
			}
			<-ctx.Done()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if n := sent["low"]; n < c.want-51 || n > c.want+51 || sent["low"]+sent["high"] < 800 {
				t.Errorf("priority %d: %v of 800, want %d", c.low, sent, c.want)
			}
		})
	}
}

func TestForeignSharedLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &foreignBucket{Bucket: throttle.NewBucket(100, 1), latency: time.Millisecond}
		up := newUpstream(0, always(200))
		tr := &throttle.Transport{Base: up, Limiter: f, LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(50, 5) }}
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(1500*time.Millisecond, cancel)
		for i := range 300 {
			c := t.Context()
			if i%3 == 0 {
				c = ctx
			}
			wg.Go(func() {
				if _, err := status(tr, c, fmt.Sprint("http://h", i%4)); err != nil && (c != ctx || !errors.Is(err, context.Canceled)) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		sent := len(up.times())
		if f.given != sent {
			t.Errorf("%d units given, %d calls sent", f.given, sent)
		}
		if f.most != 1 {
			t.Errorf("%d asked at once, want 1", f.most)
		}
		if d := up.now(); d > time.Duration(sent)*12*time.Millisecond {
			t.Errorf("%d calls in %v", sent, d)
		}
		synctest.Wait()
		if left := leftBehind(); left != "" {
			t.Error(left)
		}
	})
}

// A foreign shared limiter is asked by one head at a time, and nothing that it gave is lost.
type foreignBucket struct {
	*throttle.Bucket
	latency time.Duration
	mu      sync.Mutex
	asking  int
	most    int
	given   int
}

func (f *foreignBucket) Take(ctx context.Context, n int) (time.Duration, error) {
	f.mu.Lock()
	f.asking++
	f.most = max(f.most, f.asking)
	f.mu.Unlock()
	select {
	case <-time.After(f.latency):
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asking--
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	wait, err := f.Bucket.Take(ctx, n)
	if err == nil && wait == 0 {
		f.given += n
	}
	return wait, err
}

func (f *foreignBucket) Adjust(n int) {
	f.Bucket.Adjust(n)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.given += n
}

// The moment that the shared limiter named for one key is no measure for a key that gets its slot
// later: its take is not late.
func TestDueMomentIsUsedOnce(t *testing.T) {
	for _, early := range []bool{false, true} { // the one it was named for goes before
		synctest.Test(t, func(t *testing.T) {
			own, shared := throttle.NewBucket(2000, 10), throttle.NewBucket(1000, 2)
			tr := &throttle.Transport{Limiter: shared, Queue: throttle.QueueOptions{MaxInFlight: 1}, LimiterFor: func(key string) throttle.Limiter {
				if key == "b" {
					return own
				}
				return nil
			}, Base: baseFunc(func(req *http.Request) (*http.Response, error) {
				if req.URL.Path == "/slow" {
					time.Sleep(5 * time.Millisecond)
				}
				return reply(req, 200), nil
			})}
			call := func(url string) { status(tr, t.Context(), url) }
			go call("http://b/slow")
			go call("http://a/")
			synctest.Wait()
			go call("http://c/") // goes in 1 ms
			synctest.Wait()
			if early {
				shared.Adjust(-1)
			}
			call("http://b/") // in 5 ms
			if left := own.Tokens(); left != 9 {
				t.Errorf("early %v: %v units are left of 10 after one was taken", early, left)
			}
		})
	}
}

// Nor is a call that waits for a slot of all keys late, though the limiter had named an earlier moment for one before it.
func TestSlotOfAllKeysIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := throttle.NewLeaky(10)
		tr := &throttle.Transport{Limiter: lim, MaxInFlight: 1}
		c := newCrowd(t, tr)
		c.up.trip = 52 * time.Millisecond
		c.send(t.Context(), "a", "0")
		time.Sleep(52 * time.Millisecond)
		c.send(t.Context(), "a", "1") // may go at 100 ms
		c.send(t.Context(), "b", "2")
		c.send(t.Context(), "a", "3")
		lim.Adjust(-1) // so it goes now, and the others wait for its slot
		time.Sleep(time.Millisecond)
		lim.Adjust(-1)
		c.check("0 52", "1 104", "2 156", "3 256") // answers; the last start is 100 ms after the one before it
	})
}

// A shared limit that changes is felt by the head, wherever it waits.
func TestSharedLimitChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := throttle.NewBucket(0.01, 1)
		c := newCrowd(t, &throttle.Transport{Limiter: lim})
		c.send(t.Context(), "a", "0")
		c.send(t.Context(), "b", "1")
		c.send(t.Context(), "a", "2")
		time.Sleep(time.Second)
		lim.SetLimit(10)
		c.check("0 0", "1 1099", "2 1199") // 0.01 tokens were earned in the first second
	})
}

// One limiter for several keys is never exceeded, and one that is both is paid once.
func TestOneLimiterForSeveralKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := throttle.NewBucket(10, 1)
		for _, tr := range []*throttle.Transport{
			{LimiterFor: func(string) throttle.Limiter { return lim }},
			{Limiter: lim, LimiterFor: func(string) throttle.Limiter { return lim }},
		} {
			c := newCrowd(t, tr)
			time.Sleep(time.Second)
			start := time.Now()
			for i := range 30 {
				c.send(t.Context(), fmt.Sprint("h", i%3), "")
			}
			c.wg.Wait()
			if d := time.Since(start); d < 2900*time.Millisecond || d > 3100*time.Millisecond {
				t.Errorf("30 calls at 10/s took %v", d)
			}
			for i := range c.when {
				c.when[i] -= start.Sub(c.up.start)
			}
			checkRate(t, "all", c.when, 10, 1)
		}
	})
}

// A call that has waited for a slot is not late: its units are not taken as of a moment before it went, though
// the limiter had named an earlier moment for the call before it.
func TestSharedLimitExactAfterWaitForSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var at []time.Duration
		start := time.Now()
		rng := rand.New(rand.NewPCG(1, 1))
		tr := &throttle.Transport{
			Limiter: throttle.NewSlidingWindow(10, time.Second), Queue: throttle.QueueOptions{MaxInFlight: 5},
			Base: baseFunc(func(req *http.Request) (*http.Response, error) {
				mu.Lock()
				at = append(at, time.Since(start))
				d := 300*time.Millisecond + time.Duration(rng.Int64N(int64(400*time.Millisecond)))
				mu.Unlock()
				time.Sleep(d)
				return reply(req, 200), nil
			}),
		}
		var wg sync.WaitGroup
		for range 300 {
			wg.Go(func() {
				if code, err := status(tr, t.Context(), "http://x/"); code != 200 {
					t.Error(code, err)
				}
			})
		}
		wg.Wait()
		for i := 10; i < len(at); i++ {
			if gap := at[i] - at[i-10]; gap < time.Second {
				t.Fatalf("start %d came %v after the tenth before it", i, gap)
			}
		}
	})
}

// crowd sends calls one after the other, so that their order of arrival is known, and notes how they went.
type crowd struct {
	t  *testing.T
	tr *throttle.Transport
	up *upstream
	wg sync.WaitGroup

	mu   sync.Mutex
	gone []string // "path host" in the order of sending
	when []time.Duration
}

// send starts a call to host/name and returns when it waits or has gone.
func (c *crowd) send(ctx context.Context, host, name string) {
	c.wg.Go(func() {
		if code, err := status(c.tr, ctx, "http://"+host+"/"+name); code != 200 && !errors.Is(err, context.Canceled) {
			c.t.Error(host, name, code, err)
		}
	})
	synctest.Wait()
}

// check compares what has gone, and when in ms.
func (c *crowd) check(want ...string) {
	c.t.Helper()
	c.wg.Wait()
	got := make([]string, len(c.gone))
	for i, name := range c.gone {
		got[i] = fmt.Sprint(name, " ", c.when[i].Milliseconds())
		if i > 0 && c.when[i] == c.when[i-1] && got[i] < got[i-1] { // at one moment: in either order
			got[i], got[i-1] = got[i-1], got[i]
		}
	}
	if !slices.Equal(got, want) {
		c.t.Errorf("went %q\nwant %q", got, want)
	}
}

func newCrowd(t *testing.T, tr *throttle.Transport) *crowd {
	c := &crowd{t: t, tr: tr}
	c.up = newUpstream(0, func(_ int, req *http.Request) (*http.Response, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.gone, c.when = append(c.gone, strings.TrimPrefix(req.URL.Path, "/")), append(c.when, c.up.now())
		return reply(req, 200), nil
	})
	tr.Base = c.up
	return c
}

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

func goAndNote(t *testing.T, tr *throttle.Transport, ctx context.Context, url string, start time.Time, at *time.Duration) {
	go func() {
		code, err := status(tr, ctx, url)
		if err != nil {
			t.Log(url, code, err, time.Since(start))
			return
		}
		*at = time.Since(start)
	}()
}

// A key of a higher priority that enters the shared line while another's head asks is woken all the same.
func TestSharedLineWakesWhoCameWhileAnotherAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &slowForeign{delay: 100 * time.Millisecond, f: func(i int) time.Duration {
			if i == 1 {
				return 500 * time.Millisecond
			}
			return 0
		}}
		tr := &throttle.Transport{Limiter: f, Base: answers(200)}
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		var a, b time.Duration
		goAndNote(t, tr, ctx, "http://a/", start, &a)
		synctest.Wait()
		goAndNote(t, tr, throttle.WithPriority(ctx, 1), "http://b/", start, &b)
		time.Sleep(time.Hour)
		synctest.Wait()
		if a == 0 || b == 0 {
			t.Errorf("stuck: a %v b %v", a, b)
		}
		cancel()
		synctest.Wait()
	})
}

// A key's own foreign limiter that makes it wait does not block the other keys at the shared line.
func TestForeignLimiterOfOneKeyDoesNotBlockOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{Limiter: throttle.NewBucket(1000, 1000), Base: answers(200), LimiterFor: func(key string) throttle.Limiter {
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
