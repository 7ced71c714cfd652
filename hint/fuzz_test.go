package hint

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/textproto"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/race"
)

// sane checks what holds for every Hint, whatever the response.
func sane(t *testing.T, h Hint) {
	t.Helper()
	if h.RetryAfter < 0 || len(h.Quotas) > maxQuotas || h.Scope != "" && !h.Throttled {
		t.Errorf("wait %v, %d quotas, scope %q, throttled %v", h.RetryAfter, len(h.Quotas), h.Scope, h.Throttled)
	}
	if h.Quotas != nil && len(h.Quotas) == 0 {
		t.Error("Quotas is empty, not nil")
	}
	for _, q := range h.Quotas {
		switch {
		case q.Limit < -1, q.Remaining < -1, q.Reset < -1, q.Reset == -1 != (q.Reset < 0), q.Window < 0:
			t.Errorf("negative: %+v", q)
		case math.IsNaN(q.Rate), math.IsInf(q.Rate, 0), q.Rate < 0:
			t.Errorf("rate: %+v", q)
		case q.Limit < 0 && q.Remaining < 0 && q.Rate == 0:
			t.Errorf("a quota without content: %+v", q)
		case q.Source == "", len(q.Name) > maxName, len(q.Unit) > 2*maxName: // a letter may grow in lower case
			t.Errorf("names: %+v", q)
		}
	}
}

// everything checks a response with all parsers, and that they do not change it.
func everything(t *testing.T, resp *http.Response, now time.Time, body string) {
	t.Helper()
	before := resp.Header.Clone()
	host := hostOf(resp)
	own := &Parser{Dialects: []Dialect{
		{Host: host, Body: true, Limit: "X-A", Remaining: "X-B", Reset: "X-C", Period: "X-D", RetryAfter: "X-E", Refusal: 400, Final: []string{"a"}},
		{Used: "X-A", Rate: "X-B", NamedBy: "X-C", Max: 5, Index: 1, Scale: time.Millisecond},
	}}
	for _, parse := range []func(*http.Response, time.Time) Hint{Parse, own.Parse} {
		resp.Body = io.NopCloser(strings.NewReader(body))
		first := parse(resp, now)
		sane(t, first)
		if again := parse(resp, now); !reflect.DeepEqual(first, again) {
			t.Errorf("first %+v\nthen %+v", first, again)
		}
		if b, err := io.ReadAll(resp.Body); err != nil || string(b) != body {
			t.Errorf("the body became %.200q, %v", b, err)
		}
		if !reflect.DeepEqual(before, resp.Header) {
			t.Error("the header has changed")
		}
	}
}

// FuzzParse parses whole responses: a status, header lines as they come over the wire, a host, and a body.
func FuzzParse(f *testing.F) {
	for _, fx := range loadFixtures(f) {
		var b bytes.Buffer
		if err := http.Header(fx.Header).Write(&b); err != nil {
			f.Fatal(err)
		}
		f.Add(uint16(fx.Status), b.String(), fx.Host, fx.Body, fx.Now.Unix())
	}
	f.Add(uint16(429), "X-A: 1/5, 7:60\r\nX-B: 0.5\r\nX-C: 1500\r\nX-D: 6m0s\r\nX-E: 3\r\n", "a", `{"error":[1]}`, int64(0))
	f.Fuzz(func(t *testing.T, status uint16, lines, host, body string, unix int64) {
		h, _ := textproto.NewReader(bufio.NewReader(strings.NewReader(lines + "\r\n\r\n"))).ReadMIMEHeader()
		resp := from(host, response(int(status), http.Header(h)))
		synctest.Test(t, func(t *testing.T) { everything(t, resp, time.Unix(unix, 0), body) })
	})
}

