package fault_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-throttle/throttle"
)

// These tests ask real sockets on the loopback, because what an attempt fails with, and when, is net/http's to say. They assert
// how often something was sent, never how long that took.

// patience is how long what hangs is waited for.
const patience = 20 * time.Millisecond

// listen serves each connection to a free port by serve, and closes it after that. It returns the port's address.
func listen(t *testing.T, serve func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(10 * time.Second)) // no test waits for ever
				serve(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		open.Wait()
	})
	return l.Addr().String()
}

// nobody returns an address where nobody listens.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func closes(*net.TCPConn) {}

func hangs(c *net.TCPConn) { io.Copy(io.Discard, c) }

// resets answers all that comes with a TCP RST.
func resets(c *net.TCPConn) {
	c.Read(make([]byte, 1))
	c.SetLinger(0)
}

// answers reads what comes first, says text, and waits until the other side closes, so that the text arrives.
func answers(text string) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		c.Read(make([]byte, 4096))
		io.WriteString(c, text)
		c.CloseWrite()
		io.Copy(io.Discard, c)
	}
}

// alerts answers a ClientHello with that fatal alert.
func alerts(number byte) func(*net.TCPConn) {
	return answers(string([]byte{21, 3, 1, 0, 2, 2, number}))
}

// socks answers the greeting of a SOCKS client with a choice of method, and its request with that code.
func socks(method, code byte) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		c.Read(make([]byte, 64))
		c.Write([]byte{5, method})
		if method != 0xff {
			c.Read(make([]byte, 512))
			c.Write([]byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0})
		}
		io.Copy(io.Discard, c)
	}
}

// secures does the handshake, and hands what is read and written behind it to serve. A handshake that failed is not closed
// before the other side does that: an RST would take the alert from it.
func secures(config *tls.Config, serve func(c *tls.Conn, raw *net.TCPConn)) func(*net.TCPConn) {
	return func(raw *net.TCPConn) {
		c := tls.Server(raw, config)
		if c.Handshake() != nil {
			io.Copy(io.Discard, raw)
			return
		}
		serve(c, raw)
	}
}

// reads reads the header of a request, says text, and ends by an RST or not.
func reads(text string, rst bool) func(c *tls.Conn, raw *net.TCPConn) {
	return func(c *tls.Conn, raw *net.TCPConn) { readsPlain(c, raw, text, rst) }
}

func readsPlain(c net.Conn, raw *net.TCPConn, text string, rst bool) {
	if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
		io.WriteString(c, text)
	}
	if rst {
		raw.SetLinger(0)
	}
}

// certificate is one for 127.0.0.1 that nobody has signed but its own key.
var certificate = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	c := x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, &c, &c, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})

func serverTLS(change ...func(*tls.Config)) *tls.Config {
	c := &tls.Config{Certificates: []tls.Certificate{certificate()}}
	for _, f := range change {
		f(c)
	}
	return c
}

// A way is how a row's requests reach, or do not reach, their upstream.
type way struct {
	base *http.Transport // its dials are counted
	url  string
	head http.Header
	wrap func(http.RoundTripper) http.RoundTripper // nil: base is asked directly
}

func https(address string) way { return way{base: new(http.Transport), url: "https://" + address} }
func plain(address string) way { return way{base: new(http.Transport), url: "http://" + address} }

// through is the way to an https upstream through a proxy.
func through(proxy string) way {
	u, err := url.Parse(proxy)
	if err != nil {
		panic(err)
	}
	return way{base: &http.Transport{Proxy: http.ProxyURL(u)}, url: "https://api.test"}
}

// always is a row for what may be sent again whatever it is, because nothing has been sent; idempotent for what the upstream
// may have got; never for what no retry mends.
const always, idempotent, never = "always", "idempotent", "never"

var anyCertificate = func(c *tls.Config) { c.InsecureSkipVerify = true }

func (w way) with(change ...func(*tls.Config)) way {
	w.base.TLSClientConfig = new(tls.Config)
	for _, f := range append(change, anyCertificate) {
		f(w.base.TLSClientConfig)
	}
	return w
}

