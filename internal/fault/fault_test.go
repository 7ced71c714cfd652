package fault

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"testing"
)

// TestErrors: whose fault an error is, and whether the request may have arrived, whatever the error is wrapped in.
func TestErrors(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for _, c := range []struct {
		err                  error
		notTheirs, neverSent bool
	}{
		{errors.New("EOF"), false, false},
		{refused, false, true},
		{&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, false, false},
		{&net.DNSError{IsNotFound: true}, true, true},
		{&net.DNSError{IsTimeout: true}, false, true},
		{x509.UnknownAuthorityError{}, true, false},
		{x509.HostnameError{Certificate: &x509.Certificate{}}, true, false},
		{x509.HostnameError{}, true, false}, // it has no text
		{&net.AddrError{Err: "missing port"}, true, false},
		{&tls.CertificateVerificationError{Err: errors.New("x509: unhandled critical extension")}, true, false},
		{errors.New("x509: certificate specifies an incompatible key usage"), true, false},            // a VerifyPeerCertificate
		{&net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}, true, false}, // golang/go#33368: after the handshake
		{errors.New("CRYPTO_ERROR 0x174 (remote): tls: certificate required"), true, false},           // quic-go
		{errors.New("readLoopPeekFailLocked: remote error: tls: certificate required"), true, true},   // net/http, just before the request
		{&net.OpError{Op: "remote error", Err: errors.New("tls: internal error")}, false, false},      // papi-ux/nova#210: a session that is not resumed
		{&net.OpError{Op: "local error", Err: errors.New("tls: bad record MAC")}, false, false},       // a byte was changed on the way
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, true, false},  // docker/cli#3107 and many more
		{tls.RecordHeaderError{Msg: "oversized record received with length 20527"}, false, false},     // it may be in the middle of a stream
		{http.ErrSchemeMismatch, true, false},                                                         // http.Client's text for it
		{errors.New("tls: server selected unsupported protocol version 301"), true, false},            // crypto/tls
		{errors.New("tls: server chose an unconfigured cipher suite"), true, false},                   // crypto/tls
		{errors.New("tls: server rejected ECH"), true, false},                                         // tls.ECHRejectionError
		{errors.New("net/http: TLS handshake timeout"), false, false},                                 // the trace decides
		{errors.New(`malformed HTTP response "\x15\x03\x01\x00\x02\x02"`), true, false},               // golang/go#49310: TLS
		{errors.New(`malformed HTTP response "\x00\x00\x06\x04\x00\x00"`), true, false},               // HTTP/2
		{errors.New(`malformed HTTP response "hello"`), false, false},                                 // anything
		{errors.New("http2: failed reading the frame payload: http2: frame too large, note that the frame header looked like an HTTP/1.1 header"), true, false},
		{errors.New(`http2: unexpected ALPN protocol "http/1.1"; want "h2"`), true, false},          // golang.org/x/net/http2
		{errors.New("http2: request header list larger than peer's advertised limit"), true, false}, // net/http
		{errors.New(`http2: invalid Upgrade request header: ["a"]`), true, false},                   // net/http
		{errors.New("idna: disallowed rune U+0020"), true, false},                                   // golang.org/x/net/idna
		{errors.New("http: ContentLength=3 with Body length 2"), true, false},                       // net/http
		{errors.New("net/http: can't write control character in Request.URL"), true, false},         // net/http
		{errors.New(`invalid proxy address "a b"`), true, false},                                    // http.ProxyFromEnvironment
		{errors.New("refusing to use HTTP_PROXY value in CGI environment; see golang.org/s/cgihttpproxy"), true, false},
		{errors.New("Proxy Authentication Required"), true, false},                                 // net/http, CONNECT
		{errors.New("Auth Failed (code: ip_forbidden)"), true, false},                              // Bright Data
		{errors.New("Bad Gateway"), false, false},                                                  // net/http, CONNECT
		{errors.New("Too Many Requests"), false, false},                                            // net/http, CONNECT
		{errors.New("unknown status code"), false, false},                                          // net/http, CONNECT
		{errors.New("stream error: stream ID 5; REFUSED_STREAM; received from peer"), false, true}, // RFC 9113 §8.7
		{errors.New("stream error: stream ID 5; CANCEL; received from peer"), false, false},        // it may have been processed
		{errors.New("http2: Transport received Server's graceful shutdown GOAWAY"), false, true},   // a stream above the last
		{errors.New("http2: Transport received GOAWAY from server ErrCode:ENHANCE_YOUR_CALM"), false, true},
		{errors.New(`http2: server sent GOAWAY and closed the connection; LastStreamID=5, ErrCode=NO_ERROR, debug=""`), false, false},
		{errors.New("http2: no cached connection was available"), false, true},                  // golang/go#16582
		{errors.New("http2: client conn not usable"), false, true},                              // net/http
		{errors.New("http2: client conn could not be established"), false, true},                // net/http
		{errors.New("http2: client connection lost"), false, false},                             // a ping without an answer
		{errors.New("http: server closed idle connection"), false, true},                        // golang/go#19943
		{errors.New("readLoopPeekFailLocked: read tcp: connection reset by peer"), false, true}, // the same by an RST
		{errors.New("net/http: timeout awaiting response headers"), false, false},               // it was sent
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "i/o timeout", Name: "authority.forbidden.x509", IsTimeout: true}}, false, true},
	} {
		for _, err := range []error{c.err, &url.Error{Op: "Get", Err: fmt.Errorf("proxy: %w", c.err)}} {
			if got := NotTheirs(err); got != c.notTheirs {
				t.Errorf("NotTheirs(%v) is %v", err, got)
			}
			if got := (*Sent)(nil).Nothing(err); got != c.neverSent {
				t.Errorf("Nothing(%v) is %v", err, got)
			}
		}
	}
}

// TestMistakes: what net/http itself refuses to send, as this version of Go says it.
func TestMistakes(t *testing.T) {
	for what, req := range map[string]*http.Request{
		"scheme": {URL: &url.URL{Scheme: "ftp", Host: "x"}, Header: http.Header{}},
		"host":   {URL: &url.URL{Scheme: "http"}, Header: http.Header{}},
		"header": {URL: &url.URL{Scheme: "http", Host: "x"}},
		"field":  {URL: &url.URL{Scheme: "http", Host: "x"}, Header: http.Header{"a b": {"c"}}},
		"method": {URL: &url.URL{Scheme: "http", Host: "x"}, Header: http.Header{}, Method: "A B"},
	} {
		if _, err := new(http.Transport).RoundTrip(req); err == nil || !NotTheirs(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
