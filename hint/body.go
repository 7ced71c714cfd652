package hint

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// This file looks into the bodies of responses, for hosts whose row asks for it and for some GraphQL APIs. Some APIs throttle with a
// 200 or a 400 and say so only there, and some name the errors that no wait cures. A body is read once, up
// to a bound, and put back.

// maxBody is the most bytes of a body that are read. Bodies of throttled responses are short.
const maxBody = 64 << 10

// inBodies are the GraphQL APIs that throttle with a 200, and say so and what is left in the body alone. Parse looks into
// their bodies unasked, because their headers would not make it look at anything. Each is bound to its path: a host
// answers other requests too, some with much larger bodies.
var inBodies = []struct {
	row  Dialect
	path string // how it ends
}{
	{Dialect{Host: "*.myshopify.com"}, "/graphql.json"}, // shopify.dev/docs/api/usage/limits
	{Dialect{Host: "api.github.com"}, "/graphql"},       // docs.github.com/graphql/overview/rate-limits-and-query-limits-for-the-graphql-api
}

// saysInBody reports whether resp is that of one of inBodies. The last letters are compared first, since they
// end the search for nearly all responses.
func saysInBody(resp *http.Response) bool {
	return resp.Request != nil && resp.Request.URL != nil && strings.HasSuffix(strings.TrimSuffix(resp.Request.URL.Path, ".json"), "/graphql") &&
		ofGraphQL(resp)
}

// ofGraphQL is saysInBody of a path that may be meant.
func ofGraphQL(resp *http.Response) bool {
	for i := range inBodies {
		if api := &inBodies[i]; strings.HasSuffix(resp.Request.URL.Path, api.path) && api.row.covers(hostOf(resp)) {
			return true
		}
	}
	return false
}

