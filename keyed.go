package throttle

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/go-throttle/throttle/internal/queue"
)

const maxKeyLen = 256 // the most bytes of a key

// limitsOf makes the limits of a key.
func (t *Transport) limitsOf(key string) (l queue.Limits, err error) {
	var lim Limiter
	if t.LimiterFor != nil {
		lim = t.LimiterFor(key)
	}
	switch {
	case isNil(lim):
		return l, fmt.Errorf("throttle: Transport.LimiterFor(%q) returned a nil %T", key, lim)
	case lim == nil:
		l.All, l.Own = t.shared, &t.none
	default:
		l.Own, err = tryFlatten(lim)
		l.All = l.Own // one object, as most keys share no limiter and there may be many keys
		if err == nil && t.Limiter != nil {
			l.All, err = tryFlatten(lim, t.Limiter)
		}
		if err != nil {
			return l, fmt.Errorf("throttle: Transport.Limiter and LimiterFor(%q) cannot be joined: %w", key, err)
		}
	}
	if t.Meters != nil {
		l.Meters, err = metersOf(key, t.Meters(key), l)
	}
	return l, err
}

// ByHost is the default Transport.Key. It returns the host and port of the request's URL in lower case,
// without the scheme's default port and without a final dot.
func ByHost(req *http.Request) string {
	switch {
	case req.URL == nil:
		return ""
	case plain(req.URL.Host):
		return req.URL.Host
	}
	host := strings.ToLower(req.URL.Host)
	name, port := host, ""
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		name, port = host[:i], host[i+1:]
	}
	bare := strings.TrimSuffix(name, ".")
	switch {
	case port == "", port == "80" && strings.EqualFold(req.URL.Scheme, "http"), port == "443" && strings.EqualFold(req.URL.Scheme, "https"):
		return bare
	case bare == name:
		return host
	}
	return bare + ":" + port
}

// plain reports whether ByHost has nothing to change in host, which is so for most. It says no when in
// question: for every port and everything outside ASCII.
func plain(host string) bool {
	for i := range len(host) {
		if c := host[i]; (c < 'a' || 'z' < c) && (c == ':' || c >= 0x80 || 'A' <= c && c <= 'Z') { // nearly all are a to z
			return false
		}
	}
	return host == "" || host[len(host)-1] != '.'
}

// ByCredential is a Transport.Key for upstreams that count by API key. It returns the host and 64 bits
// of the HMAC-SHA-256 of the Authorization header, under a random key of this process, so the credential
// cannot be found from what observers see. For a request without that header it returns ByHost's key:
// put the Transport below whatever sets the header. For a credential in another header there is [ByHeader];
// for one in the URL, give Transport.Key a function of your own that returns a hash of it.
func ByCredential(req *http.Request) string { return byHeader(req, "Authorization") }

// ByHeader returns a Transport.Key for upstreams that count by another header, such as X-Api-Key: the host and a
// hash of that header, as [ByCredential] makes it. For a request without the header it is ByHost's key. "Host" is
// Request.Host, which net/http sends; if it names the URL's host the key is ByHost's. ByHeader panics for
// Content-Length, Transfer-Encoding and Trailer, which net/http does not send from Request.Header either.
func ByHeader(name string) func(*http.Request) string {
	name = http.CanonicalHeaderKey(name)
	if name == "Content-Length" || name == "Transfer-Encoding" || name == "Trailer" {
		panic("throttle: ByHeader: net/http does not send " + name + " from Request.Header")
	}
	return func(req *http.Request) string { return byHeader(req, name) }
}

// byHeader is ByCredential for any header.
func byHeader(req *http.Request, name string) string {
	host := ByHost(req)
	value := req.Header.Get(name)
	if name == "Host" && req.URL != nil { // as net/http, which leaves out what the header says
		value = ByHost(&http.Request{URL: &url.URL{Scheme: req.URL.Scheme, Host: req.Host}})
	}
	if value == "" || name == "Host" && value == host {
		return host
	}
	mac := hmac.New(sha256.New, processKey())
	mac.Write([]byte(value))
	return host + "#" + hex.EncodeToString(mac.Sum(nil)[:8])
}

// processKey returns the key of the process for ByCredential. It is drawn at the first use.
var processKey = sync.OnceValue(func() []byte {
	key := make([]byte, sha256.Size)
	rand.Read(key) // crypto/rand: it never fails
	return key
})

// bounded returns a key of at most maxKeyLen bytes, because callers and upstreams can make keys of any
// length. A longer key is cut, and ends with a hash of the whole, and so does one that looks like it: all stay different.
func bounded(key string) string {
	if len(key) < maxKeyLen || len(key) == maxKeyLen && key[maxKeyLen-17] != '#' {
		return key
	}
	return fmt.Sprintf("%s#%.8x", key[:maxKeyLen-17], sha256.Sum256([]byte(key)))
}
