package hint

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Each value names 12:00:09, nine seconds from now, and so does it in every field that asks for a wait or names the end of
// a window. The first column says who prints it so.
var nine = []struct{ from, value string }{
	{"RFC 9110 10.2.3, delay-seconds", "9"},
	{"SpaceTradersAPI/api-docs#24, microsoft-graph-docs#17442: fractions", "9.000"},
	{"Shopify, REST admin API rate limits: 2.0", "9.0"},
	{"anomalyco/opencode#48185: durations of Go", "9s"},
	{"Go, time.Duration.String", "9.000s"},
	{"Traefik, X-Retry-In: 833.333ms", "9000ms"},
	{"Go, time.Duration.String", "0h0m9s"},
	{"API documentations that write \"60 seconds\"", "9 seconds"},
	{"the same", "9 sec"},
	{"the same", "0 minutes 9 seconds"},
	{"the same, in capitals", "9 S"},
	{"Java, java.time.Duration.toString", "PT9S"},
	{"Java, of more than a minute", "PT0M9.000S"},
	{"ISO 8601, days", "P0DT9S"},
	{".NET, TimeSpan.ToString", "00:00:09"},
	{".NET, with a fraction", "00:00:09.0000000"},
	{".NET, with days", "0.00:00:09"},
	{"Python, str(timedelta)", "0:00:09"},
	{"a proxy that joins two lines (RFC 9110 5.3)", "9, 9"},
	{"the same, without a blank", "9,9"},
	{"JSON.stringify", `"9"`},
	{"parameters, as in draft-ietf-httpapi-ratelimit-headers-03", "9;w=60"},

	{"openclaw/clawhub#407, ArjanCodes/moneysnake#24: Retry-After since 1970", "1768046409"},
	{"Python, time.time()", "1768046409.0"},
	{"ivolo/express-rate#2: 13 digits", "1768046409000"},
	{"Python, time.time()*1000", "1768046409000.0"},
	{"microseconds; Redis TIME, Elixir's System.os_time(:microsecond)", "1768046409000000"},
	{"pubg/api-documentation-content#61: nanoseconds; Go, Time.UnixNano", "1768046409000000000"},
	{"JSON.stringify of a number", `"1768046409"`},
	{"a list of moments", "1768046409, 1768046409"},

	{"Zoom, rate limits: Retry-After is an ISO date; Vimeo", "2026-01-10T12:00:09Z"},
	{"vimeo-dot-net#84: with an offset", "2026-01-10T12:00:09+00:00"},
	{"another offset", "2026-01-10T13:00:09+01:00"},
	{"a negative one", "2026-01-10T06:30:09-05:30"},
	{"JavaScript, Date.toISOString", "2026-01-10T12:00:09.000Z"},
	{"JSON.stringify(Date)", `"2026-01-10T12:00:09.000Z"`},
	{"Mastodon, rate limits: six digits", "2026-01-10T12:00:09.000000Z"},
	{"stefanprodan/AspNetCoreRateLimit: seven digits", "2026-01-10T12:00:09.0000000Z"},
	{"Python, datetime.utcnow().isoformat(); Java, LocalDateTime.toString: no zone", "2026-01-10T12:00:09"},
	{"the same, with a fraction", "2026-01-10T12:00:09.000000"},
	{"PHP, DateTime::ISO8601; Java's Z: no colon", "2026-01-10T12:00:09+0000"},
	{"the same, elsewhere", "2026-01-10T14:30:09+0230"},
	{"PostgreSQL, timestamptz: an offset of hours", "2026-01-10 12:00:09+00"},
	{"RFC 3339 5.6, in lower case", "2026-01-10t12:00:09z"},
	{"Java, ZonedDateTime.toString", "2026-01-10T13:00:09+01:00[Europe/Paris]"},
	{"Java, ZonedDateTime of UTC", "2026-01-10T12:00:09Z[UTC]"},
	{"Ruby, Time#to_s", "2026-01-10 12:00:09 +0000"},
	{"Ruby, Time#to_s of a moment without a zone; RFC 5322 3.3", "2026-01-10 12:00:09 -0000"},
	{"Ruby, in summer", "2026-01-10 05:00:09 -0700"},
	{"Ruby, Time#to_s in UTC; BerriAI/litellm#39816", "2026-01-10 12:00:09 UTC"},
	{"Python, str(datetime); PHP, Carbon; MySQL: no zone", "2026-01-10 12:00:09"},
	{"Python, with a fraction", "2026-01-10 12:00:09.000000"},
	{"Python, aware", "2026-01-10 12:00:09+00:00"},
	{"Python, logging: a comma", "2026-01-10 12:00:09,000"},
	{"Java, java.sql.Timestamp.toString", "2026-01-10 12:00:09.0"},
	{".NET, ToString(\"u\")", "2026-01-10 12:00:09Z"},
	{"Go, Time.String", "2026-01-10 12:00:09 +0000 UTC"},
	{"Go, Time.String with a monotonic clock", "2026-01-10 13:00:09.000000000 +0100 CET m=+12.000001"},
	{"nginx, log_format; Go, log", "2026/01/10 12:00:09"},

	{"RFC 5322 3.3; Python, email.utils.format_datetime", "Sat, 10 Jan 2026 12:00:09 +0000"},
	{"Python, email.utils.formatdate", "Sat, 10 Jan 2026 12:00:09 -0000"},
	{"PHP, DATE_RFC2822, in summer", "Sat, 10 Jan 2026 14:00:09 +0200"},
	{"PHP, DATE_RFC822: a year of two digits", "Sat, 10 Jan 26 12:00:09 +0000"},
	{"Java, RFC_1123_DATE_TIME: a day of one digit", "Sat, 10 January 2026 12:00:09 +0000"},
	{"lemlist, rate limits: JavaScript, Date.toString", "Sat Jan 10 2026 13:00:09 GMT+0100 (Central European Standard Time)"},
	{"JavaScript, in UTC", "Sat Jan 10 2026 12:00:09 GMT+0000 (Coordinated Universal Time)"},
	{"Twitter, created_at; Ruby, Time#ctime with a zone", "Sat Jan 10 12:00:09 +0000 2026"},
	{"stefanprodan/AspNetCoreRateLimit#2: culture en-GB", "10/01/2026 12:00:09"},
	{"the same in en-US", "1/10/2026 12:00:09 PM"},
	{".NET, DateTimeOffset.ToString in en-US", "1/10/2026 12:00:09 PM +00:00"},
	{"the same in de-DE", "10.01.2026 12:00:09"},
}

