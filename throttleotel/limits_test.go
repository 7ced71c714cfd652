package throttleotel_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttleotel"
	"github.com/go-throttle/throttle/usage"
)

// tokensUsed is an answer that says what the call has cost, when its body is read.
func tokensUsed(n string) baseFunc {
	return func(req *http.Request) (*http.Response, error) {
		body := `{"usage":{"prompt_tokens":` + n + `,"completion_tokens":0}}`
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
	}
}

// Each limit has its utilization and debt, each meter what is held, what was estimated and what it cost; what keys have
// settled that were dropped stays counted.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := reader()
		tr := &throttle.Transport{
			Base: tokensUsed("300"), Limiter: throttle.NewFixedWindow(50, time.Minute),
			LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(2, 10) },
			Meters: func(string) []throttle.Meter {
				return []throttle.Meter{{
					Name: "tokens", Limiter: throttle.NewBucket(100, 1000),
					Hold:   func(*http.Request) int { return 1200 },
					Settle: func(held int, u usage.Usage) int { return int(u.Input) },
				}}
			},
		}
		stop, err := throttleotel.Instrument("x", tr, throttleotel.Options{MeterProvider: p, MaxKeys: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		check := func(when string, want map[string]float64) {
			t.Helper()
			m := gather(t, r)
			for what, want := range want {
				words := strings.Fields(what)
				got, n := 0.0, 0
				for _, p := range m.points("throttle.client." + words[0]) {
					if p.has("throttle.reason", words[1]) && (len(words) < 3 && p.attrs.Len() == 2 || len(words) == 3 && p.has("throttle.key", words[2])) {
						got, n = p.value, n+1
					}
				}
				if diff := got - want; n != 1 || diff < -1e-9 || diff > 1e-9 {
					t.Errorf("%s: %s is %v in %d series, want %v", when, what, got, n, want)
				}
			}
		}
		gather(t, r) // utilizations are those since an earlier look
		time.Sleep(10 * time.Second)
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://a/", nil)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		check("while the body is open", map[string]float64{
			"utilization limit a":            0.05, // one unit in 10 s of 2/s
			"utilization limit:shared":       0.02,
			"utilization meter:tokens a":     1.2,
			"debt limit a":                   0,
			"debt meter:tokens a":            200,
			"held_unit.count meter:tokens a": 1200,
			"estimated_units meter:tokens a": 0,
			"settled_units meter:tokens a":   0,
		})
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		settled := map[string]float64{
			"utilization meter:tokens a":     0.3,
			"debt meter:tokens a":            0,
			"held_unit.count meter:tokens a": 0,
			"estimated_units meter:tokens a": 1200,
			"settled_units meter:tokens a":   300,
		}
		check("when it is read", settled)
		get(tr, t.Context(), "http://b/")
		get(tr, t.Context(), "http://c/")
		check("other keys", map[string]float64{"estimated_units meter:tokens _other": 2400, "settled_units meter:tokens _other": 600, "utilization limit _other": 0.05})
		for range 100 { // a is dropped
			time.Sleep(10 * time.Minute)
			get(tr, t.Context(), "http://d/")
		}
		if _, ok := tr.Explain("a"); ok {
			t.Fatal("the key is there still")
		}
		check("a dropped key", map[string]float64{"estimated_units meter:tokens a": 1200, "settled_units meter:tokens a": 300})
		get(tr, t.Context(), "http://a/")
		check("a key that has come back", map[string]float64{"estimated_units meter:tokens a": 2400, "settled_units meter:tokens a": 600})
	})
}
