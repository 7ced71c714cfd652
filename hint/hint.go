// Package hint reads what an HTTP response says about the limits of the server
// that sent it.
//
// It stands on the standard library alone and is useful without the rest of the
// module: [Parse] takes a response and returns plain numbers.
//
//	h := hint.Parse(resp, time.Now())
//	if h.Throttled {
//		time.Sleep(h.RetryAfter)
//	}
//
// It understands Retry-After and its variants in milliseconds, the RateLimit
// fields of the IETF in all their drafts, the X-RateLimit fields with whatever unit
// their reset has, and everything that is named like them: one pattern,
//
//	(prefix-)*rate-?limit-(unit-)?(limit|remaining|reset|used)(-unit)?
//
// reads most vendors. The others stand in a table, one [Dialect] a row, and a
// [Parser] has rows of its own.
//
// What a server says is not trusted. A field that does not follow its grammar is
// ignored as if it had not been sent, and no number is ever negative or wraps
// around. A number of units that does not fit 64 bits counts as unknown. A very
// long wait is reported as it was told, and so is a limit of 0 or more remaining
// than the limit: what to believe is for the caller to decide. Of a response at
// most 16 quotas are told, and at most 32 fields about limits and 8 KiB of their
// values are read.
//
// Field names are expected in the canonical form that net/http gives them
// ("X-Ratelimit-Limit"), as [http.Header.Add] does.
package hint

import (
	"net/http"
	"time"
)

// Hint is what one response says about its sender's limits. The zero Hint says
// nothing: not throttled, no wait told, no quota told.
type Hint struct {
	// Throttled tells that the upstream refused this request because of a limit: a
	// 429 (RFC 6585 §4), 418 or 529, a 503 that tells a wait, a 403 that tells a wait
	// or a quota of which nothing remains, and what a [Dialect] says besides. A 503
	// that tells no wait is a failure like any other. An answer that was served is not
	// a refusal, though it took the last unit.
	Throttled bool

	// RetryAfter is how long, counted from the time given to Parse, the upstream
	// asks not to be sent anything. 0: no wait told. It is never negative, and a
	// wait too long for a Duration is the longest Duration. If a throttled response
	// has no wait, but the end of a window (X-RateLimit-Reset, say) and not what remains
	// in that window, RetryAfter is the time until that end; of several, until the first.
	RetryAfter time.Duration

	// Final tells that no wait cures this answer: the same request should not be sent
	// again. An error says so with X-Should-Retry or Stripe-Should-Retry: false, or by
	// a code in its body that a [Dialect] knows: a spent account, say. Throttled and
	// RetryAfter are what they would be without it, so look at Final first.
	Final bool

	// Scope is the Name of the quota that a refusal is about. "": not told, so that it
	// may be about everything under the same credentials; also whenever Throttled is
	// false.
	Scope string

	// Quotas are the quotas that the response describes, those of table rows first,
	// then RateLimit, X-RateLimit and other fields. nil: none told. A quota that is
	// described in several ways is told once; where the descriptions differ, all are
	// told.
	Quotas []Quota
}

// Quota is one quota as a response describes it. Because 0 is a value that
// upstreams tell, a Quota in which nothing is told is not the zero Quota: its
// Limit, Remaining and Reset are -1.
//
// The strings may share memory with the header; one who keeps them for long should
// clone them.
type Quota struct {
	// Name is what the upstream calls the quota, cut to 64 bytes: the policy name of
	// RateLimit, GitHub's resource, Discord's bucket. "": not told.
	Name string

	// Unit is what the quota counts, as told: "requests", "tokens", ... "": not told.
	// It is "requests" where a RateLimit-Policy names no unit: that is the draft's
	// default.
	Unit string

	// Limit is the size of the quota, in units per window. -1: not told.
	Limit int64

	// Remaining is what is left of it in this window, in units. -1: not told.
	Remaining int64

	// Reset is the time until the told end of the window, counted from the time given
	// to Parse. -1: not told.
	Reset time.Duration

	// Window is the length of the window. 0: not told.
	Window time.Duration

	// Rate is the units per second that the quota grows by, where the upstream
	// tells a rate. 0: not told.
	Rate float64

	// Source is the name of the header field that told Remaining, or else Limit, or
	// Rate: "X-Ratelimit-Remaining", "Ratelimit". "body": the response's body did.
	Source string
}

// Parse returns what resp says about its sender's limits. now is the time at
// which resp was received. resp is not changed and its body is not read; a nil
// resp says nothing. Parse is safe for concurrent use, and it allocates nothing
// for a response that says nothing about limits.
//
// Retry-After (RFC 9110 §10.2.3) is read on 403, 418, 429, 503, 529 and on every
// 3xx. It is not read on any other response: some servers put it on every answer,
// and there it orders nobody to wait. On a 3xx, RetryAfter is told with Throttled
// false. Retry-After-Ms, X-Ms-Retry-After-Ms and X-Amz-Retry-After are more
// precise and win over it, in this order.
//
// The value is a number of seconds, with a decimal fraction if the server likes
// one, or a date in any of the three forms of RFC 9110 §5.6.7 (also with UTC where
// it should say GMT). A date is compared with the Date field of the same response,
// so that it does not matter whether the two clocks agree; it is compared with the
// second of now if Date is missing, malformed, or more than a day from now. Both have a
// resolution of one second, and how far their clock has gone into the second of Date is
// unknown. The wait is the shortest that does not end before the date, by the
// server's clock, whatever part of the second that is; so it may end up to a second after the date. A
// date in the second of Date is a wait of one second, an earlier one is no wait. Of
// several fields, the longest wait counts.
//
// X-Should-Retry (of Anthropic and OpenAI) and Stripe-Should-Retry are read on every
// status from 400 on. Only false has a meaning here: true does not make it safe to
// repeat a request.
//
// Quotas are read from every response, except one that was served from a cache
// (Age above 0, or X-From-Cache). The end of a window may be told as a span or a moment, in seconds
// or milliseconds, or as a date. A number is told apart by its size: below 1e9
// it is a span in seconds.
func Parse(resp *http.Response, now time.Time) Hint {
	return (&Parser{}).Parse(resp, now)
}

