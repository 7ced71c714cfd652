package hint

import (
	"net/http"
	"time"
)

// This file reads the fields that ask for a wait, and those that forbid a retry. Which statuses they count
// on is a matter of experience: see ordersWait.

// waits are the fields that ask for a wait, the most precise first. Those in milliseconds are OpenAI's,
// Azure's and AWS's.
var waits = [...]struct {
	header string
	unit   time.Duration
}{
	{"Retry-After-Ms", time.Millisecond},
	{"X-Ms-Retry-After-Ms", time.Millisecond},
	{"X-Amz-Retry-After", time.Millisecond},
	{"Retry-After", time.Second},
}

// ordersWait reports whether a Retry-After on this status asks for a wait. RFC 9110 §10.2.3 names 503 and
// 3xx, RFC 6585 §4 names 429. GitHub sends one on a 403, Binance bans by a 418, and Anthropic and Notion
// send a 529 when they are overloaded.
func ordersWait(status int) bool {
	switch status {
	case 403, 418, 429, 503, 529:
		return true
	}
	return 300 <= status && status <= 399
}

// retryAfter returns the wait that the response asks for, or 0. The first field that has a readable line
// counts.
func (c clock) retryAfter() time.Duration {
	for _, w := range waits {
		if d, ok := c.longest(c.header[w.header], w.unit, w.header == "Retry-After"); ok {
			return d
		}
	}
	return 0
}

// longest returns the longest of the waits in lines. Each is a number of units or, if dates is set, a date;
// ok reports whether any could be read. Proxies add lines of their own, and to wait for the longest is never
// too short. At most maxQuotas lines are looked at.
func (c clock) longest(lines []string, unit time.Duration, dates bool) (longest time.Duration, ok bool) {
	for i, v := range lines {
		if i == maxQuotas {
			break
		}
		v = trim(v)
		wait, read := parseDecimal(v, unit)
		if !read && dates {
			var t time.Time
			if t, read = parseDate(v, c.now); read {
				wait = c.until(t)
			}
		}
		longest, ok = max(longest, wait), ok || read
	}
	return longest, ok
}

// forbidsRetry reports whether the response says that the request is not to be sent again. The SDKs of
// OpenAI and Anthropic obey X-Should-Retry (shouldRetry in internal/requestconfig of openai-go and
// anthropic-sdk-go), those of Stripe obey Stripe-Should-Retry (stripe-go#928, stripe-python#621). In a
// response from a cache, the field was meant for another request.
func forbidsRetry(h http.Header) bool {
	for _, name := range [...]string{"X-Should-Retry", "Stripe-Should-Retry"} {
		for _, v := range h[name] {
			if fold(trim(v), "false") {
				return !cached(h)
			}
		}
	}
	return false
}

// ends notes when the window of q ends, read from value in unit, if no field says what remains of q. A
// throttled response then asks for a wait until that end.
//
// Of several such quotas it is unknown which one was exceeded, so the first end counts. If it was another
// one, the next response says how long that still lasts.
func (r *reader) ends(q *Quota, value string, unit time.Duration) {
	if q.Remaining >= 0 || q.Reset < 0 {
		return
	}
	end := q.Reset
	if value != "" {
		c := r.clock
		c.order = true
		end, _ = c.reset(value, unit)
	}
	if end > 0 && (r.end == 0 || end < r.end) {
		r.end = end
	}
}