// Dates of RFC 9110 are in whole seconds, whatever is meant. So the window that one ends does so within that second.
var nineOrTen = []struct{ from, value string }{
	{"RFC 9110 5.6.7, IMF-fixdate; Cloudflare", "Sat, 10 Jan 2026 12:00:09 GMT"},
	{"sethvargo/go-limiter: UTC", "Sat, 10 Jan 2026 12:00:09 UTC"},
	{"RFC 9110 5.6.7, RFC 850", "Saturday, 10-Jan-26 12:00:09 GMT"},
	{"PHP, DATE_COOKIE: a year of four digits", "Saturday, 10-Jan-2026 12:00:09 UTC"},
	{"RFC 9110 5.6.7, asctime; Python, time.ctime", "Sat Jan 10 12:00:09 2026"},
	{"Java, Date.toString; date(1)", "Sat Jan 10 12:00:09 UTC 2026"},
	{"two lines, joined: a date has a comma itself", "Sat, 10 Jan 2026 12:00:09 GMT, Sat, 10 Jan 2026 12:00:09 GMT"},
}

// waitFields are fields that ask for a wait, and who sends them.
var waitFields = []struct{ from, name string }{
	{"RFC 9110 10.2.3", "Retry-After"},
	{"Fyers, Kong plugins", "X-Retry-After"},
	{"MailerLite, Smoobu, Elsevier: X-RateLimit-Retry-After", "X-Ratelimit-Retry-After"},
	{"the same with a hyphen", "X-Rate-Limit-Retry-After"},
	{"OpenSky; bucket4j: X-Rate-Limit-Retry-After-Seconds", "X-Rate-Limit-Retry-After-Seconds"},
	{"nestjs/throttler 6: Retry-After-{name of the throttler}", "Retry-After-Long"},
	{"the same", "Retry-After-Short"},
	{"Wildberries: X-Ratelimit-Retry", "X-Ratelimit-Retry"},
	{"Traefik: X-Retry-In", "X-Retry-In"},
	{"Django REST framework 2: X-Throttle-Wait-Seconds", "X-Throttle-Wait-Seconds"},
	{"OpenAI: its plain numbers are in ms", "Retry-After-Ms"},
	{"Azure: the same", "X-Ms-Retry-After-Ms"},
	{"AWS: the same", "X-Amz-Retry-After"},
	{"Fyers: the same", "X-Retry-After-Ms"},
	{"others", "X-Ratelimit-Retry-After-Milliseconds"},
}

