package hint

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
)

// This file looks into the bodies of answers, if something may be decided there: when a refusal names no time in its header,
// whether a 403 or a 400 is a refusal, and whether a wait cures it; of successes only where an API is known to refuse with them.
// A body is read once, up to a bound, and put back.

// inBodies are the APIs that refuse with a 200, and say so in the body alone. Parse looks into
// their bodies unasked, because their headers would not make it look at anything. Each is bound to its path: a host
// answers other requests too, some with much larger bodies.
var inBodies = []struct {
	row  Dialect
	path string // how it ends
}{
	{Dialect{Host: "*.myshopify.com"}, "/graphql.json"}, // shopify.dev/docs/api/usage/limits
	{Dialect{Host: "api.github.com"}, "/graphql"},       // docs.github.com/graphql/overview/rate-limits-and-query-limits-for-the-graphql-api
	{Dialect{Host: "openrouter.ai"}, "/completions"},    // openrouter.ai/docs/api-reference/errors: a provider that refuses once the 200 is sent
}

// saysInBody reports whether resp may be a refusal with a 200: an answer of one of inBodies, or of MediaWiki. The last
// letters are compared first, since they end the search for nearly all responses.
func saysInBody(resp *http.Response) bool {
	if resp.Request == nil || resp.Request.URL == nil || len(resp.Request.URL.Path) < 4 {
		return false
	}
	path := resp.Request.URL.Path
	switch path[len(path)-4:] {
	case ".php": // www.mediawiki.org/wiki/API:Errors_and_warnings, on any host
		return refusesIn(resp, "Mediawiki-Api-Error")
	case "phql", "json", "ions":
		for i := range inBodies {
			if api := &inBodies[i]; strings.HasSuffix(path, api.path) && api.row.covers(hostOf(resp)) {
				return true
			}
		}
	}
	return false
}

// refusesIn reports whether the field of that name has a code that means a limit.
func refusesIn(resp *http.Response, field string) bool {
	return len(resp.Header[field]) > 0 && meansLimit(resp.Header[field][0])
}

// look reads what the body says; asked: a row wants it, or the API is known to refuse with a 200. It leaves the body alone if a
// cheaper look shows that nothing is decided there: a status that no known API uses, a cached response, a wait in the
// header, a code there, or another type or encoding.
func (r *reader) look(resp *http.Response, p *Parser, h *Hint, asked bool) {
	if refusesIn(resp, "Mediawiki-Api-Error") {
		r.throttle(h, 0)
		return
	}
	if len(resp.Header["X-Amzn-Errortype"]) > 0 {
		if resp.StatusCode < 400 || !refusesIn(resp, "X-Amzn-Errortype") {
			return
		}
		r.throttle(h, 0)
	}
	within := unaskedTime
	switch resp.StatusCode {
	case 200, 402:
		if !asked {
			return
		}
	case 400, 403, 418, 429, 503, 529:
		if !asked && h.RetryAfter > 0 && !ends(spent, hostOf(resp)) {
			return
		}
	default:
		return
	}
	if asked {
		within = askedTime
	}
	if resp.Body == nil || resp.Body == http.NoBody || resp.ContentLength > maxBody {
		return
	}
	f, packed := formatOf(resp.Header)
	if f == opaque {
		return
	}
	b := peekBody(resp, within)
	if packed {
		b = unpack(b)
	}
	if b = bytes.TrimSpace(bytes.TrimPrefix(b, []byte("\ufeff"))); len(b) > 0 {
		r.body(b, f, resp, p, h)
	}
}

// body takes from b what it says: whether the request was throttled, for how long, by which quota, and whether a wait cures that.
func (r *reader) body(b []byte, f format, resp *http.Response, p *Parser, h *Hint) {
	s := said{clock: r.clock, status: resp.StatusCode}
	var d document
	switch ok := d.decode(b); {
	case f == markup && s.status >= 400:
		s.text("code", between(b, "<Code>", "</Code>"), 1)
	case f == markup:
	case s.status < 400: // the rest of a success is about other things
		s.visit("error", decodeAny(d.Error), 1)
		s.visit("errors", decodeAny(d.Errors), 1)
		s.text("status", d.Status, 1)
		s.text("error_code", d.ErrorCode, 1)
	case ok || b[0] == '[':
		s.visit("", decodeAny(b), 0)
	case f == plain:
		s.text("message", string(b), 1)
	}
	throttled, wait := s.refused()
	throttled = throttled && s.status != 402
	if end := s.waits[windowed]; end > 0 && (r.end == 0 || end < r.end) {
		r.end = end
	}
	if q, more, ok := d.shopify(); ok {
		if r.add(&q); throttled && wait == 0 {
			wait = more
		}
	}
	if throttled {
		r.throttle(h, wait)
	} else if h.RetryAfter == 0 && s.status >= 400 {
		h.RetryAfter = wait
	}
	h.Final = h.Final || s.status >= 400 && p.final(hostOf(resp), &d)
}

// throttle notes that the request was throttled, and asks for a wait. A wait in the header takes precedence, on a status too on
// which it would say nothing otherwise.
func (r *reader) throttle(h *Hint, wait time.Duration) {
	h.Throttled = true
	if h.RetryAfter == 0 {
		c := r.clock
		c.order = true
		if h.RetryAfter = c.retryAfter(http.StatusTooManyRequests); h.RetryAfter == 0 {
			h.RetryAfter = wait
		}
	}
}

// ends reports whether one of rows names errors of host that no wait cures.
func ends(rows []Dialect, host string) bool {
	return slices.ContainsFunc(rows, func(d Dialect) bool { return len(d.Final) > 0 && d.covers(host) })
}