// Parser reads responses by rows of its own before the built-in ones. The zero
// Parser is ready to use; its Parse is the function [Parse]. Dialects must not be
// changed after the first use. A Parser is safe for concurrent use.
//
// Some upstreams refuse with a 200 or a 400 and say so only in the body. A row with
// Body set makes the Parser look into the bodies of that host: into those that are
// JSON and not compressed, with status 200, 400, 402, 403, 429 or 503, and not into
// more than their first 64 KiB. It understands the refusals of GraphQL servers
// (GitHub, Linear, Shopify), the error codes of AWS, Google's RetryInfo, Kraken's
// errors, and the codes by which OpenAI, Anthropic and Moonshot say that an account is
// spent. The response's Body is then replaced by one that gives what was read again
// and goes on behind it, so the caller can read it as if nothing had
// happened. To look is to wait until so much of the body has come.
type Parser struct {
	// Dialects are the rows, the first before the others. nil: the built-in ones alone.
	// A row for a host costs time on every response of that host, also on one that
	// says nothing about limits.
	Dialects []Dialect
}

// Parse is as the function [Parse], with the rows of p before the built-in ones.
func (p *Parser) Parse(resp *http.Response, now time.Time) Hint {
	var h Hint
	if resp == nil {
		return h
	}
	if ordersWait(resp.StatusCode) {
		h.RetryAfter = clock{now: now, header: resp.Header, order: true}.retryAfter()
	}
	h.Final = resp.StatusCode >= 400 && forbidsRetry(resp.Header)
	if mayTell(resp.Header) || p.covers(resp) {
		p.learn(resp, now, &h)
	} else {
		h.Throttled = refuses(resp.StatusCode, &h)
	}
	return h
}

// covers tells whether a row of p's own is about the host that answered.
func (p *Parser) covers(resp *http.Response) bool {
	if len(p.Dialects) == 0 {
		return false
	}
	host := hostOf(resp)
	for i := range p.Dialects {
		if p.Dialects[i].covers(host) {
			return true
		}
	}
	return false
}

// learn reads the quotas, and what depends on the host.
func (p *Parser) learn(resp *http.Response, now time.Time, h *Hint) {
	host := hostOf(resp)
	fresh := !cached(resp.Header)
	r := reader{clock: clock{now: now, header: resp.Header}}
	var l fields
	if fresh {
		l.collect(resp.Header)
	}
	refusal, body := false, false
	for _, rows := range [...][]Dialect{p.Dialects, vendors} {
		for i := range rows {
			d := &rows[i]
			if !d.covers(host) {
				continue
			}
			if d.RetryAfter != "" && (ordersWait(resp.StatusCode) || resp.StatusCode == d.Refusal) {
				r.wait(d, h)
			}
			r.clock.wait = h.RetryAfter
			if fresh {
				r.row(d, &l)
			}
			refusal = refusal || d.Refusal != 0 && d.Refusal == resp.StatusCode
			body = body || d.Body || len(d.Final) > 0
		}
	}
	r.clock.wait = h.RetryAfter
	r.read(&l)
	if body {
		r.look(resp, p, h, fresh)
	}
	r.conclude(resp.StatusCode, refusal, h)
}

// wait reads the field that a row names for it. The first row's counts.
func (r *reader) wait(d *Dialect, h *Hint) {
	c := r.clock
	c.order = true
	if t, ok := c.reset(r.line(d.RetryAfter), d.Scale); ok {
		h.RetryAfter = t
	}
}

// conclude tells the quotas, and whether the response is a refusal and of what.
func (r *reader) conclude(status int, refusal bool, h *Hint) {
	var exhausted *Quota
	none, complete := 0, false
	for i := range r.n {
		q := &r.quotas[i]
		if q.Remaining == 0 {
			none++
			exhausted = q
		}
		complete = complete || q.Remaining >= 0 && q.Reset >= 0
	}
	if r.n > 0 {
		h.Quotas = append([]Quota(nil), r.quotas[:r.n]...)
	}
	h.Throttled = h.Throttled || refuses(status, h) || none > 0 && (refusal || status == http.StatusForbidden)
	if h.Throttled && h.RetryAfter == 0 && !complete {
		h.RetryAfter = r.end
	}
	switch {
	case !h.Throttled, r.global, status >= 500, status == http.StatusTeapot:
	case r.bucket != "":
		h.Scope = r.bucket
	case none == 1:
		h.Scope = exhausted.Name
	}
}

// refuses tells whether a response with this status is a refusal whatever the
// quotas.
func refuses(status int, h *Hint) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusTeapot, 529:
		return true
	case http.StatusServiceUnavailable, http.StatusForbidden:
		return h.RetryAfter > 0
	}
	return false
}
