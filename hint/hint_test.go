package hint

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, time.January, 10, 12, 0, 0, 0, time.UTC)

const longest = time.Duration(math.MaxInt64)

func response(status int, header http.Header) *http.Response {
	return &http.Response{StatusCode: status, Header: header}
}

func TestParseStatus(t *testing.T) {
	const wait = 7 * time.Second
	tests := []struct {
		status int
		with   Hint // Retry-After: 7
		bare   Hint // no Retry-After
	}{
		{200, Hint{}, Hint{}},
		{201, Hint{}, Hint{}},
		{299, Hint{}, Hint{}},
		{301, Hint{RetryAfter: wait}, Hint{}},
		{304, Hint{RetryAfter: wait}, Hint{}},
		{399, Hint{RetryAfter: wait}, Hint{}},
		{400, Hint{}, Hint{}},
		{403, Hint{Throttled: true, RetryAfter: wait}, Hint{}},
		{404, Hint{}, Hint{}},
		{418, Hint{Throttled: true, RetryAfter: wait}, Hint{Throttled: true}},
		{429, Hint{Throttled: true, RetryAfter: wait}, Hint{Throttled: true}},
		{500, Hint{}, Hint{}},
		{502, Hint{}, Hint{}},
		{503, Hint{Throttled: true, RetryAfter: wait}, Hint{}},
		{504, Hint{}, Hint{}},
		{529, Hint{Throttled: true, RetryAfter: wait}, Hint{Throttled: true}},
		{0, Hint{}, Hint{}},
		{-1, Hint{}, Hint{}},
	}
	for _, tt := range tests {
		check(t, tt.status, response(tt.status, http.Header{"Retry-After": {"7"}}), tt.with)
		check(t, tt.status, response(tt.status, nil), tt.bare)
	}
}

func check(t *testing.T, status int, resp *http.Response, want Hint) {
	t.Helper()
	got := Parse(resp, noon)
	if got.Throttled != want.Throttled || got.RetryAfter != want.RetryAfter || got.Quotas != nil {
		t.Errorf("status %d, header %v: got %+v, want %+v", status, resp.Header, got, want)
	}
}

func TestParseNil(t *testing.T) {
	if got := Parse(nil, noon); got.Throttled || got.RetryAfter != 0 || got.Quotas != nil {
		t.Errorf("Parse(nil) = %+v, want the zero Hint", got)
	}
	if got := Parse(&http.Response{StatusCode: 429}, time.Time{}); !got.Throttled || got.RetryAfter != 0 {
		t.Errorf("429 without a header: %+v, want throttled and no wait", got)
	}
}

func TestRetryAfterSeconds(t *testing.T) {
	tests := []struct {
		value string
		want  time.Duration
	}{
		{"120", 2 * time.Minute},
		{"1", time.Second},
		{" 5\t", 5 * time.Second},
		{"0005", 5 * time.Second},
		{"2.0", 2 * time.Second},
		{"0.5", 500 * time.Millisecond},
		{"1.25", 1250 * time.Millisecond},
		{"0.999999999", 999_999_999},
		{"0.0000000001", 1},                // never early: rounds up to a nanosecond
		{"0.9999999999", time.Second},      // and carries
		{"1.00000000000", time.Second},     // zeros need no rounding
		{"1.0000000000001", 1e9 + 1},       //
		{"86400", 24 * time.Hour},          //
		{"31536000", 365 * 24 * 60 * 6e10}, // a year

		// No wait.
		{"0", 0},
		{"0.0", 0},

		// Too long for a Duration: the longest one, never negative, never wrapped.
		{"999999999", 999999999 * time.Second},
		{"9223372035", 9223372035*time.Second - time.Duration(noon.UnixNano())}, // a moment in 2262
		{"9223372036", longest},
		{"9223372037", longest},
		{"18446744074", longest}, // times 1e9, modulo 2^64: 0.29 s
		{"18446744073709551616", longest},
		{"99999999999999999999999999999999999999999999999999999999999999999999999999999999", longest},

		// Malformed: as if it had not been sent.
		{"", 0},
		{" ", 0},
		{"-1", 0},
		{"-30", 0},
		{"+5", 0},
		{"0x10", 0},
		{"1e3", 0},
		{"1_000", 0},
		{"NaN", 0},
		{"Inf", 0},
		{"-Inf", 0},
		{".5", 0},
		{"5.", 0},
		{".", 0},
		{"1.2.3", 0},
		{"1 2", 0},
		{"٣", 0}, // a digit, but not of ASCII
		{"soon", 0},
		{"\x00", 0},
	}
	for _, tt := range tests {
		check(t, 429, response(429, http.Header{"Retry-After": {tt.value}}),
			Hint{Throttled: true, RetryAfter: tt.want})
	}
}

