package throttle_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
)

// These tests are about upstreams that mean harm, or are broken: what they say must not panic, fill
// the memory, or hold a call up for longer than anything advertised is believed.

// longest is the most that one advertised time may hold a call up: 24 h, its jitter, and what untold
// closings and probes add.
const longest = 24*time.Hour + time.Minute

// hostileValues stand for each number in turn.
var hostileValues = []string{
	"", " ", "0", "-0", "-1", "-9223372036854775808", "9223372036854775807", "9223372036854775808", "18446744073709551616",
	"9223372037", "18446744074", "999999999999999", "1000000000000000", "1e9", "1e309", "NaN", "Inf", "-Inf", "0x7fffffff", "1_000", "+5",
	"0.0000000001", ".5", "5.", "100, 100;w=0", "100;w=-1", "0;w=0", "0, 0;w=0", "10000;w=1000", "null", "undefined", "soon", "\x00", "\xff\xfe",
	"253402300800", "99999999999999", "Fri, 31 Dec 9999 23:59:59 GMT", "Thu, 01 Jan 1970 00:00:00 GMT", "9999-12-31T23:59:59Z",
	"1h", "9999999h", "2562048h", "-1ms", "1,2,3,4,5,6,7,8,9", strings.Repeat("9", 5000), strings.Repeat("1,", 5000), `"`, `"a`, `"\`, "?1", ":AA==:",
}

// hostileFields take one value each.
var hostileFields = []string{
	"Retry-After", "Retry-After-Ms", "X-Ms-Retry-After-Ms", "X-Amz-Retry-After", "Date", "Age",
	"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset", "Ratelimit-Policy", "Ratelimit",
	"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Ratelimit-Reset-After", "X-Ratelimit-Reset-Requests",
	"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Bucket", "X-Ratelimit-Resource", "X-Ratelimit-Scope",
}

// A hostileAnswer is a status and a header.
type hostileAnswer struct {
	name   string
	status int
	header http.Header
}

// hostileAnswers puts each value into each field of headers that are otherwise plausible, and into
// all of them, on answers of several statuses.
func hostileAnswers() (all []hostileAnswer) {
	full := os.Getenv("THROTTLE_FULL") != ""
	add := func(name string, header http.Header) {
		for _, status := range []int{200, 403, 429, 503} {
			all = append(all, hostileAnswer{fmt.Sprintf("%d %.80s", status, name), status, header})
		}
	}
	for _, v := range hostileValues {
		h := http.Header{}
		for _, f := range hostileFields {
			h[f] = []string{v}
			one := http.Header{"X-Ratelimit-Limit": {"100"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"5"}}
			if strings.HasPrefix(f, "Ratelimit") {
				one = http.Header{"Ratelimit-Limit": {"100"}, "Ratelimit-Remaining": {"0"}, "Ratelimit-Reset": {"5"}}
			}
			one[f] = []string{v}
			if full || f == "Retry-After" || strings.HasSuffix(f, "Reset") || strings.HasSuffix(f, "Limit") {
				add(fmt.Sprintf("%s: %q", f, v), one)
			}
		}
		add(fmt.Sprintf("all: %q", v), h)
		for _, p := range []string{"q", "w", "r", "t"} {
			rl, pol := map[string]string{"q": "100", "w": "10", "r": "0", "t": "5"}, ""
			rl[p] = v
			pol = `"a";q=` + rl["q"] + ";w=" + rl["w"]
			add(fmt.Sprintf("draft-08 %s=%q", p, v), http.Header{"Ratelimit": {`"a";r=` + rl["r"] + ";t=" + rl["t"]}, "Ratelimit-Policy": {pol}})
		}
		add(fmt.Sprintf("draft-07 %q", v), http.Header{"Ratelimit": {"limit=" + v + ", remaining=" + v + ", reset=" + v}})
	}
	many := http.Header{"Ratelimit": nil, "Ratelimit-Policy": nil}
	for i := range 5000 {
		many["Ratelimit"] = append(many["Ratelimit"], fmt.Sprintf(`"quota-%d";r=0;t=%d`, i, i))
		many["Ratelimit-Policy"] = append(many["Ratelimit-Policy"], fmt.Sprintf(`"quota-%d";q=%d;w=%d`, i, i, i))
		many[fmt.Sprintf("X-Ratelimit-Remaining-Unit%d", i)] = []string{"0"}
		many[fmt.Sprintf("X-Ratelimit-Reset-Unit%d", i)] = []string{"9999999"}
	}
	add("thousands of quotas", many)
	add("1 MB", http.Header{"Ratelimit": {`"` + strings.Repeat("x", 1<<20) + `";r=0;t=5`}, "Retry-After": {strings.Repeat(" ", 1<<20) + "1"}})
	return append(all, hostileFixtures()...)
}

// hostileFixtures are package hint's own; there may be none yet.
func hostileFixtures() (all []hostileAnswer) {
	data, err := os.ReadFile("hint/testdata/ratelimit-headers.json")
	if err != nil {
		return nil
	}
	var cases []struct {
		Name, Class string
		Status      int
		Header      http.Header
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		panic(err)
	}
	for _, c := range cases {
		h := http.Header{}
		for k, v := range c.Header {
			h[http.CanonicalHeaderKey(k)] = v
		}
		all = append(all, hostileAnswer{"fixture " + c.Name, c.Status, h})
	}
	return all
}

// plainly answers after 20 ms, with what answer says of the n-th attempt.
type plainly func(n int) hostileAnswer

func (f plainly) base() http.RoundTripper {
	var mu sync.Mutex
	n := 0
	return baseFunc(func(req *http.Request) (*http.Response, error) {
		time.Sleep(20 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		a := f(n)
		n++
		if a.header == nil {
			a.header = http.Header{}
		}
		return &http.Response{StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: a.header, Body: http.NoBody, Request: req}, nil
	})
}

// After one hostile answer the upstream is well: each call ends, and none is held up for longer than
// the clamp. The calls come eight at a time, so that some stand in line.
func TestHostileAnswer(t *testing.T) {
	for _, a := range hostileAnswers() {
		synctest.Test(t, func(t *testing.T) {
			rt := &throttle.Transport{Retry: throttle.Retry{MaxPause: -1}, Base: plainly(func(n int) hostileAnswer {
				if n == 0 {
					return a
				}
				return hostileAnswer{status: 200}
			}).base()}
			ctx, cancel := context.WithTimeout(t.Context(), 365*24*time.Hour)
			defer cancel()
			for round := range 3 {
				var wg sync.WaitGroup
				for range 1 + 7*(round%2) { // 1, 8, 1
					req, err := http.NewRequestWithContext(ctx, "GET", "http://upstream.test/", nil)
					if err != nil {
						t.Fatal(err)
					}
					wg.Go(func() {
						sent := time.Now()
						_, err := rt.RoundTrip(req)
						if d := time.Since(sent); err != nil || d > longest {
							t.Errorf("%s: a call of round %d took %v: %v", a.name, round+1, d, err)
						}
					})
				}
				wg.Wait()
			}
		})
	}
}

// Some upstreams say "no limit" by the largest number that they know: what observers see is never negative.
func TestQuotaOfAllThatFits64Bits(t *testing.T) {
	for noted, want := range map[string]int64{
		"9223372036854775807": 1<<63 - 1024, "9223372036854774784": 1<<63 - 1024, // to the next float64 below
		"4611686018427387904": 1 << 62,
		"9223372036854775808": -1, "18446744073709551615": -1, "99999999999999999999999999": -1,
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := &throttle.Transport{Base: answers(200, "X-RateLimit-Limit", noted, "X-RateLimit-Remaining", noted, "X-RateLimit-Reset", "60")}
			if want < 0 {
				tr.Base = answers(200, "X-RateLimit-Limit", "100;w=60", "X-RateLimit-Remaining", noted, "X-RateLimit-Reset", "60")
			}
			for range 20 {
				if _, err := status(tr, t.Context(), "http://x/"); err != nil {
					t.Fatal(err)
				}
			}
			if l := statsOf(t, tr).Learned; len(l) != 1 || l[0].Remaining != want || l[0].Limit < 100 {
				t.Errorf("%s remain: shown as %+v, want %d", noted, l, want)
			}
		})
	}
}

// An upstream that never says the same twice: each call ends, with an answer or a throttle.Error, and
// what is kept of 2,000 answers with 50 names each, or of 100 MB of header, is small.
func TestHostileNamesAreForgotten(t *testing.T) {
	race.Long(t)
	huge := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		answers int
		header  func(n int) http.Header
	}{
		"draft-08 names": {2000, func(n int) http.Header {
			h := http.Header{}
			for i := range 50 {
				h["Ratelimit"] = append(h["Ratelimit"], fmt.Sprintf(`"%d-%d";r=1000000;t=1`, n, i))
				h["Ratelimit-Policy"] = append(h["Ratelimit-Policy"], fmt.Sprintf(`"%d-%d";q=1000000;w=1;pk=:%08x:`, n, i, n))
			}
			return h
		}},
		"long names": {2000, func(n int) http.Header {
			name := fmt.Sprintf("%d-%s", n, huge[:16<<10])
			return http.Header{"X-Ratelimit-Resource": {name}, "X-Ratelimit-Bucket": {name}, "X-Ratelimit-Limit": {"1000000"},
				"X-Ratelimit-Remaining": {"999999"}, "X-Ratelimit-Reset": {"1"}}
		}},
		"prefixes and units": {2000, func(n int) http.Header {
			h := http.Header{}
			for i := range 10 {
				h[fmt.Sprintf("X-P%d-Ratelimit-Limit-U%d", n, i)] = []string{"1000000"}
				h[fmt.Sprintf("X-P%d-Ratelimit-Remaining-U%d", n, i)] = []string{"999999"}
				h[fmt.Sprintf("X-P%d-Ratelimit-Reset-U%d", n, i)] = []string{"1s"}
			}
			return h
		}},
		"1 MB of header": {100, func(n int) http.Header {
			return http.Header{"Ratelimit": {fmt.Sprintf(`"%d%s";r=1000000;t=1`, n, huge)}, "Ratelimit-Limit": {strings.Repeat("1000000, ", n)}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := &throttle.Transport{Base: plainly(func(n int) hostileAnswer {
					return hostileAnswer{status: []int{200, 200, 200, 200, 429}[n%5], header: c.header(n)}
				}).base()}
				before := heapInUse()
				for range c.answers {
					ctx, cancel := context.WithTimeout(t.Context(), 48*time.Hour)
					// Each path of its own, since routes may be learned.
					req, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("http://upstream.test/%d", time.Now().UnixNano()), nil)
					if err != nil {
						t.Fatal(err)
					}
					sent := time.Now()
					_, err = rt.RoundTrip(req)
					var own *throttle.Error
					if d := time.Since(sent); err != nil && !errors.As(err, &own) || d > longest {
						t.Fatalf("a call took %v: %v", d, err)
					}
					cancel()
				}
				grown := int64(heapInUse()) - int64(before)
				t.Logf("%d KB kept", grown>>10)
				if grown > 4<<20 {
					t.Errorf("%d KB are kept, want at most 4 MB", grown>>10)
				}
				runtime.KeepAlive(rt)
			})
		})
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// An outage, and then an upstream that answers every call with a 429 that no wait cures. It is back: each
// caller is to get the answer to its own call, as without the outage.
func TestHostileFinalAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		tr := &throttle.Transport{Retry: throttle.Retry{MaxAttempts: 1}, Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			time.Sleep(200 * time.Millisecond)
			if down.Load() {
				return nil, errors.New("connection refused")
			}
			return reply(r, 429, "X-Should-Retry", "false"), nil
		})}
		for range 10 {
			fetch(tr, time.Second, "http://api/")
		}
		down.Store(false)
		time.Sleep(10 * time.Second)
		var ok, paused atomic.Int64
		var wg sync.WaitGroup
		for range 3 * 60 * 10 { // ten a second for three minutes
			wg.Go(func() {
				req, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://api/", nil)
				switch resp, err := tr.RoundTrip(req); {
				case err == nil && resp.StatusCode == 429:
					ok.Add(1)
				case errors.Is(err, throttle.ErrPaused):
					paused.Add(1)
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		wg.Wait()
		if ok.Load() < 1790 {
			t.Errorf("%d of 1800 callers got their answer, %d ErrPaused", ok.Load(), paused.Load())
		}
	})
}

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