// final reports whether d names an error that no wait cures, by the rows for host: those of p, and those of
// spent.
func (p *Parser) final(host string, d *document) bool {
	codes := d.codes()
	for _, rows := range [...][]Dialect{p.Dialects, spent} {
		for i := range rows {
			if rows[i].covers(host) && slices.ContainsFunc(rows[i].Final, func(code string) bool { return slices.Contains(codes, code) }) {
				return true
			}
		}
	}
	return false
}

// format is how a body is read.
type format uint8

const (
	opaque format = iota // not at all
	object               // as JSON
	markup               // as XML: AWS has its codes there
	plain                // as JSON, which some servers send as text, or as a sentence
)

// formatOf returns how the body is to be read, and whether it is compressed. AWS has types of its own, RFC 6839 lets
// types end in +json, such as application/problem+json, and Meta sends its errors as text/javascript.
func formatOf(h http.Header) (f format, packed bool) {
	encodings := h["Content-Encoding"]
	packed, ok := isPacked(h.Get("Content-Encoding"))
	if !ok || len(encodings) > 1 {
		return opaque, false
	}
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	switch media = strings.ToLower(trim(media)); media {
	case "application/json", "application/x-amz-json-1.0", "application/x-amz-json-1.1", "text/json", "text/javascript", "application/javascript":
		return object, packed
	case "text/xml", "application/xml":
		return markup, packed
	case "text/plain":
		return plain, packed
	}
	if strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json") {
		return object, packed
	}
	return opaque, false
}

// document has the members of JSON bodies that have a place of their own.
type document struct {
	Code      string          `json:"code"`       // if the document itself is the error
	Kind      string          `json:"type"`       // the same
	Error     json.RawMessage `json:"error"`      // Google, OpenAI, Anthropic: an object; Kraken: a list
	Errors    json.RawMessage `json:"errors"`     // GraphQL
	Ext       json.RawMessage `json:"extensions"` // Shopify
	Status    string          `json:"status"`     // Google Maps: OVER_QUERY_LIMIT
	ErrorCode string          `json:"error_code"` // monday.com: ComplexityException
}

// decode reports whether b is a JSON object. A member of another type than in these APIs belongs to another
// API and is left out.
func (d *document) decode(b []byte) bool { return b[0] == '{' && decodeJSON(b, d) }

// decodeAny decodes JSON of any form; nil: it is none.
func decodeAny(b []byte) (v any) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if dec.Decode(&v) != nil || dec.More() {
		return nil
	}
	return v
}

// between returns what stands first between two marks; "" if nothing does.
func between(b []byte, open, end string) string {
	_, b, _ = bytes.Cut(b, []byte(open))
	b, _, _ = bytes.Cut(b, []byte(end))
	return string(b)
}

// decodeJSON decodes what is of the right types and leaves out the rest: Unmarshal goes on after a
// mismatch, and returns the first at the end. It reports whether b is JSON. So a member that another API
// uses for something else does not hide the others.
func decodeJSON(b []byte, to any) bool {
	if len(b) == 0 {
		return false
	}
	err := json.Unmarshal(b, to)
	if err == nil {
		return true
	}
	_, mistyped := err.(*json.UnmarshalTypeError)
	return mistyped
}

// shopify returns the leaky bucket that a GraphQL query pays from, if the document has it
// (shopify.dev/docs/api/usage/limits), and how long it takes until the query fits. Here that is
// (101 - 54) / 100 s, 470 ms:
//
//	{"extensions": {"cost": {"requestedQueryCost": 101, "throttleStatus":
//		{"maximumAvailable": 2000, "currentlyAvailable": 54, "restoreRate": 100}}}}
func (d *document) shopify() (q Quota, wait time.Duration, ok bool) {
	var ext struct {
		Cost struct {
			Requested float64 `json:"requestedQueryCost"`
			Status    struct {
				Max  *float64 `json:"maximumAvailable"`
				Now  *float64 `json:"currentlyAvailable"`
				Rate float64  `json:"restoreRate"`
			} `json:"throttleStatus"`
		} `json:"cost"`
	}
	s := &ext.Cost.Status
	if len(d.Ext) == 0 || json.Unmarshal(d.Ext, &ext) != nil || s.Max == nil || s.Now == nil {
		return q, 0, false
	}
	if s.Rate > 0 {
		if f := max(0, (ext.Cost.Requested-*s.Now)/s.Rate); f <= maxSaid.Seconds() {
			wait = time.Duration(f * float64(time.Second))
		}
	}
	return Quota{
		Unit: "points", Limit: count(*s.Max), Remaining: count(*s.Now), Reset: -1,
		Rate: max(0, s.Rate), Source: "body",
	}, wait, true
}

// count returns f, rounded down, as a number of units; -1, unknown, if it is beyond 64 bits.
func count(f float64) int64 {
	if f >= maxCount {
		return -1
	}
	return int64(max(0, f))
}

// codes returns the codes of the document's error from every place where APIs put them: OpenAI in
// error.code, or in error.type alone; Anthropic in error.type and error.details.error_code; others at the
// top. For example:
//
//	{"error": {"type": "insufficient_quota", "code": "credit_balance_exhausted"}}
func (d *document) codes() []string {
	var e struct {
		Code    string `json:"code"`
		Type    string `json:"type"`
		Details struct {
			Code string `json:"error_code"`
		} `json:"details"`
	}
	decodeJSON(d.Error, &e)
	return slices.DeleteFunc([]string{e.Code, e.Type, e.Details.Code, d.Code, d.Kind}, func(s string) bool { return s == "" })
}
