// Package fault says what the error of an attempt shows: whether a retry may help at all, and whether anything of the request
// has left this side.
//
//	fault.go  what no retry mends, by the error
//	sent.go   what was sent, by the trace of the attempt
//	last.go   an error is kept for a caller to whom it does not come
//
// It knows the errors of net, crypto/tls, net/http and their HTTP/2 and SOCKS, and looks through whatever they are wrapped in.
// What it does not know is taken for the upstream's fault, after a request that may have arrived: the careful answer to both.
package fault

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
)

// NotTheirs reports whether another attempt would fail as this one did, so that err says nothing of how the upstream is: one
// side does not accept the other's certificate or protocol, a proxy does not let us through, a name is not known, or net/http
// cannot send such a request. Examples: "unsupported protocol scheme" is the caller's mistake, "certificate required" a part of
// the setup that is missing; "connection refused" is the upstream's.
func NotTheirs(err error) bool {
	var dns *net.DNSError
	var address *net.AddrError
	if errors.As(err, &dns) { // its text has the name, which may be like anything
		return dns.IsNotFound
	}
	return isCertificate(err) || errors.As(err, &address) || says(err, lasting[:]) || noTunnel(err)
}

// isCertificate reports whether the upstream's certificate is the problem.
func isCertificate(err error) bool {
	var (
		verify    *tls.CertificateVerificationError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
	)
	return errors.As(err, &verify) || errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid)
}

// lasting are parts of such errors. Few of them have a type, and what a server says in an alert has none that is exported. Each
// part has a space, so that no URL or host name in an error looks like one.
var lasting = [...]string{
	// net/http cannot send the request.
	"unsupported protocol scheme", "http2: unsupported scheme", "unencrypted HTTP/2 not enabled", "no Host in request URL", "with no Host or URL set",
	"http: nil Request.", "http: ContentLength=", "http: Request.ContentLength=", "control character in Request.URL", "http: invalid ", "http2: invalid ",
	"idna: ", "header list larger than peer's advertised limit",
	// The upstream's certificate is not to be trusted, as a check of the caller's says.
	"x509: ", "tls: failed to verify certificate",
	// The upstream refuses ours, or the handshake with us: its alerts, RFC 8446 §6.2. An internal error, a record that came broken
	// and the like may be different next time.
	"tls: bad certificate", "tls: unsupported certificate", "tls: revoked certificate", "tls: expired certificate", "tls: unknown certificate",
	"tls: certificate required", "tls: access denied", "tls: handshake failure", "tls: protocol version not supported",
	"tls: insufficient security level", "tls: inappropriate fallback", "tls: illegal parameter", "tls: missing extension",
	"tls: unsupported extension", "tls: unrecognized name", "tls: no application protocol", "tls: encrypted client hello required",
	// We refuse the handshake, or do not begin one.
	"tls: server selected ", "tls: server chose ", "tls: server rejected ", "tls: no supported versions", "tls: either ServerName ",
	// The other side speaks another protocol: no TLS, TLS, HTTP/2, HTTP/1.
	"tls: first record does not look like", "server gave HTTP response to HTTPS client", `malformed HTTP response "\x15\x03`,
	`malformed HTTP response "\x00\x00`, "frame header looked like an HTTP/1.1 header", "http2: unexpected ALPN protocol",
	// The proxy is not one, its address is wrong, or its rules do not let us through: RFC 1928 §6, RFC 1929.
	"invalid proxy address", "refusing to use HTTP_PROXY value", "unexpected protocol version ", "no acceptable authentication methods",
	"invalid username/password", "username/password authentication failed", "unsupported authentication method ",
	"connection not allowed by ruleset", "command not supported", "address type not supported",
}

// says reports whether the text of err has one of the parts. fmt survives the errors of fakes that have no text, such as
// x509.HostnameError{}.
func says(err error, parts []string) bool {
	s := fmt.Sprint(err)
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(s, part) })
}

// noTunnel reports whether err is what net/http makes of a proxy's answer to CONNECT if that is a 4xx. It keeps no more of the
// answer than the reason phrase, and a proxy may have its own: "Auth Failed", "Filtered". A proxy that has no time, or no way to
// the upstream at the moment (408, 425, 429, 5xx), may let the next attempt through.
func noTunnel(err error) bool {
	for next := err; next != nil; next = errors.Unwrap(err) {
		err = next
	}
	s := err.Error()
	begins := func(phrase string) bool { return len(s) >= len(phrase) && strings.EqualFold(s[:len(phrase)], phrase) }
	for status := http.StatusBadRequest; status < http.StatusInternalServerError; status++ {
		switch text := http.StatusText(status); {
		case text == "", status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		case strings.HasPrefix(s, text):
			return true
		}
	}
	return slices.ContainsFunc([]string{"auth", "proxy auth", "access denied", "filtered", "not allowed", "request blocked"}, begins)
}