func TestSockets(t *testing.T) {
	for _, c := range []struct {
		name  string
		again string
		way   func(t *testing.T) way
	}{
		// What fails before there is a connection.
		{"nobody listens", always, func(t *testing.T) way { return plain(nobody(t)) }},
		{"TLS, nobody listens", always, func(t *testing.T) way { return https(nobody(t)) }},
		{"closed at accept", always, func(t *testing.T) way { return https(listen(t, closes)) }}, // EOF
		{"handshake hangs", always, func(t *testing.T) way { // pulumi/pulumi#16576, pinpt/go-common#112
			w := https(listen(t, hangs))
			w.base.TLSHandshakeTimeout = patience
			return w
		}},
		{"handshake is reset", always, func(t *testing.T) way { return https(listen(t, resets)) }},
		{"closed in the handshake", always, func(t *testing.T) way { return https(listen(t, answers(""))) }},
		{"DialContext with an error of its own", always, func(t *testing.T) way {
			w := plain("api.test")
			w.base.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no free port") }
			return w
		}},
		{"DialContext's own time is up", always, func(t *testing.T) way {
			w := plain("api.test")
			w.base.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, context.DeadlineExceeded }
			return w
		}},
		{"DialTLSContext with an error of its own", always, func(t *testing.T) way {
			w := https("api.test")
			w.base.DialTLSContext = func(context.Context, string, string) (net.Conn, error) { return nil, io.ErrUnexpectedEOF }
			return w
		}},
		{"name server fails", always, func(t *testing.T) way {
			w := plain("api.test")
			w.base.DialContext = func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "server misbehaving", Name: "api.test", IsTemporary: true}}
			}
			return w
		}},
		// Proxies: net/http's text for a failed CONNECT is the reason phrase alone.
		{"proxy is down", always, func(t *testing.T) way { return through("http://" + nobody(t)) }}, // proxyconnect tcp: dial tcp
		{"proxy closes", always, func(t *testing.T) way { return through("http://" + listen(t, closes)) }},
		{"proxy hangs up on CONNECT", always, func(t *testing.T) way { return through("http://" + listen(t, answers(""))) }},
		{"proxy resets", always, func(t *testing.T) way { return through("http://" + listen(t, resets)) }},
		{"handshake with the proxy fails", always, func(t *testing.T) way { return through("https://" + listen(t, closes)) }},
		{"CONNECT 502", always, connect("502 Bad Gateway")}, // squid: ERR_CONNECT_FAIL
		{"CONNECT 502, ISA", always, connect("502 Proxy Error ( The host was not found. )")},
		{"CONNECT 503", always, connect("503 Service Unavailable")},
		{"CONNECT 504", always, connect("504 Gateway Timeout")},
		{"CONNECT 500", always, connect("500 Unable to connect")}, // tinyproxy
		{"CONNECT 429", always, connect("429 Too Many Requests")},
		{"CONNECT 408", always, connect("408 Request Timeout")},
		{"CONNECT without a phrase", always, connect("502")}, // unknown status code
		{"CONNECT with an empty phrase", always, connect("502 ")},
		{"tunnel ends at once", always, connect("200 Connection established")},
		{"CONNECT 407", never, connect("407 Proxy Authentication Required")},
		{"CONNECT 407, ISA", never, connect("407 Proxy Authentication Required ( Forefront TMG requires authorization to fulfill the request. )")},
		{"CONNECT 407, Blue Coat", never, connect("407 authenticationrequired")},
		{"CONNECT 407, Bright Data", never, connect("407 Auth Failed (code: ip_forbidden)")},
		{"CONNECT 407, short", never, connect("407 Proxy Auth Required")},
		{"CONNECT 401", never, connect("401 Unauthorized")}, // erebe/wstunnel#545
		{"CONNECT 403", never, connect("403 Forbidden")},
		{"CONNECT 403, tinyproxy", never, connect("403 Filtered")},
		{"CONNECT 403, tinyproxy's list", never, connect("403 Access denied")},
		{"CONNECT 403, Privoxy", never, connect("403 Request blocked by Privoxy")},
		{"CONNECT 400", never, connect("400 Bad Request")},
		{"CONNECT 402", never, connect("402 Payment Required")},
		{"CONNECT 405", never, connect("405 Method Not Allowed")},
		{"CONNECT 405, nginx", never, connect("405 Not Allowed")},
		{"CONNECT to a server for TLS", never, func(t *testing.T) way { // first record: an https address of a proxy for plain HTTP
			return through("https://" + listen(t, answers("HTTP/1.1 400 Bad Request\r\n\r\n")))
		}},
		{"proxy has no address", never, func(t *testing.T) way {
			return through("http://proxy.invalid:99999")
		}},
		// SOCKS: the codes of RFC 1928 §6.
		{"SOCKS is down", always, func(t *testing.T) way { return through("socks5://" + nobody(t)) }},
		{"SOCKS closes", always, func(t *testing.T) way { return through("socks5://" + listen(t, closes)) }},
		{"SOCKS, general failure", always, socksWay(0, 1)},
		{"SOCKS, network unreachable", always, socksWay(0, 3)},
		{"SOCKS, host unreachable", always, socksWay(0, 4)},
		{"SOCKS, connection refused", always, socksWay(0, 5)},
		{"SOCKS, TTL expired", always, socksWay(0, 6)},
		{"SOCKS, tunnel ends at once", always, func(t *testing.T) way {
			return through("socks5://" + listen(t, func(c *net.TCPConn) {
				c.Read(make([]byte, 64))
				c.Write([]byte{5, 0})
				c.Read(make([]byte, 512))
				c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
			}))
		}},
		{"SOCKS, ruleset", never, socksWay(0, 2)},
		{"SOCKS, command", never, socksWay(0, 7)},
		{"SOCKS, address type", never, socksWay(0, 8)},
		{"SOCKS, no method", never, socksWay(0xff, 0)},
		{"SOCKS, wants a password", never, socksWay(2, 0)},
		{"SOCKS, is HTTP", never, func(t *testing.T) way {
			return through("socks5://" + listen(t, answers("HTTP/1.1 400 Bad Request\r\n\r\n")))
		}},
		// TLS: what either side does not accept.
		{"untrusted", never, func(t *testing.T) way { return https(listen(t, secures(serverTLS(), reads("", false)))) }},
		{"pinned otherwise", never, func(t *testing.T) way {
			return https(listen(t, secures(serverTLS(), reads("", false)))).with(func(c *tls.Config) {
				c.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { return errors.New("x509: another pin") }
			})
		}},
		{"client certificate required, 1.3", never, clientAuth(tls.VersionTLS13, false)}, // tls: certificate required
		{"client certificate required, 1.2", never, clientAuth(tls.VersionTLS12, false)}, // tls: handshake failure
		{"client certificate refused, 1.3", never, clientAuth(tls.VersionTLS13, true)},   // tls: unknown certificate authority
		{"client certificate refused, 1.2", never, clientAuth(tls.VersionTLS12, true)},
		{"version", never, func(t *testing.T) way {
			return https(listen(t, secures(serverTLS(func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 }), reads("", false)))).with(
				func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 })
		}},
		{"version, ours is newer", never, func(t *testing.T) way {
			return https(listen(t, secures(serverTLS(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), reads("", false)))).with(
				func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 })
		}},
		{"cipher suite", never, func(t *testing.T) way {
			return https(listen(t, secures(serverTLS(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), reads("", false)))).with(
				func(c *tls.Config) {
					c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}
				})
		}},
		{"ALPN", never, func(t *testing.T) way {
			return https(listen(t, secures(serverTLS(func(c *tls.Config) { c.NextProtos = []string{"h3"} }), reads("", false)))).with(
				func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} })
		}},
		{"no version that both could speak", never, func(t *testing.T) way {
			return https(listen(t, closes)).with(func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS13, tls.VersionTLS12 })
		}},
		{"server has no certificate at the moment", always, func(t *testing.T) way { // tls: internal error
			return https(listen(t, secures(serverTLS(func(c *tls.Config) {
				c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, errors.New("store is down") }
			}), nil)))
		}},
		{"HTTP on the port of TLS", never, func(t *testing.T) way { return https(listen(t, answers("HTTP/1.1 200 OK\r\n\r\n"))) }},
		{"SSH on the port of TLS", never, func(t *testing.T) way { return https(listen(t, answers("SSH-2.0-OpenSSH_9.9\r\n"))) }},
		{"TLS on the port of HTTP", never, func(t *testing.T) way { return plain(listen(t, alerts(10))) }},
		{"HTTP/2 on the port of HTTP", never, func(t *testing.T) way { return plain(listen(t, answers("\x00\x00\x00\x04\x00\x00\x00\x00\x00"))) }},
		// What net/http cannot send.
		{"scheme", never, func(t *testing.T) way { return way{base: new(http.Transport), url: "gopher://api.test"} }},
		{"name", never, func(t *testing.T) way { return plain("a.\u00e9\u0020test") }},
		{"no such host", never, func(t *testing.T) way {
			w := plain("api.test")
			w.base.DialContext = func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "api.test", IsNotFound: true}}
			}
			return w
		}},
		// What the upstream has got.
		{"closed after the header", idempotent, served("", false)},
		{"reset after the header", idempotent, served("", true)},
		{"closed in the answer's header", idempotent, served("HTTP/1.1 200 OK\r\nContent-Le", false)},
		{"nonsense", idempotent, served("hello\r\n\r\n", false)},
		{"TLS, closed after the header", idempotent, servedTLS("", false)},
		{"TLS, reset after the header", idempotent, servedTLS("", true)},
		{"no answer", idempotent, func(t *testing.T) way {
			w := plain(listen(t, hangs))
			w.base.ResponseHeaderTimeout = patience
			return w
		}},
		{"closed in place of 100 Continue", idempotent, func(t *testing.T) way {
			w := served("", false)(t)
			w.base.ExpectContinueTimeout, w.head = 10*time.Second, http.Header{"Expect": {"100-continue"}}
			return w
		}},
		// HTTP/2: a stream above the last one of a GOAWAY was not processed (RFC 9113 §6.8).
		{"GOAWAY before it", always, goAway(0, 11)},
		{"GOAWAY after it", idempotent, goAway(1, 11)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			all := map[string]int{"GET": 3, "PUT": 3, "POST with a key": 3, "POST": 3, "PATCH": 3}
			switch c.again {
			case idempotent:
				all["POST"], all["PATCH"] = 1, 1
			case never:
				all = map[string]int{"GET": 1, "PUT": 1, "POST with a key": 1, "POST": 1, "PATCH": 1}
			}
			for method, want := range all {
				attempts, dials, _, err := sends(t, c.way(t), method, 3)
				if err == nil || attempts != want || dials > want {
					t.Errorf("%s: %d attempts, %d connections, want %d: %v", method, attempts, dials, want, err)
				}
			}
			// With Failures 1 any failure of the upstream closes its gate.
			if _, _, cause, err := sends(t, c.way(t), "POST", 1); (cause == "gate:failing") == (c.again == never) {
				t.Errorf("the gate is closed by %q: %v", cause, err)
			}
		})
	}
}

