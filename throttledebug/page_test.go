package throttledebug_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttledebug"
)

// cellText finds the text of each cell of the table.
var cellText = regexp.MustCompile(`<td class="([a-z_]+)[^"]*">(?:<a[^>]*><bdi>)?([^<]*)`)

// rowsOf reads the table of a page: for each row its cells by column.
func rowsOf(t *testing.T, h http.Handler, query string) (rows []map[string]string) {
	t.Helper()
	w := get(h, "/?"+query)
	if w.Code != 200 {
		t.Fatalf("%s: %d", query, w.Code)
	}
	_, table, _ := strings.Cut(w.Body.String(), `<table id="keys">`)
	_, table, _ = strings.Cut(table, "<tbody>")
	for _, line := range strings.Split(table, "<tr")[1:] {
		row := map[string]string{}
		for _, m := range cellText.FindAllStringSubmatch(line, -1) {
			row[m[1]] = html.UnescapeString(m[2])
		}
		rows = append(rows, row)
	}
	return rows
}

// keysOf are the keys of the table, in its order.
func keysOf(t *testing.T, h http.Handler, query string) (keys []string) {
	for _, row := range rowsOf(t, h, query) {
		keys = append(keys, row["key"])
	}
	return keys
}

// The table without script: it is sorted and searched by the query, and has links to all of that.
func TestTable(t *testing.T) {
	api, mail := newTransport(), newTransport()
	mail.LimiterFor = func(string) throttle.Limiter { return throttle.NewBucket(10, 5) }
	call(t, api, "b.test", 3)
	call(t, api, "A.test", 1)
	call(t, mail, "c.test", 2)
	h := throttledebug.Handler(map[string]*throttle.Transport{"api": api, "mail": mail})
	for query, want := range map[string]string{
		"":                       "A.test b.test c.test", // nobody waits: by name and key
		"sort=sent":              "b.test c.test A.test",
		"sort=-sent":             "A.test c.test b.test",
		"sort=key":               "A.test b.test c.test",
		"sort=-name":             "c.test A.test b.test",
		"sort=limit":             "c.test A.test b.test",
		"q=a.TEST":               "A.test",
		"q=MAIL":                 "c.test",
		"q=nothing":              "",
		"sort=nonsense&from=-3":  "A.test b.test c.test",
		"from=2":                 "c.test",
		"from=77":                "",
		"from=99999999999999999": "",
		"q=%ff%00&sort=%ff":      "",
		"name=x&key=y":           "A.test b.test c.test",
	} {
		if got := strings.Join(keysOf(t, h, query), " "); got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
	row := rowsOf(t, h, "q=c.test")[0]
	for column, want := range map[string]string{"name": "mail", "sent": "2", "waiting": "0", "oldest": "–", "limit": "10/s", "gate": "open", "held": "", "refused": "0"} {
		if row[column] != want {
			t.Errorf("%s is %q, want %q", column, row[column], want)
		}
	}
	page := get(h, "/?sort=sent&q=test&name=mail&key=c.test").Body.String()
	for _, want := range []string{
		`aria-sort="descending"><a class="view" href="?key=c.test&amp;name=mail&amp;q=test&amp;sort=-sent"`,      // turns it round
		`href="?key=A.test&amp;name=api&amp;q=test&amp;sort=sent"`,                                               // chooses a key
		`<input type="hidden" name="sort" value="sent">`,                                                         // and searching keeps the rest
		`<tr class="chosen"><td class="name wide">mail</td><td class="key"><a class="view" href="?key=c.test&am`, // which is chosen
		"3 keys, 0 waiting, 0 in flight, 0 closed",
		"Nobody waits.",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
}

// 10,000 keys are shown a hundred at a time, and no key is shown twice or left out.
func TestManyKeys(t *testing.T) {
	const keys = 1250 // both ways of sorting
	tr := newTransport()
	many(t, tr, keys)
	h := throttledebug.Handler(one(tr))
	var all []string
	for from := 0; ; from += 100 {
		some := keysOf(t, h, fmt.Sprintf("sort=-key&from=%d", from))
		if len(some) == 0 {
			break
		}
		all = append(all, some...)
	}
	slices.Reverse(all)
	if len(all) != keys || !slices.IsSorted(all) || len(slices.Compact(all)) != keys {
		t.Errorf("%d keys, in order: %v", len(all), slices.IsSorted(all))
	}
	page := get(h, "/?from=100").Body.String()
	for _, want := range []string{"101 to 200 of 1,250", `id="before" href="?">`, `id="after" href="?from=200">`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
}

// Keys and names are text, whatever is in them. Two keys that differ are shown differently, and each link finds its own.
func TestHostileKeys(t *testing.T) {
	tr := newTransport()
	hostile := map[string]string{ // and how they are shown
		`<script>alert(1)</script>`:      `<script>alert(1)</script>`,
		`"><img src=x onerror=alert(1)>`: `\"><img src=x onerror=alert(1)>`,
		"line\nbreak\r\x00":              `line\nbreak\r\x00`,
		`line\nbreak\r\x00`:              `line\\nbreak\\r\\x00`,
		strings.Repeat("\u202e", 85):     strings.Repeat(`\u202e`, 85),
		strings.Repeat("ש", 128):         strings.Repeat("ש", 128),
		"\xff\xfe":                       `\xff\xfe`,
		"javascript:alert(1)":            "javascript:alert(1)",
		"a&b=c#d?e/../%2e":               "a&b=c#d?e/../%2e",
		"":                               "",
	}
	for key := range hostile {
		call(t, tr, key, 1)
	}
	name := `"><script>alert(2)</script>`
	h := throttledebug.Handler(map[string]*throttle.Transport{name: tr})
	page := get(h, "/").Body.String()
	for _, bad := range []string{"<script>alert", "<img", "\u202e", "\x00"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	shown := keysOf(t, h, "")
	if len(shown) != len(hostile) {
		t.Errorf("%d rows: %q", len(shown), shown)
	}
	for key, text := range hostile {
		if !slices.Contains(shown, text) {
			t.Errorf("%q is not shown as %q", key, text)
		}
	}
	for _, link := range regexp.MustCompile(`<td class="key[^"]*"><a class="view" href="([^"]*)"><bdi>([^<]*)`).FindAllStringSubmatch(page, -1) {
		chosen := get(h, "/"+html.UnescapeString(link[1])).Body.String()
		_, got, _ := strings.Cut(chosen, `<bdi id="chosen-key">`)
		got, _, _ = strings.Cut(got, "<")
		if got != link[2] || !strings.Contains(chosen, "Nobody waits.") {
			t.Errorf("the link of %s leads to %s", link[2], got)
		}
	}
	var state struct {
		Transports []struct {
			Name string
			Keys []struct{ Key string }
		}
	}
	if err := json.Unmarshal(get(h, "/state.json").Body.Bytes(), &state); err != nil || len(state.Transports[0].Keys) != len(hostile) || state.Transports[0].Name != name {
		t.Errorf("%v, %+v", err, state)
	}
}

// state.json has what Stats has, and limit cuts it short.
func TestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := new(upstream)
		up.set(200, http.Header{"Ratelimit": {`"day";r=4180;t=3600`}, "Ratelimit-Policy": {`"day";q=5000;w=86400`}})
		tr := &throttle.Transport{Base: up, Key: byField, LimiterFor: func(key string) throttle.Limiter {
			if key == "b.test" {
				return nil
			}
			return throttle.NewBucket(10, 5)
		}}
		call(t, tr, "a.test", 2)
		tr.Pause("b.test", 90*time.Second)
		h := throttledebug.Handler(map[string]*throttle.Transport{"api": tr, "nil": nil})
		want := `{"time":"2000-01-01T00:00:00Z","transports":[` +
			`{"name":"api","total":{"sent":2,"throttled":0,"retried":0,"refused":0},"keys":[` +
			`{"key":"a.test","waiting":0,"sent":2,"limit":10,"tokens":3,"learned":[{"source":"Ratelimit","name":"day","unit":"requests","limit":5000,"remaining":4180,"window":86400,"reset":3600}],` +
			`"limits":[{"reason":"limit","limit":10,"size":5,"available":3,"taken":2}]},` +
			`{"key":"b.test","waiting":0,"reason":"gate:paused","sent":0,"closed_for":90}]},` +
			`{"name":"nil","error":"the Transport is nil","keys":[]}]}`
		w := get(h, "/state.json?sort=key")
		if got := strings.ReplaceAll(w.Body.String(), "\n", ""); got != want || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s\nwant\n%s", got, want)
		}
		if got := get(h, "/state.json?sort=-key&limit=1").Body.String(); strings.Contains(got, "a.test") || !strings.Contains(got, "b.test") {
			t.Errorf("limit=1: %s", got)
		}
		if got := get(h, "/state.json?limit=0").Body.String(); strings.Contains(got, ".test") || !json.Valid([]byte(got)) {
			t.Errorf("limit=0: %s", got)
		}
	})
}

