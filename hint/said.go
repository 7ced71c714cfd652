package hint

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// This file finds in the JSON of an answer what it says about limits: codes that mean one, and how long to wait. Every API has
// names of its own for both, so names are taken apart instead of listed: whatever consists of words about waiting is a wait.

// How much is believed.
const (
	maxDepth  = 8           // of values in values
	maxSaid   = 31 * day    // the longest wait: no quota has a longer window
	maxPlain  = time.Hour   // a longer wait without a unit is in milliseconds
	secondary = time.Minute // GitHub's own advice for a secondary limit without a time
	maxPhrase = 2 << 10     // bytes of a text
)

// rank orders the ways to say a wait: what is meant for a client first, then what is meant for a reader, then the end of some
// window.
type rank uint8

const (
	noWait   rank = iota
	ordered       // "retry_after": 9
	spoken        // "Please try again in 9s."
	windowed      // "reset_at": "2026-01-10T12:00:09Z"
)

// said gathers what a document says. The order in which its members are visited does not matter.
type said struct {
	clock   clock
	status  int
	limited bool                        // a code or a sentence names a limit
	abused  bool                        // GitHub's secondary limit
	quota   bool                        // Google's quotaExceeded, which
	stock   bool                        // may be about how many machines there are, and not how many requests
	waits   [windowed + 1]time.Duration // by rank, the longest of each
}

// refused reports whether the request was throttled, beyond what the status alone says, and how long to wait; 0: unknown. On
// an answer that may mean anything else only a member that orders a wait counts without a code: on a 403 it is as good as
// a Retry-After. The end of a window is not a wait: see ends in retryafter.go.
func (s *said) refused() (throttled bool, wait time.Duration) {
	throttled = s.limited || s.quota && !s.stock
	wait = s.waits[ordered]
	if !throttled && s.status <= 403 {
		return false, wait
	}
	if more := s.waits[spoken] - wait; wait == 0 || 0 < more && more < time.Second { // "retryDelay": "58s", "Please retry in 58.93s."
		wait += more
	}
	if wait == 0 && s.abused {
		wait = secondary
	}
	return throttled, wait
}

// visit looks at the value of a member with that name. What is in a list has the name of the list.
func (s *said) visit(name string, v any, depth int) {
	if depth > maxDepth {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		for inner, w := range v {
			if r, _ := waitName(inner); r == noWait && name != "" {
				if r, _ = waitName(name + inner); r != noWait { // "retry": {"after": 9}
					inner = name + inner
				}
			}
			s.visit(inner, w, depth+1)
		}
		code, _ := v["code"].(json.Number)
		if _, ok := v["fbtrace_id"]; ok && metaLimit(code.String()) {
			s.limited = true
		}
	case []any:
		for _, w := range v {
			s.visit(name, w, depth+1)
		}
	case json.Number:
		s.limited = s.limited || v == "429" && isCodeName(name) && (depth > 1 || s.status >= 400)
		s.wait(name, v.String())
	case string:
		s.text(name, v, depth)
	}
}

// text looks at a string.
func (s *said) text(name, v string, depth int) {
	if isCodeName(name) {
		s.limited = s.limited || v == "429" || meansLimit(v)
		s.quota = s.quota || s.status == 403 && v == "quotaExceeded"
	}
	if strings.HasPrefix(v, "{") { // what a gateway got from its provider
		s.visit(name, decodeAny([]byte(v)), depth+1)
		return
	}
	s.wait(name, v)
	if len(v) > maxPhrase {
		return
	}
	s.stock = s.stock || strings.HasPrefix(v, "Quota '") // "Quota 'CPUS' exceeded.  Limit: 24.0 in region us-central1."
	low := strings.ToLower(v)
	s.abused = s.abused || slices.ContainsFunc(abusePhrases, func(p string) bool { return strings.Contains(low, p) })
	s.limited = s.limited || s.abused && s.status != 400
	if s.status == 403 {
		s.limited = s.limited || slices.ContainsFunc(limitPhrases, func(p string) bool { return strings.Contains(low, p) })
	}
	s.note(spoken, s.clock.waitIn(v))
}