// look reads what the body says. It leaves the body alone if a cheaper look shows that nothing can be there:
// a status that no known API uses, a cached response, AWS's code in a header, or another type or encoding.
func (r *reader) look(resp *http.Response, p *Parser, h *Hint, fresh bool) {
	switch resp.StatusCode {
	case 200, 400, 402, 403, 429, 503:
	default:
		return
	}
	if !fresh {
		return
	}
	if code := resp.Header.Get("X-Amzn-Errortype"); code != "" {
		h.Throttled = h.Throttled || resp.StatusCode >= 400 && isAWSThrottle(code)
		return
	}
	if !isJSON(resp.Header) || resp.Body == nil || resp.Body == http.NoBody || resp.ContentLength > maxBody {
		return
	}
	var d document
	if b := peekBody(resp); len(b) > 0 && d.decode(b) {
		r.document(&d, resp.StatusCode, h)
		h.Final = h.Final || resp.StatusCode >= 400 && p.final(hostOf(resp), &d)
	}
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

// isJSON reports whether the body is JSON, and not compressed: AWS has types of its own, and RFC 6839 lets
// types end in +json, such as application/problem+json.
func isJSON(h http.Header) bool {
	if h.Get("Content-Encoding") != "" {
		return false
	}
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	switch media = strings.ToLower(trim(media)); media {
	case "application/json", "application/x-amz-json-1.0", "application/x-amz-json-1.1":
		return true
	}
	return strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json")
}

// peekBody reads the body and returns it; nil if it is longer than maxBody or broke off. It replaces
// resp.Body by one that returns all bytes, and the same error after them, so that the caller sees no
// difference.
func peekBody(resp *http.Response) []byte {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	resp.Body = &replay{head: b, err: err, rest: resp.Body}
	if err != nil || len(b) > maxBody {
		return nil
	}
	return b
}

// replay is a body whose beginning, head, was read already. As with the bodies of net/http, Close may be
// called while another goroutine reads.
type replay struct {
	head   []byte
	err    error // what ended the reading of head; nil: rest goes on
	rest   io.ReadCloser
	closed atomic.Bool // from now on rest alone is read: it has the error for a closed body
}

// Read implements io.Reader. It returns head, then the error that ended head, if there was one, and otherwise
// what rest still has.
func (b *replay) Read(p []byte) (int, error) {
	switch {
	case b.closed.Load():
	case len(b.head) > 0:
		n := copy(p, b.head)
		b.head = b.head[n:]
		return n, nil
	case b.err != nil:
		return 0, b.err
	}
	return b.rest.Read(p)
}

// Close implements io.Closer.
func (b *replay) Close() error {
	b.closed.Store(true)
	return b.rest.Close()
}

// document has the members of all JSON bodies that are understood. Those that differ between APIs are
// decoded later, by what each API puts there.
type document struct {
	Type   string          `json:"__type"`     // AWS
	Code   string          `json:"code"`       // if the document itself is the error
	Kind   string          `json:"type"`       // the same
	Error  json.RawMessage `json:"error"`      // Google, OpenAI, Anthropic: an object; Kraken: a list
	Errors json.RawMessage `json:"errors"`     // GraphQL
	Ext    json.RawMessage `json:"extensions"` // Shopify
}

// decode reports whether b is a JSON object. A member of another type than in these APIs belongs to another
// API and is left out.
func (d *document) decode(b []byte) bool {
	b = bytes.TrimLeft(b, " \t\r\n")
	if len(b) == 0 || b[0] != '{' {
		return false
	}
	return decodeJSON(b, d)
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

// document takes from d what it says: whether the request was throttled, for how long, and by which quota.
func (r *reader) document(d *document, status int, h *Hint) {
	throttled := d.graphQL() || d.kraken() || status >= 400 && isAWSThrottle(d.Type)
	h.Throttled = h.Throttled || throttled
	if wait := d.retryInfo(); wait > 0 && status >= 400 && h.RetryAfter == 0 {
		h.RetryAfter = wait
	}
	if q, wait, ok := d.shopify(); ok {
		if r.add(&q); throttled && h.RetryAfter == 0 {
			h.RetryAfter = wait
		}
	}
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
		wait = time.Duration(min(max(0, (ext.Cost.Requested-*s.Now)/s.Rate)*float64(time.Second), 1<<62)) // no overflow
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

// graphQL reports whether an error names a limit: GitHub by its type, Shopify and Linear by a code
//
//	{"errors": [{"type": "RATE_LIMITED"}]}
//	{"errors": [{"extensions": {"code": "THROTTLED"}}]}
//
// (docs.github.com/graphql/overview/rate-limits-and-query-limits-for-the-graphql-api,
// shopify.dev/docs/api/usage/limits, linear.app/developers/rate-limiting)
func (d *document) graphQL() bool {
	var errs []struct {
		Type string `json:"type"`
		Ext  struct {
			Code string `json:"code"`
		} `json:"extensions"`
	}
	decodeJSON(d.Errors, &errs)
	for _, e := range errs {
		switch {
		case e.Type == "RATE_LIMITED", e.Ext.Code == "THROTTLED", e.Ext.Code == "RATELIMITED":
			return true
		}
	}
	return false
}

// kraken reports whether an error string names a limit (docs.kraken.com/api/docs/guides/spot-errors):
//
//	{"error": ["EAPI:Rate limit exceeded"]}
func (d *document) kraken() bool {
	var errs []string
	decodeJSON(d.Error, &errs)
	for _, e := range errs {
		if strings.HasPrefix(e, "EAPI:Rate limit exceeded") || strings.HasPrefix(e, "EOrder:Rate limit exceeded") ||
			strings.HasPrefix(e, "EGeneral:Too many requests") || strings.HasPrefix(e, "EService:Throttled") ||
			strings.HasPrefix(e, "EService: Throttled") {
			return true
		}
	}
	return false
}

// retryInfo returns the wait of a google.rpc.RetryInfo; 0: none (google.aip.dev/193,
// google/rpc/error_details.proto):
//
//	{"error": {"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "39s"}]}}
func (d *document) retryInfo() time.Duration {
	var e struct {
		Details []struct {
			Type  string `json:"@type"`
			Delay string `json:"retryDelay"`
		} `json:"details"`
	}
	decodeJSON(d.Error, &e)
	for _, info := range e.Details {
		if strings.HasSuffix(info.Type, "google.rpc.RetryInfo") {
			s, _ := strings.CutSuffix(info.Delay, "s")
			wait, _ := parseDecimal(s, time.Second)
			return wait
		}
	}
	return 0
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

// isAWSThrottle reports whether an AWS error code means a limit. The codes are those that botocore retries
// as throttling. A namespace may stand before the code and an address behind it, as in
// com.amazonaws#Throttling:http://example.com.
func isAWSThrottle(code string) bool {
	code, _, _ = strings.Cut(code, ":")
	code = code[strings.LastIndexByte(code, '#')+1:]
	switch code {
	case "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottledException",
		"TooManyRequestsException", "ProvisionedThroughputExceededException", "RequestLimitExceeded",
		"BandwidthLimitExceeded", "LimitExceededException", "RequestThrottled", "SlowDown",
		"PriorRequestNotComplete", "EC2ThrottledException":
		return true
	}
	return false
}
