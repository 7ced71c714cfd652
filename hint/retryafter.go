package hint

import (
	"net/http"
	"time"
)

// waits are the fields that order a wait, the most precise first. The ones in
// milliseconds are those of OpenAI, Azure and AWS.
var waits = [...]struct {
	header string
	unit   time.Duration
}{
	{"Retry-After-Ms", time.Millisecond},
	{"X-Ms-Retry-After-Ms", time.Millisecond},
	{"X-Amz-Retry-After", time.Millisecond},
	{"Retry-After", time.Second},
}

// ordersWait tells whether a Retry-After on a response with this status is an
// order to wait. 418 is how Binance bans, 529 how Anthropic and Notion say that
// they are overloaded.
func ordersWait(status int) bool {
	switch status {
	case 403, 418, 429, 503, 529:
		return true
	}
	return 300 <= status && status <= 399
}

// retryAfter returns the wait that the response orders, or 0. The first field
// with a line that can be read counts.
func (c clock) retryAfter() time.Duration {
	for _, w := range waits {
		if d, ok := c.longest(c.header[w.header], w.unit, w.header == "Retry-After"); ok {
			return d
		}
	}
	return 0
}

// longest returns the longest of the waits in lines, each a number of units or,
// where dates are allowed, a date. ok tells whether one of them could be read.
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

// forbidsRetry tells whether the response says that the request is not to be sent again.
// The SDKs of OpenAI and Anthropic obey X-Should-Retry (shouldRetry in
// internal/requestconfig of openai-go and anthropic-sdk-go), those of Stripe
// Stripe-Should-Retry (stripe-go#928, stripe-python#621).
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

// ends notes when the window of q ends, read from value, if nothing says what remains of
// q: a throttled response means that time as a wait. If there are several such quotas,
// it is unknown which of them was exceeded, so the first end counts. If it was another, the
// next response says how long that one still lasts.
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
