package micro

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/bench/scenario"
)

func overhead() scenario.Scenario {
	return scenario.Scenario{
		Name:  "overhead",
		Title: "Cost of a call that need not wait",
		About: "What a RoundTrip costs over one that answers at once, less what the latter does. Without headers, with 3 of the request and 12 " +
			"of the answer (none about limits): CPU of the process, garbage collection included. And from two goroutines at once: the clock's " +
			"time for each call. The ratio is to x/time/rate in the same run.",
		Metrics: []scenario.Metric{
			{Name: "bare_ns", Title: "no headers", Unit: "ns", Better: -1},
			{Name: "bare_x", Title: "ratio", Better: -1, Digits: 2},
			{Name: "headers_ns", Title: "headers", Unit: "ns", Better: -1},
			{Name: "headers_x", Title: "ratio", Better: -1, Digits: 2},
			{Name: "bare2_ns", Title: "no headers, two at once", Unit: "ns", Better: -1},
			{Name: "bare2_x", Title: "ratio", Better: -1, Digits: 2},
			{Name: "headers2_ns", Title: "headers, two at once", Unit: "ns", Better: -1},
			{Name: "headers2_x", Title: "ratio", Better: -1, Digits: 2},
			{Name: "allocs", Title: "allocations", Better: -1},
		},
		Takes: 2 * time.Second, Alone: true, Noisy: true,
		Fits: func(c client.Client) bool {
			_, ok := client.Find(c.Name) // not the oracle, which needs an upstream
			return ok && c.Name != nothing
		},
		Run: runOverhead,
	}
}

func runOverhead(ctx context.Context, c client.Client, o scenario.Options) (scenario.Result, error) {
	r := scenario.Result{Values: map[string]float64{}}
	ref, _ := client.Find(reference)
	for _, headers := range []bool{false, true} {
		name, base := "bare", http.RoundTripper(answerer{headers})
		if headers {
			name = "headers"
		}
		refOver, err := tripper(ref, base)
		if err != nil {
			return r, err
		}
		over, err := tripper(c, base)
		if err != nil {
			return r, err
		}
		// Both again from two goroutines, which shows what a lock costs.
		ns, err := times(ctx, o,
			trips(base, headers), trips(refOver, headers), trips(over, headers),
			twice(base, headers), twice(refOver, headers), twice(over, headers))
		if err != nil {
			return r, err
		}
		over1 := func(i int) float64 { return ns[i].alone() - ns[0].alone() }
		over2 := func(i int) float64 { return ns[3+i].wall - ns[3].wall }
		put(r.Values, name, over1(2), over1(1))
		put(r.Values, name+"2", over2(2), over2(1))
		r.Values["allocs"] = allocs(trips(over, headers)) - allocs(trips(base, headers))
	}
	return r, nil
}

// put enters a time and its ratio to another, unless the noise was louder than they.
func put(values map[string]float64, name string, ns, ref float64) {
	if ns <= 0 {
		return
	}
	values[name+"_ns"] = ns
	if ref > 0 {
		values[name+"_x"] = ns / ref
	}
}

// tripper is a client's RoundTripper before base, where it need not wait. http.Client itself, which all stand
// behind alike, is left out.
func tripper(c client.Client, base http.RoundTripper) (http.RoundTripper, error) {
	d, err := c.Start(client.Job{Base: base, Limits: []client.Limit{plenty}, Workers: 2})
	if err != nil {
		return nil, err
	}
	hc, ok := d.(*http.Client)
	if !ok {
		return nil, fmt.Errorf("micro: %s is a %T, not an http.Client", c.Name, d)
	}
	return hc.Transport, nil
}

// trips sends one request after the other.
func trips(rt http.RoundTripper, headers bool) work {
	req := newRequest(headers)
	return func(n int) {
		for range n {
			call(rt, req)
		}
	}
}

func call(rt http.RoundTripper, req *http.Request) {
	resp, err := rt.RoundTrip(req)
	if err != nil {
		panic(err) // nothing here can fail
	}
	_ = resp.Body.Close()
}

// twice does so from two goroutines, each with a request of its own.
func twice(rt http.RoundTripper, headers bool) work {
	return together(trips(rt, headers), trips(rt, headers))
}

func newRequest(headers bool) *http.Request {
	req, err := http.NewRequest(http.MethodGet, "https://api.example.com/v1/items", nil)
	if err != nil {
		panic(err)
	}
	if headers {
		req.Header.Set("Accept", "application/json")
		req.Header.Set("Authorization", "Bearer 0123456789abcdef")
		req.Header.Set("User-Agent", "bench/1")
	}
	return req
}

// ordinary is what an answer carries, and nothing about limits.
var ordinary = http.Header{
	"Cache-Control":             {"no-store"},
	"Connection":                {"keep-alive"},
	"Content-Type":              {"application/json"},
	"Date":                      {"Mon, 02 Jan 2006 15:04:05 GMT"},
	"Etag":                      {`"5e1f"`},
	"Referrer-Policy":           {"no-referrer"},
	"Server":                    {"stub"},
	"Strict-Transport-Security": {"max-age=31536000"},
	"Vary":                      {"Accept-Encoding"},
	"Via":                       {"1.1 edge"},
	"X-Content-Type-Options":    {"nosniff"},
	"X-Request-Id":              {"7f3d4a2c"},
}

// answerer answers at once. Some clients write to the answer, so each gets its own.
type answerer struct{ headers bool }

func (a answerer) RoundTrip(*http.Request) (*http.Response, error) {
	resp := &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: http.NoBody,
	}
	if a.headers {
		resp.Header = ordinary
	}
	return resp, nil
}