// Numbers and times are written as people read them.
func TestWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := map[string]float64{"10/s": 10, "0.5": 0.5, "1,234/s": 1234, "30/min": 0.5, "5/h": 5.0 / 3600, "1/d": 1.0 / 86400, "99.9/s": 99.9}
		delete(limits, "0.5")
		spans := map[string]time.Duration{"0.1 s": 30 * time.Millisecond, "9.9 s": 9900 * time.Millisecond, "12 s": 12 * time.Second, "59 s": 59 * time.Second,
			"1 min": time.Minute, "3 min 20 s": 200 * time.Second, "1 h": time.Hour, "2 h 5 min": 125 * time.Minute, "3 d 4 h": 76 * time.Hour}
		tr := newTransport()
		tr.LimiterFor = func(key string) throttle.Limiter { return throttle.NewBucket(rate.Limit(limits[key]), 1) }
		other := newTransport()
		for want := range limits {
			tr.Pause(want, time.Hour)
		}
		for want, d := range spans {
			other.Pause(want, d)
		}
		for _, row := range rowsOf(t, throttledebug.Handler(one(tr)), "") {
			if row["limit"] != row["key"] {
				t.Errorf("a limit of %s is written %s", row["key"], row["limit"])
			}
		}
		for _, row := range rowsOf(t, throttledebug.Handler(one(other)), "") {
			if row["gate"] != "paused, "+row["key"] {
				t.Errorf("a pause of %s is written %s", row["key"], row["gate"])
			}
		}
	})
}

// Queries are not trusted.
func FuzzQuery(f *testing.F) {
	f.Add("q=a&sort=-key&from=1&name=api&key=api.test&limit=3")
	f.Add("from=9223372036854775807&limit=-1&key=%5c")
	tr := newTransport()
	many(f, tr, 3)
	h := throttledebug.Handler(one(tr))
	f.Fuzz(func(t *testing.T, query string) {
		query = url.PathEscape(query)
		for _, path := range []string{"/", "/state.json"} {
			if w := get(h, path+"?"+strings.ReplaceAll(query, "%26", "&")); w.Code != 200 {
				t.Errorf("%s?%s: %d", path, query, w.Code)
			}
		}
	})
}
