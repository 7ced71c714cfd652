package hint

import (
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// brief writes a quota in short: name limit/remaining in reset per window rate of unit; ? is unknown.
func brief(q Quota) string {
	num := func(n int64) string {
		if n < 0 {
			return "?"
		}
		return fmt.Sprint(n)
	}
	s := num(q.Limit) + "/" + num(q.Remaining)
	if q.Reset >= 0 {
		s += " in " + q.Reset.String()
	}
	if q.Window > 0 {
		s += " per " + q.Window.String()
	}
	if q.Rate > 0 {
		s += fmt.Sprint(" rate ", q.Rate)
	}
	if q.Unit != "" {
		s += " of " + q.Unit
	}
	if q.Name != "" {
		s = q.Name + " " + s
	}
	return s
}

func quotasOf(h Hint) string {
	var all []string
	for _, q := range h.Quotas {
		all = append(all, brief(q))
	}
	return strings.Join(all, ", ")
}

// headerOf reads "Name: value" lines.
func headerOf(lines ...string) http.Header {
	h := http.Header{}
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ":")
		h.Add(name, strings.TrimPrefix(value, " "))
	}
	return h
}

// TestDrafts has the examples of draft-ietf-httpapi-ratelimit-headers, by draft and section. An example that
// later drafts repeat stands with the first draft that has it.
func TestDrafts(t *testing.T) {
	tests := []struct {
		where, want string
		lines       []string
	}{
		{"polli-00 3.1", "100/? per 10s", []string{"RateLimit-Limit: 100, 100; window=10"}},
		{"polli-00 3.1 policies", "10/? per 1s, 50/? per 1m0s, 1000/? per 1h0m0s, 5000/? per 24h0m0s",
			[]string{"RateLimit-Limit: 10, 10; window=1, 50; window=60, 1000; window=3600, 5000; window=86400"}},
		{"polli-00 3.1 burst", "10/? per 1s, 1000/? per 1h0m0s", []string{"RateLimit-Limit: 10, 10; window=1;burst=1000, 1000; window=3600"}},
		{"polli-00 3.3 date, passed", "?/50 in 0s", []string{"RateLimit-Remaining: 50", "RateLimit-Reset: Tue, 15 Nov 1994 08:12:31 GMT"}},
		{"01 3.1", "100/?", []string{"RateLimit-Limit: 100"}},
		{"01 3.1 window", "100/? per 10s", []string{"RateLimit-Limit: 100, 100;w=10"}},
		{"01 3.2 and 3.3", "?/50 in 50s", []string{"RateLimit-Remaining: 50", "RateLimit-Reset: 50"}},
		{"01 4", "10/1 in 7s", []string{"RateLimit-Limit: 10", "RateLimit-Remaining: 1", "RateLimit-Reset: 7"}},
		{"01 8.1.1", "100/0 in 50s", []string{"RateLimit-Limit: 100", "Ratelimit-Remaining: 0", "Ratelimit-Reset: 50"}},
		{"01 8.1.1 served", "100/0 in 48s", []string{"RateLimit-Limit: 100", "Ratelimit-Remaining: 0", "Ratelimit-Reset: 48"}},
		{"01 8.1.2 custom fields", "5000/100 in 10h0m0s", []string{"acme-RateLimit-DayLimit: 5000", "acme-RateLimit-HourLimit: 1000",
			"RateLimit-Limit: 5000", "RateLimit-Remaining: 100", "RateLimit-Reset: 36000"}},
		{"01 8.1.3", "100/60 in 58s", []string{"RateLimit-Limit: 100", "RateLimit-Remaining: 60", "RateLimit-Reset: 58"}},
		{"01 8.1.3 lowered", "100/20 in 56s", []string{"RateLimit-Limit: 100", "RateLimit-Remaining: 20", "RateLimit-Reset: 56"}},
		{"01 8.2.1", "100/99 in 50s per 1m0s", []string{"RateLimit-Limit: 100, 100;w=60", "Ratelimit-Remaining: 99", "Ratelimit-Reset: 50"}},
		{"01 8.2.2", "10/9 in 50s, 100/? per 1m0s", []string{"RateLimit-Limit: 10, 100;w=60", "Ratelimit-Remaining: 9", "Ratelimit-Reset: 50"}},
		{"01 8.3.1", "10/? in 1s", []string{"RateLimit-Limit: 10", "Ratelimit-Reset: 1"}},
		{"01 9.5 a reset of nothing", "", []string{"Date: Tue, 15 Nov 1994 08:00:00 GMT", "RateLimit-Reset: 36000"}},
		{"01 9.5", "10000/10000 in 10s per 16m40s", []string{"RateLimit-Limit: 10000, 10000;w=1000", "RateLimit-Remaining: 10000", "RateLimit-Reset: 10"}},
		{"01 B 9", "100/50 in 1m0s", []string{"RateLimit-Limit: 100", "RateLimit-Remaining: 50", "RateLimit-Reset: 60"}},
		{"01 B 9 comments", "100/? per 1m0s, 5000/? per 1h0m0s",
			[]string{`RateLimit-Limit: 100, 100;w=60;burst=1000;comment="sliding window", 5000;w=3600;burst=0;comment="fixed window"`}},
		{"01 on the web, 50 %", "12/6 in 1s per 1s", []string{"RateLimit-Limit: 12, 12;w=1", "RateLimit-Remaining: 6", "RateLimit-Reset: 1"}},
		{"01 on the web, 100 %", "12/1 in 1s per 1s", []string{"RateLimit-Limit: 12, 12;w=1", "RateLimit-Remaining: 1", "RateLimit-Reset: 1"}},

		{"03 1.2", "100/50 in 50s", []string{"RateLimit-Limit: 100", "RateLimit-Remaining: 50", "RateLimit-Reset: 50"}},
		{"03 3.1 one policy", "100/? per 10s", []string{"RateLimit-Limit: 100;w=10"}},
		{"03 3.1 policies", "10/? per 1s, 50/? per 1m0s, 1000/? per 1h0m0s, 5000/? per 24h0m0s",
			[]string{"RateLimit-Limit: 10, 10;w=1, 50;w=60, 1000;w=3600, 5000;w=86400"}},
		{"03 3.1 burst", "10/? per 1s, 1000/? per 1h0m0s",
			[]string{`RateLimit-Limit: 10, 10;w=1;burst=1000, 1000;w=3600`}},
		{"03 2.1 comment", "100/? per 1m0s, 12/? per 1s",
			[]string{`RateLimit-Limit: 100, 100;w=60;comment="fixed window", 12;w=1;burst=1000;policy="leaky bucket"`}},
		{"03 B no policies", "100/99 in 50s", []string{"RateLimit-Limit: 100", "Ratelimit-Remaining: 99", "Ratelimit-Reset: 50"}},
		{"03 B limit 0", "0/0 in 20s", []string{"RateLimit-Limit: 0", "Ratelimit-Remaining: 0", "Ratelimit-Reset: 20"}},
		{"03 B missing remaining", "10/? in 1s per 1s", []string{"RateLimit-Limit: 10, 10;w=1", "RateLimit-Reset: 1"}},
		{"03 B two windows", "5000/100 in 10h0m0s per 24h0m0s, 1000/? per 1h0m0s",
			[]string{"RateLimit-Limit: 5000, 1000;w=3600, 5000;w=86400", "RateLimit-Remaining: 100", "RateLimit-Reset: 36000"}},

		{"06 3.2", "100/? per 10s", []string{"RateLimit-Policy: 100;w=10", "RateLimit-Limit: 100"}},
		{"06 3.2 policies", "10/? per 1s, 50/? per 1m0s, 1000/? per 1h0m0s, 5000/? per 24h0m0s",
			[]string{"RateLimit-Policy: 10;w=1, 50;w=60, 1000;w=3600, 5000;w=86400"}},
		{"06 B concurrency", "100/60 in 58s per 1m0s",
			[]string{"RateLimit-Limit: 100", "RateLimit-Policy: 100;w=60", "Ratelimit-Remaining: 60", "Ratelimit-Reset: 58"}},
		{"06 B lowered", "20/20 in 56s, 100/? per 1m0s",
			[]string{"RateLimit-Limit: 20", "RateLimit-Policy: 100;w=60", "Ratelimit-Remaining: 20", "Ratelimit-Reset: 56"}},
		{"06 B pushed back", "0/0 in 20s, 15/? per 20s",
			[]string{"RateLimit-Limit: 0", "RateLimit-Policy: 15;w=20", "Ratelimit-Remaining: 0", "Ratelimit-Reset: 20"}},
		{"06 B slow down", "15/15 in 40s, 100/? per 1m0s",
			[]string{"RateLimit-Limit: 15", "RateLimit-Policy: 100;w=60", "Ratelimit-Remaining: 15", "Ratelimit-Reset: 40"}},
		{"06 B two windows", "5000/100 in 10h0m0s per 24h0m0s, 1000/? per 1h0m0s",
			[]string{"RateLimit-Limit: 5000", "RateLimit-Policy: 1000;w=3600, 5000;w=86400", "RateLimit-Remaining: 100", "RateLimit-Reset: 36000"}},

		{"07 3.5", "100/50 in 5s per 10s", []string{"RateLimit-Policy: 100;w=10", "RateLimit: limit=100, remaining=50, reset=5"}},
		{"07 3.5 burst", "10/? per 1s, 1000/? per 1h0m0s", []string{"RateLimit-Policy: 10;w=1;burst=1000, 1000;w=3600"}},
		{"07 3.5 invalid", "10/? per 1s, 10/? per 1m0s", []string{"RateLimit-Policy: 10;w=1, 10;w=60"}}, // invalid, but readable
		{"07 4", "10/0 in 10s", []string{"RateLimit: limit=10, remaining=0, reset=10"}},
		{"07 5", "10/1 in 7s", []string{"RateLimit: limit=10, remaining=1, reset=7"}},
		{"07 6.5", "10000/10000 in 10s per 16m40s", []string{"RateLimit: limit=10000, remaining=10000, reset=10", "RateLimit-Policy: 10000;w=1000"}},
		{"07 B pushed back", "0/0 in 20s, 15/? per 20s", []string{"RateLimit: limit=0, remaining=0, reset=20", "RateLimit-Policy: 15;w=20"}},
		{"07 B no remaining", "10/? in 1s per 1s", []string{"RateLimit: limit=10, reset=1", "RateLimit-Policy: 10;w=1"}},

		{"08 3", "burst 100/? per 1m0s of requests, daily 1000/? per 24h0m0s of requests",
			[]string{`RateLimit-Policy: "burst";q=100;w=60,"daily";q=1000;w=86400`}},
		{"08 3.2", "default 100/? per 10s of requests", []string{`RateLimit-Policy: "default";q=100;w=10`}},
		{"08 3.2 several", "permin 50/? per 1m0s of requests, perhr 1000/? per 1h0m0s of requests",
			[]string{`RateLimit-Policy: "permin";q=50;w=60,"perhr";q=1000;w=3600`}},
		{"08 3.2 key", "peruser 100/? per 1m0s of requests", []string{`RateLimit-Policy: "peruser";q=100;w=60;pk=:cHsdsRa894==:`}},
		{"08 3.2 key and unit", "peruser 65535/? per 10s of bytes",
			[]string{`RateLimit-Policy: "peruser";q=65535;qu="bytes";w=10;pk=:sdfjLJUOUH==:`}},
		{"11 3.2 key and unit", "peruser 65535/? per 10s of content-bytes",
			[]string{`RateLimit-Policy: "peruser";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:`}},
		{"08 4", "default ?/50 in 30s", []string{`RateLimit: "default";r=50;t=30`}},
		{"08 4.2 key", "default ?/50 in 30s", []string{`RateLimit: "default";r=50;t=30;pk=:cHsdsRa894==:`}},
		{"08 B.1.1", "default ?/0 in 50s", []string{`RateLimit: "default";r=0;t=50`}},
		{"08 B.1.2", "dayLimit ?/100 in 10h0m0s", []string{`RateLimit: "dayLimit";r=100;t=36000`}},
		{"08 B.1.3", "basic 100/60 in 58s per 1m0s of requests", []string{`RateLimit-Policy: "basic";q=100;w=60`, `RateLimit: "basic";r=60;t=58`}},
		{"08 B.1.3 lowered", "basic 100/20 in 56s per 1m0s of requests", []string{`RateLimit-Policy: "basic";q=100;w=60`, `RateLimit: "basic";r=20;t=56`}},
		{"08 B.2.1", "fixedwindow 100/99 in 50s per 1m0s of requests", []string{`RateLimit: "fixedwindow";r=99;t=50`, `RateLimit-Policy: "fixedwindow";q=100;w=60`}},
		{"08 B.2.2", "dynamic 100/9 in 50s per 1m0s of requests", []string{`RateLimit-Policy: "dynamic";q=100;w=60`, `RateLimit: "dynamic";r=9;t=50`}},
		{"08 FAQ 9 simplest, no space", "default ?/50 in 1m0s", []string{`RateLimit:default;r=50;t=60`}},
		{"08 FAQ 9 comments", "sliding 100/50 in 44s per 1m0s of requests, fixed 5000/? per 1h0m0s of requests",
			[]string{`RateLimit-Policy: "sliding";q=100;w=60;burst=1000;comment="sliding window", "fixed";q=5000;w=3600;burst=0;comment="fixed window"`, `RateLimit: "sliding";r=50;t=44`}},
		{"06 D sliding window", "12/6 in 1s per 1s", []string{"RateLimit-Limit: 12", "RateLimit-Policy: 12;w=1", "RateLimit-Remaining: 6", "RateLimit-Reset: 1"}},
		{"08 B.2.3", "dynamic 15/0 in 20s per 20s of requests", []string{`RateLimit-Policy: "dynamic";q=15;w=20`, `RateLimit: "dynamic";r=0;t=20`}},
		{"08 B.3.1 tokens, no r", "quota 100/? in 1s per 1s of requests", []string{`RateLimit-Policy: quota;q=100;w=1`, `RateLimit: quota;t=1`}},
		{"08 B.3.1 no w", "quota 10/? in 1s of requests", []string{`RateLimit-Policy: quota;q=10`, `RateLimit: quota;t=1`}},
		{"08 B.3.2", "day 5000/100 in 10h0m0s per 24h0m0s of requests, hour 1000/? per 1h0m0s of requests",
			[]string{`RateLimit-Policy: "hour";q=1000;w=3600, "day";q=5000;w=86400`, `RateLimit: "day";r=100;t=36000`}},
		{"09 4.2 no end", "default ?/999", []string{`RateLimit: "default";r=999;pk=:dHJpYWwxMjEzMjM=:`}},
		{"09 4.2 bytes", "default ?/300000000 in 1m0s", []string{`RateLimit: "default";r=300000000;t=60;pk=:QXBwLTk5OQ==:`}},
		{"09 7", "default ?/1 in 7s", []string{`RateLimit: "default";r=1;t=7`}},
		{"09 8.5", "daily ?/1 in 10h6m40s", []string{"Date: Tue, 15 Nov 1994 18:00:00 GMT", `RateLimit: "daily";r=1;t=36400`}},
		{"09 8.5 policy", "somepolicy 10000/10000 in 10s per 16m40s of requests",
			[]string{`RateLimit-Policy: "somepolicy";q=10000;w=1000`, `RateLimit: "somepolicy";r=10000;t=10`}},
		{"09 B.1.1 served", "default ?/0 in 48s", []string{`RateLimit: "default";r=0;t=48`}},
		{"10 FAQ 8 simplest, no space", "default ?/50 in 1m0s", []string{`RateLimit:"default";r=50;t=60`}},
		{"10 FAQ 8 split", "sliding 100/50 in 44s per 1m0s of requests, fixed 5000/? per 1h0m0s of requests",
			[]string{`RateLimit-Policy: "sliding";q=100;w=60;burst=1000`, `RateLimit-Policy: "fixed";q=5000;w=3600;burst=0`, `RateLimit: "sliding";r=50;t=44`}},
		{"11 3 split", "burst 100/? per 1m0s of requests, daily 1000/? per 24h0m0s of requests",
			[]string{`RateLimit-Policy: "burst";q=100;w=60`, `RateLimit-Policy: "daily";q=1000;w=86400`}},
	}
	for _, tt := range tests {
		if got := quotasOf(Parse(response(200, headerOf(tt.lines...)), noon)); got != tt.want {
			t.Errorf("draft %s: %q\n got %s\nwant %s", tt.where, tt.lines, got, tt.want)
		}
	}
}

