package hint_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/go-throttle/throttle/hint"
)

func ExampleParse() {
	now := time.Date(2026, time.January, 10, 12, 0, 0, 0, time.UTC)
	resp := &http.Response{
		StatusCode: http.StatusTooManyRequests,
		Header:     http.Header{"Retry-After": {"120"}},
	}
	h := hint.Parse(resp, now)
	fmt.Println(h.Throttled, h.RetryAfter)
	// Output: true 2m0s
}

// The server's clock is an hour behind. Both of its dates are, so the wait is right;
// the extra second is because a date tells no fractions.
func ExampleParse_clockSkew() {
	now := time.Date(2026, time.January, 10, 12, 0, 0, 0, time.UTC)
	resp := &http.Response{
		StatusCode: http.StatusServiceUnavailable,
		Header: http.Header{
			"Date":        {"Sat, 10 Jan 2026 11:00:00 GMT"},
			"Retry-After": {"Sat, 10 Jan 2026 11:00:30 GMT"},
		},
	}
	fmt.Println(hint.Parse(resp, now).RetryAfter)
	// Output: 31s
}
