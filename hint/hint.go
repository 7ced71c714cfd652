// Package hint reads what an HTTP response says about the limits of the server that sent it. It needs the
// standard library alone, and is useful without the rest of the module.
//
//	h := hint.Parse(resp, time.Now())
//	if h.Throttled {
//		time.Sleep(max(h.Wait(), time.Second)) // a second if it does not say how long
//	}
//
// # Usage
//
// [Parse] understands Retry-After and every field named after it, the RateLimit fields of the IETF in all their drafts, the
// X-RateLimit fields whatever the form of their reset, and every other field whose name follows this pattern:
//
//	(prefix-)*rate-?limit-(unit-)?(limit|remaining|reset|used)(-unit)?
//
// Most vendors follow it. The others stand in a table, one [Dialect] a row. A [Parser] adds
// rows for the APIs that you know.
//
// # Concurrency
//
// Everything in this package is safe for concurrent use.
//
// # Expected behaviour
//
// A server is not trusted. A field that does not follow its grammar is ignored, as if it had not been
// sent. No number is ever negative or wraps around, and a number of units beyond 64 bits counts as
// unknown. Very long waits, a limit of 0, and more remaining units than the limit are reported as they are
// advertised if they can be read in no shorter way: what to believe is up to the caller. At most 16 quotas of
// a response are reported, and at most 32 fields about limits and 8 KiB of their values are read.
//
// Field names are expected in the canonical form that net/http gives them ("X-Ratelimit-Limit").
//
// # Testing
//
// Parse reads no clock: it takes the time as an argument. A response is a status and a header, so a test needs no server.
package hint

import (
	"net/http"
	"time"
)

// Hint is what one response says about the limits of its server. The zero Hint says nothing. Use it on its own to
// steer a client that throttle does not send for.
type Hint struct {
	// Throttled means that the request was not served because of a limit. That is so for a 429 (RFC 6585 §4), 418 and 529,
	// for a 503 that asks for a wait, for a 403 that asks for a wait or shows an exhausted quota, for an answer whose body
	// has the code of a limit, and for what a [Dialect] adds. A 503 that asks for no wait is a failure like any other. A
	// response that was served is not throttled, even if it took the last unit.
	Throttled bool

	// RetryAfter is how long not to send anything, counted from the time given to Parse; 0: the response asks for no wait,
	// but a quota may be spent (see Wait). It is never negative, and a wait too long for a Duration becomes the longest
	// Duration. Some throttled responses have no wait, but the end of a window (X-RateLimit-Reset, for example) and not
	// what remains in it. Then RetryAfter is the time until that end, or until the first of several.
	RetryAfter time.Duration

	// Final means that no wait cures this error, so the same request should not be sent again. The response says so by
	// X-Should-Retry: false or Stripe-Should-Retry: false, or by an error code in its body that a [Dialect] lists, such as
	// that of a spent account. Throttled and RetryAfter are the same as without it, so check Final first.
	Final bool

	// Global means that the limit is about the whole host, whatever the credentials, keys or routes: Discord's
	// X-RateLimit-Scope: global, or a refusal by a gateway before it (see [Dialect]). It is false if Throttled is false.
	Global bool

	// Scope is the Name of the quota that throttled the request. "": unknown, and then it may concern
	// everything under the same credentials. It is also "" if Throttled is false.
	Scope string

	// Quotas are the quotas that the response describes: those of table rows first, then those of RateLimit, X-RateLimit
	// and other fields. nil: none. Several descriptions of one quota are merged if they agree; otherwise each is reported.
	Quotas []Quota
}

// Quota is one quota as a response describes it. Upstreams do advertise 0, so an unknown Limit, Remaining
// or Reset is -1, and the zero Quota does not stand for "unknown".
//
// The strings may share memory with the response's header. Clone those that are kept for long.
type Quota struct {
	// Name is the upstream's name for the quota, cut to 64 bytes: the policy name of RateLimit, GitHub's
	// resource, Discord's bucket with its major parameter ("abcd1234 7" of /channels/7). "": unknown.
	Name string

	// Unit is what the quota counts, in the upstream's words: "requests", "tokens". "": unknown. It is
	// "requests" if a RateLimit-Policy names no unit, as the draft says.
	Unit string

	// Limit is the size of the quota, in units per window. -1: unknown.
	Limit int64

	// Remaining is what is left in the current window, in units. -1: unknown.
	Remaining int64

	// Reset is the time until the window ends, counted from the time given to Parse. -1: unknown.
	Reset time.Duration

	// Window is the length of the window. 0: unknown.
	Window time.Duration

	// Rate is how many units per second the quota gains, if the upstream advertises a rate. 0: unknown.
	Rate float64

	// Source is the name of the header field that Remaining was read from, or otherwise Limit, or Rate:
	// "X-Ratelimit-Remaining", "Ratelimit". It is "body" for the response's body.
	Source string
}

