package inbound_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"testing"

	"github.com/go-throttle/throttle/inbound"
)

// TestClients: which addresses are one client, and which of them are the client that an IPv4 address is.
func TestClients(t *testing.T) {
	key := inbound.ByIP(prefixes("10.0.0.0/8", "2001:db8:ffff::/48")...)
	for _, c := range []struct{ from, addr, want string }{
		{"plain IPv4", "192.0.2.1", "192.0.2.1"},
		{"IPv6: 64 bits, RFC 4291 2.5.1", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
		{"IPv6: the same customer", "2001:db8:1:2::", "2001:db8:1:2::/64"},
		{"IPv6: another one", "2001:db8:1:3::", "2001:db8:1:3::/64"},
		{"mapped, RFC 4291 2.5.5.2", "::ffff:192.0.2.1", "192.0.2.1"},
		{"mapped, in hexadecimal", "0:0:0:0:0:ffff:c000:201", "192.0.2.1"},
		{"compatible, RFC 4291 2.5.5.1; AspNetCoreRateLimit#32 and jellyfin-plugin-sso#194 ask", "::192.0.2.1", "192.0.2.1"},
		{"loopback, RFC 4291 2.5.3", "::1", "::/64"},
		{"unspecified, RFC 4291 2.5.2", "::", "::/64"},
		{"translated, RFC 2765 2.1", "::ffff:0:192.0.2.1", "192.0.2.1"},
		{"NAT64, RFC 6052 2.1; neon#7316 asks", "64:ff9b::192.0.2.1", "192.0.2.1"},
		{"NAT64, another client", "64:ff9b::c000:202", "192.0.2.2"},
		{"not NAT64: 96 bits are the prefix", "64:ff9b:0:0:0:1:c000:201", "64:ff9b::/64"},
		{"local NAT64, RFC 8215 section 5", "64:ff9b:1::192.0.2.1", "64:ff9b:1::c000:201/128"},
		{"local NAT64, another client", "64:ff9b:1::192.0.2.2", "64:ff9b:1::c000:202/128"},
		{"local NAT64, RFC 8215 section 5, another translator", "64:ff9b:1:fffe::192.0.2.1", "64:ff9b:1:fffe::c000:201/128"},
		{"behind the local prefix", "64:ff9b:2::192.0.2.1", "64:ff9b:2::/64"},
		{"6to4, RFC 3056 section 2", "2002:c000:201::1", "192.0.2.1"},
		{"6to4, another network of the site; jellyfin-plugin-sso#317", "2002:c000:201:77::1", "192.0.2.1"},
		{"Teredo, RFC 4380 section 4, its example", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "192.0.2.45"},
		{"Teredo, another port of the same NAT", "2001:0:4136:e378:8000:63be:3fff:fdd2", "192.0.2.45"},
		{"Teredo, another client of the same server", "2001:0:4136:e378:8000:63bf:3fff:fdd1", "192.0.2.46"},
		{"ISATAP, RFC 5214 6.1", "2001:db8:1:2:0:5efe:192.0.2.1", "2001:db8:1:2::/64"},
		{"RFC 6052 2.2 with a prefix of its own, not configured", "2001:db8:64::192.0.2.1", "2001:db8:64::/64"},
		{"unique local, RFC 4193", "fd00:1:2:3:4::1", "fd00:1:2:3::/64"},
		{"link-local with a zone, RFC 4007", "fe80::1%eth0", "fe80::/64"},
		{"discard only, RFC 6666", "100::1", "100::/64"},
	} {
		want := c.want
		for _, r := range []*http.Request{
			request("[" + c.addr + "]:80"), request(c.addr), request("10.0.0.1:80", xff, "9.9.9.9, "+c.addr), request("[2001:db8:ffff::1]:80", xff, "["+c.addr+"]:80"),
		} {
			if c.addr == "192.0.2.1" && r.RemoteAddr[0] == '[' {
				continue // not an address
			}
			if got := key(r); got != want {
				t.Errorf("%s: %s %v: %q, want %q", c.from, r.RemoteAddr, r.Header, got, want)
			}
		}
	}
	wide := inbound.ByPrefix(24, 48)
	for addr, want := range map[string]string{
		"192.0.2.77": "192.0.2.0/24", "64:ff9b::192.0.2.1": "192.0.2.0/24", "2002:c000:201::1": "192.0.2.0/24",
		"64:ff9b:1::192.0.2.1": "64:ff9b:1::c000:200/120", "2001:db8:1:2::3": "2001:db8:1::/48",
	} {
		if got := wide(request(addr)); got != want {
			t.Errorf("ByPrefix(24, 48) of %s: %q, want %q", addr, got, want)
		}
	}
}

// TestTranslatorsAreNotTrusted: who comes through a translator from an address like a proxy's is not that proxy, but the prefix
// may be named.
func TestTranslatorsAreNotTrusted(t *testing.T) {
	for _, remote := range []string{"[64:ff9b::10.0.0.1]:80", "[::10.0.0.1]:80", "[2002:a00:1::1]:80"} {
		if got := inbound.ByIP(prefixes("10.0.0.0/8")...)(request(remote, xff, "1.2.3.4")); got != "10.0.0.1" {
			t.Errorf("%s: %q", remote, got)
		}
	}
	if got := inbound.ByIP(prefixes("64:ff9b::a00:0/104")...)(request("[64:ff9b::10.0.0.1]:80", xff, "1.2.3.4")); got != "1.2.3.4" {
		t.Errorf("a trusted translator: %q", got)
	}
}

// TestByNAT64: the examples of RFC 6052 section 2.4, which all stand for 192.0.2.33.
func TestByNAT64(t *testing.T) {
	for prefix, addr := range map[string]string{
		"2001:db8::/32":             "2001:db8:c000:221::",
		"2001:db8:100::/40":         "2001:db8:1c0:2:21::",
		"2001:db8:122::/48":         "2001:db8:122:c000:2:2100::",
		"2001:db8:122:300::/56":     "2001:db8:122:3c0:0:221::",
		"2001:db8:122:344::/64":     "2001:db8:122:344:c0:2:2100::",
		"2001:db8:122:344::/96":     "2001:db8:122:344::192.0.2.33",
		"64:ff9b:1:fffe::/96":       "64:ff9b:1:fffe::192.0.2.33",
		"2001:db8:122:344:0::42/96": "2001:db8:122:344::192.0.2.33", // not masked
	} {
		if got := inbound.ByNAT64(prefixes(prefix))(request("[" + addr + "]:80")); got != "192.0.2.33" {
			t.Errorf("%s in %s: %q", addr, prefix, got)
		}
	}
	key := inbound.ByNAT64(prefixes("2001:db8:64::/96"), prefixes("10.0.0.0/8")...)
	for addr, want := range map[string]string{
		"2001:db8:64::1.2.3.4": "1.2.3.4", "64:ff9b::1.2.3.4": "1.2.3.4", "2001:db8:64:1::1.2.3.4": "2001:db8:64:1::/64", "1.2.3.4": "1.2.3.4",
	} {
		if got := key(request("10.0.0.1:80", xff, addr)); got != want {
			t.Errorf("%s: %q, want %q", addr, got, want)
		}
	}
	for _, p := range []netip.Prefix{{}, netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/32"), netip.MustParsePrefix("2001:db8::/72"), netip.MustParsePrefix("2001:db8::/33"), netip.MustParsePrefix("2001:db8::/24")} {
		if recovered(func() { inbound.ByNAT64([]netip.Prefix{p}) }) == "" {
			t.Errorf("%v: no panic", p)
		}
	}
}

// TestBehindTranslators: clients that come as IPv4 and through translators are as many as their IPv4 addresses.
func TestBehindTranslators(t *testing.T) {
	r := rand.New(rand.NewPCG(36, 64))
	key := inbound.ByIP()
	for range 1000 {
		a := netip.AddrFrom4([4]byte{byte(1 + r.IntN(223)), byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256))})
		b := a.As4()
		for _, addr := range []string{
			"::ffff:%s", "::%s", "::ffff:0:%s", "64:ff9b::%s",
			fmt.Sprintf("2002:%02x%02x:%02x%02x:%x::%x", b[0], b[1], b[2], b[3], r.IntN(1<<16), r.IntN(1<<16)) + "%.0s",
			fmt.Sprintf("2001:0:%x:%x:0:%x:%02x%02x:%02x%02x", r.IntN(1<<16), r.IntN(1<<16), r.IntN(1<<16), b[0]^255, b[1]^255, b[2]^255, b[3]^255) + "%.0s",
		} {
			if addr = fmt.Sprintf(addr, a); key(request("["+addr+"]:80")) != a.String() {
				t.Fatalf("%s is %q, want %v", addr, key(request("["+addr+"]:80")), a)
			}
		}
	}
	h := (&inbound.Limit{Limits: []string{"5/1h window"}}).Handler(ok)
	for i := range 100 {
		if w := get(h, fmt.Sprintf("[64:ff9b::192.0.2.%d]:80", i)); w.Code != http.StatusNoContent {
			t.Fatalf("client %d: %d", i, w.Code)
		}
	}
}