// Every alert of TLS, in place of the ServerHello: RFC 8446 §6, and https://www.iana.org/assignments/tls-parameters.
func TestAlerts(t *testing.T) {
	lasts := []byte{40, 42, 43, 44, 45, 46, 47, 48, 49, 70, 71, 86, 109, 110, 112, 113, 114, 116, 120, 121}
	for number := range 128 {
		want := 2
		if bytes.IndexByte(lasts, byte(number)) >= 0 {
			want = 1
		}
		attempts, _, _, err := sends(t, https(listen(t, alerts(byte(number)))), "POST", 2)
		if attempts != want {
			t.Errorf("alert %d: %d attempts, want %d: %v", number, attempts, want, err)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Bases that stand between the Transport and net/http. What they show less of counts as sent.
func TestBases(t *testing.T) {
	for _, c := range []struct {
		name string
		want int // attempts of a POST; a GET has 3
		wrap func(t *testing.T, below http.RoundTripper, req *http.Request) (*http.Response, error)
	}{
		{"adds a trace of its own", 3, func(_ *testing.T, below http.RoundTripper, req *http.Request) (*http.Response, error) { // otelhttptrace
			return below.RoundTrip(req.Clone(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {}})))
		}},
		{"has a ctx that ends later", 3, func(_ *testing.T, below http.RoundTripper, req *http.Request) (*http.Response, error) {
			return below.RoundTrip(req.WithContext(context.WithoutCancel(req.Context())))
		}},
		{"has a ctx of its own", 1, func(_ *testing.T, below http.RoundTripper, req *http.Request) (*http.Response, error) {
			return below.RoundTrip(req.WithContext(context.Background()))
		}},
		{"gets a token with a ctx of its own", 3, func(t *testing.T, below http.RoundTripper, req *http.Request) (*http.Response, error) { // oauth2
			token(t, context.Background())
			return below.RoundTrip(req)
		}},
		{"gets a token with the call's ctx", 1, func(t *testing.T, below http.RoundTripper, req *http.Request) (*http.Response, error) {
			token(t, req.Context())
			return below.RoundTrip(req)
		}},
		{"sends it twice by itself", 3, func(_ *testing.T, below http.RoundTripper, req *http.Request) (*http.Response, error) {
			below.RoundTrip(req)
			return below.RoundTrip(req)
		}},
		{"races two", 3, func(_ *testing.T, below http.RoundTripper, req *http.Request) (*http.Response, error) {
			var second sync.WaitGroup
			second.Go(func() { below.RoundTrip(req.Clone(req.Context())) })
			defer second.Wait()
			return below.RoundTrip(req.Clone(req.Context()))
		}},
	} {
		for method, want := range map[string]int{"GET": 3, "POST": c.want} {
			w := https(listen(t, closes))
			w.wrap = func(below http.RoundTripper) http.RoundTripper {
				return roundTrip(func(req *http.Request) (*http.Response, error) { return c.wrap(t, below, req) })
			}
			if attempts, _, _, err := sends(t, w, method, 3); attempts != want {
				t.Errorf("%s, %s: %d attempts, want %d: %v", c.name, method, attempts, want, err)
			}
		}
	}
}

// token asks another server under ctx.
func token(t *testing.T, ctx context.Context) {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+listen(t, answers("HTTP/1.0 200 OK\r\n\r\n")), nil)
	if err != nil {
		t.Error(err)
		return
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Error(err)
		return
	}
	resp.Body.Close()
}

