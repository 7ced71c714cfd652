package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/throttletest"
)

var errOwnPanic = errors.New("the soak's own panic")

// silence is after how long a caller gives an upstream up that does not answer.
const silence = 40 * time.Second

var errSilence = errors.New("no answer for too long")

// A host is one upstream, and what it says of quotas: not of those that it has.
type host struct {
	*throttletest.Server
	tells func(*world, http.Header)
}

func (h *host) String() string {
	return fmt.Sprintf("limits %+v, faults %+v, latency %v, says of quotas: %v", h.Limits, h.Faults, h.Latency, h.tells != nil)
}

func (w *world) newHost() *host {
	h := &host{Server: &throttletest.Server{Seed: w.r.Uint64()}}
	h.Latency = throttletest.Span{Min: time.Millisecond / 2, Max: w.dur(2*time.Millisecond, 400*time.Millisecond) / 2}
	if w.one(3) {
		h.tells = pick(w, dialects...)
	}
	if w.one(3) {
		h.Limits = []throttletest.Limit{{N: pick(w, 2, 10, 50, 200), Burst: 1 + w.n(20)}}
		h.RetryAfter = pick[time.Duration](w, 0, 0, 1, 3) * time.Second
		if w.one(4) {
			h.Status, h.RetryAfter = http.StatusServiceUnavailable, max(time.Second, h.RetryAfter)
		}
	}
	return h
}

// changeWeather makes one upstream better or worse. What is on its way reaches it as it was.
func (w *world) changeWeather() {
	hosts := pick(w, w.trs...).hosts
	name := pick(w, hosts...)
	h := w.newHost()
	switch w.n(6) {
	case 0:
		h.Faults = failing(1)
	case 1:
		h.Faults = failing(0.3)
	case 2:
		h.Faults = refusing(w.r.Float64(), pick[time.Duration](w, 0, 0, 1, 2, 20)*time.Second)
	case 3:
		h.Faults = []throttletest.Fault{{Hang: true, Share: pick(w, 0.1, 1)}}
	case 4:
		h.Faults = slices.Concat([]throttletest.Fault{{Hang: true, Share: 0.02}}, failing(0.1), refusing(0.1, 0))
	}
	w.hosts[name] = h
	w.note("%s is now %s", name, h)
}

// failing are faults that strike a share of the requests, in several ways.
func failing(share float64) []throttletest.Fault {
	return among(share,
		throttletest.Fault{Err: &net.OpError{Op: "dial", Err: errors.New("refused")}}, throttletest.Fault{Err: io.ErrUnexpectedEOF},
		throttletest.Fault{Status: 500}, throttletest.Fault{Status: 502}, throttletest.Fault{Status: 503}, throttletest.Fault{Status: 503}, throttletest.Fault{Status: 504})
}

// refusing are faults that throttle a share of the requests.
func refusing(share float64, retryAfter time.Duration) []throttletest.Fault {
	with := throttletest.Fault{Status: http.StatusTooManyRequests, RetryAfter: retryAfter}
	return among(share, with, with, with, throttletest.Fault{RetryAfter: max(time.Second, retryAfter)})
}

// among shares out a share evenly: each fault strikes of what those before it have left.
func among(share float64, faults ...throttletest.Fault) []throttletest.Fault {
	each := share / float64(len(faults))
	for i := range faults {
		faults[i].Share = max(1e-9, min(1, each/(1-float64(i)*each)))
	}
	return faults
}

// upstream is the Base of a Transport.
type upstream struct{ x *transport }

func (u upstream) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	w, c := u.x.w, callOf(req.Context())
	var h *host
	w.locked(func() {
		c.route, c.last = req.URL.Host+req.URL.Path, nil
		c.start()
		h = w.hosts[req.URL.Host]
	})
	defer func() { // in a panic too
		w.mu.Lock()
		defer w.mu.Unlock()
		c.land()
		c.last = resp
		c.receipt.land(resp != nil && resp.StatusCode/100 == 2)
		c.obey(resp, h.tells != nil)
	}()
	ctx, cancel := context.WithTimeoutCause(req.Context(), silence, errSilence)
	defer cancel()
	out := req.WithContext(ctx)
	if b := req.Body; b != nil && w.one(4) { // net/http may close it later
		out.Body = nil
		time.AfterFunc(w.dur(0, 50*time.Millisecond), func() { b.Close() })
	}
	resp, err = h.RoundTrip(out)
	if w.one(500) && c.panics {
		resp = nil // which nobody gets to see
		panic(errOwnPanic)
	}
	if err != nil {
		return nil, err
	}
	w.dress(resp, req, h, c)
	return resp, nil
}

