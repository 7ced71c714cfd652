package hint

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// These tests look at the edges of rules: the last value on one side, the first on the other.

func TestEdgesOfWaits(t *testing.T) {
	for _, tt := range []struct {
		status int
		header http.Header
		now    time.Time
		want   time.Duration
	}{
		{300, http.Header{"Retry-After": {"7"}}, noon, 7 * time.Second},
		{429, http.Header{"X-Amz-Retry-After": {"9000"}, "X-Ms-Retry-After-Ms": {"7000"}}, noon, 7 * time.Second},
		// RFC 850: a year of two digits, up to 50 years ahead
		{429, http.Header{"Retry-After": {"Sunday, 01-Dec-75 00:00:00 GMT"}}, noon, time.Date(2075, 12, 1, 0, 0, 0, 0, time.UTC).Sub(noon)},
		{429, http.Header{"Retry-After": {"Sunday, 01-Dec-76 00:00:00 GMT"}}, noon, 0},
		{429, http.Header{"Retry-After": {"Sunday, 01-Dec-09 00:00:00 GMT"}}, noon.AddDate(34, 6, 0), time.Date(2109, 12, 1, 0, 0, 0, 0, time.UTC).Sub(noon.AddDate(34, 6, 0))},
	} {
		if got := Parse(response(tt.status, tt.header), tt.now).RetryAfter; got != tt.want {
			t.Errorf("%d %v: %v, want %v", tt.status, tt.header, got, tt.want)
		}
	}
}

