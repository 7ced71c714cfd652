package throttletest

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An Advert is what the answers of a Server say of its limits; the zero Advert is nothing. Use the Dialect of the
// upstream that your program calls, or none to see how it does by throttled answers alone.
type Advert struct {
	Dialect   Dialect           // how it is said; nil: not at all
	Throttled bool              // only to throttled requests
	Every     int               // only in each Every-th answer; 0: in all
	Edit      func(State) State // what is said in place of the truth; nil: the truth
}

// A State is what a Limit knows of itself when a request has been charged.
//
// An example: Limit{Name: "core", N: 100, Per: time.Minute, Kind: Fixed} has charged 40 units, and 12.5
// s of the window are left: Limit 100, Remaining 60, Window 1 min, Reset 12.5 s. The samples at the
// dialects below are of this State, and now is 1700000000 s after 1970.
type State struct {
	Name, Unit       string        // those of the Limit
	Limit, Remaining int           // units; Limit is a Bucket's Burst
	Window           time.Duration // of a Bucket: in which its Burst comes back
	Reset            time.Duration // until the window ends, a Bucket is full, or the oldest unit of a Sliding limit leaves
}

// due reports whether the n-th answer says something.
// n counts from 0, so with Every 3 the answers 0, 3, 6 and so on do.
func (a *Advert) due(v Verdict, n int) bool {
	return a.Dialect != nil && (!a.Throttled || v == Throttled) && (a.Every <= 1 || n%a.Every == 0)
}

// A Dialect writes states into the header of an answer: those of the limits that the request falls under, but for
// InFlight, and at least one. now is the Server's clock at the request's arrival. The dialects of this package round
// times up to whole seconds. Those that can describe only one limit take the one with the smallest share left.
type Dialect func(h http.Header, states []State, now time.Time)

// Draft03 is for upstreams that follow draft-ietf-httpapi-ratelimit-headers-03. It writes RateLimit-Limit with its window,
// -Remaining and -Reset.
//
//	RateLimit-Limit: 100, 100;w=60
//	RateLimit-Remaining: 60
//	RateLimit-Reset: 13
func Draft03(h http.Header, states []State, _ time.Time) {
	q := tightest(states)
	trio(h, "Ratelimit-", q, seconds(q.Reset))
	h.Set("Ratelimit-Limit", strconv.Itoa(q.Limit)+", "+policy(q))
}

// Draft06 is for upstreams that follow version 06 of the draft. It writes RateLimit-Limit, -Remaining and -Reset, and
// the window in RateLimit-Policy.
//
//	RateLimit-Limit: 100
//	RateLimit-Remaining: 60
//	RateLimit-Reset: 13
//	RateLimit-Policy: 100;w=60
func Draft06(h http.Header, states []State, _ time.Time) {
	q := tightest(states)
	trio(h, "Ratelimit-", q, seconds(q.Reset))
	h.Set("Ratelimit-Policy", policy(q))
}

// Draft07 is for upstreams that follow version 07 of the draft. It writes one field, RateLimit, with everything in it, and
// RateLimit-Policy.
//
//	RateLimit: limit=100, remaining=60, reset=13
//	RateLimit-Policy: 100;w=60
func Draft07(h http.Header, states []State, _ time.Time) {
	q := tightest(states)
	h.Set("Ratelimit", "limit="+strconv.Itoa(q.Limit)+", remaining="+strconv.Itoa(q.Remaining)+", reset="+seconds(q.Reset))
	h.Set("Ratelimit-Policy", policy(q))
}

// Draft08 writes RateLimit: "default";r=50;t=30 and RateLimit-Policy: "default";q=100;w=60, with qu for a Unit, of
// all limits. Later drafts look the same.
//
//	RateLimit: "core";r=60;t=13
//	RateLimit-Policy: "core";q=100;w=60
func Draft08(h http.Header, states []State, _ time.Time) {
	var limits, policies []string
	for _, q := range states {
		name, unit := `"default"`, ""
		if q.Name != "" {
			name = strconv.Quote(q.Name)
		}
		if q.Unit != "" {
			unit = ";qu=" + strconv.Quote(q.Unit)
		}
		limits = append(limits, name+";r="+strconv.Itoa(q.Remaining)+";t="+seconds(q.Reset))
		policies = append(policies, name+";q="+strconv.Itoa(q.Limit)+";w="+seconds(q.Window)+unit)
	}
	h.Set("Ratelimit", strings.Join(limits, ", "))
	h.Set("Ratelimit-Policy", strings.Join(policies, ", "))
}

// XDelta is for upstreams whose X-RateLimit-Reset is a span. It writes X-RateLimit-Limit, -Remaining and -Reset in seconds
// from now.
//
//	X-RateLimit-Limit: 100
//	X-RateLimit-Remaining: 60
//	X-RateLimit-Reset: 13
func XDelta(h http.Header, states []State, _ time.Time) {
	q := tightest(states)
	trio(h, "X-Ratelimit-", q, seconds(q.Reset))
}

// XEpoch is for upstreams whose X-RateLimit-Reset is a moment. It writes X-RateLimit-Limit, -Remaining and -Reset in
// seconds since 1970.
//
//	X-RateLimit-Limit: 100
//	X-RateLimit-Remaining: 60
//	X-RateLimit-Reset: 1700000013
func XEpoch(h http.Header, states []State, now time.Time) {
	q := tightest(states)
	trio(h, "X-Ratelimit-", q, strconv.FormatInt(now.Add(q.Reset+time.Second-1).Unix(), 10))
}