// Parse returns what resp says about the limits of its server, as the zero [Parser] does. now is the time at which resp was
// received. resp is not changed, but for its Body if the beginning of that is read: see Bodies at [Parser]. A nil resp says
// nothing. Parse is safe for concurrent use, and allocates nothing for a response that says nothing about limits.
func Parse(resp *http.Response, now time.Time) Hint {
	return (&Parser{}).Parse(resp, now)
}

// Parser reads responses by rows of its own first, and then by the built-in ones. The zero Parser is ready
// to use. A Parser is safe for concurrent use; Dialects must not be changed after the first use.
//
// # Waits
//
// Retry-After (RFC 9110 §10.2.3) is read on 403, 418, 429, 503, 529 and every 3xx. Some servers put it on
// every response; on other statuses it asks nobody to wait. On a 3xx, RetryAfter is set and Throttled is
// false. Retry-After-Ms, X-Ms-Retry-After-Ms and X-Amz-Retry-After are more precise and take precedence, in
// this order. Without any of them, any other field is read whose name has Retry-After in it, such as
// X-RateLimit-Retry-After. If a field has several lines or a list, the longest wait counts.
//
// X-Should-Retry (Anthropic, OpenAI) and Stripe-Should-Retry are read on every status from 400 on. Only
// false has a meaning, because true does not make it safe to repeat a request.
//
// # Quotas
//
// Quotas are read from every response but one from a cache (Age above 0, or X-From-Cache). A whole quota may stand in
// one field, as JSON or as names and values. A limit of -1 or "unlimited" is no quota, nor are -1 remaining without
// a limit; 0 is a limit that lets nobody in, as the drafts say.
//
// # Times
//
// A wait and the end of a window are read in the same forms: a number, a moment since 1970 in seconds, milliseconds,
// microseconds or nanoseconds, a span in words (1m30s, 9 seconds, PT9S, 00:00:09), or a date. The size of a number tells
// them apart: it is a moment if it would be 31 years as a span, and in a field in milliseconds also if that
// moment is within a day. In a testing/synctest bubble, whose clock begins in 2000, moments are recognised too. Seconds
// are milliseconds only if another field of the response agrees to that. A date without a zone is in UTC, and
// 1/10/2026 is the day that is nearer to now.
//
// A moment is compared with the response's Date field, so the clocks of both sides need not agree. The second of now takes
// the place of a Date that is missing, malformed, or more than a day from now. Dates are in whole seconds, so it is unknown
// how much of the second of Date has passed: a moment in it has not passed, and means a wait of one second. An earlier one
// means no wait.
//
// # Bodies
//
// A body is read if something is decided there that the header leaves open.
//
//	429, 418, 503, 529   without a wait in the header: how long to wait
//	400, 403             whether it is a refusal: by its code, a 403 also by its sentence or a member that orders a wait
//	401, 404, 500, ...   never
//	200                  whether it is a refusal, of APIs that are known for that: GraphQL of GitHub (api.github.com/graphql) and
//	                     Shopify (*.myshopify.com, paths that end in /graphql.json), completions of OpenRouter
//
// On hosts for which a row has Body or Final set each 200, each 402 and refusals with a wait in the header are read too;
// these also on those of OpenAI, Anthropic and Moonshot, whose accounts may be spent. A 200 of MediaWiki with its error
// maxlag or ratelimited is a refusal by its header.
//
// Read is JSON, also as text/plain, AWS's codes in XML, and what gzip or deflate made of them; br and zstd, which the
// standard library lacks, are not. A wait is any member whose name consists of words about waiting (retry_after,
// retryAfterMs, wait_seconds, reset_at), or a sentence, such as "Please try again in 9.5s". A member that orders a wait
// goes before a sentence, and that before the end of a window; the longest of each counts. A number above an hour whose
// name has no unit is in milliseconds, and a wait beyond 31 days is ignored. A field of the header takes precedence. The
// codes are those of AWS, Google, Meta, GraphQL servers, Kraken and Slack, and all others that say rate limited, throttled
// or too many requests, in whatever way they are written; and the number 429. Of the 403s of Google rateLimitExceeded,
// userRateLimitExceeded, dailyLimitExceeded and quotaExceeded are refusals, the last not if it is about resources. GitHub's
// secondary limit without a time means a minute, as its documentation asks.
//
// No more than the first 64 KiB are read, unpacked or not, and of longer bodies nothing is believed. Parse waits for them
// for at most 90 ms, for a second if a row or the API asks for it. It replaces the response's Body by one that returns
// every byte as soon as it comes, so the caller reads it as usual.
type Parser struct {
	// Dialects are your own rows, read in this order. nil: the built-in rows alone. A row for a host costs
	// time on every response of that host, also on one that says nothing about limits.
	Dialects []Dialect
}