func TestEdgesOfQuotas(t *testing.T) {
	const most = math.MaxInt64
	q := func(limit, remaining int64, reset, window time.Duration) Quota {
		return Quota{Limit: limit, Remaining: remaining, Reset: reset, Window: window}
	}
	for name, tt := range map[string]struct {
		header http.Header
		want   []Quota // without Source
	}{
		"the largest number":      {http.Header{"X-Ratelimit-Limit": {"9223372036854775807"}, "X-Ratelimit-Remaining": {"9223372036854775806"}}, []Quota{q(most, most-1, -1, 0)}},
		"a limit above it":        {http.Header{"X-Ratelimit-Limit": {"9223372036854775808"}, "X-Ratelimit-Remaining": {"7"}}, []Quota{q(-1, 7, -1, 0)}},
		"more than it remains":    {http.Header{"X-Ratelimit-Limit": {"100"}, "X-Ratelimit-Remaining": {"18446744073709551615"}, "X-Ratelimit-Reset": {"9"}}, []Quota{q(100, -1, 9*time.Second, 0)}},
		"more than it is used":    {http.Header{"X-Ratelimit-Limit": {"100"}, "X-Ratelimit-Used": {"18446744073709551615"}}, []Quota{q(100, -1, -1, 0)}},
		"all above it":            {http.Header{"X-Ratelimit-Limit": {"18446744073709551615"}, "X-Ratelimit-Remaining": {"18446744073709551615"}, "X-Ratelimit-Reset": {"9"}}, nil},
		"a policy above it":       {http.Header{"X-Ratelimit-Limit": {"10, 18446744073709551615;w=60"}}, []Quota{q(10, -1, -1, 0)}},
		"a window of many years":  {http.Header{"X-Ratelimit-Limit": {"10;w=18446744073709551615"}}, []Quota{q(10, -1, -1, 0)}},
		"the largest, and a half": {http.Header{"X-Ratelimit-Remaining": {"9223372036854775807.5"}}, []Quota{q(-1, most, -1, 0)}},
		"used on top of it":       {http.Header{"X-Ratelimit-Remaining": {"9223372036854775000"}, "X-Ratelimit-Used": {"808"}}, []Quota{q(-1, most-807, -1, 0)}},
		"used up to it":           {http.Header{"X-Ratelimit-Remaining": {"9223372036854775000"}, "X-Ratelimit-Used": {"807"}}, []Quota{q(most, most-807, -1, 0)}},
		"fields without a line": {http.Header{"X-Ratelimit-Limit": {}, "X-Ratelimit-Remaining": nil, "Ratelimit": {}, "Ratelimit-Policy": {},
			"X-Ratelimit-Reset": {}, "X-Ratelimit-Scope": {}, "X-Ratelimit-Bucket": {}}, nil},
		"the name's window wins over Limit's":     {http.Header{"X-Ratelimit-Limit-Hour": {"100;w=60"}}, []Quota{q(100, -1, -1, time.Hour)}},
		"the name's window wins over Remaining's": {http.Header{"X-Ratelimit-Limit-Hour": {"100"}, "X-Ratelimit-Remaining-Hour": {"9;w=60"}}, []Quota{q(100, 9, -1, time.Hour)}},
		"policies of a field of their own win": {http.Header{"Ratelimit-Policy": {"10;w=1"}, "Ratelimit-Limit": {"10, 50;w=60"}, "Ratelimit-Remaining": {"9"}},
			[]Quota{q(10, 9, -1, time.Second)}},
		"one of several policies, unknown which": {http.Header{"Ratelimit-Policy": {"10;w=1, 1000;w=3600"}, "Ratelimit-Remaining": {"5"}},
			[]Quota{q(-1, 5, -1, 0), q(10, -1, -1, time.Second), q(1000, -1, -1, time.Hour)}},
		"the only policy": {http.Header{"Ratelimit-Policy": {"10;w=1"}, "Ratelimit-Remaining": {"5"}}, []Quota{q(10, 5, -1, time.Second)}},
		"resets 2 s apart": {http.Header{"Ratelimit-Limit": {"10"}, "Ratelimit-Reset": {"10"}, "X-Ratelimit-Limit": {"10"}, "X-Ratelimit-Reset": {"12"}},
			[]Quota{q(10, -1, 10*time.Second, 0)}},
		"resets 3 s apart": {http.Header{"Ratelimit-Limit": {"10"}, "Ratelimit-Reset": {"10"}, "X-Ratelimit-Limit": {"10"}, "X-Ratelimit-Reset": {"13"}},
			[]Quota{q(10, -1, 10*time.Second, 0), q(10, -1, 13*time.Second, 0)}},
		"a reset in milliseconds":  {http.Header{"X-Ratelimit-Limit": {"10"}, "X-Ratelimit-Reset-Ms": {"5000"}}, []Quota{q(10, -1, 5*time.Second, 0)}},
		"X- before other prefixes": {http.Header{"Anthropic-Ratelimit-Limit": {"20"}, "X-Ratelimit-Limit": {"10"}}, []Quota{q(10, -1, -1, 0), q(20, -1, -1, 0)}},
		"a parameter is no name":   {http.Header{"Ratelimit": {`"a";r=5;name="b"`}}, []Quota{{Name: "a", Limit: -1, Remaining: 5, Reset: -1}}},
	} {
		got := Parse(response(200, tt.header), noon).Quotas
		for i := range got {
			got[i].Source = ""
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %v:\n got %+v\nwant %+v", name, tt.header, got, tt.want)
		}
	}
}

// A reset is in milliseconds only if that agrees with Retry-After to a second.
func TestEdgesOfMilliseconds(t *testing.T) {
	for reset, want := range map[string]time.Duration{"4000": 4 * time.Second, "4001": 4001 * time.Second, "2000": 2 * time.Second, "1999": 1999 * time.Second, "999": 999 * time.Second} {
		h := Parse(response(429, http.Header{"Retry-After": {"3"}, "X-Ratelimit-Limit": {"10"}, "X-Ratelimit-Reset": {reset}}), noon)
		if len(h.Quotas) != 1 || h.Quotas[0].Reset != want {
			t.Errorf("%s: %+v, want %v", reset, h.Quotas, want)
		}
	}
}

