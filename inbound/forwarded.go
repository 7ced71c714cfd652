package inbound

import (
	"net/http"
	"net/netip"
	"strings"
)

// This file reads what a trusted peer says of whom it forwards for. All of it may have been written by the client,
// but for the end: each proxy appends the address that it has seen. So lists are read from right to left, and the first
// address that is not trusted is the one that a trusted proxy has seen.
//
// Example, with 10.0.0.0/8 trusted and the peer 10.0.0.1:
//
//	X-Forwarded-For: 192.0.2.9, 198.51.100.7, 10.0.0.2   198.51.100.7: 10.0.0.2 has seen it
//	X-Forwarded-For: 10.0.0.3, 10.0.0.2                  10.0.0.3: a client inside
//	X-Forwarded-For: 198.51.100.7, nonsense, 10.0.0.2    the peer: nobody knows what 10.0.0.2 has seen
//	X-Forwarded-For: nonsense, 198.51.100.7              198.51.100.7: the rest is not read

// maxHops bounds the trusted addresses that are skipped. No chain is that long; a header may be.
const maxHops = 64

// forwardedFor reads X-Forwarded-For. ok is false if the peer counts. It allocates nothing, and stops at the first
// address that is not trusted, so a client cannot make it read much: what it sends stands to the left of its own address.
func forwardedFor(h http.Header, t trust) (client netip.Addr, ok bool) {
	hops := 0
	lines := h["X-Forwarded-For"]
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			var node string
			if comma := strings.LastIndexByte(rest, ','); comma >= 0 {
				rest, node = rest[:comma], rest[comma+1:]
			} else {
				node, more = rest, false
			}
			addr, valid := address(strings.Trim(node, " \t"))
			if hops++; !valid || hops > maxHops {
				return netip.Addr{}, false
			}
			if client = addr; !t.holds(client) {
				return client, true
			}
		}
	}
	return client, client.IsValid()
}

// address reads one node: an address, in brackets or not, with a port or without. Azure's gateways add ports to
// X-Forwarded-For, and RFC 7239 wants brackets around IPv6. What net/netip does not take, such as 1.2.3.04, is not an
// address: two programs might read it differently.
func address(node string) (netip.Addr, bool) {
	if len(node) > 64 {
		return netip.Addr{}, false
	}
	name, port := node, ""
	inner, brackets := strings.CutPrefix(node, "[")
	if brackets {
		name, port, brackets = strings.Cut(inner, "]")
	} else if i := strings.IndexByte(node, ':'); i >= 0 && i == strings.LastIndexByte(node, ':') {
		name, port = node[:i], node[i:]
	}
	addr, err := netip.ParseAddr(name)
	if err != nil || node[0] == '[' && (!brackets || addr.Is4()) || port != "" && !isPort(port) {
		return netip.Addr{}, false
	}
	return plain(addr), true
}

// isPort reports whether s is a port of RFC 7239 section 6 behind its colon: a number, or _ and a name that hides it.
func isPort(s string) bool {
	if s[0] != ':' || len(s) < 2 {
		return false
	}
	if s = s[1:]; s[0] == '_' {
		return len(s) > 1 && strings.Trim(s, "._-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") == ""
	}
	return len(s) <= 5 && strings.Trim(s, "0123456789") == ""
}

// forwarded reads Forwarded (RFC 7239), a list of elements such as
//
//	for=192.0.2.60;proto=http;by=203.0.113.43, for="[2001:db8::1]:4711"
//
// Quoted strings may hold commas and semicolons, so a line is split from left to right first, and its elements are
// then read from right to left.
func forwarded(h http.Header, t trust) (client netip.Addr, ok bool) {
	hops := 0
	lines := h["Forwarded"]
	for i := len(lines) - 1; i >= 0; i-- {
		var ends [maxHops + 1]int
		n, well := elements(lines[i], &ends)
		if !well {
			return netip.Addr{}, false
		}
		for k := n - 1; k >= 0; k-- {
			from := 0
			if k > 0 {
				from = ends[k-1] + 1
			}
			addr, valid := node(lines[i][from:ends[k]])
			if hops++; !valid || hops > maxHops {
				return netip.Addr{}, false
			}
			if client = addr; !t.holds(client) {
				return client, true
			}
		}
	}
	return client, client.IsValid()
}

// elements finds where the elements of a line end. It fails if a string is not closed, and for more elements than
// anybody needs: what a client wrote may then shift what a proxy has appended.
func elements(line string, ends *[maxHops + 1]int) (n int, ok bool) {
	quoted := false
	for i := 0; i <= len(line); i++ {
		switch {
		case i == len(line) || line[i] == ',' && !quoted:
			if n == len(ends) || quoted {
				return 0, false
			}
			ends[n] = i
			n++
		case line[i] == '"':
			quoted = !quoted
		case line[i] == '\\' && quoted:
			i++
		}
	}
	return n, true
}

// node reads the one for parameter of an element. Two of them contradict each other, and an element without one says
// that the proxy does not tell: in both cases it is not known what the rest is worth.
func node(element string) (addr netip.Addr, ok bool) {
	for rest, more := element, true; more; {
		var pair string
		pair, rest, more = cutPair(rest)
		name, value, found := strings.Cut(strings.Trim(pair, " \t"), "=")
		if !found || !strings.EqualFold(name, "for") {
			continue
		}
		if addr.IsValid() {
			return netip.Addr{}, false
		}
		if inner, quoted := strings.CutPrefix(value, `"`); quoted {
			value = strings.TrimSuffix(inner, `"`)
		}
		if addr, ok = address(value); !ok {
			return netip.Addr{}, false
		}
	}
	return addr, ok
}

// cutPair cuts an element at the first semicolon outside a quoted string.
func cutPair(s string) (pair, rest string, more bool) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == ';' && !quoted:
			return s[:i], s[i+1:], true
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '\\' && quoted:
			i++
		}
	}
	return s, "", false
}