// resetFields are fields for the end of a window.
var resetFields = []struct{ from, name string }{
	{"GitHub", "X-Ratelimit-Reset"},
	{"GitLab, Bluesky", "Ratelimit-Reset"},
	{"Okta, X", "X-Rate-Limit-Reset"},
	{"Discord", "X-Ratelimit-Reset-After"},
	{"others", "X-Ratelimit-Reset-In"},
	{"Yelp and others", "X-Ratelimit-Reset-Time"},
	{"others", "X-Ratelimit-Reset-At"},
	{"Bitvavo: Bitvavo-Ratelimit-ResetAt", "X-Ratelimit-Resetat"},
	{"others, in one word", "X-Ratelimit-Resettime"},
	{"others, in one word", "X-Ratelimit-Resetafter"},
	{"others", "X-Ratelimit-Resets-In"},
	{"Akamai MSL", "X-Ratelimit-Next"},
	{"others: its plain numbers are in ms", "X-Ratelimit-Reset-Ms"},
}

// ofField multiplies a span that is a plain number by a thousand if the field is in milliseconds.
func ofField(name, value string) string {
	plain := strings.Trim(value, `0123456789.;w=" ,`) == "" && len(value) < 9
	if !plain || !isMilli(name[strings.LastIndexByte(name, '-')+1:]) && name != "X-Amz-Retry-After" {
		return value
	}
	return strings.NewReplacer("9.000", "9000", "9.0", "9000", "9", "9000").Replace(value)
}

// Every form in every field that asks for a wait means nine seconds, by either clock.
func TestEveryFormOfAWait(t *testing.T) {
	for _, f := range waitFields {
		for _, tt := range append(nine, nineOrTen...) {
			for _, date := range []string{"", "Sat, 10 Jan 2026 12:00:00 GMT"} {
				h := http.Header{f.name: {ofField(f.name, tt.value)}}
				if date != "" {
					h.Set("Date", date)
				}
				if got := Parse(response(429, h), noon); got.RetryAfter != 9*time.Second || got.Wait() != 9*time.Second {
					t.Errorf("%s (%s): %v: %+v", f.from, tt.from, h, got)
				}
			}
		}
	}
}

// Every form in every field for the end of a window means nine seconds, or the second after that if it may be meant.
func TestEveryFormOfAReset(t *testing.T) {
	for _, f := range resetFields {
		for i, tt := range append(nine, nineOrTen...) {
			want := 9 * time.Second
			if i >= len(nine) {
				want += resolution
			}
			h := http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Rate-Limit-Remaining": {"0"}, f.name: {ofField(f.name, tt.value)}}
			if f.name == "Ratelimit-Reset" {
				h = http.Header{"Ratelimit-Remaining": {"0"}, f.name: {tt.value}}
			}
			h.Set("Date", "Sat, 10 Jan 2026 12:00:00 GMT")
			got := Parse(response(429, h), noon)
			if got.Wait() != want {
				t.Errorf("%s (%s): %v: %+v", f.from, tt.from, h, got)
			}
		}
	}
}

