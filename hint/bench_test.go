package hint

import (
	"net/http"
	"testing"
)

// ordinary returns twelve fields, none of them about limits.
func ordinary() http.Header {
	return http.Header{
		"Content-Type":              {"application/json; charset=utf-8"},
		"Date":                      {"Sat, 10 Jan 2026 12:00:00 GMT"},
		"Server":                    {"nginx"},
		"Cache-Control":             {"max-age=0, private, must-revalidate"},
		"Etag":                      {`W/"6a8a9a7d5f"`},
		"Vary":                      {"Accept-Encoding"},
		"Content-Length":            {"1234"},
		"Strict-Transport-Security": {"max-age=31536000; includeSubDomains; preload"},
		"X-Request-Id":              {"f2f5ad04-1f0e-4c4f-9d11-52b5a6a2f1d4"},
		"Via":                       {"1.1 varnish"},
		"Set-Cookie":                {"a=b; Path=/; HttpOnly"},
		"Connection":                {"keep-alive"},
	}
}

func with(h http.Header, pairs ...string) http.Header {
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

var benchmarks = []struct {
	name   string
	resp   *http.Response
	allocs float64 // at most
}{
	{"ordinary", response(200, ordinary()), 0},
	{"few", response(200, http.Header{"Content-Type": {"text/plain"}}), 0},
	{"ordinary429", response(429, ordinary()), 0},
	{"seconds", response(429, with(ordinary(), "Retry-After", "120")), 0},
	{"date", response(429, with(ordinary(), "Retry-After", "Sat, 10 Jan 2026 12:01:00 GMT")), 0},
	{"moment", response(429, with(ordinary(), "Retry-After", "1768046460000")), 0},
	{"span", response(429, with(ordinary(), "X-RateLimit-Retry-After", "1m30s")), 0},
	{"draft08", response(200, with(ordinary(),
		"RateLimit", `"default";r=50;t=30`, "RateLimit-Policy", `"default";q=100;w=60`)), 2},
	{"draft06", response(200, with(ordinary(), "RateLimit-Limit", "100", "RateLimit-Remaining", "99",
		"RateLimit-Reset", "50", "RateLimit-Policy", "100;w=60")), 1},
	{"github", response(200, with(ordinary(), "X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "4987",
		"X-RateLimit-Used", "13", "X-RateLimit-Reset", "1768050000", "X-RateLimit-Resource", "core")), 1},
	{"trakt", response(200, with(ordinary(), "X-Ratelimit",
		`{"name":"General","period":60,"limit":1000,"remaining":999,"until":"2026-01-10T12:01:00Z"}`)), 2},
	{"openai", response(200, with(ordinary(), "X-RateLimit-Limit-Requests", "60", "X-RateLimit-Remaining-Requests", "59",
		"X-RateLimit-Reset-Requests", "1s", "X-RateLimit-Limit-Tokens", "150000", "X-RateLimit-Remaining-Tokens", "149984",
		"X-RateLimit-Reset-Tokens", "6m0s")), 1},
}

// Real responses have a host, by which the rows of the table are chosen.
func init() {
	for _, bb := range benchmarks {
		from("api.example.com", bb.resp)
	}
}

func TestParseAllocs(t *testing.T) {
	for _, bb := range benchmarks {
		if n := testing.AllocsPerRun(100, func() { Parse(bb.resp, noon) }); n > bb.allocs {
			t.Errorf("%s: %v allocations, at most %v wanted", bb.name, n, bb.allocs)
		}
	}
}

// BenchmarkParser measures what rows of one's own cost on another host and on theirs.
func BenchmarkParser(b *testing.B) {
	p := &Parser{Dialects: []Dialect{{Host: "api.example.com", Used: "X-Quota"}, {Host: "api.example.com", Body: true}}}
	for _, host := range []string{"other.com", "api.example.com"} {
		resp := from(host, response(200, ordinary()))
		b.Run(host, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Parse(resp, noon)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for _, bb := range benchmarks {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Parse(bb.resp, noon)
			}
		})
	}
}