// TestMalformed has structured fields. Of a malformed one nothing is read, not even what stands before the
// error.
func TestMalformed(t *testing.T) {
	for value, want := range map[string]string{
		`"a";r=1;t=2`:                       "a ?/1 in 2s",
		`"a"; r=1;  t=2`:                    "a ?/1 in 2s",
		`"a";r=1;r=5;t=2`:                   "a ?/5 in 2s", // the last one wins
		`"a";r=1 , "b";r=2`:                 "a ?/1, b ?/2",
		`"a,b;c=\"d\\";r=1`:                 `a,b;c="d\ ?/1`,
		`"";r=1`:                            "?/1",
		`*a/b:c;r=1`:                        "*a/b:c ?/1",
		`"a";r=1;x;y=?1;z=:AA==:;u="v";w=t`: "",
		`"a";r=1;x;y=?1;z=:AA==:;u="v"`:     "a ?/1",
		`"a";r=999999999999999`:             "a ?/999999999999999",
		`"a";r=1;t=999999999999999`:         "a ?/1 in 2562047h47m16.854775807s",
		`limit=1;x=2, remaining=0, reset=1`: "1/0 in 1s",
		`limit=1, other=5`:                  "1/?",

		`"a";r=1000000000000000`: "", // 16 digits
		`"a";r=1,`:               "",
		`,"a";r=1`:               "",
		`"a";r=1,,"b";r=1`:       "",
		`"a";r=1 "b";r=1`:        "",
		`"a;r=1`:                 "",
		`"a";R=1`:                "",
		`"a";r=-1`:               "",
		`"a";r=1.5`:              "",
		`"a";r="1"`:              "",
		`"a";r`:                  "",
		`"a";r=`:                 "",
		`"a";`:                   "",
		`"ä";r=1`:                "",
		"\"a\tb\";r=1":           "",
		`"a\n";r=1`:              "",
		`"a\`:                    "",
		`'a';r=1`:                "",
		`("a");r=1`:              "",
		`a;r=1;pk=:AA`:           "",
		`a;r=1;x=?2`:             "",
		`a;r=1;x=@1`:             "",
		`limit=`:                 "",
		`limit="1"`:              "",
		`Limit=1`:                "",
		`limit=1,`:               "",
		`limit=-1`:               "",
		``:                       "",
		` `:                      "",
	} {
		h := http.Header{"Ratelimit": {value}}
		if got := quotasOf(Parse(response(200, h), noon)); got != want {
			t.Errorf("RateLimit: %s\n got %q\nwant %q", value, got, want)
		}
		h = http.Header{"Ratelimit": {`"z";r=1`, value}}
		if got := quotasOf(Parse(response(200, h), noon)); want == "" && trim(value) != "" && got != "" {
			t.Errorf("RateLimit: %s in its second line: got %q", value, got)
		}
	}
}

// TestDraftsThrottled has the drafts' examples of throttled requests. Retry-After takes precedence.
func TestDraftsThrottled(t *testing.T) {
	for _, tt := range []struct {
		where string
		wait  time.Duration
		want  string
		lines []string
	}{
		{"draft 03 B and 07 B, the same moment", 5 * time.Second, "100/0 in 5s", []string{"Date: Mon, 05 Aug 2019 09:27:00 GMT", "Retry-After: Mon, 05 Aug 2019 09:27:05 GMT",
			"RateLimit-Reset: 5", "RateLimit-Limit: 100", "Ratelimit-Remaining: 0"}},
		{"draft 01 8.2.3", 0, "0/0 in 20s, 15/? per 20s", []string{"RateLimit-Limit: 0, 15;w=20", "Ratelimit-Remaining: 0", "Ratelimit-Reset: 20"}},
		{"draft 01 8.3", 20 * time.Second, "15/15 in 40s, 100/? per 1m0s", []string{"Retry-After: 20", "RateLimit-Limit: 15, 100;w=60", "Ratelimit-Remaining: 15", "Ratelimit-Reset: 40"}},
		{"draft 09 5.1", 0, "", []string{"Content-Type: application/problem+json"}},
		{"draft 08 B.1.4", 5 * time.Second, "default ?/0 in 5s", []string{"Date: Mon, 05 Aug 2019 09:27:00 GMT", "Retry-After: Mon, 05 Aug 2019 09:27:05 GMT", `RateLimit: "default";r=0;t=5`}},
		{"draft 08 B.2.3", 0, "dynamic 15/0 in 20s per 20s of requests", []string{`RateLimit-Policy: "dynamic";q=15;w=20`, `RateLimit: "dynamic";r=0;t=20`}},
		{"draft 08 B.3", 20 * time.Second, "dynamic 100/15 in 40s per 1m0s of requests", []string{"Retry-After: 20", `RateLimit-Policy: "dynamic";q=100;w=60`, `RateLimit: "dynamic";r=15;t=40`}},
		{"RFC 6585 4", time.Hour, "", []string{"Retry-After: 3600"}},
		{"RFC 9110 10.2.3", 2 * time.Minute, "", []string{"Retry-After: 120"}},
		{"RFC 9110 10.2.3, passed", 0, "", []string{"Retry-After: Fri, 31 Dec 1999 23:59:59 GMT"}},
	} {
		now := noon
		if strings.HasPrefix(tt.lines[0], "Date: ") {
			now = time.Date(2019, 8, 5, 9, 27, 0, 0, time.UTC)
		}
		h := Parse(response(429, headerOf(tt.lines...)), now)
		if got := quotasOf(h); got != tt.want || !h.Throttled || h.RetryAfter < tt.wait || h.RetryAfter > tt.wait+resolution {
			t.Errorf("%s: %v, wait %v, %s; want wait %v to a second more, %s", tt.where, h.Throttled, h.RetryAfter, got, tt.wait, tt.want)
		}
	}
}

// TestFamilies has fields outside the drafts.
func TestFamilies(t *testing.T) {
	const at = "Date: Sat, 10 Jan 2026 12:00:00 GMT"
	tests := []struct {
		lines string // separated by |
		want  string
	}{
		{"X-RateLimit-Limit: 100|X-RateLimit-Remaining: 7|X-RateLimit-Reset: 30", "100/7 in 30s"},
		{"X-RateLimit-Limit: 100|X-RateLimit-Remaining: -7", "100/0"},
		{"X-RateLimit-Limit: 18446744073709551616|X-RateLimit-Remaining: 7", "?/7"},
		{"X-RateLimit-Limit: 0|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 0", "0/0 in 0s"},
		{"X-RateLimit-Limit: 0.5|X-RateLimit-Remaining: 7", "?/7"},
		{"X-RateLimit-Limit: 10.5", "10/?"},
		{"X-RateLimit-Limit: 0.5|X-RateLimit-Remaining: 0.5", "?/0"},
		{"X-RateLimit-Limit: 10, -1;w=5, 0.5;w=60", "10/?"},
		{"X-RateLimit-Limit: 100:60, 1000:3600|X-RateLimit-Remaining: 5", "100/5 per 1m0s, 1000/? per 1h0m0s"},
		{"X-RateLimit-Limit: 1e3|X-RateLimit-Remaining: 0x10", ""},
		{"X-RateLimit-Limit: NaN|X-RateLimit-Remaining: +5|X-RateLimit-Used: 1_0", ""},
		{"X-RateLimit-Limit: 10, 10;window=60", "10/? per 1m0s"},
		{"X-RateLimit-Limit: 10;w=0", "10/?"},
		{"X-RateLimit-Used: 3|X-RateLimit-Limit: 10", "10/7"},
		{"X-RateLimit-Used: 30|X-RateLimit-Limit: 10", "10/0"},
		{"X-RateLimit-Used: 9223372036854775807|X-RateLimit-Remaining: 10", "?/10"},
		{"X-RateLimit-Reset: 10", ""},
		{"RateLimit-Limit: 10|RateLimit-Remaining: 5|RateLimit-Reset: 10|RateLimit: limit=10, remaining=4, reset=9", "10/5 in 9s"},
		{"X-RateLimit-Remaining: 5|X-RateLimit-Reset: 1768046400|X-RateLimit-Reset-After: 0.25", "?/5 in 250ms"},
		{"X-RateLimit-Limit-Tokens-Minute: 500|X-RateLimit-Remaining-Tokens-Minute: 400|X-RateLimit-Limit-Tokens-Day: 9000",
			"500/400 per 1m0s of tokens, 9000/? per 24h0m0s of tokens"},
		{"X-RateLimit-Limit-Foo: 5|X-RateLimit-Remaining-FOO: 4", "5/4 of foo"},
		{"Acme-Api-Rate-Limit-PerHour-Limit: 5", "5/? per 1h0m0s"},
		{"Ratelimits-Limit: 5|Xratelimit-Limit: 5|X-Ratelimit-Limits: 5|X-Limit: 5", ""},
		{"X-RateLimit-Limit-Hour: 5|X-RateLimit-Period: 60", "5/? per 1h0m0s"}, // of another family
		{"X-RateLimit-Limit: 5;w=10|X-RateLimit-Period: 60", "5/? per 10s"},
		{"X-RateLimit-Limit: 5|X-RateLimit-Window: -1", "5/?"},

		// Vendors without a row, as they are documented.
		{"X-RateLimit-Limit: 12000|X-RateLimit-Period: 60|X-RateLimit-Remaining: 9|X-RateLimit-Reset: 28|X-RateLimit-Name: usage", "usage 12000/9 in 28s per 1m0s"}, // Datadog
		{"X-Rate-Limit-Limit: 600|X-Rate-Limit-Interval: 60|X-Rate-Limit-Reset: 1768046430", "600/? in 30s per 1m0s"},                                               // Mapbox
		{"X-Rate-Limit-Limit: 50|X-Rate-Limit-Interval: 1s|X-Concurrency-Limit: 1", "50/? per 1s"},                                                                  // Crossref
		{"X-Rate-Limit-Group: heavy|X-Rate-Limit-Limit: 10|X-Rate-Limit-Remaining: 9|X-Rate-Limit-Window: 60", "heavy 10/9 per 1m0s"},                               // RingCentral
		{"X-RateLimit-Requests-Limit: 240000|X-RateLimit-Requests-Remaining: 205676|X-RateLimit-Requests-Reset: 2163603", "240000/205676 in 601h0m3s of requests"},  // RapidAPI
		{"x-ratelimit-limit-req-minute: 60|x-ratelimit-remaining-req-minute: 59|x-ratelimit-limit-tokens-month: 4000000|x-ratelimit-remaining-tokens-month: 3950246|x-ratelimit-tokens-query-cost: 2804",
			"60/59 per 1m0s of requests, 4000000/3950246 per 720h0m0s of tokens"}, // Mistral
		{"X-Contentful-RateLimit-Hour-Limit: 36000|X-Contentful-RateLimit-Hour-Remaining: 35999|X-Contentful-RateLimit-Reset: 0|X-Contentful-RateLimit-Second-Limit: 10|X-Contentful-RateLimit-Second-Remaining: 9",
			"10/9 per 1s, 36000/35999 per 1h0m0s"}, // Contentful
		{"X-Ratelimit-Perhour-Limit: 1000|X-Ratelimit-Perhour-Remaining: 999|X-Ratelimit-Perhour-Reset: 3000", "1000/999 in 50m0s per 1h0m0s"},                           // Tumblr
		{"x-sentry-rate-limit-limit: 40|x-sentry-rate-limit-remaining: 39|x-sentry-rate-limit-reset: 1768046401|x-sentry-rate-limit-concurrentlimit: 25", "40/39 in 1s"}, // Sentry
		{"fitbit-rate-limit-limit: 150|fitbit-rate-limit-remaining: 148|fitbit-rate-limit-reset: 2216", "150/148 in 36m56s"},                                             // Fitbit
		{"Fastly-RateLimit-Remaining: 999|Fastly-RateLimit-Reset: 1768046460", "?/999 in 1m0s"},                                                                          // Fastly
		{"X-RateLimit-Limit-Weekly: 600|X-RateLimit-Remaining-Weekly: 358|X-RateLimit-Monthly-Limit: 9000", "600/358 per 168h0m0s, 9000/? per 720h0m0s"},
		{"X-RateLimit-Category: Heavy|X-RateLimit-Type: Daily-limit|X-RateLimit-Limit: 30000|X-RateLimit-Remaining: 0", "Heavy 30000/0"}, // Zoom
		{"x-sib-ratelimit-limit: 1000|x-sib-ratelimit-remaining: 999|x-sib-ratelimit-reset: 3", "1000/999 in 3s"},                        // Brevo
		{`RateLimit: "api";r=489;t=189|RateLimit-Policy: "fixed window";"api";q=500;w=300`, "api ?/489 in 3m9s"},                         // Hugging Face
		{"X-Rate-Limit-Limit: 15m|X-Rate-Limit-Remaining: 9|X-Rate-Limit-Reset: 2026-01-10T12:01:00.1234567Z", "?/9 in 1m0.1234567s"},    // AspNetCoreRateLimit

		// The same quota described several times, and other quotas.
		{"RateLimit-Limit: 5|RateLimit-Remaining: 4|RateLimit-Reset: 47|X-RateLimit-Limit-Minute: 5|X-RateLimit-Remaining-Minute: 4", "5/4 in 47s per 1m0s"},
		{"RateLimit-Limit: 5|RateLimit-Remaining: 4|X-RateLimit-Limit: 5|X-RateLimit-Remaining: 3", "5/4, 5/3"},
		{"RateLimit-Limit: 5|RateLimit-Remaining: 4|RateLimit-Reset: 10|X-RateLimit-Limit: 5|X-RateLimit-Remaining: 4|X-RateLimit-Reset: 13", "5/4 in 10s, 5/4 in 13s"},
		{`RateLimit: "a";r=5;t=9|X-RateLimit-Limit: 50|X-RateLimit-Remaining: 5|X-RateLimit-Reset: 10`, "a 50/5 in 9s"},
		{`RateLimit: "a";r=5|X-RateLimit-Limit: 50|X-RateLimit-Remaining: 5`, "a ?/5, 50/5"},

		// The end of the window, in all its forms.
		{at + "|X-RateLimit-Remaining: 5|X-RateLimit-Reset: 1768046410", "?/5 in 10s"},
		{at + "|X-RateLimit-Remaining: 5|X-RateLimit-Reset: 1768046410.25", "?/5 in 10.25s"},
		{at + "|X-RateLimit-Remaining: 5|X-RateLimit-Reset: 1768046410250", "?/5 in 10.25s"},
		{at + "|X-RateLimit-Remaining: 5|X-RateLimit-Reset: 999999999", "?/5 in 277777h46m39s"},
		{at + "|X-RateLimit-Remaining: 5|X-RateLimit-Reset: 100000000000000", "?/5"},
		{at + "|X-RateLimit-Remaining: 5|X-RateLimit-Reset: 99999999999", "?/5"},
		{at + "|X-RateLimit-Remaining: 5|X-RateLimit-Reset: 1m30s", "?/5 in 1m30s"},
		{at + "|X-RateLimit-Remaining: 5|X-RateLimit-Reset: 12ms", "?/5 in 12ms"},
		{at + "|X-RateLimit-Remaining: 5|X-RateLimit-Reset: -12ms", "?/5"},
		{at + "|X-RateLimit-Remaining: 5|X-RateLimit-Reset: 9223372037s", "?/5"},
		{at + "|X-RateLimit-Remaining: 5|X-RateLimit-Reset: -1", "?/5"},
		{at + "|X-RateLimit-Remaining: 5|X-RateLimit-Reset: 1,60", "?/5 in 1s"},
		{at + "|X-RateLimit-Remaining: 5|X-RateLimit-Reset: 2026-01-10T12:01:00Z", "?/5 in 1m0s"},
		{at + "|X-RateLimit-Remaining: 5|X-RateLimit-Reset: 2026-01-10T14:01:00+02:00", "?/5 in 1m0s"},
		{at + "|X-RateLimit-Remaining: 5|X-RateLimit-Reset: 2026-01-10T12:01Z", "?/5 in 1m0s"},
		{at + "|X-RateLimit-Remaining: 5|X-RateLimit-Reset: Sat, 10 Jan 2026 12:01:00 UTC", "?/5 in 1m1s"},
		{at + "|X-RateLimit-Remaining: 5|X-RateLimit-Reset-Time: Sat, 10 Jan 2026 12:01:00 GMT", "?/5 in 1m1s"},
		{"Date: Sat, 10 Jan 2026 13:00:00 GMT|X-RateLimit-Remaining: 5|X-RateLimit-Reset: 1768050010", "?/5 in 10s"}, // an hour ahead
	}
	for _, tt := range tests {
		if got := quotasOf(Parse(response(200, headerOf(strings.Split(tt.lines, "|")...)), noon)); got != tt.want {
			t.Errorf("%s\n got %s\nwant %s", tt.lines, got, tt.want)
		}
	}
}

// If Date is the second in which now lies, now is the finer clock.
func TestSameSecond(t *testing.T) {
	h := headerOf("Date: Sat, 10 Jan 2026 12:00:00 GMT", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1768046401")
	for after, want := range map[time.Duration]time.Duration{
		0:                       time.Second,
		400 * time.Millisecond:  600 * time.Millisecond,
		1000 * time.Millisecond: time.Second, // from here on the clocks differ, so Date counts
		-1 * time.Millisecond:   time.Second,
	} {
		if got := Parse(response(200, h), noon.Add(after)).Quotas[0].Reset; got != want {
			t.Errorf("%v after Date: got %v, want %v", after, got, want)
		}
	}
}

// A span is read in milliseconds only if a Retry-After confirms it.
func TestCalibrated(t *testing.T) {
	tests := []struct {
		reset, after string
		want         time.Duration
	}{
		{"1500", "2", 1500 * time.Millisecond},
		{"30000", "30", 30 * time.Second},
		{"30000", "60", 30000 * time.Second},
		{"30000", "", 30000 * time.Second},
		{"30", "30", 30 * time.Second},
		{"50", "1", 50 * time.Second}, // when full again, and when the next unit is there
		{"900", "1", 900 * time.Second},
	}
	for _, tt := range tests {
		h := headerOf("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: "+tt.reset, "Retry-After: "+tt.after)
		if got := Parse(response(429, h), noon).Quotas[0].Reset; got != tt.want {
			t.Errorf("reset %s, Retry-After %s: got %v, want %v", tt.reset, tt.after, got, tt.want)
		}
	}
}

func TestWaits(t *testing.T) {
	tests := []struct {
		lines string
		want  time.Duration
	}{
		{"Retry-After-Ms: 1250|Retry-After: 2", 1250 * time.Millisecond},
		{"Retry-After-Ms: 1250.5|X-Ms-Retry-After-Ms: 7", 1250500 * time.Microsecond},
		{"Retry-After-Ms: soon|X-Ms-Retry-After-Ms: 750|Retry-After: 2", 750 * time.Millisecond},
		{"Retry-After-Ms: -5|X-Amz-Retry-After: 40|Retry-After: 2", 40 * time.Millisecond},
		{"X-Ms-Retry-After-Ms: NaN|X-Amz-Retry-After: |Retry-After: 2", 2 * time.Second},
		{"Retry-After-Ms: Sat, 10 Jan 2026 12:01:00 GMT|Retry-After: 2", time.Minute},
		{"Retry-After-Ms: 5|Retry-After-Ms: 9", 9 * time.Millisecond},
		{"Retry-After-Ms: 99999999999999999999", longest},
	}
	for _, tt := range tests {
		if got := Parse(response(429, headerOf(strings.Split(tt.lines, "|")...)), noon).RetryAfter; got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.lines, got, tt.want)
		}
	}
}

// gregjones/httpcache marks the responses that come from its cache.
func TestMarkedByACache(t *testing.T) {
	for mark, want := range map[string]int{"1": 0, "true": 0, "HIT": 0, "": 1, "0": 1, "false": 1, "False": 1, "Miss": 1} {
		h := headerOf("Retry-After: 7", "RateLimit: \"a\";r=0", "X-From-Cache: "+mark)
		got := Parse(response(429, h), noon)
		if len(got.Quotas) != want || got.RetryAfter != 7*time.Second || !got.Throttled {
			t.Errorf("X-From-Cache %q: got %+v, want %d quotas", mark, got, want)
		}
	}
}

// Retry-After counts on a cached response, quotas do not.
func TestCached(t *testing.T) {
	for age, want := range map[string]int{"": 1, "0": 1, "000": 1, "1": 0, " 60": 0, "99999999999999999999": 0, "-1": 1, "x": 1} {
		h := headerOf("Retry-After: 7", "RateLimit: \"a\";r=0", "Age: "+age)
		got := Parse(response(429, h), noon)
		if len(got.Quotas) != want || !got.Throttled || got.RetryAfter != 7*time.Second {
			t.Errorf("Age %q: got %+v, want %d quotas", age, got, want)
		}
	}
}

// If a throttled response gives the end of a window, but neither a wait nor what remains, the wait ends there.
func TestResetAloneIsAWait(t *testing.T) {
	tests := []struct {
		status      int
		host, lines string
		want        time.Duration
	}{
		{429, "", "X-RateLimit-Reset: 30", 30 * time.Second},
		{429, "", "X-RateLimit-Reset: 1768046430", 30 * time.Second},
		{429, "", "X-RateLimit-Reset: 1768046430000", 30 * time.Second},
		{429, "", "X-RateLimit-Reset: 2026-01-10T12:00:30Z", 30 * time.Second},
		{429, "", "X-RateLimit-Reset: Sat, 10 Jan 2026 12:00:30 GMT", 30 * time.Second},
		{429, "", "X-Rate-Limit-Reset: 30", 30 * time.Second},
		{429, "", "RateLimit-Reset: 30", 30 * time.Second},
		{429, "", "RateLimit: reset=30", 30 * time.Second},
		{429, "", "X-RateLimit-Reset-After: 0.5", 500 * time.Millisecond},
		{429, "", "X-RateLimit-Reset: 1768046499|X-RateLimit-Reset-After: 1.5", 1500 * time.Millisecond},
		{429, "", "X-RateLimit-Reset-Requests: 6m0s", 6 * time.Minute},
		{418, "", "X-RateLimit-Reset: 30", 30 * time.Second},
		{529, "", "X-RateLimit-Reset: 30", 30 * time.Second},

		// contentful.com/developers/docs/references/content-management-api, API rate limits
		{429, "cdn.contentful.com", "X-Contentful-RateLimit-Reset: 1", time.Second},
		{429, "cdn.contentful.com", "X-Contentful-RateLimit-Second-Limit: 55|X-Contentful-RateLimit-Reset: 1", time.Second},
		{429, "api.contentful.com", "X-Contentful-RateLimit-Hour-Limit: 36000|X-Contentful-RateLimit-Hour-Remaining: 35000|" +
			"X-Contentful-RateLimit-Second-Limit: 7|X-Contentful-RateLimit-Second-Remaining: 0|X-Contentful-RateLimit-Reset: 2", 2 * time.Second},

		// the size of the limit does not say when to try again
		{429, "", "X-RateLimit-Limit: 100|X-RateLimit-Reset: 30", 30 * time.Second},
		{429, "", "X-RateLimit-Limit-Minute: 100|X-RateLimit-Reset-Minute: 30", 30 * time.Second},
		{429, "", "RateLimit-Limit: 100, 100;w=60|RateLimit-Reset: 30", 30 * time.Second},
		{429, "", "RateLimit: \"a\";t=30", 30 * time.Second},
		{429, "", "RateLimit: \"a\";t=30, \"b\";t=40|RateLimit-Policy: \"a\";q=100;w=60, \"b\";q=500;w=3600", 30 * time.Second},

		// by the rows of the table, in their units
		{429, "api.kucoin.com", "gw-ratelimit-reset: 1489", 1489 * time.Millisecond},
		{429, "api.bigcommerce.com", "X-Rate-Limit-Time-Reset-Ms: 2500", 2500 * time.Millisecond},
		{429, "api.imgur.com", "X-RateLimit-UserReset: 1768046430", 30 * time.Second},

		// Date and now show the same second, but may lie apart in it: never early
		{429, "", "X-RateLimit-Reset: 1768046402|Date: Sat, 10 Jan 2026 11:59:59 GMT", 3 * time.Second},
		{429, "", "X-RateLimit-Reset: 1768046400", time.Second},

		// which of the limits was exceeded is unknown, so the first end counts
		{429, "", "X-RateLimit-Reset-Minute: 20|X-RateLimit-Reset-Day: 40000", 20 * time.Second},
		{429, "", "X-RateLimit-Reset-Day: 0|X-RateLimit-Reset-Minute: 20", 20 * time.Second},

		// there is a more precise field
		{429, "", "Retry-After: 7|X-RateLimit-Reset: 30", 7 * time.Second},
		{429, "", "X-RateLimit-Limit: 100|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 30", 0},
		{429, "", "X-RateLimit-Limit: 100|X-RateLimit-Remaining: 9|X-RateLimit-Reset: 30", 0},
		{429, "", "X-RateLimit-Remaining: 0|X-RateLimit-Reset: 30", 0},
		{429, "", "X-RateLimit-Used: 9|X-RateLimit-Limit: 10|X-RateLimit-Reset: 30", 0},
		{429, "", "RateLimit: \"a\";r=0;t=30", 0},
		{429, "", "RateLimit: \"a\";r=9;t=30|X-RateLimit-Reset: 20", 0},
		{429, "", "RateLimit-Reset: 30|X-RateLimit-Limit: 100|X-RateLimit-Remaining: 9|X-RateLimit-Reset: 31", 0},
		{429, "api.yelp.com", "RateLimit-DailyLimit: 500|RateLimit-Remaining: 9|RateLimit-ResetTime: 2026-01-11T00:00:00+00:00", 0},

		// not throttled, malformed, over, or from a cache
		{200, "", "X-RateLimit-Reset: 30", 0},
		{403, "", "X-RateLimit-Reset: 30", 0},
		{503, "", "X-RateLimit-Reset: 30", 0},
		{429, "", "X-RateLimit-Reset: soon", 0},
		{429, "", "X-RateLimit-Reset: -30", 0},
		{429, "", "X-RateLimit-Reset: 0", 0},
		{429, "", "X-RateLimit-Reset: 1768046399", 0},
		{429, "", "Age: 5|X-RateLimit-Reset: 30", 0},
		{429, "", "X-From-Cache: 1|X-RateLimit-Reset: 30", 0},
	}
	for _, tt := range tests {
		h := Parse(from(tt.host, response(tt.status, headerOf(strings.Split(tt.lines, "|")...))), noon)
		if h.RetryAfter != tt.want || h.Throttled != (tt.status >= 418 && tt.status != 503) {
			t.Errorf("%d %s: got %+v, want %v", tt.status, tt.lines, h, tt.want)
		}
	}
}

func TestThrottledAndScope(t *testing.T) {
	const all = "?" // throttled, but not by a single quota
	tests := []struct {
		status int
		lines  string
		want   string // "": not throttled
	}{
		{200, `RateLimit: "a";r=0`, ""},
		{429, `RateLimit: "a";r=0`, "a"},
		{429, `RateLimit: "a";r=1`, all},
		{429, `RateLimit: "a";r=0, "b";r=3`, "a"},
		{429, `RateLimit: "a";r=0, "b";r=0`, all},
		{429, `RateLimit: "a";r=0|X-RateLimit-Remaining: 0|X-RateLimit-Limit: 9`, all},
		{429, `X-RateLimit-Remaining: 0`, all},
		{403, `RateLimit: "a";r=0`, "a"},
		{403, `RateLimit: "a";r=1`, ""},
		{403, `RateLimit: "a";r=1|Retry-After: 5`, all},
		{403, `RateLimit: "a";t=1`, ""}, // unknown is not 0
		{400, `RateLimit: "a";r=0`, ""},
		{301, `RateLimit: "a";r=0|Retry-After: 5`, ""},
		{301, `Location: /foo/123|RateLimit: "problemPolicy";r=0;t=10`, ""},                            // draft 09 6
		{301, "Location: /foo/123|RateLimit-Remaining: 0|RateLimit-Limit: 10|RateLimit-Reset: 10", ""}, // draft 01 4
		{503, "Content-Type: application/problem+json", ""},                                            // draft 09 5.2
		{503, `RateLimit: "a";r=0`, ""},
		{503, `RateLimit: "a";r=0|Retry-After: 5`, all},
		{529, `RateLimit: "a";r=0`, all},
		{418, `RateLimit: "a";r=0`, all},
		{403, "X-RateLimit-Remaining: 0|X-RateLimit-Resource: core", "core"},
		{403, "X-RateLimit-Remaining: 9|X-RateLimit-Resource: core|Retry-After: 60", all},
		{429, "X-RateLimit-Remaining: 0|X-RateLimit-Bucket: abc", "abc"},
		{429, "X-RateLimit-Remaining: 9|X-RateLimit-Bucket: abc|X-RateLimit-Scope: shared", "abc"},
		{429, "X-RateLimit-Remaining: 0|X-RateLimit-Bucket: abc|X-RateLimit-Scope: global", all},
		{429, "X-RateLimit-Remaining: 0|X-RateLimit-Bucket: abc|X-RateLimit-Global: true", all},
		{200, "X-RateLimit-Remaining: 0|X-RateLimit-Bucket: abc", ""},
		{429, "X-RateLimit-Bucket: " + strings.Repeat("x", 70), strings.Repeat("x", 64)},
	}
	for _, tt := range tests {
		h := Parse(response(tt.status, headerOf(strings.Split(tt.lines, "|")...)), noon)
		got := h.Scope
		if got == "" && h.Throttled {
			got = all
		}
		if got != tt.want || h.Throttled != (tt.want != "") {
			t.Errorf("%d %s: got %q (%+v), want %q", tt.status, tt.lines, got, h, tt.want)
		}
	}
}

func TestSource(t *testing.T) {
	for lines, want := range map[string]string{
		"X-RateLimit-Limit: 9|X-RateLimit-Remaining: 5":                    "X-Ratelimit-Remaining",
		"X-RateLimit-Limit: 9":                                             "X-Ratelimit-Limit",
		`RateLimit: "a";r=5|RateLimit-Policy: "a";q=9`:                     "Ratelimit",
		`RateLimit-Policy: "a";q=9`:                                        "Ratelimit-Policy",
		"RateLimit: limit=9, reset=1":                                      "Ratelimit",
		"X-Rate-Limit: 700|X-Rate-Limit-Remaining: 5":                      "X-Rate-Limit-Remaining",
		"X-RateLimit-Remaining-Tokens: 5|X-RateLimit-Limit-Tokens: 50":     "X-Ratelimit-Remaining-Tokens",
		"X-RateLimit-Limit: 9|X-RateLimit-Used: 5":                         "X-Ratelimit-Limit",
		"RateLimit-Limit: 9|X-RateLimit-Limit: 9|X-RateLimit-Remaining: 5": "X-Ratelimit-Remaining",
	} {
		h := Parse(response(200, headerOf(strings.Split(lines, "|")...)), noon)
		if len(h.Quotas) != 1 || h.Quotas[0].Source != want {
			t.Errorf("%s: got %+v, want %s", lines, h.Quotas, want)
		}
	}
}

func from(host string, resp *http.Response) *http.Response {
	resp.Request = &http.Request{URL: &url.URL{Scheme: "https", Host: host}}
	return resp
}

func TestVendors(t *testing.T) {
	tests := []struct {
		host, lines, want string
	}{
		{"api.kucoin.com", "gw-ratelimit-limit: 500|gw-ratelimit-remaining: 300|gw-ratelimit-reset: 1489", "500/300 in 1.489s of weight"},
		{"API.KuCoin.com.:443", "gw-ratelimit-limit: 500|gw-ratelimit-remaining: 300|gw-ratelimit-reset: 1489", "500/300 in 1.489s of weight"},
		{"other.example", "gw-ratelimit-limit: 500|gw-ratelimit-remaining: 300|gw-ratelimit-reset: 14000", "500/300 in 3h53m20s"},
		{"euw1.api.riotgames.com", "X-App-Rate-Limit: 20:1,100:120|X-App-Rate-Limit-Count: 3:1,40:120|X-Method-Rate-Limit: 2000:60|X-Method-Rate-Limit-Count: 9:60",
			"app 20/17 per 1s, app 100/60 per 2m0s, method 2000/1991 per 1m0s"},
		{"euw1.api.riotgames.com", "X-Method-Rate-Limit: 30:10,500:600|X-Method-Rate-Limit-Count: 1:10,99:600", "method 30/29 per 10s, method 500/401 per 10m0s"},
		{"api.trello.com", "X-Rate-Limit-Api-Key-Max: 300|X-Rate-Limit-Api-Key-Remaining: 299|X-Rate-Limit-Api-Key-Interval-Ms: 10000", "api-key 300/299 per 10s"},
		{"sellingpartnerapi-na.amazon.com", "x-amzn-RateLimit-Limit: 0.0167", "?/? rate 0.0167 of requests"},
		{"na1.salesforce.com", "Sforce-Limit-Info: api-usage=25/5000; per-app-api-usage=17/250(appName=sample)", "5000/4975 per 24h0m0s"},
		{"www.strava.com", "X-RateLimit-Limit: 200,2000|X-RateLimit-Usage: 1,2|X-ReadRateLimit-Limit: 100,1000|X-ReadRateLimit-Usage: 1,2",
			"200/199 per 15m0s, 2000/1998 per 24h0m0s, read 100/99 per 15m0s, read 1000/998 per 24h0m0s"},
		{"api.datadoghq.eu", "X-RateLimit-Limit: 10|X-RateLimit-Remaining: 9|X-RateLimit-Period: 3600|X-RateLimit-Reset: 60|X-RateLimit-Name: usage", "usage 10/9 in 1m0s per 1h0m0s"},
		{"example.myshopify.com", "X-Shopify-Shop-Api-Call-Limit: 50/40", "40/0"},
		{"example.myshopify.com", "X-Shopify-Shop-Api-Call-Limit: -1/40", ""},
		{"myshopify.com", "X-Shopify-Shop-Api-Call-Limit: 32/40", ""},
		{"", "X-Shopify-Shop-Api-Call-Limit: 32/40", ""},
		{"sandbox.sellingpartnerapi-eu.amazon.com", "x-amzn-RateLimit-Limit: 5.0", "?/? rate 5 of requests"},
		{"management.azure.com", "x-ms-ratelimit-remaining-subscription-resource-requests: 9|x-ms-ratelimit-remaining-subscription-resource-entities-read: 8|x-ms-ratelimit-remaining-resource: Microsoft.Compute/HighCostGet3Min;107,Microsoft.Compute/HighCostGet30Min;827",
			"subscription-resource-requests ?/9, subscription-resource-entities-read ?/8"},
		{"management.azure.com", "x-ms-ratelimit-remaining-subscription-reads: 249|x-ms-ratelimit-remaining-subscription-global-reads: 3749", "subscription-reads ?/249, subscription-global-reads ?/3749"},
		{"api.bigcommerce.com", "X-Rate-Limit-Requests-Left: 149|X-Rate-Limit-Requests-Quota: 150|X-Rate-Limit-Time-Reset-Ms: 15000|X-Rate-Limit-Time-Window-Ms: 30000", "150/149 in 15s per 30s"},
		{"api.bytick.com", "X-Bapi-Limit: 10|X-Bapi-Limit-Status: 9|X-Bapi-Limit-Reset-Timestamp: 1768046400738", "10/9 in 738ms per 1s"},
		{"api.gateio.ws", "X-Gate-RateLimit-Requests-Remain: 199|X-Gate-RateLimit-Limit: 200|X-Gate-RateLimit-Reset-Timestamp: 1768046401", "200/199 in 1s"},
		{"api.xero.com", "X-DayLimit-Remaining: 4990|X-MinLimit-Remaining: 59|X-AppMinLimit-Remaining: 9999", "?/59 per 1m0s, ?/4990 per 24h0m0s, app ?/9999 per 1m0s"},
		{"api.yelp.com", "RateLimit-DailyLimit: 500|RateLimit-Remaining: 499|RateLimit-ResourceDailyLimit: 100|RateLimit-ResourceRemaining: 99|RateLimit-ResetTime: 2026-01-11T00:00:00+00:00",
			"500/499 in 12h0m0s per 24h0m0s, resource 100/99 in 12h0m0s per 24h0m0s"},
		{"acme.freshdesk.com", "X-RateLimit-Total: 4000|X-RateLimit-Remaining: 3999|X-RateLimit-Used-CurrentRequest: 1", "4000/3999"},
		{"acme.freshservice.com", "X-RateLimit-Total: 400|X-RateLimit-Remaining: 398|X-RateLimit-Used-CurrentRequest: 2", "400/398 per 1m0s"},
		{"services.leadconnectorhq.com", "X-RateLimit-Limit-Daily: 200000|X-RateLimit-Daily-Remaining: 199987|X-RateLimit-Daily-Reset: 43200000|X-RateLimit-Interval-Milliseconds: 10000|X-RateLimit-Max: 100|X-RateLimit-Remaining: 99",
			"100/99 per 10s, 200000/199987 per 24h0m0s"},
		{"api.x.com", "x-rate-limit-limit: 1080000|x-rate-limit-remaining: 1079999|x-rate-limit-reset: 1768047300|x-user-limit-24hour-limit: 25|x-user-limit-24hour-remaining: 0|x-user-limit-24hour-reset: 1768132800|x-app-limit-24hour-limit: 1200000|x-app-limit-24hour-remaining: 1199999|x-app-limit-24hour-reset: 1768132800",
			"user 25/0 in 24h0m0s per 24h0m0s, app 1200000/1199999 in 24h0m0s per 24h0m0s, 1080000/1079999 in 15m0s"},
		{"api.twitter.com", "x-user-limit-24hour-limit: 25|x-user-limit-24hour-remaining: 24|x-app-limit-24hour-remaining: 7", "user 25/24 per 24h0m0s, app ?/7 per 24h0m0s"},
		{"api.imgur.com", "X-RateLimit-UserLimit: 500|X-RateLimit-UserRemaining: 482|X-RateLimit-UserReset: 1768046460|X-RateLimit-ClientLimit: 12500|X-RateLimit-ClientRemaining: 12489",
			"user 500/482 in 1m0s of credits, client 12500/12489 per 24h0m0s of credits"},

		{"openapi.etsy.com", "X-Limit-Per-Second: 10|X-Remaining-This-Second: 9|X-Limit-Per-Day: 10000|X-Remaining-Today: 9999", "10/9 per 1s, 10000/9999 per 24h0m0s"},
	}
	for _, tt := range tests {
		resp := from(tt.host, response(200, headerOf(strings.Split(tt.lines, "|")...)))
		if got := quotasOf(Parse(resp, noon)); got != tt.want {
			t.Errorf("%s: %s\n got %s\nwant %s", tt.host, tt.lines, got, tt.want)
		}
	}
	zoom := headerOf("Retry-After: 2026-01-11T00:00:00Z", "X-RateLimit-Type: Daily-limit", "X-RateLimit-Remaining: 0")
	if h := Parse(from("api.zoom.us", response(429, zoom)), noon); h.RetryAfter != 12*time.Hour || len(h.Quotas) != 1 {
		t.Errorf("Zoom's 429: %+v, want a wait of 12 h", h)
	}
	linear := headerOf("X-RateLimit-Requests-Remaining: 0", "Retry-After: 7")
	if h := Parse(from("api.linear.app", response(400, linear)), noon); !h.Throttled || h.RetryAfter != 7*time.Second {
		t.Errorf("Linear's 400: %+v, want throttled for 7 s", h)
	}
	if h := Parse(from("api.linear.app", response(400, headerOf("X-RateLimit-Requests-Remaining: 1"))), noon); h.Throttled {
		t.Errorf("a 400 of Linear's with something left: %+v", h)
	}
}

// The table's names are looked up, and its hosts compared, as they stand: so they must be canonical.
func TestTable(t *testing.T) {
	for _, d := range vendors {
		v := reflect.ValueOf(d)
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if name == "Name" || name == "Unit" || name == "Host" || v.Field(i).Kind() != reflect.String {
				continue
			}
			if s := v.Field(i).String(); s != http.CanonicalHeaderKey(s) {
				t.Errorf("%s: %s %q is not canonical", d.Host, name, s)
			}
		}
		h := http.Header{d.Limit: nil, d.Remaining: nil, d.Used: nil, d.Rate: nil}
		if d.Refusal == 0 && d.RetryAfter == "" && !d.Global && !mentionsLimit(h) {
			t.Errorf("%s: no field has a name that makes Parse look at the table", d.Host)
		}
		if d.Host == "" || d.Host != strings.ToLower(d.Host) || strings.Count(d.Host, "*") > 1 || d.Body {
			t.Errorf("host %q, body %v", d.Host, d.Body)
		}
	}
}

func TestCovers(t *testing.T) {
	for _, tt := range []struct {
		pattern, host string
		want          bool
	}{
		{"", "", true}, {"", "a", true}, {"a", "a", true}, {"a", "", false}, {"a", "ab", false},
		{"*", "", true}, {"*.a", "b.a", true}, {"*.a", ".a", true}, {"*.a", "a", false},
		{"a*a", "a", false}, {"a*a", "aa", true}, {"a*", "ab", true}, {"a*", "ba", false},
	} {
		if got := (&Dialect{Host: tt.pattern}).covers(tt.host); got != tt.want {
			t.Errorf("%q covers %q: %v", tt.pattern, tt.host, got)
		}
	}
}

// A field that is too long for what may still be read of the response is left out.
func TestBudget(t *testing.T) {
	h := headerOf("RateLimit-Limit: 5", "X-RateLimit-Limit: 7", "X-RateLimit-Remaining: 6")
	h.Set("RateLimit-Policy", strings.Repeat("1;w=1,", maxBytes/6)+"2;w=2")
	if got, want := quotasOf(Parse(response(200, h), noon)), "5/?, 7/6"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	h.Set("RateLimit-Policy", strings.Repeat(" ", maxBytes-8)+"5;w=9")
	if got, want := quotasOf(Parse(response(200, h), noon)), "5/? per 9s"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestDialects(t *testing.T) {
	p := &Parser{Dialects: []Dialect{
		{Host: "api.example.com", Used: "x-quota", Window: time.Hour, Name: "calls", Unit: "requests"},
		{Host: "api.example.com", Used: "X-Weight", Max: 6000, Window: time.Minute, Unit: "weight", Refusal: 400},
		{Host: "api.*", Remaining: "X-Left", Reset: "X-Left-Ms", Scale: time.Millisecond, NamedBy: "X-Kind"},
		{RetryAfter: "X-Retry-In"},
	}}
	tests := []struct {
		host, lines, want string
		status            int
		throttled         bool
		wait              time.Duration
	}{
		{"api.example.com", "X-Quota: 12/500", "calls 500/488 per 1h0m0s of requests", 200, false, 0},
		{"api.example.com", "X-Weight: 5990", "6000/10 per 1m0s of weight", 400, false, 0},
		{"api.example.com", "X-Weight: 6001|X-Retry-In: 1.5s", "6000/0 per 1m0s of weight", 400, true, 0},
		{"api.other.com", "X-Quota: 12/500|X-Left: 3|X-Left-Ms: 250|X-Kind: k", "k ?/3 in 250ms", 200, false, 0},
		{"other.com", "X-Quota: 12/500|X-Left: 3", "", 200, false, 0},
		{"", "Retry-After: 9|X-Retry-In: 833.333ms", "", 429, true, 833333 * time.Microsecond},
		{"", "Retry-After: 9|X-Retry-In: nothing", "", 429, true, 9 * time.Second},
		{"", "X-Retry-In: 3", "", 200, false, 0},
		{"api.example.com", "X-Quota: many", "", 200, false, 0},
	}
	for _, tt := range tests {
		h := p.Parse(from(tt.host, response(tt.status, headerOf(strings.Split(tt.lines, "|")...))), noon)
		if got := quotasOf(h); got != tt.want || h.Throttled != tt.throttled || h.RetryAfter != tt.wait {
			t.Errorf("%s: %d %s\n got %s, throttled %v, wait %v\nwant %s, throttled %v, wait %v",
				tt.host, tt.status, tt.lines, got, h.Throttled, h.RetryAfter, tt.want, tt.throttled, tt.wait)
		}
	}
	// A row of one's own goes before the built-in rows and before the pattern.
	own := &Parser{Dialects: []Dialect{{Remaining: "X-Ratelimit-Remaining", Reset: "X-Ratelimit-Reset", Scale: time.Millisecond, Name: "own"}}}
	h := own.Parse(response(200, headerOf("X-RateLimit-Remaining: 3", "X-RateLimit-Reset: 500", "RateLimit-Limit: 8")), noon)
	if got, want := quotasOf(h), "own ?/3 in 500ms, 8/?"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, d := range []Dialect{
		{Window: -1, Max: -1, Scale: -1, Index: -1, Refusal: -1, Limit: "X-Limit"},
		{Scale: longest, Reset: "X-Limit", Limit: "X-Limit", Period: "X-Limit", RetryAfter: "X-Limit"},
		{Host: "**", Used: "\x00 ?"},
	} {
		h := (&Parser{Dialects: []Dialect{d}}).Parse(response(429, headerOf("X-Limit: 12")), noon)
		sane(t, h)
	}
}

// In a bubble, whose clock stands in the year 2000, a moment is a moment, and a span a span.
func TestResetInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 3 {
			now := time.Now().Unix()
			for reset, want := range map[int64]time.Duration{
				now + 60: time.Minute, (now + 60) * 1000: time.Minute, now - 60: 0, 60: time.Minute, 3_000_000: 3_000_000 * time.Second,
			} {
				line := fmt.Sprintf("X-RateLimit-Limit: 10|X-RateLimit-Remaining: 5|X-RateLimit-Reset: %d", reset)
				h := Parse(response(200, headerOf(strings.Split(line, "|")...)), time.Now())
				if len(h.Quotas) != 1 || h.Quotas[0].Reset != want {
					t.Errorf("in %d a reset of %d: %+v, want %v", time.Now().Year(), reset, h.Quotas, want)
				}
			}
			time.Sleep(400 * day)
		}
	})
}