func connect(status string) func(*testing.T) way {
	return func(t *testing.T) way {
		return through("http://" + listen(t, answers("HTTP/1.1 "+status+"\r\n\r\n")))
	}
}

func socksWay(method, code byte) func(*testing.T) way {
	return func(t *testing.T) way { return through("socks5://user:word@" + listen(t, socks(method, code))) }
}

func served(text string, rst bool) func(*testing.T) way {
	return func(t *testing.T) way {
		return plain(listen(t, func(c *net.TCPConn) { readsPlain(c, c, text, rst) }))
	}
}

func servedTLS(text string, rst bool) func(*testing.T) way {
	return func(t *testing.T) way { return https(listen(t, secures(serverTLS(), reads(text, rst)))).with() }
}

// clientAuth is an upstream that wants a certificate of its clients. They have none, or one that it does not know.
func clientAuth(version uint16, other bool) func(*testing.T) way {
	return func(t *testing.T) way {
		config := serverTLS(func(c *tls.Config) {
			c.MaxVersion, c.ClientAuth, c.ClientCAs = version, tls.RequireAndVerifyClientCert, x509.NewCertPool()
		})
		return https(listen(t, secures(config, reads("", false)))).with(func(c *tls.Config) {
			if other {
				own := certificate()
				c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
			}
		})
	}
}

