package plumbing

import (
	"net/http"
	"time"

	"github.com/gregjones/httpcache"

	"github.com/go-throttle/throttle"
)

// The cache stands above the Transport, so an answer that it has costs no units and does not wait.
func Example_httpcache() {
	upstream := &fake{headers: http.Header{"Cache-Control": {"max-age=3600"}, "Date": {time.Now().UTC().Format(http.TimeFormat)}}}

	cache := httpcache.NewMemoryCacheTransport()
	cache.Transport = &throttle.Transport{Base: upstream, Limiter: throttle.NewBucket(10, 1)}
	client := &http.Client{Transport: cache}

	for range 3 {
		get(client, "https://api.example.com/countries")
	}
	// Output:
	// upstream: GET api.example.com/countries: 200
	// caller: 200
	// caller: 200
	// caller: 200
}