// FuzzRetryAfter reads the value of Retry-After.
func FuzzRetryAfter(f *testing.F) {
	for _, v := range []string{
		"120", "2.0", "0.0000000001", "9223372036", "9223372037", "18446744074", "NaN", "+5", "0x10", "1e3", "-1", ".5",
		"Sat, 10 Jan 2026 12:01:00 GMT", "Saturday, 10-Jan-26 12:01:00 GMT", "Sat Jan 10 12:01:00 2026",
		"Sat, 10 Jan 2026 12:01:00 UTC", "Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0000 00:00:00 GMT", "soon, -1, 9", "106751d", "P106751DT99H",
	} {
		f.Add(v, "", noon.Unix(), uint16(429))
		f.Add(v, "Sat, 10 Jan 2026 12:00:00 GMT", noon.Unix(), uint16(429))
		f.Add(v, v, int64(0), uint16(503))
	}
	for _, tt := range append(nine, nineOrTen...) {
		f.Add(tt.value, "Sat, 10 Jan 2026 12:00:00 GMT", noon.Unix(), uint16(429))
	}
	f.Fuzz(func(t *testing.T, value, date string, unix int64, status uint16) {
		resp := response(int(status), http.Header{"Retry-After": {value}, "Date": {date}})
		now := time.Unix(unix, 0)
		got := Parse(resp, now)
		always := status == 429 || status == 418 || status == 529
		switch {
		case got.RetryAfter < 0:
			t.Errorf("negative wait %v", got.RetryAfter)
		case got.Throttled != (always || (status == 503 || status == 403) && got.RetryAfter > 0):
			t.Errorf("status %d: %+v", status, got)
		case status < 300 && got.RetryAfter != 0:
			t.Errorf("status %d tells a wait: %v", status, got.RetryAfter)
		}
		if at, ok := (clock{now: now}).moment(trim(value), 0); ok && got.RetryAfter > 2*day && at.Sub(now).Abs() < day {
			t.Errorf("%q is near, and the wait is %v", value, got.RetryAfter)
		}
		resp.Header["Retry-After"] = []string{"1", value}
		if both := Parse(resp, now); both.RetryAfter < got.RetryAfter {
			t.Errorf("one more line shortens the wait from %v to %v", got.RetryAfter, both.RetryAfter)
		}
	})
}

// FuzzBody reads what a body says. It never panics, no wait is negative or longer than any window, the order of members does not
// matter, and the body's reader gets every byte, also if the rest comes late.
func FuzzBody(f *testing.F) {
	for _, row := range refusals {
		f.Add(uint16(row.status), "", row.body)
		f.Add(uint16(429), "", row.body)
	}
	for _, encoding := range []string{"gzip", "deflate"} {
		f.Add(uint16(429), encoding, "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\xabV*J-)\xaa\x8cOL+I-R\xb2\xb2\xac\x05\x00\x10\x1a\xf5\xfe\x11\x00\x00\x00")
		f.Add(uint16(429), encoding, "x\x9c\xabV*J-)\xaa\x8cOL+I-R\xb2\xb2\xac\x05\x002?\x05\x8e")
	}
	f.Fuzz(func(t *testing.T, status uint16, encoding, body string) {
		synctest.Test(t, func(t *testing.T) { lookInto(t, int(status), encoding, body) })
	})
}

func lookInto(t *testing.T, status int, encoding, body string) {
	var first Hint
	for i, parse := range []func(*http.Response, time.Time) Hint{looking.Parse, looking.Parse, looking.Parse, Parse} {
		resp, _ := jsonResponse(status, strings.NewReader(body))
		if resp.Header.Set("Content-Encoding", encoding); i == 3 && len(body)%2 > 0 {
			resp.Header.Set("Content-Type", "text/plain")
		}
		h := parse(resp, noon)
		if sane(t, h); h.RetryAfter > maxSaid {
			t.Errorf("waits for %v", h.RetryAfter)
		}
		if i == 0 {
			first = h
		} else if i < 3 && !reflect.DeepEqual(first, h) {
			t.Errorf("first %+v\nthen %+v", first, h)
		}
		if b, err := io.ReadAll(resp.Body); err != nil || string(b) != body {
			t.Errorf("the body became %.200q, %v", b, err)
		}
	}
}

// FuzzSentence reads waits in names and sentences.
func FuzzSentence(f *testing.F) {
	for _, s := range []string{
		"Please try again in 1m2.5s.", "retry after 35", "replenished in 00:06:12.", "banned until 1589213141000.", "wait a few minutes",
		"in an hour, 1 minute and 99999999999999 days", "for 9999.9999:9999:9999.9", "retryAfterMs", "x-ratelimit-reset", "retry_limit",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c := clock{now: noon}
		if d := c.waitIn(s); d < 0 {
			t.Errorf("waitIn(%q) = %v", s, d)
		}
		if d := c.amount(strings.Fields(s), true); d < 0 {
			t.Errorf("amount(%q) = %v", s, d)
		}
		r, unit := waitName(s)
		if upper, u := waitName(strings.ToUpper(s)); len(s) == len(strings.ToUpper(s)) && strings.EqualFold(s, strings.ToUpper(s)) && (upper != r || u != unit) || unit < 0 {
			t.Errorf("waitName(%q) = %v, %v", s, r, unit)
		}
	})
}