// goAway is an upstream that speaks HTTP/2, and answers the first stream with a GOAWAY.
func goAway(last, code byte) func(*testing.T) way {
	const headers = 1
	serve := func(c *tls.Conn, raw *net.TCPConn) {
		r := bufio.NewReader(c)
		r.Discard(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
		c.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}) // SETTINGS
		for {
			frame := make([]byte, 9)
			if _, err := io.ReadFull(r, frame); err != nil {
				return
			}
			r.Discard(int(frame[0])<<16 | int(frame[1])<<8 | int(frame[2]))
			if frame[3] == headers {
				c.Write([]byte{0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, last, 0, 0, 0, code})
				c.CloseWrite()
			}
		}
	}
	return func(t *testing.T) way {
		w := https(listen(t, secures(serverTLS(func(c *tls.Config) { c.NextProtos = []string{"h2"} }), serve))).with()
		w.base.ForceAttemptHTTP2 = true
		return w
	}
}

// sends makes one call of up to most attempts on that way, and returns how many there were, the connections that they dialled,
// and why the gate is closed if one failure is enough for that.
func sends(t *testing.T, w way, method string, most int) (attempts, dials int, cause string, _ error) {
	t.Helper()
	w.base.DisableKeepAlives = !w.base.ForceAttemptHTTP2
	var dialled atomic.Int32
	dial := w.base.DialContext
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	w.base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		dialled.Add(1)
		return dial(ctx, network, address)
	}
	defer w.base.CloseIdleConnections()
	tr := &throttle.Transport{Base: w.base, Retry: throttle.Retry{
		MaxAttempts: most, Failures: 1 << 20, Budget: throttle.Budget{PerCall: -1},
		Backoff: func() throttle.Backoff { return soon{} },
	}}
	if w.wrap != nil {
		tr.Base = w.wrap(w.base)
	}
	if most == 1 {
		tr.Retry.Failures = 1
	}
	method, key, _ := strings.Cut(method, " with a ")
	req, err := http.NewRequestWithContext(t.Context(), method, w.url, strings.NewReader("body"))
	if err != nil {
		u, _ := url.Parse("http://x")
		u.Host = strings.TrimPrefix(w.url, "http://")
		req, _ = http.NewRequest(method, "http://x", strings.NewReader("body"))
		req.URL, req.Host = u, u.Host
	}
	for name, values := range w.head {
		req.Header[name] = values
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", "1")
	}
	resp, err := tr.RoundTrip(req)
	if err == nil {
		resp.Body.Close()
	}
	for s := range tr.Stats() {
		attempts, cause = attempts+int(s.Sent), s.Reason
	}
	return attempts, int(dialled.Load()), cause, err
}

type soon struct{}

func (soon) NextBackOff() time.Duration { return time.Millisecond }
