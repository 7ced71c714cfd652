// Package hint reads what an HTTP response says about the limits of the server
// that sent it.
//
// It stands on the standard library alone and is useful without the rest of the
// module: [Parse] takes a response and returns plain numbers.
//
//	h := hint.Parse(resp, time.Now())
//	if h.RetryAfter > 0 {
//		time.Sleep(h.RetryAfter)
//	}
//
// What a server says is not trusted. A field that does not follow its grammar is
// ignored as if it had not been sent, and no number is ever negative or wraps
// around. A very long wait is reported as it was told: how long to believe it is
// for the caller to decide.
//
// This version reads Retry-After; [Hint.Quotas] is always nil.
package hint

import (
	"net/http"
	"time"
)

// Hint is what one response says about its sender's limits. The zero Hint says
// nothing: not throttled, no wait told, no quota told.
type Hint struct {
	// Throttled tells that the upstream refused this request because of a limit.
	// It is set for every 429 (RFC 6585 §4), and for a 503 that tells a wait. A 503
	// that tells none is a failure like any other.
	Throttled bool

	// RetryAfter is how long, counted from the time given to Parse, the upstream
	// asks not to be sent anything. 0: no wait told. It is never negative, and a
	// wait too long for a Duration is the longest Duration.
	RetryAfter time.Duration

	// Quotas are the quotas that the response describes, in the order in which they
	// were found. nil: none told.
	Quotas []Quota
}

// Quota is one quota as a response describes it. Because 0 is a value that
// upstreams tell, a Quota in which nothing is told is not the zero Quota: its
// Limit, Remaining and Reset are -1.
type Quota struct {
	// Name is what the upstream calls the quota. "": not told.
	Name string

	// Unit is what the quota counts, as told: "requests", "tokens", ... "": not told.
	Unit string

	// Limit is the size of the quota, in units per window. -1: not told.
	Limit int64

	// Remaining is what is left of it in this window, in units. -1: not told.
	Remaining int64

	// Reset is the time until the told end of the window. -1: not told.
	Reset time.Duration

	// Window is the length of the window. 0: not told.
	Window time.Duration

	// Rate is the units per second that the quota grows by, where the upstream
	// tells a rate. 0: not told.
	Rate float64
}

// Parse returns what resp says about its sender's limits. now is the time at
// which resp was received. resp is not changed and its body is not read; a nil
// resp says nothing. Parse is safe for concurrent use, and it allocates nothing
// for a response without a Retry-After field.
//
// Retry-After (RFC 9110 §10.2.3) is read on 403, 418, 429, 503, 529 and on every
// 3xx. It is not read on any other response: some servers put it on every answer,
// and there it orders nobody to wait. On a 3xx, and for now on a 403, 418 and 529,
// RetryAfter is told with Throttled false.
//
// The value is a number of seconds, with a decimal fraction if the server likes
// one, or a date in any of the three forms of RFC 9110 §5.6.7 (also with UTC where
// it should say GMT). A date is compared with the Date field of the same response,
// so that it does not matter whether the two clocks agree; it is compared with now
// if Date is missing, malformed, or more than a day from now. Dates have a
// resolution of one second, and a wait ends with the second that is told, not at
// its beginning. A date that has passed tells no wait. Of several fields, the
// longest wait counts.
func Parse(resp *http.Response, now time.Time) Hint {
	if resp == nil || !ordersWait(resp.StatusCode) {
		return Hint{}
	}
	wait := retryAfter(resp.Header, now)
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		return Hint{Throttled: true, RetryAfter: wait}
	case http.StatusServiceUnavailable:
		return Hint{Throttled: wait > 0, RetryAfter: wait}
	}
	return Hint{RetryAfter: wait}
}

// ordersWait tells whether a Retry-After on a response with this status is an
// order to wait. 418 is how Binance bans, 529 how Anthropic and Notion say that
// they are overloaded.
func ordersWait(status int) bool {
	switch status {
	case http.StatusForbidden, http.StatusTeapot, http.StatusTooManyRequests,
		http.StatusServiceUnavailable, 529:
		return true
	}
	return 300 <= status && status <= 399
}