// GitHub writes what XEpoch does, -Used, and the limit's Name as -Resource. GitHub's Status is 403.
//
//	X-RateLimit-Used: 40
//	X-RateLimit-Resource: core
func GitHub(h http.Header, states []State, now time.Time) {
	XEpoch(h, states, now)
	q := tightest(states)
	h.Set("X-Ratelimit-Used", strconv.Itoa(q.Limit-q.Remaining))
	h.Set("X-Ratelimit-Resource", q.Name)
}

// Discord writes X-RateLimit-Limit, -Remaining, -Reset and -Reset-After, both to the millisecond, and the limit's
// Name as -Bucket.
//
//	X-RateLimit-Reset: 1700000012.500
//	X-RateLimit-Reset-After: 12.500
//	X-RateLimit-Bucket: core
//
// A limit of the Name "global" is one for all calls. Only its own refusals mention it, and say no more than this:
//
//	X-RateLimit-Scope: global
//	X-RateLimit-Global: true
//
// All other refusals have the scope user. Both are known by their Retry-After, so set [Server].RetryAfter.
func Discord(h http.Header, states []State, now time.Time) {
	own := slices.DeleteFunc(slices.Clone(states), func(q State) bool { return q.Name == "global" })
	refused := h.Get("Retry-After") != ""
	switch {
	case refused && len(own) < len(states) && !slices.ContainsFunc(own, func(q State) bool { return q.Remaining == 0 }):
		h.Set("X-Ratelimit-Scope", "global")
		h.Set("X-Ratelimit-Global", "true")
		return
	case refused:
		h.Set("X-Ratelimit-Scope", "user")
	case len(own) == 0:
		return
	}
	q := tightest(own)
	reset := now.Add(q.Reset)
	trio(h, "X-Ratelimit-", q, strconv.FormatFloat(float64(reset.UnixMilli())/1000, 'f', 3, 64))
	h.Set("X-Ratelimit-Reset-After", strconv.FormatFloat(q.Reset.Seconds(), 'f', 3, 64))
	h.Set("X-Ratelimit-Bucket", q.Name)
}

// OpenAI writes what OpenAI and those who copy it advertise, for [Advert].Dialect: X-RateLimit-Limit, -Remaining and -Reset of
// each limit, with its Name at the end; "" is "requests".
//
//	X-RateLimit-Limit-Tokens: 100
//	X-RateLimit-Remaining-Tokens: 60
//	X-RateLimit-Reset-Tokens: 12.5s
func OpenAI(h http.Header, states []State, _ time.Time) {
	for _, q := range states {
		name := "-" + cmp.Or(q.Name, "requests")
		h.Set("X-Ratelimit-Limit"+name, strconv.Itoa(q.Limit))
		h.Set("X-Ratelimit-Remaining"+name, strconv.Itoa(q.Remaining))
		h.Set("X-Ratelimit-Reset"+name, q.Reset.Round(time.Millisecond).String())
	}
}

// Anthropic writes the same in the way of Anthropic's API, for [Advert].Dialect: the moment at which the limit will be whole, and
// what remains of tokens to the nearest thousand, which may be more than there is.
//
//	Anthropic-RateLimit-Output-Tokens-Limit: 80000
//	Anthropic-RateLimit-Output-Tokens-Remaining: 61000
//	Anthropic-RateLimit-Output-Tokens-Reset: 2023-11-14T22:13:33Z
func Anthropic(h http.Header, states []State, now time.Time) {
	for _, q := range states {
		name := "Anthropic-Ratelimit-" + cmp.Or(q.Name, "requests")
		if strings.HasSuffix(name, "tokens") {
			q.Remaining = (q.Remaining + 500) / 1000 * 1000
		}
		trio(h, name+"-", q, now.Add(q.Reset+time.Second-1).UTC().Format(time.RFC3339))
	}
}

// tightest returns the state with the smallest share left.
//
// An example: 60 of 100 a minute and 500 of 5,000 an hour. 60 % and 10 % are left, so it is the hour.
// The products are compared, 500 × 100 < 60 × 5,000, so a Limit of 0 does no harm.
func tightest(states []State) State {
	q := states[0]
	for _, s := range states[1:] {
		if s.Remaining*q.Limit < q.Remaining*s.Limit {
			q = s
		}
	}
	return q
}

// trio writes the three fields that most dialects share.
func trio(h http.Header, prefix string, q State, reset string) {
	h.Set(prefix+"Limit", strconv.Itoa(q.Limit))
	h.Set(prefix+"Remaining", strconv.Itoa(q.Remaining))
	h.Set(prefix+"Reset", reset)
}

// policy is the quota and its window, as the drafts up to 07 have it.
func policy(q State) string { return strconv.Itoa(q.Limit) + ";w=" + seconds(q.Window) }

// seconds is d in whole seconds, rounded up, as an upstream does that does not want to be asked too early.
// An example: 12.5 s are written as 13, and what is over as 0.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((max(0, d)+time.Second-1)/time.Second), 10)
}
