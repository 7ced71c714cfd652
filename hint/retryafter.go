package hint

import (
	"net/http"
	"strings"
	"time"
)

// This file reads the fields that ask for a wait, and those that forbid a retry. Which statuses they count
// on is a matter of experience: see ordersWait.

// waits are the best known fields that ask for a wait, the most precise first. Those in milliseconds are OpenAI's,
// Azure's and AWS's.
var waits = [...]struct {
	header string
	unit   time.Duration
}{
	{"Retry-After-Ms", time.Millisecond},
	{"X-Ms-Retry-After-Ms", time.Millisecond},
	{"X-Amz-Retry-After", time.Millisecond},
	{"Retry-After", time.Second},
	{"X-Throttle-Wait-Seconds", time.Second}, // Django's
}

// The names of others have one of these words. What stands before it may be anything, and what follows it says the unit,
// a quota, or nothing:
//
//	X-Retry-After, X-RateLimit-Retry-After, Retry-After-Long, X-Retry-After-Ms
//	X-Retry-In (Traefik), X-RateLimit-Retry (Wildberries)
var waitWords = [...]string{"Retry-After", "Retryafter", "Retry-In", "Retry-At", limitRetry}

const limitRetry = "imit-Retry" // the end of a name

// waitUnit returns the unit of plain numbers in the field of that name; 0: it asks for no wait.
func waitUnit(key string) time.Duration {
	if len(key) > maxKey || !strings.Contains(key, "etry") {
		return 0
	}
	for _, w := range waitWords {
		i := strings.Index(key, w)
		if i < 0 {
			continue
		}
		suffix := key[i+len(w):]
		switch {
		case w == limitRetry && suffix != "", w != limitRetry && i > 0 && key[i-1] != '-', suffix != "" && suffix[0] != '-':
			return 0 // a part of another word
		case suffix != "" && isMilli(suffix[1:]):
			return time.Millisecond
		}
		return time.Second
	}
	return 0
}

// isMilli reports whether a word in a name means milliseconds.
func isMilli(word string) bool {
	return fold(word, "ms") || fold(word, "millis") || fold(word, "milliseconds") || fold(word, "msec")
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

// retryAfter returns the wait that the response asks for, or 0. The first of waits that has a readable line
// counts, and without any on an error the longest of the others.
func (c clock) retryAfter(status int) (longest time.Duration) {
	for _, w := range waits {
		if d, ok := c.longest(c.header[w.header], w.unit); ok {
			return d
		}
	}
	if status < 400 {
		return 0
	}
	for key, lines := range c.header {
		if unit := waitUnit(key); unit > 0 {
			d, _ := c.longest(lines, unit)
			longest = max(longest, d)
		}
	}
	return longest
}

// calibrate takes the wait to be in milliseconds, as Discord's was until its version 8, if it is longer than an hour and
// the only spent quota says so: Retry-After: 6457, and a reset after 6.457 seconds.
func (h *Hint) calibrate(spent *Quota) {
	if ms := h.RetryAfter / 1000; h.RetryAfter > time.Hour && spent.Reset >= 0 && near(ms, spent.Reset, time.Second) {
		h.RetryAfter = ms
	}
}

// Wait returns how long not to send another request like the one that was answered, all things considered, counted from
// the time given to Parse; 0: the response does not say. It is RetryAfter, if that is set: what a server says about
// coming back is worth more than the end of a window. Otherwise it is the time until the windows of all quotas end of
// which nothing remains, also if this request was served and took the last unit. A throttled response may name no
// time at all, so wait for one of your own then.
func (h Hint) Wait() time.Duration {
	if h.RetryAfter > 0 {
		return h.RetryAfter
	}
	wait := time.Duration(0)
	for i := range h.Quotas {
		if q := &h.Quotas[i]; q.Remaining == 0 && !strings.HasPrefix(q.Source, "Beta-") { // which is advertised, and not enforced
			wait = max(wait, q.Reset)
		}
	}
	return wait
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