// FuzzReset reads the end of a window.
func FuzzReset(f *testing.F) {
	for _, v := range []string{
		"30", "1768046410", "1768046410.25", "1768046410250", "99999999999", "100000000000000", "6m0s", "20ms", "9223372037s",
		"1,60", "50;w=60", "2026-01-10T12:01:00.250000Z", "2026-01-10T12:01Z", "Sat, 10 Jan 2026 12:01:00 UTC", "0000-01-01T00:00Z",
	} {
		f.Add(v, int64(0), noon.Unix(), int64(0))
		f.Add(v, int64(time.Millisecond), int64(-1<<62), int64(30*time.Second))
	}
	for _, tt := range append(nine, nineOrTen...) {
		f.Add(tt.value, int64(0), noon.Unix(), int64(0))
	}
	f.Fuzz(func(t *testing.T, s string, unit, unix, wait int64) {
		c := clock{now: time.Unix(unix, 0), wait: time.Duration(wait)}
		d, ok := c.reset(s, time.Duration(unit))
		if d < 0 {
			t.Errorf("reset(%q) = %v, %v", s, d, ok)
		}
		// What was read reads back, as a number and as a span in words.
		plain := fmt.Sprintf("%d.%09d", d/time.Second, d%time.Second)
		for _, text := range []string{plain, d.String(), plain + " seconds", "PT" + plain + "S", "0:0:" + plain} {
			again, read := (clock{now: noon}).reset(text, 0)
			if long := d >= epochFrom; ok && !long && (again != d || !read) {
				t.Errorf("reset(%q) = %v, %v, and %q is %v, %v", s, d, ok, text, again, read)
			}
		}
		if n, ok := parseDecimal(s, max(1, time.Duration(unit))); n < 0 || ok != isDecimal(s) {
			t.Errorf("parseDecimal(%q) = %v, %v", s, n, ok)
		}
		if rate, ok := parseRate(s); !(rate >= 0) || math.IsInf(rate, 0) || rate > 0 && !ok {
			t.Errorf("parseRate(%q) = %v, %v", s, rate, ok)
		}
		if u, l, _ := parseShare(s); u < 0 || l < 0 {
			t.Errorf("parseShare(%q) = %v, %v", s, u, l)
		}
	})
}

// FuzzDate reads dates. Written in any other way, a date is the same moment.
func FuzzDate(f *testing.F) {
	for _, tt := range append(nine, nineOrTen...) {
		f.Add(tt.value, noon.Unix())
		f.Add(strings.Trim(tt.value, `"`), int64(0))
	}
	f.Fuzz(func(t *testing.T, s string, unix int64) {
		now := time.Unix(unix%(1<<33), 0)
		d, ok := parseDate(s, now)
		if !ok || d.t.Year() < 0 || d.t.Year() > 9999 {
			return
		}
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999 -0700 MST", "Monday, 02-January-2006 15:04:05.999999999 GMT", "15:04:05.999999999 Jan _2 2006"} {
			if again, ok := parseDate(d.t.Format(layout), now); !ok || !again.t.Equal(d.t) {
				t.Errorf("%q is %v; %q is %v, %v", s, d.t, d.t.Format(layout), again.t, ok)
			}
		}
	})
}

// FuzzPairs reads what describes a whole quota.
func FuzzPairs(f *testing.F) {
	for _, v := range []string{`{"name":"General","period":60,"limit":1000,"remaining":999,"until":"2026-01-10T12:01:00Z"}`, "total=100; remaining=99; resets=41",
		`{"limit":-1}`, `{'limit':50,'left':7`, "limit: 50, remaining: 7, reset: 9", `{"limit":{"minute":5}}`, "a=b=c"} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, name := range []string{"Ratelimit", "X-Ratelimit", "Acme-Ratelimit-Info"} {
			sane(t, Parse(response(429, http.Header{name: {s}}), noon))
		}
	})
}

// FuzzItems reads structured fields. Splitting a field into two lines, or writing out again what was read,
// does not change what is read.
func FuzzItems(f *testing.F) {
	for _, fx := range loadFixtures(f) {
		for _, lines := range fx.Header {
			f.Add(lines[0], true)
			f.Add(lines[0], false)
		}
	}
	f.Add(`"a";r=1;r=5;t=2;pk=:cHsdsRa894==:;x=?1;y`, false)
	f.Add(`limit=1;x=2, remaining=0, reset=1`, false)
	f.Add(`"a,b;c=\"d\\";r=1`, false)
	f.Fuzz(func(t *testing.T, line string, loose bool) {
		var one, two items
		ok := one.read([]string{line}, loose)
		if both := two.read([]string{line, line}, loose); both != ok {
			t.Errorf("%q: read %v, twice %v", line, ok, both)
		}
		if two.n != min(2*one.n, maxQuotas) {
			t.Errorf("%q: %d items, twice %d", line, one.n, two.n)
		}
		for i := range one.n {
			it := &one.all[i]
			if it.n < -1 || it.q < -1 || it.w < -1 || it.r < -1 || it.t < -1 || it.form == number && it.n < 0 {
				t.Errorf("%q: negative in %+v", line, *it)
			}
			if it.form != text || strings.ContainsRune(line, '\\') {
				continue
			}
			var again items
			if !again.read([]string{fmt.Sprintf("%q;r=%d", it.name, max(0, it.r)%1e15)}, false) || again.all[0].name != it.name {
				t.Errorf("%q: %q does not read back", line, it.name)
			}
		}
	})
}