// Parse is the function [Parse] with the rows of p before the built-in ones.
func (p *Parser) Parse(resp *http.Response, now time.Time) Hint {
	var h Hint
	if resp == nil {
		return h
	}
	if ordersWait(resp.StatusCode) {
		h.RetryAfter = clock{now: now, header: resp.Header, order: true}.retryAfter(resp.StatusCode)
	}
	h.Final = resp.StatusCode >= 400 && forbidsRetry(resp.Header)
	inBody := saysInBody(resp)
	if inBody || resp.StatusCode >= 400 || mentionsLimit(resp.Header) || p.covers(resp) {
		p.read(resp, now, inBody, &h)
	}
	return h
}

// Silent reports whether resp is a success (a status below 300) that says nothing about limits: then Parse returns the zero
// Hint. It looks at the names of fields and at the URL only, and on paths that end in .php at MediaWiki's error. Use it
// before Parse if most responses are like that, because it is cheaper. It does not know a Parser's own rows. resp must not
// be nil.
func Silent(resp *http.Response) bool {
	return resp.StatusCode < 300 && (len(resp.Header) == 0 || !mentionsLimit(resp.Header)) && !saysInBody(resp)
}

// covers reports whether a row of p is about the host that responded. For the built-in rows mentionsLimit is
// enough: one of the fields that they read has "imit" in its name.
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

// read reads the quotas, and everything that depends on the host: first the table rows, which take the
// fields that they name, then by the name pattern what the rows have left, and last the body if it is asked for.
func (p *Parser) read(resp *http.Response, now time.Time, body bool, h *Hint) {
	host := hostOf(resp)
	fresh := !cached(resp.Header)
	r := reader{clock: clock{now: now, header: resp.Header}}
	var l fields
	if fresh {
		l.collect(resp.Header)
	}
	refusal, gateway := false, false // a row says so of this status; has Global
	var majors []string              // of the first row that has any
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
			gateway = gateway || d.Global
			if len(majors) == 0 {
				majors = d.Majors
			}
		}
	}
	r.clock.wait = h.RetryAfter
	r.read(&l)
	if fresh {
		r.look(resp, p, h, body)
	}
	r.nameBucket(resp, majors)
	r.global = r.global || gateway && r.n == 0 && r.bucket == ""
	r.conclude(resp.StatusCode, refusal, h)
}

// wait reads the field that a row names for the wait. Rows are read in order, and a later one overwrites
// what an earlier one found.
func (r *reader) wait(d *Dialect, h *Hint) {
	c := r.clock
	c.order = true
	if t, ok := c.reset(r.line(d.RetryAfter), d.Scale); ok {
		h.RetryAfter = t
	}
}

// conclude fills in h from what was read: the quotas, whether the response is throttled, how long to wait if
// nothing else says so, and the scope.
//
// The scope is the bucket that the response names, or the only exhausted quota. With two exhausted quotas it
// is unknown which one throttled. An overloaded server (a 5xx) and a ban (418) concern no single quota.
func (r *reader) conclude(status int, refusal bool, h *Hint) {
	var exhausted *Quota // the last of
	none := 0            // those with nothing left
	complete := false    // one quota says both what remains and when it ends
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
	if none == 1 {
		h.calibrate(exhausted)
	}
	h.Throttled = h.Throttled || throttles(status, h) || none > 0 && (refusal || status == http.StatusForbidden)
	if h.Throttled && h.RetryAfter == 0 && !complete {
		h.RetryAfter = r.end
	}
	h.Global = h.Throttled && r.global
	switch {
	case !h.Throttled, r.global, status >= 500, status == http.StatusTeapot:
	case r.bucket != "":
		h.Scope = r.bucket
	case none == 1:
		h.Scope = exhausted.Name
	}
}

// throttles reports whether a response with this status is throttled whatever the quotas say. A 403 and a
// 503 often have other reasons, so they count only with a wait.
func throttles(status int, h *Hint) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusTeapot, 529:
		return true
	case http.StatusServiceUnavailable, http.StatusForbidden:
		return h.RetryAfter > 0
	}
	return false
}

// cached reports whether the response came from a cache; then what it says about quotas is out of date. Age
// is the field of RFC 9111 §5.1. X-From-Cache is that of gregjones/httpcache, which sends no Age.
func cached(h http.Header) bool {
	for _, age := range h["Age"] {
		if age = trim(age); allDigits(age) && digits(age) > 0 {
			return true
		}
	}
	for _, mark := range h["X-From-Cache"] {
		if mark = trim(mark); mark != "" && mark != "0" && !fold(mark, "false") && !fold(mark, "miss") {
			return true
		}
	}
	return false
}
