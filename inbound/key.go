package inbound

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// A Key function says whose request it is. Those of this package never fail: what they cannot make out falls back to
// the peer, and a peer without an address to one key that all such peers share.

// Two keys of different kinds are never equal, or one client could use up what another one has:
//
//	192.0.2.1                 ByIP, an IPv4 address
//	2001:db8:1:2::/64         ByIP, a prefix
//	64:ff9b:1::a00:1/128      ByIP, an address of a translator
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
// other field is looked at. Zones are dropped.
//
// An IPv6 address that stands for an IPv4 address counts as that one. These do: ::ffff:192.0.2.1, and what a translator
// (NAT64) or a tunnel makes of it, 64:ff9b::192.0.2.1, 2002:c000:201::1 (6to4) and those of Teredo. In 64:ff9b:1::/48
// each address is a client. For translators with a prefix of their own see [ByNAT64].
//
// A peer without an IP address, as on a Unix socket, is never trusted, and all such peers share one key. ByIP panics
// for a prefix that is not valid.
func ByIP(trusted ...netip.Prefix) func(*http.Request) string {
	return byAddress("ByIP", network{32, 64, nil}, forwardedFor, trusted)
}

// ByNAT64 is ByIP for servers whose IPv4 clients come through translators with prefixes of their own (NAT64, SIIT-DC),
// as in a data center that has IPv6 only: an address in one of them counts as the IPv4 address in it, by RFC 6052,
// section 2.2. ByIP would take all of them for one client. ByNAT64 panics for a prefix whose length is not 32, 40, 48, 56,
// 64 or 96 bits.
func ByNAT64(translators []netip.Prefix, trusted ...netip.Prefix) func(*http.Request) string {
	for i, p := range translators {
		if b := p.Bits(); !p.Addr().Is6() || b != 96 && (b < 32 || b > 64 || b%8 != 0) {
			panic(fmt.Sprintf("throttle: inbound.ByNAT64: translator %d, %v, must be IPv6 with 32, 40, 48, 56, 64 or 96 bits", i, p))
		}
	}
	return byAddress("ByNAT64", network{32, 64, slices.Clone(translators)}, forwardedFor, trusted)
}

// ByPrefix is ByIP with other lengths: the first v4 bits of an IPv4 address, and the first v6 bits of an IPv6 address
// that does not stand for one of IPv4.
// Some providers give a customer 56 or 48 bits: let a Limit by ByPrefix(32, 48) with a larger limit hold too, see
// Limit.And. It panics if v4 is not from 1 to 32, or v6 not from 1 to 128.
func ByPrefix(v4, v6 int, trusted ...netip.Prefix) func(*http.Request) string {
	if v4 < 1 || v4 > 32 || v6 < 1 || v6 > 128 {
		panic(fmt.Sprintf("throttle: inbound.ByPrefix: %d and %d bits, must be from 1 to 32 and from 1 to 128", v4, v6))
	}
	return byAddress("ByPrefix", network{v4, v6, nil}, forwardedFor, trusted)
}

// ByForwarded is ByIP for trusted peers that send Forwarded (RFC 7239) and not X-Forwarded-For. A proxy that sets one
// of the two passes the client's own version of the other on, so choose the one that yours sets. An obfuscated or
// unknown node (for=_hidden) is not an address.
func ByForwarded(trusted ...netip.Prefix) func(*http.Request) string {
	return byAddress("ByForwarded", network{32, 64, nil}, forwarded, trusted)
}

// ByHeader returns a Limit.Key that counts by a header field, such as X-Api-Key. A request without the field, or with
// more than one line of it, counts as by ByIP(trusted...).
//
// "Host" is Request.Host without its port and final dot, in lower case. ByHeader panics for Content-Length,
// Transfer-Encoding and Trailer, which net/http takes out of the header: they say how a request is sent, not whose it is.
//
// Clients can invent values, and each one has its own limit: use it behind whatever checks them, or with a limit by
// address in Limit.And. Values are not kept, only hashes of them.
func ByHeader(name string, trusted ...netip.Prefix) func(*http.Request) string {
	name = http.CanonicalHeaderKey(name)
	switch name {
	case "Content-Length", "Transfer-Encoding", "Trailer":
		panic(fmt.Sprintf("throttle: inbound.ByHeader: %s is not in Request.Header", name))
	}
	prefix, byIP := name+": ", byAddress("ByHeader", network{32, 64, nil}, forwardedFor, trusted)
	return func(r *http.Request) string {
		value := ""
		if lines := r.Header[name]; name == "Host" {
			value = host(r.Host)
		} else if len(lines) == 1 {
			value = lines[0]
		}
		if value == "" {
			return byIP(r)
		}
		return prefix + value // an address never looks like this, so nobody takes another one's units
	}
}

// host is a Request.Host as it counts. A client may write it as it likes, and each way would be a limit of its own.
func host(s string) string {
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, ']') {
		s = s[:i]
	}
	return strings.ToLower(strings.TrimRight(s, "."))
}

// ByCredential returns a Limit.Key that counts by the Authorization field: its scheme in lower case and its token, or
// for Basic the user name and password. Credentials that change with each request count as by ByIP(trusted...), and so
// do requests without one: tokens of several words or with a comma or quotation marks, such as Digest; an id and a
// signature with a colon between, unless the scheme is Bearer; and Negotiate, Kerberos and NTLM. What [ByHeader] says
// of invented values holds here too.
func ByCredential(trusted ...netip.Prefix) func(*http.Request) string {
	byIP := byAddress("ByCredential", network{32, 64, nil}, forwardedFor, trusted)
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
func byAddress(caller string, n network, via func(http.Header, trust) (netip.Addr, bool), trusted []netip.Prefix) func(*http.Request) string {
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
		case addr.Is4() && n.v4 == 32 && text != "":
			return text
		}
		return n.of(addr)
	}
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

// A trust is the prefixes of proxies that are believed. What stands for an IPv4 address is compared as it is, but for
// ::ffff:10.0.0.1: a translator lets clients in that are not of this network.
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