// FuzzDecode reads the names of fields.
func FuzzDecode(f *testing.F) {
	for _, fx := range loadFixtures(f) {
		for name := range fx.Header {
			f.Add(name)
			f.Add(http.CanonicalHeaderKey(name))
		}
	}
	f.Fuzz(func(t *testing.T, key string) {
		a := decode(key)
		if a.kind == none {
			return
		}
		if !strings.HasPrefix(key, a.prefix) || !strings.Contains(key, a.unit) || a.window < 0 {
			t.Errorf("decode(%q) = %+v", key, a)
		}
		upper := strings.ToUpper(key) // outside ASCII this may change the length
		if b := decode(upper); len(upper) == len(key) && strings.EqualFold(upper, key) && (a.kind != b.kind || a.window != b.window) {
			t.Errorf("decode(%q) = %+v, in capitals %+v", key, a, b)
		}
		if strings.Contains(key, "imit") && !mentionsLimit(http.Header{key: nil}) {
			t.Errorf("%q is passed over", key)
		}
	})
}

// TestAnyResponse makes responses of names and values that have a meaning, at random.
func TestAnyResponse(t *testing.T) { synctest.Test(t, lookAnyResponse) }

func lookAnyResponse(t *testing.T) {
	names := []string{"Retry-After", "Retry-After-Ms", "Date", "Age", "X-From-Cache", "X-Should-Retry", "Content-Type", "X-Ratelimit-Bucket", "X-Ratelimit-Scope"}
	for _, p := range []string{"", "X-", "Beta-", "X-Rate-Limit-"} {
		for _, k := range []string{"", "-Policy", "-Limit", "-Remaining", "-Reset", "-Reset-After", "-Used", "-Limit-Tokens", "-Remaining-Minute", "-Name"} {
			names = append(names, p+"Ratelimit"+k)
		}
	}
	values := []string{
		"0", "1", "60", "-1", "99", "false", "1768046410", "1768046410000", "NaN", "", "soon", "1.5", "10, 10;w=1, 1000;w=3600",
		`"a";r=0;t=5`, `"a";q=10;w=60, "b";q=5`, "limit=5, remaining=0, reset=1", "5;w=60", "20ms", "global", "application/json",
		"Sat, 10 Jan 2026 12:00:00 GMT", "2026-01-10T12:01:00Z", strings.Repeat(`"x";r=1,`, 50) + `"y";r=2`,
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	hosts := []string{"", "www.strava.com", "api.datadoghq.com", "x.myshopify.com", "discord.com"}
	for range race.Pick(4000, 20_000) {
		h := http.Header{}
		for range rnd.IntN(12) {
			h.Add(names[rnd.IntN(len(names))], values[rnd.IntN(len(values))])
		}
		status := []int{200, 301, 400, 403, 429, 503, 529}[rnd.IntN(7)]
		everything(t, from(hosts[rnd.IntN(len(hosts))], response(status, h)), noon, `{"__type":"SlowDown"}`)
	}
}

// A hostile header costs little, keeps little, and is read the same way every time.
func TestHostile(t *testing.T) {
	many := http.Header{}
	for i := range 20_000 {
		many.Add(fmt.Sprintf("X%d-Ratelimit-Remaining-U%d", i%7, i), "1")
	}
	huge := http.Header{}
	for _, name := range []string{"Ratelimit", "Ratelimit-Policy", "X-Ratelimit-Limit", "X-Ratelimit-Reset", "Retry-After", "Date", "Age"} {
		huge[name] = []string{strings.Repeat(`"a";r=1, `, 100_000) + `"b";r=0`, strings.Repeat("9", 1_000_000)}
	}
	lines := http.Header{}
	for range 100_000 {
		lines["Ratelimit"] = append(lines["Ratelimit"], "")
		lines["Retry-After"] = append(lines["Retry-After"], "1")
		lines["X-Ratelimit-Remaining"] = append(lines["X-Ratelimit-Remaining"], "1")
	}
	long := http.Header{strings.Repeat("X-Ratelimit-", 100_000) + "Limit": {"1"}, "Ratelimit": {`"` + strings.Repeat("n", 5000) + `";r=1`}}
	for name, h := range map[string]http.Header{"many": many, "huge": huge, "lines": lines, "long": long} {
		resp := response(429, h)
		start := time.Now()
		everything(t, resp, noon, "")
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
		if n := testing.AllocsPerRun(3, func() { Parse(resp, noon) }); n > 40 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if q := Parse(resp, noon).Quotas; name == "many" && len(q) != maxQuotas {
			t.Errorf("%d quotas of many, want %d", len(q), maxQuotas)
		}
	}
}
