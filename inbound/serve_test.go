package inbound_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/inbound"
	"github.com/go-throttle/throttle/internal/race"
)

// ok is a handler that serves.
var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })

// get sends a request of a client to a handler.
func get(h http.Handler, addr string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = addr
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const alice, bob = "192.0.2.1:1234", "192.0.2.2:1234"

// statuses sends n requests and counts how many were served and refused.
func statuses(t *testing.T, h http.Handler, addr string, n int) (served, refused int) {
	t.Helper()
	for range n {
		switch w := get(h, addr); w.Code {
		case http.StatusNoContent:
			served++
		case http.StatusTooManyRequests:
			refused++
		default:
			t.Fatalf("status %d", w.Code)
		}
	}
	return served, refused
}

func TestEachClientHasItsOwnLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inbound.Limit{Limits: []string{"10/s burst 5"}}
		h := l.Handler(ok)
		for _, addr := range []string{alice, bob, "[2001:db8::1]:80"} {
			if served, refused := statuses(t, h, addr, 8); served != 5 || refused != 3 {
				t.Errorf("%s: %d served and %d refused, want 5 and 3", addr, served, refused)
			}
		}
		time.Sleep(300 * time.Millisecond)
		if served, _ := statuses(t, h, alice, 8); served != 3 {
			t.Errorf("after 300ms %d served, want 3", served)
		}
		want := inbound.Stats{Keys: 3, Admitted: 18, Refused: 14}
		if s := l.Stats(); s != want {
			t.Errorf("%+v, want %+v", s, want)
		}
	})
}

// randomLimits draws one to three limits of all kinds, and the highest cost that makes sense.
func randomLimits(r *rand.Rand) (limits []string, cost int) {
	cost = 1 << 30
	for range 1 + r.IntN(3) {
		n, per := 1+r.IntN(50), 1+r.IntN(200)
		cost = min(cost, n)
		switch r.IntN(4) {
		case 0:
			limits = append(limits, fmt.Sprintf("%d/%ds burst %d", 1+r.IntN(300), per, n))
		case 1:
			limits = append(limits, fmt.Sprintf("%d/%dms even", n, 100*per))
			cost = min(cost, 3) // a burst of 1: more leaves a debt
		case 2:
			limits = append(limits, fmt.Sprintf("%d/%dms window", n, 100*per))
		case 3:
			limits = append(limits, fmt.Sprintf("%d/%dms sliding", n, 100*per))
		}
	}
	return limits, cost
}

// TestRetryAfterIsExact: in thousands of random cases, who waits as long as Retry-After says is let in, and who comes a
// second earlier is not.
func TestRetryAfterIsExact(t *testing.T) {
	cases := race.Pick(1000, 10_000)
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(15, 1))
		early := 0
		for i := range cases {
			limits, most := randomLimits(r)
			cost := 1
			l := inbound.Limit{Limits: limits, MaxKeys: 1, Cost: func(*http.Request) int { return cost }}
			h := l.Handler(ok)
			var w *httptest.ResponseRecorder
			for {
				cost = 1 + r.IntN(most)
				if w = get(h, alice); w.Code == http.StatusTooManyRequests {
					break
				}
				if r.IntN(3) == 0 {
					time.Sleep(time.Duration(r.Int64N(int64(2 * time.Second))))
				}
			}
			after, err := strconv.Atoi(w.Header().Get("Retry-After"))
			if err != nil || after < 1 {
				t.Fatalf("%d: %v: Retry-After %q", i, limits, w.Header().Get("Retry-After"))
			}
			time.Sleep(time.Duration(after-1) * time.Second)
			if get(h, alice).Code != http.StatusTooManyRequests {
				early++
				continue
			}
			time.Sleep(time.Second)
			if get(h, alice).Code != http.StatusNoContent {
				t.Fatalf("%d: %v, cost %d: refused after Retry-After %d", i, limits, cost, after)
			}
		}
		if early > cases/100 {
			t.Errorf("%d of %d were let in a second before Retry-After", early, cases)
		}
	})
}

