package throttledebug_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttledebug"
)

// Whatever is asked for, only GET is answered, and a read-only page has nothing to post to.
func TestMethods(t *testing.T) {
	h := throttledebug.Handler(one(newTransport()))
	for _, method := range []string{"HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"} {
		for _, path := range []string{"/", "/events", "/state.json", "/app.js", "/pause", "/resume", "/nothing"} {
			if w := ask(h, method, path); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET" {
				t.Errorf("%s %s: %d, Allow %q", method, path, w.Code, w.Header().Get("Allow"))
			}
		}
	}
	for path, want := range map[string]int{"/": 200, "/state.json": 200, "/app.js": 200, "/uPlot.min.css": 200, "/nothing": 404, "/web/app.js": 404, "/page.html": 404, "/LICENSE": 404, "/pause": 404, "/../doc.go": 404} {
		if w := get(h, path); w.Code != want {
			t.Errorf("GET %s: %d, want %d", path, w.Code, want)
		}
	}
	if w := get(h, "/debug/throttle/"); !strings.Contains(w.Body.String(), "http.StripPrefix") {
		t.Errorf("without StripPrefix the page says %q, and not what is missing", w.Body)
	}
}

// What a browser sends from another origin is refused, whatever it asks for. Whoever follows a link sees the page.
func TestOrigins(t *testing.T) {
	handlers := map[string]http.Handler{"Handler": throttledebug.Handler(one(newTransport())), "Controls": throttledebug.Controls(one(newTransport()))}
	for _, c := range []struct {
		what   string
		header []string
		page   int // the status of /
		state  int // and of /state.json
	}{
		{"no browser", nil, 200, 200},
		{"the page itself", []string{"Sec-Fetch-Site", "same-origin"}, 200, 200},
		{"an address that was typed", []string{"Sec-Fetch-Site", "none"}, 200, 200},
		{"the page itself behind a proxy that changes Host", []string{"Sec-Fetch-Site", "same-origin", "Origin", "https://ops.example"}, 200, 200},
		{"another site", []string{"Sec-Fetch-Site", "cross-site"}, 403, 403},
		{"a sibling", []string{"Sec-Fetch-Site", "same-site"}, 403, 403},
		{"an unknown word", []string{"Sec-Fetch-Site", "friendly"}, 403, 403},
		{"another site by Origin alone", []string{"Origin", "http://evil.example"}, 403, 403},
		{"another port by Origin alone", []string{"Origin", "http://example.com:81"}, 403, 403},
		{"an opaque origin", []string{"Origin", "null"}, 403, 403},
		{"the page by Origin alone", []string{"Origin", "http://EXAMPLE.com"}, 200, 200},
		{"a link that was followed", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200, 403},
		{"a frame of another site", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, 403, 403},
	} {
		for name, h := range handlers {
			if w := get(h, "/", c.header...); w.Code != c.page {
				t.Errorf("%s, %s: the page %d, want %d", name, c.what, w.Code, c.page)
			}
			if w := get(h, "/state.json", c.header...); w.Code != c.state {
				t.Errorf("%s, %s: state.json %d, want %d", name, c.what, w.Code, c.state)
			}
			if c.state == 403 {
				if w := get(h, "/events", c.header...); w.Code != 403 {
					t.Errorf("%s, %s: events %d", name, c.what, w.Code)
				}
				if w := ask(h, "POST", "/pause", c.header...); w.Code != 403 {
					t.Errorf("%s, %s: POST %d", name, c.what, w.Code)
				}
			}
		}
	}
}

// Nothing is inline, nothing comes from elsewhere, and all links are relative.
func TestNothingInline(t *testing.T) {
	tr := newTransport()
	many(t, tr, 120)
	for name, h := range map[string]http.Handler{"Handler": throttledebug.Handler(one(tr)), "Controls": throttledebug.Controls(one(tr))} {
		w := get(h, "/?name=api&key=host-00001.example.com&from=10")
		if csp := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'self';") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: %s", name, csp)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", name, w.Header())
		}
		page := w.Body.String()
		for _, bad := range []string{`<style`, `\sstyle=`, `\son[a-z]+=`, `<script[^>]*>[^<]`, `javascript:`} {
			if found := regexp.MustCompile(bad).FindString(page); found != "" {
				t.Errorf("%s: the page has %q", name, found)
			}
		}
		links := regexp.MustCompile(`(?:href|src|action)="([^"]*)"`).FindAllStringSubmatch(page, -1)
		for _, l := range links {
			if strings.HasPrefix(l[1], "/") || strings.Contains(l[1], ":") {
				t.Errorf("%s: the link %q is not relative", name, l[1])
			}
		}
		if len(links) < 100 {
			t.Errorf("%s: %d links", name, len(links))
		}
		if got := strings.Contains(page, `action="pause"`); got != (name == "Controls") {
			t.Errorf("%s: buttons: %v", name, got)
		}
	}
}

