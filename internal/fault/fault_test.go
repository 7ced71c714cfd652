package fault

import (
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
		{&net.AddrError{Err: "missing port"}, true, false},
	} {
		for _, err := range []error{c.err, &url.Error{Op: "Get", Err: fmt.Errorf("proxy: %w", c.err)}} {
			if got := NotTheirs(err); got != c.notTheirs {
				t.Errorf("NotTheirs(%v) is %v", err, got)
			}
			if got := NeverSent(err); got != c.neverSent {
				t.Errorf("NeverSent(%v) is %v", err, got)
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
