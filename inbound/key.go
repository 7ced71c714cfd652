package inbound

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// A Key function says whose request it is. Those of this package never fail: what they cannot make out falls back to
// the peer, and a peer without an address to one key that all such peers share.

// Two keys of different kinds are never equal, or one client could use up what another one has:
//
//	192.0.2.1                 ByIP, an IPv4 address
//	2001:db8:1:2::/64         ByIP, a prefix
//	unknown                   ByIP, a peer without an address
//	X-Api-Key: 192.0.2.1      ByHeader
//	bearer 192.0.2.1          ByCredential
//
// Keys are strings that live as long as the request. That of an IPv4 peer is a part of RemoteAddr and costs nothing.

// unknown is the key of all peers whose address cannot be read.
const unknown = "unknown"

// ByIP returns a Limit.Key that counts by client address: an IPv4 address, or the first 64 bits of an IPv6 address,
// which is what one customer has at least. See [ByPrefix] for other lengths.
//
// The client is the peer of the connection. If the peer is in one of the trusted prefixes, the client is who the
// peer forwards for: X-Forwarded-For is read from right to left, all its lines as one, to the first address that is
// not trusted. If all are trusted it is the leftmost, and if one of those read is not an address, it is the peer. No
// other field is looked at. An IPv4 address written as IPv6 (::ffff:192.0.2.1) counts as IPv4; zones are dropped.
//
// A peer without an IP address, as on a Unix socket, is never trusted, and all such peers share one key. ByIP panics
// for a prefix that is not valid.
func ByIP(trusted ...netip.Prefix) func(*http.Request) string {
	return byAddress("ByIP", 32, 64, forwardedFor, trusted)
}

// ByPrefix is ByIP with other lengths: the first v4 bits of an IPv4 address, and the first v6 bits of an IPv6 address.
// Some providers give a customer 56 or 48 bits: let a Limit by ByPrefix(32, 48) with a larger limit hold too, see
// Limit.And. It panics if v4 is not from 1 to 32, or v6 not from 1 to 128.
func ByPrefix(v4, v6 int, trusted ...netip.Prefix) func(*http.Request) string {
	if v4 < 1 || v4 > 32 || v6 < 1 || v6 > 128 {
		panic(fmt.Sprintf("throttle: inbound.ByPrefix: %d and %d bits, must be from 1 to 32 and from 1 to 128", v4, v6))
	}
	return byAddress("ByPrefix", v4, v6, forwardedFor, trusted)
}

// ByForwarded is ByIP for trusted peers that send Forwarded (RFC 7239) and not X-Forwarded-For. A proxy that sets one
// of the two passes the client's own version of the other on, so choose the one that yours sets. An obfuscated or
// unknown node (for=_hidden) is not an address.
func ByForwarded(trusted ...netip.Prefix) func(*http.Request) string {
	return byAddress("ByForwarded", 32, 64, forwarded, trusted)
}

// ByHeader returns a Limit.Key that counts by a header field, such as X-Api-Key. A request without the field, or with
// more than one line of it, counts as by ByIP(trusted...).
//
// Clients can invent values, and each one has its own limit: use it behind whatever checks them, or with a limit by
// address in Limit.And. Values are not kept, only hashes of them.
func ByHeader(name string, trusted ...netip.Prefix) func(*http.Request) string {
	name = http.CanonicalHeaderKey(name)
	prefix, byIP := name+": ", byAddress("ByHeader", 32, 64, forwardedFor, trusted)
	return func(r *http.Request) string {
		if lines := r.Header[name]; len(lines) == 1 && lines[0] != "" {
			return prefix + lines[0] // an address never looks like this, so nobody takes another one's units
		}
		return byIP(r)
	}
}