// The page works below any prefix, stripped with or without its slash, and finds its own slash.
func TestPrefix(t *testing.T) {
	h := throttledebug.Handler(one(newTransport()))
	for _, strip := range []string{"/debug/throttle", "/debug/throttle/"} {
		below := http.StripPrefix(strip, h)
		for _, path := range []string{"/debug/throttle/", "/debug/throttle/?q=x", "/debug/throttle/app.css", "/debug/throttle/state.json"} {
			if w := get(below, path); w.Code != 200 {
				t.Errorf("%s without %s: %d", path, strip, w.Code)
			}
		}
	}
	w := get(http.StripPrefix("/debug/throttle", h), "/debug/throttle?q=x")
	if w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != "./throttle/?q=x" {
		t.Errorf("%d to %q", w.Code, w.Header().Get("Location"))
	}
}

// Files are served with their type, and again only if they have changed.
func TestFiles(t *testing.T) {
	h := throttledebug.Handler(nil)
	for file, kind := range map[string]string{"app.js": "text/javascript", "charts.js": "text/javascript", "app.css": "text/css", "uPlot.iife.min.js": "text/javascript", "icon.svg": "image/svg+xml"} {
		w := get(h, "/"+file)
		tag := w.Header().Get("ETag")
		if !strings.HasPrefix(w.Header().Get("Content-Type"), kind) || w.Body.Len() == 0 || tag == "" {
			t.Errorf("%s: %d bytes, %v", file, w.Body.Len(), w.Header())
		}
		if w := get(h, "/"+file, "If-None-Match", tag); w.Code != http.StatusNotModified || w.Body.Len() != 0 {
			t.Errorf("%s again: %d, %d bytes", file, w.Code, w.Body.Len())
		}
	}
}

// The charts' library is that of the registry, uplot@1.6.32, byte for byte, and its license is beside it.
func TestVendored(t *testing.T) {
	for file, want := range map[string]string{
		"uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
		"uPlot.min.css":     "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
		"LICENSE":           "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
	} {
		text, err := os.ReadFile("web/uplot/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s has the sum %x", file, sum)
		}
	}
}

// A map without a Transport, and one that is nil, make a page that says so.
func TestNoTransport(t *testing.T) {
	var missing *throttle.Transport
	good := newTransport()
	call(t, good, "api.test", 2)
	for _, c := range []struct {
		transports map[string]*throttle.Transport
		says       []string
	}{
		{nil, []string{"There is no Transport", "No key yet"}},
		{map[string]*throttle.Transport{}, []string{"There is no Transport"}},
		{map[string]*throttle.Transport{"mail": missing}, []string{`The Transport &#34;mail&#34; is nil`, "No key yet"}},
		{map[string]*throttle.Transport{"mail": nil, "good": good}, []string{"is nil", "api.test"}},
	} {
		h := throttledebug.Controls(c.transports)
		for _, path := range []string{"/", "/?name=mail&key=x"} {
			w := get(h, path)
			for _, text := range c.says {
				if w.Code != 200 || !strings.Contains(w.Body.String(), text) {
					t.Errorf("%v: %d, does not say %q", c.transports, w.Code, text)
				}
			}
		}
		if w := get(h, "/state.json"); w.Code != 200 || c.transports["mail"] != nil && !strings.Contains(w.Body.String(), "the Transport is nil") {
			t.Errorf("%v: %s", c.transports, w.Body)
		}
	}
}

// The map may be changed after Handler has returned.
func TestMapIsCopied(t *testing.T) {
	m := one(newTransport())
	h := throttledebug.Handler(m)
	m["late"] = nil
	delete(m, "api")
	if page := get(h, "/").Body.String(); strings.Contains(page, "late") || strings.Contains(page, "There is no Transport") {
		t.Error("the page follows the map")
	}
}

// The handler registers itself nowhere.
func TestRegistersNowhere(t *testing.T) {
	throttledebug.Handler(one(newTransport()))
	if _, pattern := http.DefaultServeMux.Handler(httptest.NewRequest("GET", "/debug/throttle/", nil)); pattern != "" {
		t.Errorf("http.DefaultServeMux has %q", pattern)
	}
}
