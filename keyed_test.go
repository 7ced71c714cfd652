package throttle

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
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
		if got := ByHost(&http.Request{URL: u, Host: "other"}); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
	if got := ByHost(&http.Request{}); got != "" {
		t.Errorf("nil URL: %q", got)
	}
}

func TestByCredential(t *testing.T) {
	key := func(url, auth string) string {
		req := request(t.Context(), "GET", url)
		if auth != "" {
			req.Header.Set("Authorization", auth)
		}
		return ByCredential(req)
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
	if got := ByCredential(&http.Request{URL: &url.URL{Host: "api"}}); got != "api" {
		t.Errorf("nil Header: %q", got)
	}
}

// Keys are cut to 256 bytes, and two that differ only behind that stay two.
func TestLongKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("k", 300)
		var seen []string
		tr := &Transport{Base: newUpstream(0, always(200)), Key: func(req *http.Request) string { return long + req.URL.Path }}
		tr.LimiterFor = func(key string) Limiter { seen = append(seen, key); return nil }
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
		if got := bounded(long[:256]); got != long[:256] {
			t.Error("a key of 256 bytes was cut")
		}
		tr.Base.(*upstream).answer = always(429, "Retry-After", "3600")
		status(tr, t.Context(), "http://x/a")
		tr.Resume(long + "/a") // as Key gives it
		for s := range tr.Stats() {
			if s.Cause != "" {
				t.Errorf("still closed: %+v", s)
			}
		}
	})
}

func TestLongHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{Base: newUpstream(0, always(200))}
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
		tr := &Transport{Base: up, Queue: QueueOptions{MaxInFlight: 1, MaxWaiting: 1}, LimiterFor: func(key string) Limiter {
			made[key]++
			return NewBucket(1, 1)
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
		tr := &Transport{Base: newUpstream(time.Second, always(200)), Queue: QueueOptions{MaxInFlight: 2}}
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

func (t *table) len() int {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	return len(t.keys)
}

// Keys are dropped on access, only if unused for a minute and as new.
func TestIdleKeysAreDropped(t *testing.T) {
	for _, c := range []struct {
		name string
		lim  func(string) Limiter
		busy func(tr *Transport, ctx context.Context) // makes key "old"
		rest time.Duration
		want bool // kept
	}{
		{name: "no limiter", rest: time.Minute},
		{name: "used 59 s ago", rest: 59 * time.Second, want: true},
		{name: "bucket full again", lim: func(string) Limiter { return NewBucket(1, 5) }, rest: time.Minute},
		{name: "bucket not full", lim: func(string) Limiter { return NewBucket(0.01, 5) }, rest: time.Minute, want: true},
		{name: "bucket full at last", lim: func(string) Limiter { return NewBucket(0.01, 5) }, rest: 101 * time.Second},
		{name: "window running", lim: func(string) Limiter { return NewFixedWindow(5, 2*time.Minute) }, rest: time.Minute, want: true},
		{name: "foreign", lim: func(string) Limiter { return bare{} }, rest: 59 * time.Minute, want: true},
		{name: "foreign, an hour", lim: func(string) Limiter { return bare{} }, rest: time.Hour},
		{name: "in flight", rest: time.Hour, want: true, busy: func(tr *Transport, ctx context.Context) {
			go status(tr, ctx, "http://old/hang")
		}},
		{name: "body open", rest: time.Hour, want: true, busy: func(tr *Transport, ctx context.Context) {
			tr.Queue.MaxInFlight = 5
			tr.RoundTrip(request(ctx, "GET", "http://old/"))
		}},
		{name: "waiting", rest: time.Hour, want: true, lim: func(string) Limiter { return NewBucket(1e-4, 1) }, busy: func(tr *Transport, ctx context.Context) {
			status(tr, ctx, "http://old/")
			go status(tr, ctx, "http://old/")
		}},
		{name: "closed", rest: time.Hour, want: true, busy: func(tr *Transport, ctx context.Context) {
			status(tr, ctx, "http://old/429")
		}},
		{name: "reopened", rest: 3 * time.Hour, busy: func(tr *Transport, ctx context.Context) {
			status(tr, ctx, "http://old/429")
		}},
		{name: "resting", rest: time.Hour, want: true, busy: func(tr *Transport, ctx context.Context) {
			tr.Retry.Backoff = func() Backoff { return constant(2 * time.Hour) }
			go status(tr, ctx, "http://old/500")
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
				tr := &Transport{Base: up, LimiterFor: func(key string) Limiter {
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

// Dropping and making a key again never lets a second burst through.
func TestDroppedKeysGetNoSecondBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, burst = 0.1, 20
		up := newUpstream(0, always(200))
		sent := map[string][]time.Duration{}
		tr := &Transport{Base: up, LimiterFor: func(string) Limiter { return NewBucket(rate, burst) }}
		tr.once.Do(tr.setup)
		made := 0
		tr.LimiterFor = func(string) Limiter { made++; return NewBucket(rate, burst) }
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

// Redirects to 200,000 hosts that each refuse for a day: what the table holds is bounded, those who
// use the library are not slowed.
func TestFloodOfHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("200,000 hosts take seconds")
	}
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
		tr := &Transport{Base: up, LimiterFor: func(string) Limiter { return NewBucket(rate, 10) }}
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
		if n := tr.table.len(); n > maxKeys {
			t.Errorf("%d keys, want at most %d", n, maxKeys)
		}
		if slowest > 0 {
			t.Errorf("the first call to a new host was slowed by %v", slowest)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		each := float64(after.HeapAlloc-before.HeapAlloc) / float64(tr.table.len())
		t.Logf("%d keys, %.0f bytes each, %v of virtual time", tr.table.len(), each, time.Since(begin))
		if each > 1000 {
			t.Errorf("%.0f bytes for each key kept", each)
		}
		// A refused host that is still known fails at once, one that is forgotten costs one refusal.
		if _, err := status(tr, t.Context(), fmt.Sprintf("http://h%d.example.com/", hosts-1)); err == nil {
			t.Error("the last host's pause is forgotten")
		}
		runtime.KeepAlive(tr)
	})
}

// Above the bound the least recently used goes: open and unused, then untold closings, then told ones;
// never one that is busy.
func TestOrderOfEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, func(_ int, req *http.Request) (*http.Response, error) {
			switch req.URL.Path {
			case "/told":
				return reply(req, 429, "Retry-After", "7200"), nil
			case "/failing":
				return reply(req, 503), nil
			case "/busy":
				<-req.Context().Done()
				return nil, req.Context().Err()
			}
			return reply(req, 200), nil
		})
		tr := &Transport{Base: up, LimiterFor: func(string) Limiter { return NewBucket(0.001, 100) }, Retry: Retry{MaxAttempts: 1}}
		tr.once.Do(tr.setup)
		tr.table.most = 8
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go status(tr, ctx, "http://busy/busy")
		synctest.Wait()
		status(tr, ctx, "http://told1/told")
		status(tr, ctx, "http://told2/told")
		for range 10 {
			for _, h := range []string{"fail1", "fail2"} {
				c, cancel := context.WithTimeout(ctx, time.Millisecond)
				status(tr, c, "http://"+h+"/failing")
				cancel()
			}
		}
		status(tr, ctx, "http://open1/")
		status(tr, ctx, "http://open2/")
		time.Sleep(2 * time.Minute)
		status(tr, ctx, "http://used/")
		time.Sleep(time.Millisecond)
		status(tr, ctx, "http://open1/") // makes open2 the oldest
		time.Sleep(61 * time.Second)
		keys := func() string {
			var list []string
			for _, h := range []string{"busy", "told1", "told2", "fail1", "fail2", "open1", "open2", "used"} {
				if _, ok := keyStats(tr, h); ok {
					list = append(list, h)
				}
			}
			return strings.Join(list, " ")
		}
		if got, want := keys(), "busy told1 told2 fail1 fail2 open1 open2 used"; got != want {
			t.Fatalf("%s, want %s", got, want)
		}
		for i, want := range []string{
			"busy told1 told2 fail1 fail2 open1 used", // open2 goes
			"busy told1 told2 fail1 fail2 open1",      // used
			"busy told1 told2 fail1 fail2",            // open1
			"busy told1 told2 fail2",                  // fail1
			"busy told1 told2",
			"busy told2",
			"busy",
			"busy",
		} {
			c, cancel := context.WithTimeout(ctx, time.Hour)
			go status(tr, c, fmt.Sprintf("http://new%d/busy", i)) // stays, and is busy
			synctest.Wait()
			defer cancel()
			if got := keys(); got != want {
				t.Errorf("after %d new keys: %q, want %q", i+1, got, want)
			}
		}
	})
}

// A new key of a full table opens paced, another one with its burst.
func TestNewKeyOfAFullTableOpensPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, always(200))
		tr := &Transport{Base: up, LimiterFor: func(string) Limiter { return NewBucket(10, 100) }}
		tr.once.Do(tr.setup)
		tr.table.most = 1
		burst := func(host string) time.Duration {
			start := time.Now()
			var wg sync.WaitGroup
			for range 5 {
				wg.Go(func() { status(tr, t.Context(), "http://"+host) })
			}
			wg.Wait()
			return time.Since(start)
		}
		if got := burst("a"); got != 0 {
			t.Errorf("the first key's burst took %v", got)
		}
		if got := burst("b"); got != 400*time.Millisecond {
			t.Errorf("5 calls of a key made while the table is full took %v, want 400 ms", got)
		}
	})
}

