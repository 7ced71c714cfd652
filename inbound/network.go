package inbound

import "net/netip"

// A network says how much of an address is one client.
type network struct {
	v4, v6 int            // bits
	nat64  []netip.Prefix // of translators, beside those that everybody knows
}

// embeddings are the IPv6 addresses that stand for an IPv4 address, which follows the prefix, see embedded. What is not here
// counts by its first v6 bits: an address of ISATAP (RFC 5214) or 6rd (RFC 5969) is in a network of its customer, and one that
// 464XLAT (RFC 6877), DS-Lite (RFC 6333) or MAP-T (RFC 7599) has made of IPv4 leaves it as IPv4.
//
//	::ffff:192.0.2.1             mapped, RFC 4291 section 2.5.5.2: plain has folded it, also where proxies are trusted
//	64:ff9b::192.0.2.1           NAT64, RFC 6052 section 2.1
//	64:ff9b:1:fffe::192.0.2.1    NAT64 for local use, RFC 8215: see of
//	::192.0.2.1                  compatible, RFC 4291 section 2.5.5.1, and not :: or ::1
//	::ffff:0:192.0.2.1           translated, RFC 2765 section 2.1
//	2002:c000:201::1             6to4, RFC 3056 section 2: all networks of one site, which has one IPv4 address
//	2001:0:4136:e378:8000:63bf:3fff:fdfe   Teredo, RFC 4380 section 4: the address of the client's NAT, inverted
var embeddings = [...]netip.Prefix{
	netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("::ffff:0:0:0/96"),
	netip.MustParsePrefix("2002::/16"),
}

var (
	teredo     = netip.MustParsePrefix("2001::/32")
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")
)

// of writes the part of an address that counts. It allocates the string and nothing else.
//
// In the prefix for local use operators have translators with prefixes of any length, and with IPv4 networks that may have
// the same private addresses. So each of its addresses is a client, mostly one with 96 bits and an IPv4 address behind
// them, and none is that IPv4 address itself.
func (n network) of(addr netip.Addr) string {
	var buf [64]byte
	bits := n.v6
	if v4, ok := n.embedded(addr); ok {
		addr, bits = v4, n.v4
	} else if localNAT64.Contains(addr) {
		bits = 96 + n.v4
	}
	if addr.Is4() && bits == 32 {
		return string(addr.AppendTo(buf[:0]))
	}
	p, _ := addr.Prefix(bits) // bits have been checked
	return string(p.AppendTo(buf[:0]))
}

// embedded returns the IPv4 address that an address is or stands for. It follows the prefix; as RFC 6052 section 2.2 wants it,
// bits 64 to 71 are left out.
func (n network) embedded(addr netip.Addr) (v4 netip.Addr, ok bool) {
	if addr.Is4() {
		return addr, true
	}
	b := addr.As16()
	if teredo.Contains(addr) {
		return netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}), true
	}
	for _, all := range [...][]netip.Prefix{n.nat64, embeddings[:]} {
		for _, p := range all {
			if !p.Contains(addr) {
				continue
			}
			var four [4]byte
			at := p.Bits() / 8
			for i := range four {
				if at == 8 {
					at++
				}
				four[i], at = b[at], at+1
			}
			return netip.AddrFrom4(four), four[0] != 0 // 0.0.0.0/8 is nobody: :: and ::1 are not compatible addresses
		}
	}
	return addr, false
}