// If one field says that the limit is global, it does not matter that another names a bucket.
func TestEdgesOfScopes(t *testing.T) {
	header := http.Header{"X-Ratelimit-Global": {"true"}, "X-Ratelimit-Scope": {"user"}, "X-Ratelimit-Bucket": {"b"}, "X-Ratelimit-Remaining": {"0"}}
	if h := Parse(response(429, header), noon); h.Scope != "" || len(h.Quotas) != 1 || h.Quotas[0].Name != "b" {
		t.Errorf("%+v", h)
	}
	delete(header, "X-Ratelimit-Global")
	if h := Parse(response(429, header), noon); h.Scope != "b" {
		t.Errorf("%+v", h)
	}
}

// A limit of the whole host is distinguished from that of a bucket, and from one that nobody knows.
func TestGlobal(t *testing.T) {
	for _, tt := range []struct {
		host   string
		status int
		lines  string
		want   bool
	}{
		{"a.test", 429, "X-RateLimit-Scope: global|Retry-After: 5", true},
		{"a.test", 429, "X-RateLimit-Global: true", true},
		{"a.test", 429, "X-RateLimit-Scope: user|X-RateLimit-Bucket: b|Retry-After: 5", false},
		{"a.test", 429, "X-RateLimit-Scope: shared|X-RateLimit-Bucket: b|Retry-After: 5", false},
		{"a.test", 429, "X-RateLimit-Global: false|Retry-After: 5", false},
		{"a.test", 429, "Retry-After: 5", false},
		{"a.test", 200, "X-RateLimit-Scope: global", false}, // served
		{"discord.com", 429, "Retry-After: 5", true},        // Cloudflare's
		{"canary.discord.com", 429, "", true},
		{"discord.com", 429, "X-RateLimit-Bucket: b|Retry-After: 5", false},
		{"discord.com", 404, "", false},
		{"gateway.test", 429, "Retry-After: 5", true},
		{"gateway.test", 429, "RateLimit-Limit: 5", false},
	} {
		resp := response(tt.status, http.Header{})
		if tt.lines != "" {
			resp = response(tt.status, headerOf(strings.Split(tt.lines, "|")...))
		}
		resp.Request = &http.Request{URL: &url.URL{Scheme: "https", Host: tt.host}}
		p := Parser{Dialects: []Dialect{{Host: "gateway.test", Global: true}}}
		if h := p.Parse(resp, noon); h.Global != tt.want || h.Global && h.Scope != "" {
			t.Errorf("%s, %d %s: %+v, want Global %v", tt.host, tt.status, tt.lines, h, tt.want)
		}
	}
}

// Buckets of one name are apart for each channel, guild and webhook of Discord's, and on other hosts by what a row says.
func TestBucketsOfMajorParameters(t *testing.T) {
	long := strings.Repeat("x", 70)
	p := Parser{Dialects: []Dialect{{Host: "proxy.test"}, {Host: "proxy.test", Majors: []string{"shops"}}, {Host: "*discord.com", Used: "X-Quota"}}}
	for _, tt := range []struct{ host, path, bucket, want string }{
		{"discord.com", "/api/v10/channels/7/messages", "b", "b 7"},
		{"canary.discordapp.com", "/channels/8", "b", "b 8"},
		{"discord.com", "/api/guilds/9/members/7", "b", "b 9"},
		{"discord.com", "/webhooks/3/secret", "b", "b 3"},
		{"discord.com", "/users/@me", "b", "b"},
		{"discord.com", "/users/@me/channels", "b", "b"},
		{"discord.com", "/users/@me/channels/", "b", "b"},
		{"discord.com", "", "b", "b"},
		{"discord.com", "/channels/7", long, long[:32] + " 7"},
		{"discord.com", "/channels/" + long, "b", "b " + long[:62]},
		{"a.test", "/channels/7/messages", "b", "b"},
		{"proxy.test", "/shops/7/channels/8", "b", "b 7"},
		{"proxy.test", "/channels/8", "b", "b"},
	} {
		resp := response(429, headerOf("X-RateLimit-Bucket: "+tt.bucket, "X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset-After: 1"))
		resp.Request = &http.Request{URL: &url.URL{Scheme: "https", Host: tt.host, Path: tt.path}}
		if h := p.Parse(resp, noon); h.Scope != tt.want || len(h.Quotas) != 1 || h.Quotas[0].Name != tt.want {
			t.Errorf("%s%s: %+v, want %q", tt.host, tt.path, h, tt.want)
		}
	}
}