// Between two readings, a rule or what else the answer says decides.
func TestReadingsOfAWait(t *testing.T) {
	for _, tt := range []struct {
		lines string
		want  time.Duration
	}{
		// one reading alone, however long
		{"Retry-After: 86400", day},
		{"Retry-After: 3600, 60", time.Hour},
		{"Retry-After: 999999999", 999999999 * time.Second},
		{"Retry-After: 2026-01-11T12:00:00Z", day},
		{"Retry-After: 26:00:00", 26 * time.Hour},
		{"Retry-After: 1 day", day},
		{"Retry-After: P2W", 14 * day},
		{"Retry-After: P1DT12H", 36 * time.Hour},
		{"Retry-After: PT1H30M", 90 * time.Minute},

		// lists and lines: the longest
		{"Retry-After: 9, 3, 5", 9 * time.Second},
		{"Retry-After: 3|Retry-After: 5, 9", 9 * time.Second},
		{"Retry-After: soon, -1, 9", 9 * time.Second},
		{"Retry-After: 3, Sat, 10 Jan 2026 12:00:09 GMT, 5", 9 * time.Second},
		{"Retry-After: 1,000", time.Second}, // a list, not a thousand

		// the moment is past, in every unit
		{"Retry-After: 1768046399", 0},
		{"Retry-After: 1609844400000", 0},
		{"Retry-After: 1609844400000000", 0},
		{"Retry-After: 1609844400000000000", 0},
		{"Retry-After: 2026-01-10 11:00:00", 0},

		// a moment of this second has not passed
		{"Retry-After: 1768046400", time.Second},
		{"Retry-After: 1768046400100", time.Second},

		// in a field in milliseconds a moment is one only if a span would be too long, or if it is near
		{"Retry-After-Ms: 1768046409", 9 * time.Second},
		{"Retry-After-Ms: 1768132800", day},
		{"Retry-After-Ms: 1768132801", 1768132801 * time.Millisecond},
		{"Retry-After-Ms: 1768960000", 1768960000 * time.Millisecond},
		{"Retry-After-Ms: 1768046409000", 9 * time.Second},
		{"Retry-After-Ms: 60000", time.Minute},

		// seconds or milliseconds: Discord's API v6 had "Retry-After: 6457" beside a reset after 6.457
		{"Retry-After: 6457|X-RateLimit-Remaining: 0|X-RateLimit-Reset-After: 6.457", 6457 * time.Millisecond},
		{"Retry-After: 6457|X-RateLimit-Remaining: 3|X-RateLimit-Reset-After: 6.457", 6457 * time.Second},
		{"Retry-After: 6457|X-RateLimit-Remaining: 0|X-RateLimit-Reset-After: 6457", 6457 * time.Second},
		{"Retry-After: 6457|X-RateLimit-Remaining: 0|X-RateLimit-Reset-After: 9", 6457 * time.Second},
		{"Retry-After: 3600|X-RateLimit-Remaining: 0|X-RateLimit-Reset-After: 3.6", time.Hour},
		{"Retry-After: 7200|RateLimit: \"a\";r=0;t=7, \"b\";r=0;t=7200", 7200 * time.Second},

		// several fields: those of OpenAI, Azure and AWS, then Retry-After, then the longest of the others
		{"Retry-After: 9|X-Retry-In: 8.333s", 9 * time.Second},
		{"Retry-After: 9|X-RateLimit-Retry-After: 50", 9 * time.Second},
		{"X-RateLimit-Retry-After: 50|X-Retry-After: 9", 50 * time.Second},
		{"Retry-After-Short: 1|Retry-After-Medium: 10|Retry-After-Long: 60", time.Minute},
		{"X-Retry-After-Ms: 400|Retry-After: 1", time.Second},
		{"X-Retry-After-Ms: 400|Retry-After: soon", 400 * time.Millisecond},
		{"Retry-After: soon|X-RateLimit-Retry-After: 50", 50 * time.Second},
		{"X-Ratelimit-Reset: 29|X-Ratelimit-Retry: 2|X-Ratelimit-Limit: 10", 2 * time.Second}, // dev.wildberries.ru, Rate limits

		// other words
		{"X-Retry-Aftermath: 9", 0},
		{"Xretry-After: 9", 0},
		{"X-RateLimit-Retry-Count: 9", 0},
		{"X-Retry-Count: 9", 0},
		{"Max-Retries: 9", 0},

		// malformed
		{"Retry-After: -9s", 0},
		{"Retry-After: 9 apples", 0},
		{"Retry-After: 9s 9", 0},
		{"Retry-After: s", 0},
		{"Retry-After: P", 0},
		{"Retry-After: PT", 0},
		{"Retry-After: P1M", 0}, // a month
		{"Retry-After: P1Y", 0},
		{"Retry-After: 1.5.5s", 0},
		{"Retry-After: 00:09", 0}, // hours or minutes?
		{"Retry-After: 00:00:09:00", 0},
		{"Retry-After: 1:2:3.4.5", 0},
		{"Retry-After: 2026-01-11", 0},
		{"Retry-After: 2026-13-10T12:00:09Z", 0},
		{"Retry-After: 2026-02-29T12:00:09Z", 0},
		{"Retry-After: 2026-01-10T24:00:09Z", 0},
		{"Retry-After: 2026-01-10T12:60:09Z", 0},
		{"Retry-After: 2026-01-10T12:00:09+9999", 0},
		{"Retry-After: 2026-01-10T12:00:09+", 0},
		{"Retry-After: Sat, 10 Jan 2026 12:00:09 CET", 0},
		{"Retry-After: Sat, 10 Foo 2026 12:00:09 GMT", 0},
		{"Retry-After: 10 Jan 12:00:09 GMT", 0},
		{"Retry-After: 13/13/2026 12:00:09", 0},
		{"Retry-After: 1/10/2026 13:00:09 PM", 0},
		{"Retry-After: Jan Jan 2026 12:00:09", 0},
		{"Retry-After: Feb Jan 10 2026 12:00:09", 0},
		{"Retry-After: 1/10/2026 0:00:09 PM", 0},
		{"Retry-After: 1/11/2026 12:00:00 AM", 12 * time.Hour},
	} {
		header := headerOf(strings.Split(tt.lines, "|")...)
		if got := Parse(response(429, header), noon); got.RetryAfter != tt.want || !got.Throttled {
			t.Errorf("%s: %+v, want %v", tt.lines, got, tt.want)
		}
	}
}

