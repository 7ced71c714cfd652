package plumbing

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
)

// egress sends what comes for /host/path to https://host/path, through t.
func egress(host string, t *throttle.Transport) http.Handler {
	return http.StripPrefix("/"+host, &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "https", Host: host}) },
		Transport: t,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			status := http.StatusBadGateway
			if e := new(throttle.Error); errors.As(err, &e) {
				status = http.StatusTooManyRequests
				if e.Wait > 0 {
					w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.Wait.Seconds()))))
				}
			}
			http.Error(w, err.Error(), status)
		},
	})
}

// A proxy that all programs of a company call keeps them together inside one limit, in whatever language they are
// written.
func Example_egressProxy() {
	limit := throttle.NewBucket(rate.Every(time.Hour), 2) // two at once, and one an hour
	t := &throttle.Transport{Limiter: limit, Queue: throttle.QueueOptions{MaxWait: 30 * time.Second}}
	t.Base = &fake{} // in place of http.DefaultTransport

	mux := http.NewServeMux()
	mux.Handle("/api.example.com/", egress("api.example.com", t)) // one line for each host that may be called

	for range 3 {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api.example.com/v1/items", nil))
		fmt.Println("caller:", w.Code, w.Header().Get("Retry-After") != "")
	}
	// Output:
	// upstream: GET api.example.com/v1/items: 200
	// caller: 200 false
	// upstream: GET api.example.com/v1/items: 200
	// caller: 200 false
	// caller: 429 true
}