// dress gives an answer what the soak wants it to have: words of quotas, times to wait that are nonsense, redirects,
// and a body that is watched.
func (w *world) dress(resp *http.Response, req *http.Request, h *host, c *call) {
	if h.tells != nil {
		h.tells(w, resp.Header)
	}
	switch {
	case resp.StatusCode == 429 && resp.Header.Get("Retry-After") == "" && w.one(20):
		resp.Header.Set("Retry-After", pick(w, "-1", "soon", "0", "1e9", "99999999999999999999", "0.5"))
	case resp.StatusCode == 200 && req.URL.Path == "/redirect":
		resp.StatusCode = pick(w, 302, 307)
		resp.Header.Set("Location", "http://"+pick(w, c.st.tr.hosts...)+"/")
	}
	resp.Request = req
	resp.Header.Del("Content-Length")
	w.newAnswer(req.Context(), c, resp)
}

// obey notes until when an answer asks all calls of the station to wait. dressed: it may say something of quotas.
func (c *call) obey(resp *http.Response, dressed bool) {
	if resp == nil {
		return
	}
	now := time.Now()
	h := hint.Parse(resp, now)
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	refused := resp.StatusCode == 429 || resp.StatusCode == 503 && seconds > 0
	timed := refused && h.RetryAfter > 0 && h.Scope == "" // otherwise it is about one quota's calls alone
	if c.st.tr != nil {
		c.st.answers = append(c.st.answers, answered{now, c.route, timed, !refused && resp.StatusCode < 500, dressed})
	}
	if !refused {
		return
	}
	c.w.sum.throttled.Add(1)
	if timed && seconds > 0 {
		c.st.quiet = append(c.st.quiet, quiet{now, now.Add(min(time.Duration(seconds)*time.Second, maxBelief)), c.route})
	}
}

// alone reports whether what asked a station to be quiet may have been meant for its route alone, so that others go
// on. The library takes it so from the third time in a row on that the route is throttled with a time, if another
// route was served meanwhile. The row ends if the route is served, or another one is throttled with a time. What
// happens at one moment has no order, so what came at the same moment may have come before or after. What says
// something of quotas, perhaps nonsense, may not end a row.
//
// Example: /a is throttled at 1 s and 3 s, /b is served at 2 s and 4 s. If /a is throttled at 5 s it alone waits. If /b
// is throttled at 4 s instead, all wait at 5 s.
func (st *station) alone(q quiet) bool {
	var since time.Time // the row has not begun before
	for _, a := range st.answers {
		own := a.route == q.route
		if a.at.Before(q.since) && (own && a.served && !a.dressed || !own && a.timed) {
			since = a.at
		}
	}
	row, others := 0, false
	for _, a := range st.answers {
		switch own := a.route == q.route; {
		case a.at.Before(since) || a.at.After(q.since):
		case own && a.timed:
			row++
		case !own && a.served:
			others = true
		}
	}
	return row >= 3 && others
}

// dialects put quotas into answers: sometimes nonsense.
var dialects = []func(*world, http.Header){
	func(w *world, h http.Header) {
		set(h, "RateLimit-Limit", "100, 100;w=10", "RateLimit-Remaining", w.n(100), "RateLimit-Reset", w.n(10))
	},
	func(w *world, h http.Header) {
		set(h, "RateLimit-Limit", 20, "RateLimit-Policy", "20;w=1", "RateLimit-Remaining", w.n(20), "RateLimit-Reset", 1)
	},
	func(w *world, h http.Header) {
		set(h, "RateLimit", fmt.Sprintf("limit=50, remaining=%d, reset=%d", w.n(50), w.n(5)), "RateLimit-Policy", "50;w=5")
	},
	func(w *world, h http.Header) { // several quotas
		name := pick(w, "a", "b", "c")
		set(h, "RateLimit", fmt.Sprintf(`"%s";r=%d;t=%d`, name, w.n(40), w.n(3)), "RateLimit-Policy", `"`+name+`";q=40;w=3`)
	},
	func(w *world, h http.Header) {
		set(h, "X-RateLimit-Limit", 60, "X-RateLimit-Remaining", w.n(60), "X-RateLimit-Reset", time.Now().Unix()+int64(w.n(60)))
	},
	func(w *world, h http.Header) { // more names than there are scopes
		set(h, "X-RateLimit-Limit", 30, "X-RateLimit-Remaining", w.n(30), "X-RateLimit-Reset", w.n(3), "X-RateLimit-Resource", w.n(40))
	},
	func(w *world, h http.Header) { // lies
		for _, f := range []string{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
			set(h, f, pick(w, "0", "-1", "1", "100", "soon", "9223372036854775807", "0.001"))
		}
		if w.one(2) {
			h.Set("RateLimit-Reset", "1")
		}
	},
}

func set(h http.Header, fields ...any) {
	for i := 0; i < len(fields); i += 2 {
		h.Set(fmt.Sprint(fields[i]), fmt.Sprint(fields[i+1]))
	}
}