// What a key's upstream bears is reckoned from the key's first call, whatever way the key was made.
func TestFlowCountsFromTheFirstCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tr := range map[string]*Transport{
			"full table": {Base: alwaysOK()},
			"limiter":    {Base: alwaysOK(), Limiter: NewBucket(1000, 10)},
		} {
			status(tr, t.Context(), "http://a")
			tr.table.most = 1
			time.Sleep(10 * time.Minute)
			status(tr, t.Context(), "http://a") // or it is idle, and the table not full
			for range 400 {
				status(tr, t.Context(), "http://b")
				time.Sleep(10 * time.Millisecond)
			}
			if got := tr.table.keys["b"].Flow(time.Now()); got < 90 || got > 110 {
				t.Errorf("%s: 100 calls a second count as %.3g", name, got)
			}
		}
	})
}

// After a rush in which more keys than the bound were busy at once, the table shrinks back.
func TestTableShrinksAfterARush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(time.Second, always(429, "Retry-After", "86400"))
		tr := &Transport{Base: up, Retry: Retry{MaxPause: time.Millisecond}}
		tr.once.Do(tr.setup)
		tr.table.most = 100
		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() {
				if code, err := status(tr, t.Context(), fmt.Sprintf("http://h%d/", i)); code != 429 {
					t.Error(code, err)
				}
			})
		}
		wg.Wait()
		for i := range 1000 {
			status(tr, t.Context(), fmt.Sprintf("http://g%d/", i))
		}
		if n := tr.table.len(); n > 100 {
			t.Errorf("%d keys, none of them busy, want at most 100", n)
		}
	})
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
		tr := &Transport{Base: up, Retry: Retry{MaxAttempts: 1}}
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
		if n := tr.table.len(); n != 2 {
			t.Errorf("%d keys after an hour, want the 2 in use", n)
		}
	})
}

// With real goroutines and a table of one key, everything still gets through.
func TestFullTableUnderContention(t *testing.T) {
	tr := &Transport{Base: newUpstream(0, always(200)), Queue: QueueOptions{MaxInFlight: 3}, LimiterFor: func(key string) Limiter { return NewBucket(1e6, 100) }}
	tr.once.Do(tr.setup)
	tr.table.most = 1
	var wg sync.WaitGroup
	var failed atomic.Int32
	for g := range 16 {
		wg.Go(func() {
			for i := range 300 {
				if _, err := status(tr, context.Background(), fmt.Sprintf("http://h%d/", (g*i)%50)); err != nil {
					failed.Add(1)
					t.Log(err)
				}
			}
		})
	}
	wg.Wait()
	if n := failed.Load(); n > 0 {
		t.Errorf("%d calls failed", n)
	}
}

// A table whose keys are all busy takes new ones without looking at all of them.
func TestManyBusyKeys(t *testing.T) {
	const n = 20_000
	block := make(chan struct{})
	var flying atomic.Int32
	tr := &Transport{Base: baseFunc(func(req *http.Request) (*http.Response, error) {
		flying.Add(1)
		<-block
		return reply(req, 200), nil
	})}
	tr.once.Do(tr.setup)
	tr.table.most = n / 2
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if _, err := status(tr, context.Background(), fmt.Sprintf("http://h%d/", i)); err != nil {
				flying.Add(1)
				t.Error(err)
			}
		})
	}
	for flying.Load() < n {
		runtime.Gosched()
	}
	close(block)
	wg.Wait()
}
