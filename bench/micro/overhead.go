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
		About: "Time of a RoundTrip over one that answers at once, less that of the latter. Without headers, with 3 of the request and 12 " +
			"of the answer (none about limits), and from two goroutines. The ratio is to x/time/rate in the same run.",
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
		Takes: 3 * time.Second, Alone: true,
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
		for i, suffix := range []string{"", "2"} {
			stub, rate, mine := ns[3*i], ns[3*i+1], ns[3*i+2]
			r.Values[name+suffix+"_ns"] = mine - stub
			if rate > stub {
				r.Values[name+suffix+"_x"] = (mine - stub) / (rate - stub)
			}
		}
		r.Values["allocs"] = allocs(trips(over, headers)) - allocs(trips(base, headers))
	}
	return r, nil
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
