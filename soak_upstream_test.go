package throttle

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/moment"
)

var errSoakPanic = errors.New("the soak's own panic")

// A soakHost is one upstream and what is wrong with it now. Guarded by the soak's lock.
type soakHost struct {
	trip    time.Duration // the longest that an answer takes
	refuses float64       // share of refusals
	fails   float64       // share of failures
	hangs   float64       // share that is never answered
	told    int           // seconds that a refusal tells; 0: it does not
	tells   func(*soak, http.Header)
	lim     *Bucket // its own limit; nil: none
}

func (s *soak) newHost() *soakHost {
	h := &soakHost{trip: s.dur(2*time.Millisecond, 400*time.Millisecond)}
	if s.one(3) {
		h.tells = pick(s, soakDialects...)
	}
	if s.one(3) {
		h.lim = NewBucket(pick[rate.Limit](s, 2, 10, 50, 200), 1+s.n(20))
		h.told = pick(s, 0, 0, 1, 3)
	}
	return h
}

// changeWeather makes one upstream better or worse.
func (s *soak) changeWeather() {
	hosts := pick(s, s.trs...).hosts
	name := pick(s, hosts...)
	h := s.newHost()
	switch s.n(6) {
	case 0:
		h.fails = 1
	case 1:
		h.fails = 0.3
	case 2:
		h.refuses, h.told = s.r.Float64(), pick(s, 0, 0, 1, 2, 20)
	case 3:
		h.hangs = pick(s, 0.1, 1)
	case 4:
		h.refuses, h.fails, h.hangs = 0.1, 0.1, 0.02
	}
	*s.hosts[name] = *h
	s.tell("%s is now %+v", name, *h)
}

// soakUpstream is the Base of a Transport.
type soakUpstream struct{ x *soakTransport }

func (u soakUpstream) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	s, ctx, c := u.x.s, req.Context(), callOf(req.Context())
	var h soakHost
	s.locked(func() {
		c.start()
		h = *s.hosts[req.URL.Host]
	})
	sent := time.Now()
	defer func() { // in a panic too
		s.mu.Lock()
		defer s.mu.Unlock()
		c.land()
		c.hear(resp, err, sent)
	}()
	if b := req.Body; b != nil {
		if s.one(4) { // net/http may close it later
			time.AfterFunc(s.dur(0, 50*time.Millisecond), func() { b.Close() })
		} else {
			b.Close()
		}
	}
	trip := time.Millisecond + s.dur(0, h.trip)
	hang := s.r.Float64() < h.hangs
	if hang {
		trip = 40 * time.Second
	}
	select {
	case <-time.After(trip):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s.answer(req, &h, c, hang)
}

func (s *soak) answer(req *http.Request, h *soakHost, c *soakCall, hung bool) (*http.Response, error) {
	header, status := http.Header{}, 200
	if h.tells != nil {
		h.tells(s, header)
	}
	switch {
	case hung:
		return nil, errors.New("no answer for too long")
	case s.one(500) && c.panics:
		panic(errSoakPanic)
	case s.r.Float64() < h.fails:
		switch s.n(5) {
		case 0:
			return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
		case 1:
			return nil, io.ErrUnexpectedEOF
		}
		status = pick(s, 500, 502, 503, 503, 504)
	case h.lim != nil && !h.lim.Allow(), s.r.Float64() < h.refuses:
		status = pick(s, 429, 429, 429, 503)
		if told := h.told; told > 0 || status == 503 {
			header.Set("Retry-After", strconv.Itoa(max(1, told)))
		} else if s.one(20) {
			header.Set("Retry-After", pick(s, "-1", "soon", "0", "1e9", "99999999999999999999", "0.5"))
		}
	case req.URL.Path == "/redirect":
		status = pick(s, 302, 307)
		header.Set("Location", "http://"+pick(s, c.st.tr.hosts...)+"/")
	}
	b := s.newAnswer(req.Context())
	resp := &http.Response{
		StatusCode: status, Status: fmt.Sprint(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Request: req, ContentLength: -1, Body: b,
	}
	if s.one(4) {
		resp.ContentLength = int64(b.size)
	}
	return resp, nil
}

// hear notes what the answer to an attempt means for the station: told times, and why its epoch may
// change.
func (c *soakCall) hear(resp *http.Response, err error, sent time.Time) {
	now, st := time.Now(), c.st
	if err != nil || resp == nil {
		st.failed = true
		return
	}
	told, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	switch code := resp.StatusCode; {
	case code == 429, code == 503 && told > 0:
		c.s.sum.throttled.Add(1)
		if told > 0 && hint.Parse(resp, now).Scope == "" { // else it is told to one quota's calls alone
			st.quiet = append(st.quiet, quiet{now, now.Add(min(time.Duration(told)*time.Second, moment.MaxBelief))})
		}
		if !sent.Before(st.seen.epochAt) { // not an echo
			st.refused = true
		}
	case code >= 502:
		st.failed = true
	default:
		st.succeeded = true
	}
}

// soakDialects say what answers tell of quotas: sometimes nonsense.
var soakDialects = []func(*soak, http.Header){
	func(s *soak, h http.Header) {
		tell(h, "RateLimit-Limit", "100, 100;w=10", "RateLimit-Remaining", s.n(100), "RateLimit-Reset", s.n(10))
	},
	func(s *soak, h http.Header) {
		tell(h, "RateLimit-Limit", 20, "RateLimit-Policy", "20;w=1", "RateLimit-Remaining", s.n(20), "RateLimit-Reset", 1)
	},
	func(s *soak, h http.Header) {
		tell(h, "RateLimit", fmt.Sprintf("limit=50, remaining=%d, reset=%d", s.n(50), s.n(5)), "RateLimit-Policy", "50;w=5")
	},
	func(s *soak, h http.Header) { // several quotas
		name := pick(s, "a", "b", "c")
		tell(h, "RateLimit", fmt.Sprintf(`"%s";r=%d;t=%d`, name, s.n(40), s.n(3)), "RateLimit-Policy", `"`+name+`";q=40;w=3`)
	},
	func(s *soak, h http.Header) {
		tell(h, "X-RateLimit-Limit", 60, "X-RateLimit-Remaining", s.n(60), "X-RateLimit-Reset", time.Now().Unix()+int64(s.n(60)))
	},
	func(s *soak, h http.Header) { // more names than there are lanes
		tell(h, "X-RateLimit-Limit", 30, "X-RateLimit-Remaining", s.n(30), "X-RateLimit-Reset", s.n(3), "X-RateLimit-Resource", s.n(40))
	},
	func(s *soak, h http.Header) { // lies
		for _, f := range []string{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
			tell(h, f, pick(s, "0", "-1", "1", "100", "soon", "9223372036854775807", "0.001"))
		}
		if s.one(2) {
			h.Set("RateLimit-Reset", "1")
		}
	},
}

func tell(h http.Header, fields ...any) {
	for i := 0; i < len(fields); i += 2 {
		h.Set(fmt.Sprint(fields[i]), fmt.Sprint(fields[i+1]))
	}
}
