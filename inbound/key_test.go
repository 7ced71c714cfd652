package inbound_test

import (
	"flag"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/go-throttle/throttle/inbound"
	"github.com/go-throttle/throttle/internal/race"
)

func prefixes(all ...string) (p []netip.Prefix) {
	for _, s := range all {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

func request(remote string, header ...string) *http.Request {
	r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/"}, Header: http.Header{}, Body: http.NoBody, RemoteAddr: remote}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

const xff, fwd = "X-Forwarded-For", "Forwarded"

func TestByIP(t *testing.T) {
	trusted := inbound.ByIP(prefixes("10.0.0.0/8", "::ffff:172.16.0.0/108", "fd00::/8")...)
	for _, c := range []struct {
		name, remote string
		header       []string
		want         string
	}{
		{"peer", "192.0.2.1:80", nil, "192.0.2.1"},
		{"no port", "192.0.2.1", nil, "192.0.2.1"},
		{"IPv6 by /64", "[2001:db8:1:2:3:4:5:6]:80", nil, "2001:db8:1:2::/64"},
		{"IPv6 without port", "2001:db8:1:2:ffff::", nil, "2001:db8:1:2::/64"},
		{"zone", "[fe80::1%eth0]:80", nil, "fe80::/64"},
		{"mapped", "[::ffff:192.0.2.1]:80", nil, "192.0.2.1"},
		{"empty", "", nil, "unknown"},
		{"Unix socket", "@", nil, "unknown"},
		{"socket with a path", "/run/app.sock", []string{xff, "1.2.3.4"}, "unknown"},
		{"nonsense", "localhost:80", nil, "unknown"},
		{"not trusted", "192.0.2.1:80", []string{xff, "1.2.3.4"}, "192.0.2.1"},
		{"trusted", "10.0.0.1:80", []string{xff, "1.2.3.4"}, "1.2.3.4"},
		{"trusted, no field", "10.0.0.1:80", nil, "10.0.0.1"},
		{"trusted, empty field", "10.0.0.1:80", []string{xff, ""}, "10.0.0.1"},
		{"a prefix written as IPv6", "172.16.3.4:80", []string{xff, "1.2.3.4"}, "1.2.3.4"},
		{"a mapped trusted peer", "[::ffff:10.0.0.1]:80", []string{xff, "1.2.3.4"}, "1.2.3.4"},
		{"trusted IPv6", "[fd00::1]:80", []string{xff, "2001:db8::1"}, "2001:db8::/64"},
		{"right to left", "10.0.0.1:80", []string{xff, "9.9.9.9, 1.2.3.4, 10.0.0.2"}, "1.2.3.4"},
		{"all lines", "10.0.0.1:80", []string{xff, "9.9.9.9", xff, "1.2.3.4", xff, "10.1.1.1,10.0.0.2"}, "1.2.3.4"},
		{"all trusted", "10.0.0.1:80", []string{xff, "10.0.0.9, 10.0.0.2"}, "10.0.0.9"},
		{"one is nonsense", "10.0.0.1:80", []string{xff, "1.2.3.4, nonsense, 10.0.0.2"}, "10.0.0.1"},
		{"an empty one", "10.0.0.1:80", []string{xff, "1.2.3.4,, 10.0.0.2"}, "10.0.0.1"},
		{"nonsense before", "10.0.0.1:80", []string{xff, "nonsense, 1.2.3.4"}, "1.2.3.4"},
		{"ports and brackets", "10.0.0.1:80", []string{xff, "1.2.3.4:99, [fd00::2]:80, [fd00::3]"}, "1.2.3.4"},
		{"mapped in the field", "10.0.0.1:80", []string{xff, "::ffff:1.2.3.4"}, "1.2.3.4"},
		{"leading zeros", "10.0.0.1:80", []string{xff, "1.2.3.04"}, "10.0.0.1"},
		{"no end of trusted ones", "10.0.0.1:80", []string{xff, "1.2.3.4" + strings.Repeat(",10.0.0.2", 1000)}, "10.0.0.1"},
		{"other fields", "10.0.0.1:80", []string{"X-Real-Ip", "1.2.3.4", "True-Client-Ip", "1.2.3.4", fwd, "for=1.2.3.4"}, "10.0.0.1"},
	} {
		if got := trusted(request(c.remote, c.header...)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if got := inbound.ByIP()(request("10.0.0.1:80", xff, "1.2.3.4")); got != "10.0.0.1" {
		t.Errorf("nobody is trusted: %q", got)
	}
	if got := inbound.ByPrefix(24, 48)(request("192.0.2.77:80")); got != "192.0.2.0/24" {
		t.Errorf("ByPrefix(24, 48): %q", got)
	}
	if got := inbound.ByPrefix(24, 48)(request("[2001:db8:1:2::3]:80")); got != "2001:db8:1::/48" {
		t.Errorf("ByPrefix(24, 48): %q", got)
	}
}

func TestByForwarded(t *testing.T) {
	key := inbound.ByForwarded(prefixes("10.0.0.0/8")...)
	for _, c := range []struct {
		header []string
		want   string
	}{
		{[]string{fwd, "for=1.2.3.4"}, "1.2.3.4"},
		{[]string{fwd, `For="1.2.3.4:99";proto=http;by=10.0.0.1`}, "1.2.3.4"},
		{[]string{fwd, `proto=https; for="[2001:db8::1]:80"`}, "2001:db8::/64"},
		{[]string{fwd, `for=9.9.9.9, for=1.2.3.4, for=10.0.0.2`}, "1.2.3.4"},
		{[]string{fwd, `for=9.9.9.9`, fwd, `for=1.2.3.4`}, "1.2.3.4"},
		{[]string{fwd, `for=10.0.0.3, for=10.0.0.2`}, "10.0.0.3"},
		{[]string{fwd, `for="9.9.9.9, for=1.2.3.4`}, "10.0.0.1"},                                   // a quote that the client has opened
		{[]string{fwd, `x="\, for="[2001:db8::1]"`}, "10.0.0.1"},                                   // and one with an escape
		{[]string{fwd, `for="a,b", for=1.2.3.4`}, "1.2.3.4"},                                       // a comma in a string
		{[]string{fwd, `for=1.2.3.4;for=9.9.9.9`}, "10.0.0.1"},                                     // two of them
		{[]string{fwd, `for="1.2.3.4:_gazonk"`}, "1.2.3.4"},                                        // RFC 7239 §6: a hidden port; yarp#763
		{[]string{fwd, `for="[2001:db8:cafe::17]:_a.b-c_d"`}, "2001:db8:cafe::/64"},                // rust-rpxy#619
		{[]string{fwd, `For="[2001:db8:cafe::17]:4711"`}, "2001:db8:cafe::/64"},                    // RFC 7239 §4
		{[]string{fwd, `for="1.2.3.4:99999"`}, "1.2.3.4"},                                          // RFC 7239 §6: five digits
		{[]string{fwd, `for="1.2.3.4:000000"`}, "10.0.0.1"},                                        // six
		{[]string{fwd, `for="1.2.3.4:"`}, "10.0.0.1"},                                              //
		{[]string{fwd, `for="1.2.3.4:_"`}, "10.0.0.1"},                                             //
		{[]string{fwd, `for="1.2.3.4:_a/b"`}, "10.0.0.1"},                                          //
		{[]string{fwd, `for="1.2.3.4:+443"`}, "10.0.0.1"},                                          //
		{[]string{fwd, `for="[1.2.3.4]"`}, "10.0.0.1"},                                             // brackets are for IPv6
		{[]string{fwd, `for="[2001:db8::1"`}, "10.0.0.1"},                                          //
		{[]string{fwd, `for="2001:db8::1]"`}, "10.0.0.1"},                                          //
		{[]string{fwd, `for="[2001:db8::1]4711"`}, "10.0.0.1"},                                     //
		{[]string{fwd, `for="2001:861:3a42:b7b0:9971:120a:391f:f585"`}, "2001:861:3a42:b7b0::/64"}, // forwarded-parse#7: no brackets
		{[]string{fwd, `for="[fe80::1%25eth0]:80"`}, "fe80::/64"},                                  // a zone, RFC 6874
		{[]string{fwd, `for="[64:ff9b::1.2.3.4]:80"`}, "1.2.3.4"},                                  // behind a translator
		{[]string{fwd, `for="_SEVKISEK:_p"`}, "10.0.0.1"},                                          // RFC 7239 §6.3
		{[]string{fwd, `for="unknown:80"`}, "10.0.0.1"},                                            // RFC 7239 §6.2
		{[]string{fwd, `for=_hidden`}, "10.0.0.1"},                                                 // RFC 7239 §6.3
		{[]string{fwd, `for=unknown`}, "10.0.0.1"},                                                 // RFC 7239 §6.2
		{[]string{fwd, `proto=http`}, "10.0.0.1"},                                                  //
		{[]string{fwd, strings.Repeat("for=10.0.0.2,", 1000) + "for=x"}, "10.0.0.1"},               //
		{[]string{xff, "1.2.3.4"}, "10.0.0.1"},
		{nil, "10.0.0.1"},
	} {
		if got := key(request("10.0.0.1:80", c.header...)); got != c.want {
			t.Errorf("%v: %q, want %q", c.header, got, c.want)
		}
	}
	if got := key(request("192.0.2.1:80", fwd, "for=1.2.3.4")); got != "192.0.2.1" {
		t.Errorf("not trusted: %q", got)
	}
}

func TestByCredential(t *testing.T) {
	key, api := inbound.ByCredential(), inbound.ByHeader("x-api-key")
	is := func(a, b string, want bool) {
		t.Helper()
		r, s := request(alice, "Authorization", a), request(alice, "Authorization", b)
		if same := key(r) == key(s); same != want {
			t.Errorf("%q and %q have one key: %v", a, b, same)
		}
	}
	is("Bearer abc", "bearer  abc ", true)
	is("Bearer abc", "Bearer abd", false)
	is("Basic dTpw", "basic dTpw", true)
	is("Basic dTpw", "Basic dTp4", false)
	is(`Digest username="u", nonce="1"`, `Digest username="u", nonce="2"`, true)
	is("AWS4-HMAC-SHA256 Credential=a, Signature=1", "AWS4-HMAC-SHA256 Credential=a, Signature=2", true)
	is("AWS AKIDEXAMPLE:frJIUN8DYpK=", "AWS AKIDEXAMPLE:lqDzGhwk1p8=", true)
	is("SharedKey account:c2ln", "SharedKey account:bmF0", true)
	is("Negotiate YIIJ", "negotiate YIIK", true)
	is("NTLM TlRM", "NTLM TlRN", true)
	is("Bearer a:b", "Bearer a:c", false)
	is("ApiKey abc", "ApiKey abd", false)
	is("Bearer", "", true)
	if got := key(request(alice)); got != "192.0.2.1" {
		t.Errorf("without a credential: %q", got)
	}
	if got := key(request(alice, "Authorization", "Bearer a", "Authorization", "Bearer b")); got != "192.0.2.1" {
		t.Errorf("with two: %q", got)
	}
	if got := api(request(alice, "X-Api-Key", "192.0.2.2")); got == "192.0.2.2" || got == "192.0.2.1" {
		t.Errorf("a header that looks like an address has the key %q", got)
	}
	for _, r := range []*http.Request{request(alice), request(alice, "X-Api-Key", ""), request(alice, "X-Api-Key", "a", "X-Api-Key", "b")} {
		if got := api(r); got != "192.0.2.1" {
			t.Errorf("%v: %q", r.Header, got)
		}
	}
}

// TestByHost: a key by Host is that of the name, however a client writes it. net/http keeps it beside the header.
func TestByHost(t *testing.T) {
	key := inbound.ByHeader("host")
	for host, want := range map[string]string{
		"a.test": "Host: a.test", "A.Test": "Host: a.test", "a.test.": "Host: a.test", "a.test:80": "Host: a.test", "a.test.:8080": "Host: a.test",
		"A.TEST..:443": "Host: a.test", "b.test": "Host: b.test", "[::1]:80": "Host: [::1]", "[2001:DB8::1]": "Host: [2001:db8::1]", "192.0.2.9:80": "Host: 192.0.2.9",
		"": "192.0.2.1", ".": "192.0.2.1", ":80": "192.0.2.1",
	} {
		r := request(alice, "Host", "c.test") // not what was sent
		r.Host = host
		if got := key(r); got != want {
			t.Errorf("Host %q: %q, want %q", host, got, want)
		}
	}
	h := (&inbound.Limit{Limits: []string{"1/h window"}, Key: key}).Handler(ok)
	for host, want := range map[string]int{"a.test": http.StatusNoContent, "b.test": http.StatusNoContent} {
		r := request(alice)
		r.Host = host
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("the first request for %s: %d", host, w.Code)
		}
	}
}

// TestKeysAllocateLittle: an IPv4 peer costs no allocation, and everything else the key.
func TestKeysAllocateLittle(t *testing.T) {
	byIP, trusting, byHeader := inbound.ByIP(), inbound.ByIP(prefixes("10.0.0.0/8")...), inbound.ByHeader("X-Api-Key")
	for _, c := range []struct {
		name string
		key  func(*http.Request) string
		r    *http.Request
		most float64
	}{
		{"IPv4", byIP, request(alice), 0},
		{"IPv6", byIP, request("[2001:db8::1]:80"), 1},
		{"forwarded", trusting, request("10.0.0.1:80", xff, "1.2.3.4, 10.0.0.2"), 1},
		{"header", byHeader, request(alice, "X-Api-Key", "0123456789abcdef0123456789abcdef"), 1},
	} {
		if n := testing.AllocsPerRun(100, func() { c.key(c.r) }); n > c.most {
			t.Errorf("%s: %v allocations, want at most %v", c.name, n, c.most)
		}
	}
}

func TestKeysPanicForNonsense(t *testing.T) {
	for name, f := range map[string]func(){
		"prefix": func() { inbound.ByIP(netip.Prefix{}) },
		"v4":     func() { inbound.ByPrefix(33, 64) },
		"v6":     func() { inbound.ByPrefix(32, 0) },
		"length": func() { inbound.ByHeader("content-length") }, // net/http takes these out of the header
		"coding": func() { inbound.ByHeader("Transfer-Encoding") },
		"later":  func() { inbound.ByHeader("Trailer") },
	} {
		if recovered(f) == "" {
			t.Errorf("%s: no panic", name)
		}
	}
}

// recovered is what f panics with; "": it does not.
func recovered(f func()) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text, _ = p.(string)
		}
	}()
	f()
	return ""
}

// FuzzKeys: the key changes with a header only if the peer is trusted, and what a client writes before the address that
// a trusted proxy has appended changes nothing.
func FuzzKeys(f *testing.F) {
	for _, seed := range []string{"1.2.3.4", "nonsense", `for="`, `x="\`, "::1%eth0", "10.0.0.1,", "\x00", `"`, `;for=1.1.1.1`, " , ,", "[::", "for=9.9.9.9, ", "64:ff9b::1.2.3.4", "[::1]:_p", `"1.2.3.4:_p"`} {
		f.Add("192.0.2.1:80", seed)
		f.Add(seed, seed)
		f.Add("@", seed)
	}
	net := prefixes("10.0.0.0/8", "fd00::/8")
	keys := map[string]func(*http.Request) string{"ByIP": inbound.ByIP(net...), "ByForwarded": inbound.ByForwarded(net...)}
	f.Fuzz(func(t *testing.T, remote, header string) {
		for name, key := range keys {
			checkKey(t, name, key, net, remote, header)
		}
	})
}

// checkKey is FuzzKeys for one input.
func checkKey(t *testing.T, name string, key func(*http.Request) string, net []netip.Prefix, remote, header string) {
	bare := key(request(remote))
	if bare == "" || len(bare) > 64 {
		t.Fatalf("%s(%q): %q", name, remote, bare)
	}
	if spoofed := key(request(remote, xff, header, fwd, header)); spoofed != bare && !within(remote, net) {
		t.Fatalf("%s: from %q with %q the key is %q, without %q", name, remote, header, spoofed, bare)
	}
	for _, r := range []*http.Request{
		request("10.0.0.1:80", xff, header, xff, "1.2.3.4", fwd, header, fwd, "for=1.2.3.4"),
		request("10.0.0.1:80", xff, header+", 1.2.3.4, 10.0.0.2", fwd, header+`, for=1.2.3.4, for="10.0.0.2"`),
		request("10.0.0.1:80", xff, header+",1.2.3.4", fwd, header+`, for="1.2.3.4:80"`),
	} {
		if got := key(r); got != "1.2.3.4" && got != "10.0.0.1" {
			t.Fatalf("%s: behind a proxy %v has the key %q", name, r.Header, got)
		}
	}
}

// within reports whether a peer is in one of the prefixes.
func within(remote string, net []netip.Prefix) bool {
	ap, err := netip.ParseAddrPort(remote)
	addr := ap.Addr()
	if err != nil {
		addr, _ = netip.ParseAddr(remote)
	}
	for _, p := range net {
		if p.Contains(addr.Unmap().WithZone("")) {
			return true
		}
	}
	return false
}

var headerCases = flag.Int("headers", race.Pick(5000, 20_000), "cases of TestRandomHeaders")

// TestRandomHeaders is FuzzKeys with headers made of the words that they are made of.
func TestRandomHeaders(t *testing.T) {
	net := prefixes("10.0.0.0/8", "fd00::/8")
	byIP, byForwarded := inbound.ByIP(net...), inbound.ByForwarded(net...)
	words := strings.Split(`1.2.3.4|9.9.9.9|10.0.0.7|::1|fd00::1|2001:db8::1|::ffff:9.9.9.9|%eth0|[|]|:80|,|, |;|"|\|=|for=|For="|by=|proto=http|unknown|_x| |	|x|0`, "|")
	r := rand.New(rand.NewPCG(15, 3))
	for range *headerCases {
		header, remote := "", ""
		for range r.IntN(12) {
			header += words[r.IntN(len(words))]
		}
		for range 1 + r.IntN(3) {
			remote += words[r.IntN(len(words))]
		}
		checkKey(t, "ByIP", byIP, net, remote, header)
		checkKey(t, "ByForwarded", byForwarded, net, remote, header)
	}
}