// ByCredential returns a Limit.Key that counts by the Authorization field: its scheme in lower case and its token, or
// for Basic the user name and password. Credentials that change with each request count as by ByIP(trusted...), and so
// do requests without one: tokens of several words or with a comma or quotation marks, such as Digest; an id and a
// signature with a colon between, unless the scheme is Bearer; and Negotiate, Kerberos and NTLM. What [ByHeader] says
// of invented values holds here too.
func ByCredential(trusted ...netip.Prefix) func(*http.Request) string {
	byIP := byAddress("ByCredential", 32, 64, forwardedFor, trusted)
	return func(r *http.Request) string {
		lines := r.Header["Authorization"]
		if len(lines) != 1 {
			return byIP(r)
		}
		if user, password, ok := r.BasicAuth(); ok {
			return "basic " + user + ":" + password
		}
		scheme, token, _ := strings.Cut(strings.TrimSpace(lines[0]), " ")
		token = strings.Trim(token, " ")
		scheme = strings.ToLower(scheme)
		if token == "" || strings.ContainsAny(token, " ,\t\"") || changes(scheme, token) {
			return byIP(r)
		}
		return scheme + " " + token
	}
}

// changes reports whether a token is that of one request or one connection. Examples are "AWS AKIDEXAMPLE:frJIUN8DYpK=",
// "SharedKey account:c2lnbmF0dXJl" and "Negotiate YIIJ...": by such keys each request would have a limit of its own.
func changes(scheme, token string) bool {
	switch scheme {
	case "bearer":
		return false
	case "basic", "negotiate", "kerberos", "ntlm": // of basic one that does not parse
		return true
	}
	return strings.IndexByte(token, ':') >= 0
}

// byAddress makes a Key of an address. The peer decides first: unless it is trusted, no header is looked at, so nothing
// that a client sends can change its key.
// via reads whom a trusted peer forwards for.
func byAddress(caller string, v4, v6 int, via func(http.Header, trust) (netip.Addr, bool), trusted []netip.Prefix) func(*http.Request) string {
	t := newTrust(caller, trusted)
	return func(r *http.Request) string {
		addr, text := peer(r.RemoteAddr)
		if t.holds(addr) {
			if client, ok := via(r.Header, t); ok {
				addr, text = client, ""
			}
		}
		switch {
		case !addr.IsValid():
			return unknown
		case addr.Is4() && v4 == 32 && text != "":
			return text
		}
		return masked(addr, v4, v6)
	}
}

// masked writes the part of an address that counts. It allocates the string and nothing else.
func masked(addr netip.Addr, v4, v6 int) string {
	var buf [64]byte
	if addr.Is4() && v4 == 32 {
		return string(addr.AppendTo(buf[:0]))
	}
	bits := v6
	if addr.Is4() {
		bits = v4
	}
	p, _ := addr.Prefix(bits) // bits have been checked
	return string(p.AppendTo(buf[:0]))
}

// peer reads a Request.RemoteAddr: an address with a port, or without one. text is the address as it stands there, if
// it is IPv4; otherwise "".
func peer(remote string) (addr netip.Addr, text string) {
	if ap, err := netip.ParseAddrPort(remote); err == nil {
		addr = ap.Addr()
		text = remote[:strings.LastIndexByte(remote, ':')]
	} else if addr, err = netip.ParseAddr(remote); err == nil {
		text = remote
	}
	if !addr.Is4() {
		text = ""
	}
	return plain(addr), text
}

// plain folds IPv4 that is written as IPv6, and drops zones.
func plain(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// A trust is the prefixes of proxies that are believed.
type trust []netip.Prefix

// newTrust checks prefixes and folds those of IPv4 that are written as IPv6.
func newTrust(caller string, prefixes []netip.Prefix) trust {
	t := make(trust, len(prefixes))
	for i, p := range prefixes {
		if !p.IsValid() {
			panic(fmt.Sprintf("throttle: inbound.%s: trusted prefix %d, %v, is not valid", caller, i, p))
		}
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		t[i] = p.Masked()
	}
	return t
}

// holds reports whether an address is trusted. No address is not.
func (t trust) holds(addr netip.Addr) bool {
	for _, p := range t {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