// A wait for a date does not end before that date by the server's clock, and ends within a second after it,
// whatever the difference between the two clocks and wherever in its second the server responds.
func TestRetryAfterDateIsNeitherEarlyNorLate(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, -1500, -900, -100, 0, 100, 900, 1500, time.Hour} {
		if skew.Abs() < time.Hour {
			skew *= time.Millisecond
		}
		for part := time.Duration(0); part < time.Second; part += 50 * time.Millisecond {
			for ahead := time.Second; ahead < 4*time.Second; ahead += 300 * time.Millisecond {
				server := noon.Add(part) // its clock
				date := server.Add(ahead).Truncate(time.Second)
				h := http.Header{"Retry-After": {date.Format(http.TimeFormat)}, "Date": {server.Format(http.TimeFormat)}}
				got := Parse(response(429, h), server.Add(skew)).RetryAfter
				if end := server.Add(got).Sub(date); end < 0 || end >= time.Second {
					t.Fatalf("clocks %v apart, %v into the second, %v: waits %v, which ends %v after the date", skew, part, h, got, end)
				}
				delete(h, "Date") // then the local clock is all there is
				got = Parse(response(429, h), server).RetryAfter
				if end := server.Add(got).Sub(date); end < 0 || end >= time.Second {
					t.Fatalf("no Date, %v into the second, %v: waits %v, which ends %v after the date", part, h, got, end)
				}
			}
		}
	}
}

func TestRetryAfterDate(t *testing.T) {
	const at = "Sat, 10 Jan 2026 12:00:00 GMT" // noon
	tests := []struct {
		name, value, date string
		want              time.Duration
	}{
		{"IMF-fixdate", "Sat, 10 Jan 2026 12:01:00 GMT", at, time.Minute},
		{"RFC 850", "Saturday, 10-Jan-26 12:01:00 GMT", at, time.Minute},
		{"asctime", "Sat Jan 10 12:01:00 2026", at, time.Minute},
		{"UTC", "Sat, 10 Jan 2026 12:01:00 UTC", at, time.Minute},
		{"one-digit day", "Sun, 1 Feb 2026 12:00:00 GMT", at, 22 * 24 * time.Hour},
		{"asctime, one-digit day", "Sun Feb  1 12:00:00 2026", at, 22 * 24 * time.Hour},

		{"Date in RFC 850", "Sat, 10 Jan 2026 12:01:00 GMT", "Saturday, 10-Jan-26 12:00:00 GMT", time.Minute},
		{"server 1 h ahead", "Sat, 10 Jan 2026 13:01:00 GMT", "Sat, 10 Jan 2026 13:00:00 GMT", time.Minute},
		{"server 1 h behind", "Sat, 10 Jan 2026 11:01:00 GMT", "Sat, 10 Jan 2026 11:00:00 GMT", time.Minute},
		{"server 1 day ahead", "Sun, 11 Jan 2026 12:01:00 GMT", "Sun, 11 Jan 2026 12:00:00 GMT", time.Minute},
		{"Date too far ahead", "Sat, 10 Jan 2026 12:01:00 GMT", "Sun, 11 Jan 2026 12:00:01 GMT", time.Minute},
		{"Date too far behind", "Sat, 10 Jan 2026 12:01:00 GMT", "Thu, 01 Jan 1970 00:00:00 GMT", time.Minute},
		{"no Date", "Sat, 10 Jan 2026 12:01:00 GMT", "", time.Minute},
		{"malformed Date", "Sat, 10 Jan 2026 12:01:00 GMT", "today", time.Minute},

		{"this second", at, at, time.Second}, // a date cannot say less
		{"the next second", "Sat, 10 Jan 2026 12:00:01 GMT", at, time.Second},
		{"the second after that", "Sat, 10 Jan 2026 12:00:02 GMT", at, 2 * time.Second},
		{"past", "Sat, 10 Jan 2026 11:59:59 GMT", at, 0},
		{"past by server's clock", "Sat, 10 Jan 2026 12:01:00 GMT", "Sat, 10 Jan 2026 13:00:00 GMT", 0},
		{"long past", "Sun, 06 Nov 1994 08:49:37 GMT", at, 0},
		{"year 1", "Mon, 01 Jan 0001 00:00:00 GMT", at, 0},
		{"year 9999", "Fri, 31 Dec 9999 23:59:59 GMT", at, longest},

		{"two digits, past", "Sunday, 06-Nov-94 08:49:37 GMT", at, 0},
		{"two digits, 49 years ahead", "Friday, 10-Jan-75 12:00:00 GMT", at, 17897 * 24 * time.Hour},
		{"two digits, more than 50 years", "Friday, 10-Jan-77 12:00:00 GMT", at, 0},

		{"other zone", "Sat, 10 Jan 2026 12:01:00 PST", at, 0},
		{"RFC 850, other zone", "Saturday, 10-Jan-26 12:01:00 EST", at, 0},
		{"no such day", "Mon, 30 Feb 2026 12:00:00 GMT", at, 0},
		{"hour 25", "Sat, 10 Jan 2026 25:00:00 GMT", at, 0},
		{"cut short", "Sat, 10 Jan 2026", at, 0},
		{"with a tail", "Sat, 10 Jan 2026 12:01:00 GMT 60", at, 0},
		{"without a year", "Sat, 10 Jan 12:01:00 GMT", at, 0},
		{"two times", "Sat, 10 Jan 2026 12:01:00 12:01:00", at, 0},
	}
	for _, tt := range tests {
		h := http.Header{"Retry-After": {tt.value}}
		if tt.date != "" {
			h.Set("Date", tt.date)
		}
		if got := Parse(response(429, h), noon); got.RetryAfter != tt.want || !got.Throttled {
			t.Errorf("%s: Retry-After %q, Date %q: got %+v, want %v", tt.name, tt.value, tt.date, got, tt.want)
		}
	}
}

