// Package fault says what the error of an attempt shows: whether the upstream is to blame for it, and whether the request has
// left this side. Last keeps an error for a caller to whom it does not come.
//
// It knows the errors of net, crypto/tls and net/http, and looks through whatever they are wrapped in. What it does not
// know is taken for the upstream's fault, after a request that may have arrived: the careful answer to both.
package fault

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"strings"
)

// NotTheirs reports whether the upstream has nothing to do with err: its certificate is not to be trusted, its name is not
// known, or net/http cannot send such a request. No retry changes that. Examples: "unsupported protocol scheme" is the
// caller's mistake, "connection refused" is the upstream's.
func NotTheirs(err error) bool {
	var dns *net.DNSError
	return isCertificate(err) || isMistake(err) || errors.As(err, &dns) && dns.IsNotFound
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

// isMistake reports whether net/http cannot send such a request at all. Most of its errors for that have
// no type, so their texts are compared.
func isMistake(err error) bool {
	var address *net.AddrError
	if errors.As(err, &address) {
		return true
	}
	s := err.Error()
	return slices.ContainsFunc([]string{
		"unsupported protocol scheme", "no Host in request URL", "nil Request.Header", "ContentLength=",
		"net/http: invalid ", // method, header field, trailer field
	}, func(part string) bool { return strings.Contains(s, part) })
}

// NeverSent reports whether err came up before a connection existed, so that the request can be sent again without harm. An
// example: "dial tcp: connection refused" lets even a POST be sent again; "connection reset by peer" may come after the
// upstream has acted on it.
func NeverSent(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns)
}