// wait reads the value of a member whose name may be that of a wait.
func (s *said) wait(name, v string) {
	r, unit := waitName(name)
	if r == noWait || len(v) > maxTime {
		return
	}
	c := s.clock
	c.order = true
	d, ok := c.reset(v, unit)
	switch {
	case !ok:
		d = c.amount(strings.Fields(strings.ToLower(v)), false)
	case unit == 0 && d > maxPlain && isDecimal(v) && len(v) < 9: // a span, and not a moment
		d /= 1000
	}
	s.note(r, d)
}

// note takes a wait. One that is longer than any window is ignored, like any value that makes no sense.
func (s *said) note(r rank, d time.Duration) {
	if 0 < d && d <= maxSaid {
		s.waits[r] = max(s.waits[r], d)
	}
}

// isCodeName reports whether a member of that name may have an error's code. So that a code is found in every API it may also
// be its type, its title, or the error itself.
func isCodeName(name string) bool {
	switch letters(name) {
	case "code", "type", "status", "reason", "error", "errors", "err", "title", "category", "tag", "state",
		"errorcode", "errortype", "errorname", "errormsg", "errorstatus", "errorsummary", "statuscode", "httpcode", "httpstatus":
		return true
	}
	return false
}

// meansLimit reports whether an error's code means a limit, in whatever way it is written: RATE_LIMITED, rateLimitExceeded,
// com.amazonaws#ThrottlingException. AWS may have an address behind it, as in ThrottlingException:http://example.com, and
// Kraken a moment, as in EService:Throttled: 1768046410. Those of AWS are the ones that botocore retries as throttling.
func meansLimit(code string) bool {
	if len(code) > 4*maxName {
		return false
	}
	if i := strings.Index(code, ":http"); i > 0 {
		code = code[:i]
	}
	code = letters(code[strings.LastIndexByte(code, '#')+1:])
	return slices.Contains(limitCodes, code) || slices.ContainsFunc(limitEnds, func(end string) bool { return strings.HasSuffix(code, end) })
}

// limitCodes are codes that mean a limit, as letters alone. Those of limitEnds may have any beginning.
var limitCodes = []string{
	"ratelimit", "ratelimiterror", "resourceexhausted", "dailylimitexceeded", "overquerylimit", "complexitybudgetexhausted",
	"complexityexception", "maxlag", "slowdown", "bandwidthlimitexceeded", "limitexceededexception", "priorrequestnotcomplete",
	"requestthrottledexception", "activitylimitreached",
}

var limitEnds = []string{
	"ratelimited", "ratelimitexceeded", "ratelimitexceedederror", "ratelimitreached", "ratelimitsexceeded", "throttled", "throttling",
	"throttlingexception", "throttledexception", "throttlingerror", "throttleviolation", "toomanyrequests", "toomanyrequestserror",
	"toomanyrequestsexception", "toomanyrequestspersecond", "requestlimitexceeded", "throughputexceededexception", "invocationlimitexceeded",
}

// abusePhrases are those of GitHub's secondary limit (docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api), in
// the sentence or in the documentation's address; limitPhrases are those of others. In small letters.
var (
	abusePhrases = []string{"secondary rate limit", "secondary-rate-limit", "abuse detection mechanism", "#abuse-rate-limits"}
	limitPhrases = []string{
		"rate limit exceeded", "rate limit reached", "rate limit is exceeded", "rate limit has been exceeded", "rate limit was exceeded",
		"exceeded the rate limit", "exceeded your rate limit", "exceeded rate limit", "exceeded api rate limit", "rate exceeded",
		"too many requests", "request limit reached", "request limit exceeded", "requests limit exceeded", "being rate limited",
		"been rate limited", "request was throttled", "throttle limit", "out of call volume quota",
	}
)

// metaLimit reports whether a number is one of Meta's codes for limits
// (developers.facebook.com/docs/graph-api/overview/rate-limiting, Error Codes): of an app, a user, a page, one kind of
// calls, and from 80000 on of one kind of business.
func metaLimit(code string) bool {
	switch code {
	case "4", "17", "32", "341", "613":
		return true
	}
	return len(code) == 5 && strings.HasPrefix(code, "800")
}

// letters returns the letters of s, in lower case.
func letters(s string) string {
	var b [4 * maxName]byte
	n := 0
	for i := 0; i < len(s) && n < len(b); i++ {
		if c := s[i] | 0x20; 'a' <= c && c <= 'z' {
			b[n] = c
			n++
		}
	}
	return string(b[:n])
}