// The century of a two-digit year is the one that brings it close to now, at the turn of a century too.
func TestTwoDigitYear(t *testing.T) {
	newYearsEve := time.Date(2099, time.December, 31, 23, 59, 30, 0, time.UTC)
	h := http.Header{"Retry-After": {"Friday, 01-Jan-00 00:00:00 GMT"}}
	if got, want := Parse(response(429, h), newYearsEve).RetryAfter, 30*time.Second; got != want {
		t.Errorf("New Year 2100, sent 30 s before: got %v, want %v", got, want)
	}
	h = http.Header{"Retry-After": {"Thursday, 31-Dec-99 23:59:59 GMT"}}
	if got := Parse(response(429, h), time.Date(2100, time.January, 1, 0, 0, 30, 0, time.UTC)).RetryAfter; got != 0 {
		t.Errorf("New Year's Eve 2099, sent 30 s after: got %v, want 0", got)
	}
}

// Without a Date, a wait counts from the beginning of the local clock's second.
func TestRetryAfterDateLocalClock(t *testing.T) {
	h := http.Header{"Retry-After": {"Sat, 10 Jan 2026 12:00:05 GMT"}}
	now := noon.Add(300 * time.Millisecond)
	if got, want := Parse(response(503, h), now).RetryAfter, 5*time.Second; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	est := time.FixedZone("EST", -5*3600)
	if got, want := Parse(response(503, h), now.In(est)).RetryAfter, 5*time.Second; got != want {
		t.Errorf("in another zone: got %v, want %v", got, want)
	}
}

func TestRetryAfterLines(t *testing.T) {
	tests := []struct {
		lines []string
		want  time.Duration
	}{
		{nil, 0},
		{[]string{}, 0},
		{[]string{"5", "3600"}, time.Hour},
		{[]string{"3600", "5"}, time.Hour},
		{[]string{"-1", "5", "soon"}, 5 * time.Second},
		{[]string{"5", "Sat, 10 Jan 2026 12:01:00 GMT"}, time.Minute},
		{[]string{"5", "9223372037"}, longest},
		{[]string{"", "-1"}, 0},
	}
	for _, tt := range tests {
		check(t, 429, response(429, http.Header{"Retry-After": tt.lines}),
			Hint{Throttled: true, RetryAfter: tt.want})
	}
}

// A 503 is throttled only if it asks for a wait.
func TestThrottled503(t *testing.T) {
	for value, want := range map[string]bool{
		"1":                             true,
		"0.1":                           true,
		"Sat, 10 Jan 2026 12:00:01 GMT": true,
		"0":                             false,
		"-1":                            false,
		"soon":                          false,
		"Sat, 10 Jan 2026 11:00:00 GMT": false,
	} {
		if got := Parse(response(503, http.Header{"Retry-After": {value}}), noon); got.Throttled != want {
			t.Errorf("503, Retry-After %q: Throttled %v, want %v", value, got.Throttled, want)
		}
	}
}

func TestFinal(t *testing.T) {
	for _, tt := range []struct {
		status int
		lines  string
		want   bool
	}{
		{429, "X-Should-Retry: false", true},
		{429, "Stripe-Should-Retry: false", true},
		{400, "X-Should-Retry: false", true},
		{500, "x-should-retry: FALSE ", true},
		{503, "X-Should-Retry: true|X-Should-Retry: false", true},
		{429, "X-Should-Retry: true|Stripe-Should-Retry: false", true},
		{429, "X-Should-Retry: true", false},
		{429, "X-Should-Retry: ", false},
		{429, "X-Should-Retry: 0", false},
		{429, "X-Should-Retry: false|X-From-Cache: 1", false},
		{429, "X-Should-Retry: false|Age: 1", false},
		{399, "X-Should-Retry: false", false},
		{200, "X-Should-Retry: false", false},
		{429, "Retry-After: 7", false},
	} {
		h := Parse(response(tt.status, headerOf(strings.Split(tt.lines, "|")...)), noon)
		if h.Final != tt.want || h.Throttled != (tt.status == 429) {
			t.Errorf("%d %s: got %+v, want Final %v", tt.status, tt.lines, h, tt.want)
		}
	}
	h := Parse(response(429, headerOf("X-Should-Retry: false", "Retry-After: 7", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 9")), noon)
	if !h.Final || !h.Throttled || h.RetryAfter != 7*time.Second || len(h.Quotas) != 1 {
		t.Errorf("what else it says is gone: %+v", h)
	}
}