// A quota of which a field says that it has no limit is none, whatever the others say.
func TestNoLimit(t *testing.T) {
	for _, tt := range []struct{ lines, want string }{
		{"X-RateLimit-Limit: -1|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 1768050000", ""}, // data.gov.in; Tyk
		{"X-RateLimit-Limit: -1|X-RateLimit-Remaining: -1|X-RateLimit-Reset: 0", ""},         // Blockscout
		{"X-RateLimit-Limit: -1|X-RateLimit-Remaining: 5|X-RateLimit-Reset: 60", ""},
		{"X-RateLimit-Remaining: -1|X-RateLimit-Reset: 60", ""},
		{"X-RateLimit-Limit: unlimited|X-RateLimit-Remaining: unlimited|X-RateLimit-Reset: 0", ""}, // Upstash
		{"X-RateLimit-Limit: Unlimited|X-RateLimit-Remaining: 0|X-RateLimit-Reset: Unlimited", ""},
		{"X-RateLimit-Limit: none|X-RateLimit-Used: 5", ""},
		{"X-RateLimit-Limit: infinity|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 60", ""},
		{`X-RateLimit: {"limit":-1,"remaining":0,"reset":60}`, ""},
		{"X-RateLimit-Limit: 10, -1;w=60|X-RateLimit-Remaining: 3", "10/3"},
		{"X-RateLimit-Limit-Day: -1|X-RateLimit-Remaining-Day: 0|X-RateLimit-Limit-Minute: 60|X-RateLimit-Remaining-Minute: 5", "60/5 per 1m0s"},

		// overdrawn, pushed back (draft-ietf-httpapi-ratelimit-headers-03, B), and unknown
		{"X-RateLimit-Limit: 100|X-RateLimit-Remaining: -1|X-RateLimit-Reset: 60", "100/0 in 1m0s"},
		{"X-RateLimit-Limit: 100|X-RateLimit-Remaining: -7|X-RateLimit-Reset: 60", "100/0 in 1m0s"},
		{"X-RateLimit-Limit: 0|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 20", "0/0 in 20s"},
		{"X-RateLimit-Limit: 100|X-RateLimit-Remaining: unlimited|X-RateLimit-Reset: 60", "100/? in 1m0s"},
	} {
		h := Parse(response(200, headerOf(strings.Split(tt.lines, "|")...)), noon)
		if got := quotasOf(h); got != tt.want || tt.want == "" && h.Wait() != 0 {
			t.Errorf("%s: got %s, want %s", tt.lines, got, tt.want)
		}
	}
	row := &Parser{Dialects: []Dialect{{Limit: "X-Max", Remaining: "X-Left", Window: time.Minute}}}
	for lines, want := range map[string]string{"X-Max: -1|X-Left: 0": "", "X-Max: unlimited|X-Left: 0": "", "X-Max: 5|X-Left: -1": "5/0 per 1m0s"} {
		if got := quotasOf(row.Parse(response(200, headerOf(strings.Split(lines, "|")...)), noon)); got != want {
			t.Errorf("%s: got %s, want %s", lines, got, want)
		}
	}
	// It was throttled nevertheless, and the window's end is all that it says.
	h := Parse(response(429, headerOf("X-RateLimit-Limit: -1", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1768046409")), noon)
	if h.RetryAfter != 9*time.Second || len(h.Quotas) != 0 {
		t.Errorf("%+v", h)
	}
}

// A whole quota in one field.
func TestWholeQuotas(t *testing.T) {
	for _, tt := range []struct{ lines, want string }{
		// trakt.docs.apiary.io, Rate Limiting; HEY
		{`X-Ratelimit: {"name":"UNAUTHED_API_GET_LIMIT","period":300,"limit":1000,"remaining":0,"until":"2026-01-10T12:00:09Z"}`,
			"UNAUTHED_API_GET_LIMIT 1000/0 in 9s per 5m0s"},
		{`X-RateLimit: {"period": 10, "limit": 50, "remaining": 0, "until": "2026-01-10T12:00:09Z"}`, "50/0 in 9s per 10s"},
		{`X-RateLimit: {"limit": "50", "remaining": "0", "reset_at": 1768046409}`, "50/0 in 9s"},
		{`X-RateLimit: {"Limit":50,"Remaining":7,"ResetMs":9000}`, "50/7 in 9s"},
		{`RateLimit: { "limit" : 50 , "remaining" : 7 , "resetsAt" : "2026-01-10 12:00:09" }`, "50/7 in 9s"},
		{`X-RateLimit: {"max":50,"used":43,"resetIn":"9s","windowMs":10000}`, "50/7 in 9s per 10s"},
		{`X-RateLimit: {"limit":50,"burst":null,"ok":true,"remaining":7}`, "50/7"},
		{`X-RateLimit: {'limit':50,'left':7}`, "50/7"},
		// developer.zendesk.com, Best practices for avoiding rate limiting
		{"Zendesk-RateLimit-Tickets-Index: total=100; remaining=99; resets=41", "100/99 in 41s of tickets-index"},
		{`X-RateLimit: {"limit":50,"remaining":0,"resetInSeconds":9}`, "50/0 in 9s"},
		{`X-RateLimit: {"limit":50,"remaining":0,"retry_after_seconds":9}`, "50/0 in 9s"},
		{"X-RateLimit: limit=50; remaining=7; reset=1768046409", "50/7 in 9s"},
		{"X-RateLimit: limit=50, remaining=7, reset=1768046409", "50/7 in 9s"}, // draft 07, but for the moment
		{"RateLimit: limit=50, remaining=7, reset=1768046409", "50/7 in 9s"},
		{`RateLimit: "a";r=7;t=1768046409`, "a ?/7 in 9s"},
		{"X-RateLimit: limit: 50, remaining: 7, reset: 9", "50/7 in 9s"},
		{"X-RateLimit: Limit=50&Remaining=7&Reset=9", "50/7 in 9s"},

		{"RateLimit: limit=50, remaining=7, reset=9, max-burst=60, limited=0", "50/7 in 9s"},
		{`X-RateLimit: {"limit":50,"remaining":7,"retryAfterMs":9000,"retry_after":8,"forms":1}`, "50/7 in 9s"},

		// not pairs, or not of a quota
		{"X-RateLimit: {", ""},
		{`X-RateLimit: {"limit`, ""},
		{`X-RateLimit: {"limit":}`, ""},
		{`X-RateLimit: {"limit":{"minute":5}}`, ""},
		{`X-RateLimit: [{"limit":5}]`, ""},
		{"X-RateLimit: =5", ""},
		{"RateLimit: Limit=50", ""}, // malformed by its own grammar
		{"Docker-RateLimit-Source: 192.0.2.1", ""},
		{"X-RateLimit-Type: Daily-limit", ""},
		{"X-RateLimit-Tier: a=b", ""},
	} {
		if got := quotasOf(Parse(response(200, headerOf(strings.Split(tt.lines, "|")...)), noon)); got != tt.want {
			t.Errorf("%s\n got %s\nwant %s", tt.lines, got, tt.want)
		}
	}
}

// Date is in whole seconds. A window that ends in that second has not ended.
func TestResetInTheSecondOfDate(t *testing.T) {
	for _, tt := range []struct {
		reset string
		after time.Duration // when it is received, by the own clock
		want  time.Duration
	}{
		{"1768046400", 0, time.Second},
		{"1768046400", 300 * time.Millisecond, 700 * time.Millisecond},
		{"1768046400", 999 * time.Millisecond, time.Millisecond},
		{"1768046400", time.Second, time.Second}, // the clocks differ, so Date is all that is known
		{"1768046400", time.Hour, time.Second},
		{"1768046400", -time.Hour, time.Second},
		{"1768046400000", 300 * time.Millisecond, 700 * time.Millisecond},
		{"1768046400200", 300 * time.Millisecond, 700 * time.Millisecond},
		{"1768046400500", 300 * time.Millisecond, 200 * time.Millisecond},
		{"2026-01-10T12:00:00Z", 300 * time.Millisecond, 700 * time.Millisecond},
		{"1768046401", 300 * time.Millisecond, 700 * time.Millisecond},
		{"1768046399", 0, 0},
		{"1768046399", 300 * time.Millisecond, 0},
	} {
		h := headerOf("Date: Sat, 10 Jan 2026 12:00:00 GMT", "X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: "+tt.reset)
		if got := Parse(response(429, h), noon.Add(tt.after)).Quotas[0].Reset; got != tt.want {
			t.Errorf("%s, received after %v: %v, want %v", tt.reset, tt.after, got, tt.want)
		}
	}
}

// The wait of a Hint is all that it says about sending, and no more.
func TestWait(t *testing.T) {
	for _, tt := range []struct {
		status int
		lines  string
		want   time.Duration
	}{
		{403, "X-RateLimit-Limit: 5000|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 1768046460", time.Minute}, // GitHub
		{429, `RateLimit: "requests";r=0;t=60`, time.Minute},
		{429, `Retry-After: 30|RateLimit: "requests";r=0;t=3000`, 30 * time.Second}, // what it says of coming back
		{429, `Retry-After: 30|RateLimit: "requests";r=0;t=3`, 30 * time.Second},
		{429, `RateLimit: "a";r=0;t=60, "b";r=0;t=5, "c";r=1;t=3600`, time.Minute}, // all that are spent have to come back
		{429, "X-RateLimit-Reset: 60", time.Minute},
		{200, `RateLimit: "a";r=0;t=60`, time.Minute}, // served, and the last
		{200, `RateLimit: "a";r=1;t=60`, 0},
		{200, `RateLimit: "a";t=60`, 0},
		{200, "Retry-After: 30", 0},
		{302, "Retry-After: 30", 30 * time.Second},
		{302, "X-Retry-After: 30", 0},
		{403, "X-RateLimit-Limit: 5000|X-RateLimit-Remaining: 9|X-RateLimit-Reset: 60", 0}, // a permission
		{429, "", 0},
		{429, `RateLimit: "a";r=0`, 0}, // until when, it does not say
		{200, `Beta-RateLimit: "a";r=0;t=60`, 0},
		{429, "X-RateLimit-Remaining: 0|X-RateLimit-Bucket: b|X-RateLimit-Reset-After: 1.5", 1500 * time.Millisecond},
	} {
		header := http.Header{}
		if tt.lines != "" {
			header = headerOf(strings.Split(tt.lines, "|")...)
		}
		if got := Parse(response(tt.status, header), noon).Wait(); got != tt.want {
			t.Errorf("%d %s: %v, want %v", tt.status, tt.lines, got, tt.want)
		}
	}
}

// A wait for a moment is read in a bubble too, in all units: there the clock begins in the year 2000.
func TestMomentsInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 3 {
			at := time.Now().Add(9 * time.Second)
			for _, v := range []string{
				fmt.Sprint(at.Unix()), fmt.Sprint(at.UnixMilli()), fmt.Sprint(at.UnixMicro()), fmt.Sprint(at.UnixNano()),
				at.UTC().Format(time.RFC3339), at.UTC().Format(time.RFC1123Z), at.UTC().Format("2006-01-02 15:04:05 -0000"), at.UTC().String(),
			} {
				h := Parse(response(429, http.Header{"Retry-After": {v}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {v}}), time.Now())
				if h.RetryAfter != 9*time.Second || h.Quotas[0].Reset != 9*time.Second {
					t.Errorf("%q at %v: %+v", v, time.Now(), h)
				}
			}
			time.Sleep(400 * day)
		}
	})
}