// If there are too many fields, which of them are read does not depend on the order of a map.
func TestTooManyFieldsAreCutInOrder(t *testing.T) {
	var first []Quota
	for range 200 {
		header := http.Header{}
		for i := range 3 * maxFields {
			header[fmt.Sprintf("X-Ratelimit-Limit-Unit%02d", i)] = []string{fmt.Sprint(i + 1)}
		}
		got := Parse(response(200, header), noon).Quotas
		if first == nil {
			first = got
		}
		if !reflect.DeepEqual(got, first) || len(got) != maxQuotas || got[maxQuotas-1].Limit != maxQuotas {
			t.Fatalf("%+v", got)
		}
	}
	var l fields
	header := http.Header{}
	for i := range 3 * maxFields {
		header[fmt.Sprintf("X-Ratelimit-Limit-Unit%02d", i)] = []string{"1"}
	}
	l.collect(header)
	for i := range l.all {
		if want := fmt.Sprintf("X-Ratelimit-Limit-Unit%02d", i); l.n != maxFields || l.all[i].key != want {
			t.Fatalf("field %d of %d is %s, not %s", i, l.n, l.all[i].key, want)
		}
	}
}

func TestEdgesOfDialects(t *testing.T) { synctest.Test(t, lookEdgesOfDialects) }

func lookEdgesOfDialects(t *testing.T) {
	p := Parser{Dialects: []Dialect{
		{Host: "a.test", Limit: "X-Quota", Max: 5, Window: time.Hour, RetryAfter: "X-Wait", Refusal: 400},
		{Host: "body.test", Body: true},
	}}
	from := func(host string, status int, header http.Header, body string) *http.Response {
		r := response(status, header)
		r.Request = &http.Request{URL: &url.URL{Scheme: "https", Host: host}}
		r.Body = io.NopCloser(strings.NewReader(body))
		return r
	}
	// The value of a field replaces Max, but not Window. A row's own Refusal may come with a wait.
	h := p.Parse(from("a.test", 400, http.Header{"X-Quota": {"100:60"}, "X-Wait": {"7"}}, ""), noon)
	if len(h.Quotas) != 1 || h.Quotas[0].Limit != 100 || h.Quotas[0].Window != time.Hour || h.RetryAfter != 7*time.Second {
		t.Errorf("%+v", h)
	}
	if h := p.Parse(from("a.test", 404, http.Header{"X-Quota": {"100"}, "X-Wait": {"7"}}, ""), noon); h.RetryAfter != 0 {
		t.Errorf("%+v", h)
	}
	// A response that was served asks for no wait, in its body either. A header takes precedence.
	const info = `{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"3s"}]}}`
	for status, want := range map[int]time.Duration{200: 0, 400: 3 * time.Second, 429: 3 * time.Second} {
		if h := p.Parse(from("body.test", status, http.Header{"Content-Type": {"application/json"}}, info), noon); h.RetryAfter != want {
			t.Errorf("%d: %+v", status, h)
		}
	}
	if h := p.Parse(from("body.test", 429, http.Header{"Content-Type": {"application/json"}, "Retry-After": {"7"}}, info), noon); h.RetryAfter != 7*time.Second {
		t.Errorf("%+v", h)
	}
}