// TestResetsAreTrue: who comes back at the second that was said is let in: after Retry-After, after X-RateLimit-Reset if nothing
// remains, and after the latest t in RateLimit of those with nothing left. Limits of all kinds, down to one unit, with
// debts, side by side or around each other.
func TestResetsAreTrue(t *testing.T) {
	cases := race.Pick(400, 50_000)
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(36, 1))
		checked := map[string]int{}
		for i := range cases {
			limits, cost := smallLimits(r), 0
			costs := func(*http.Request) int { return cost }
			l := inbound.Limit{Limits: limits, MaxKeys: 1, XRateLimit: true, Cost: costs}
			h, stacked := l.Handler(ok), len(limits) > 1 && i%2 == 0
			if stacked {
				inner := inbound.Limit{Limits: limits[1:], MaxKeys: 1, XRateLimit: true, Cost: costs, Name: "inner"}
				outer := inbound.Limit{Limits: limits[:1], MaxKeys: 1, XRateLimit: true, Cost: costs}
				h = outer.Handler(inner.Handler(ok))
			}
			var said http.Header
			var refused bool
			for range 1 + r.IntN(30) {
				time.Sleep(time.Duration(r.Int64N(int64(3*time.Second))) * time.Duration(r.IntN(2)))
				cost = 1 + r.IntN(3)*r.IntN(2)
				w := get(h, alice)
				said, refused = w.Header(), w.Code == http.StatusTooManyRequests
			}
			name, wait := promise(said, r.IntN(3))
			if wait < 0 || stacked && refused { // the one that refuses does not know of the other
				continue
			}
			if name != "Retry-After" {
				cost = 1
			}
			checked[name]++
			time.Sleep(time.Duration(wait) * time.Second)
			if w := get(h, alice); w.Code != http.StatusNoContent {
				t.Fatalf("%d: %v: %s said %d s, and it is %s then; at first\n%v", i, limits, name, wait, w.Body, said)
			}
		}
		for name, n := range checked {
			if n < cases/20 {
				t.Errorf("only %d cases of %s were checked", n, name)
			}
		}
	})
}

// promise is the number of seconds after which the header says, in one of three ways, that something is let in; -1: it does
// not.
func promise(h http.Header, way int) (name string, wait int) {
	number := func(name string) int {
		if n, err := strconv.Atoi(h.Get(name)); err == nil {
			return n
		}
		return -1
	}
	wait = -1
	switch way {
	case 0:
		return "Retry-After", number("Retry-After")
	case 1:
		if number("X-RateLimit-Remaining") == 0 {
			wait = number("X-RateLimit-Reset")
		}
		return "X-RateLimit-Reset", wait
	}
	for _, q := range hint.Parse(&http.Response{StatusCode: 200, Header: http.Header{"Ratelimit": h["Ratelimit"]}}, time.Now()).Quotas {
		if q.Remaining == 0 {
			wait = max(wait, int(q.Reset/time.Second))
		}
	}
	return "RateLimit", wait
}

// smallLimits draws one to three limits of a few units, and times of whole seconds that the fields can say.
func smallLimits(r *rand.Rand) (limits []string) {
	for range 1 + r.IntN(3) {
		n := 1 + r.IntN(1+r.IntN(30))
		limits = append(limits, fmt.Sprintf([...]string{
			"%d/%ds window", "%d/%ds sliding", "1/%[2]ds burst %[1]d", "1/%[2]ds even",
		}[r.IntN(4)], n, 1+r.IntN(20)))
	}
	return limits
}

// TestFieldsAreTrue: what the fields say is left is let in, and not one more; hint reads them.
func TestFieldsAreTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(15, 2))
		checked := 0
		defer func() {
			if checked < 100 {
				t.Errorf("only %d cases were checked", checked)
			}
		}()
		for i := range 1000 {
			limits, _ := randomLimits(r)
			l := inbound.Limit{Limits: limits, MaxKeys: 1}
			h := l.Handler(ok)
			for range r.IntN(20) {
				get(h, alice)
				time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
			}
			w := get(h, alice)
			read := hint.Parse(w.Result(), time.Now())
			if len(read.Quotas) != len(limits) {
				continue // one is too short for the fields
			}
			checked++
			left := read.Quotas[0].Remaining
			for _, q := range read.Quotas {
				left = min(left, q.Remaining)
			}
			if served, refused := statuses(t, h, alice, int(left)+1); served != int(left) || refused != 1 {
				t.Fatalf("%d: %v: %v, and %d of %d were served", i, limits, w.Header(), served, left+1)
			}
		}
	})
}

func itoa(n int) string { return strconv.Itoa(n) }

// contains reports whether one of the values contains part.
func contains(values []string, part string) bool {
	return strings.Contains(strings.Join(values, "\n"), part)
}

// TestShortWaitsAreNamed: a wait below half a millisecond is not "0s" in the document.
func TestShortWaitsAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := (&inbound.Limit{Limits: []string{"10000/s"}}).Handler(ok)
		get(h, alice)
		if w := get(h, alice); !strings.Contains(w.Body.String(), "Try again in 1ms.") {
			t.Errorf("the document is %s", w.Body)
		}
	})
}
