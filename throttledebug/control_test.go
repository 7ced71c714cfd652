package throttledebug_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttledebug"
)

// post sends a form.
func post(h http.Handler, path string, form url.Values, header ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest("POST", path, strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

// stats returns what a Transport says of a key, and how many keys it has.
func stats(tr *throttle.Transport, key string) (found throttle.KeyStats, keys int) {
	for s := range tr.Stats() {
		if keys++; s.Key == key {
			found = s
		}
	}
	return found, keys
}

// A key is paused for as long as the form says, a minute if it says nothing, and resumed. The answer leads back.
func TestPause(t *testing.T) {
	for _, hostile := range []string{"api.test", `"\`, "a\nb", "\xff", "<b>"} {
		synctest.Test(t, func(t *testing.T) {
			tr := newTransport()
			call(t, tr, hostile, 1)
			h := throttledebug.Controls(one(tr))
			shown := strings.Trim(strings.TrimSpace(hostile), " ")
			if hostile != "api.test" && hostile != "<b>" {
				shown = map[string]string{`"\`: `\"\\`, "a\nb": `a\nb`, "\xff": `\xff`}[hostile]
			}
			form := url.Values{"name": {"api"}, "key": {shown}}
			w := post(h, "/pause", form, "Sec-Fetch-Site", "same-origin")
			if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "./?"+form.Encode() {
				t.Fatalf("%q: %d to %q: %s", hostile, w.Code, w.Header().Get("Location"), w.Body)
			}
			if s, keys := stats(tr, hostile); s.Reason != "gate:paused" || s.ClosedFor != time.Minute || keys != 1 {
				t.Errorf("%q: %q for %v of %d keys, want paused for 1m0s", hostile, s.Reason, s.ClosedFor, keys)
			}
			if page := get(h, "/?"+form.Encode()).Body.String(); !strings.Contains(page, "paused, 1 min") {
				t.Errorf("%q: the page does not say that it is paused", hostile)
			}
			if w := post(h, "/resume", form); w.Code != http.StatusSeeOther {
				t.Fatal(w.Code, w.Body)
			}
			if s, _ := stats(tr, hostile); s.Reason != "" {
				t.Errorf("%q: still %q after /resume", hostile, s.Reason)
			}
			form.Set("seconds", "90")
			post(h, "/pause", form)
			if s, _ := stats(tr, hostile); s.ClosedFor != 90*time.Second {
				t.Errorf("%q: closed for %v, want 90 s", hostile, s.ClosedFor)
			}
		})
	}
}

// What is nonsense changes nothing, and makes no key.
func TestPauseRefused(t *testing.T) {
	tr := newTransport()
	call(t, tr, "api.test", 1)
	call(t, tr, "", 1) // the empty key stands for all in Transport.Pause
	h := throttledebug.Controls(map[string]*throttle.Transport{"api": tr, "nil": nil})
	for _, c := range []struct {
		form url.Values
		want int
	}{
		{url.Values{"name": {"api"}, "key": {"other.test"}}, 404},
		{url.Values{"name": {"other"}, "key": {"api.test"}}, 404},
		{url.Values{"name": {"nil"}, "key": {"api.test"}}, 404},
		{url.Values{"name": {"api"}, "key": {""}}, 404},
		{url.Values{}, 404},
		{url.Values{"name": {"api"}, "key": {"api.test"}, "seconds": {"0"}}, 400},
		{url.Values{"name": {"api"}, "key": {"api.test"}, "seconds": {"-1"}}, 400},
		{url.Values{"name": {"api"}, "key": {"api.test"}, "seconds": {"86401"}}, 400},
		{url.Values{"name": {"api"}, "key": {"api.test"}, "seconds": {"1e3"}}, 400},
		{url.Values{"name": {"api"}, "key": {strings.Repeat("x", 5000)}}, 400},
	} {
		if w := post(h, "/pause", c.form); w.Code != c.want {
			t.Errorf("%.80s: %d, want %d", c.form.Encode(), w.Code, c.want)
		}
	}
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "http://evil.example"}, {"Origin", "null"}} {
		if w := post(h, "/pause", url.Values{"name": {"api"}, "key": {"api.test"}}, header...); w.Code != 403 {
			t.Errorf("%v: %d", header, w.Code)
		}
	}
	// A query is a link, and a link must not change anything.
	if w := get(h, "/pause?name=api&key=api.test"); w.Code != 405 || w.Header().Get("Allow") != "POST" {
		t.Errorf("GET: %d", w.Code)
	}
	if w := post(h, "/pause?name=api&key=api.test", nil); w.Code != 404 {
		t.Errorf("POST of a query: %d", w.Code)
	}
	if s, keys := stats(tr, "api.test"); s.Reason != "" || keys != 2 {
		t.Errorf("paused: %q, %d keys", s.Reason, keys)
	}
}
