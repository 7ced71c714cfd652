package lab_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttletest"
)

// This file makes the upstreams of TestRandomSituations, each in one of three situations. All that one is follows from the
// situation and the seed. They are drawn apart from those of newRandomUpstream, so that the same seed is the same upstream
// there as ever.
const (
	besideOwn = "beside"  // the client has a limit of its own that is about right, or twice too high, and ways have jitter
	outages   = "outage"  // the upstream is down now and then, and a backlog waits for it
	rounded   = "rounded" // Retry-After is the true time in whole seconds, rounded up or down, and 60 at most
)

var situations = []string{besideOwn, outages, rounded}

// An outage answers nothing, or nothing of use, to what arrives in it.
type outage struct{ from, to time.Duration }

// newSituation draws the upstream of a seed in a situation. At first the rate is drawn, then times that go with it. No
// answer advertises a limit, and no limit changes.
//
// Workers are enough to use the limit up. A run has 600 calls or more if as many come, and 40 for each worker: who knows of
// no limit finds it when all workers have sent a call, and should not be outside the bounds for that alone. After the last
// outage as many come as the limit serves in the time of 400 calls, and of 40 for each worker, so 300 are served.
//
// As in newRandomUpstream no limit is drawn that nobody could keep. A bucket has a burst of 1 + J·L or more (J the spread of
// the way there, L the rate), with one exception: beside a limit of the client's own it may have a burst of 1 where J·L
// is 0.2 at most. Calls that go evenly at the very rate of such a bucket are throttled each third time,
// however small J is; one that makes 1/L longer by J keeps it, and uses 83 % or more.
func newSituation(situation string, seed uint64) *randomUpstream {
	r := rand.New(rand.NewPCG(seed, uint64(16+slices.Index(situations, situation))))
	u := &randomUpstream{seed: seed, situation: situation, rate: logUniform(r, 0.5, 200), advert: "never", own: "none"}
	u.kind = pick(r, string(throttletest.Fixed), 25, string(throttletest.FixedFirst), 8, string(throttletest.Sliding), 32, string(throttletest.Bucket), 35)
	pers := []time.Duration{1, 1, 2, 5, 10, 30, 60, 60, 120}
	if situation != rounded {
		pers = pers[:8]
	}
	per := pers[r.IntN(len(pers))] * time.Second
	for u.rate*windows*per.Seconds() > mostCalls {
		per /= 2
	}
	per = max(per.Round(time.Second), time.Second)
	u.drawWays(r, per)
	u.drawPlainLimit(r, per)
	u.workers = max(int(logUniform(r, 1, 65)), int(math.Ceil(1.3*u.rate*u.mean().Seconds())))
	if r.IntN(10) < 4 {
		u.workers, u.demand = 0, u.rate*logUniform(r, 0.3, 1.5)
	}
	u.retryAfter = map[string]time.Duration{"exact": throttletest.Exact, "1s": time.Second}[pick(r, "none", 1, "1s", 1, "exact", 1)]
	least := float64(max(600, 40*u.workers))
	u.until = time.Duration(max(logUniform(r, 60, 1800), least/u.rate, windows*per.Seconds()) * 1e9)
	u.calls = int(max(logUniform(r, 1000, 8000), least, 60*u.rate, windows*u.rate*per.Seconds()))
	switch situation {
	case besideOwn:
		u.off, _ = strconv.ParseFloat(pick(r, "0.95", 2, "1", 3, "1.05", 2, "2", 2), 64)
		u.drawOwn(r)
	case outages:
		if u.drawOutages(r); r.IntN(3) == 0 {
			u.off = 1
			u.drawOwn(r)
		}
	case rounded:
		u.retryAfter, u.rounding = throttletest.Exact, pick(r, "up", 2, "down", 1, "down, 1 at least", 1)
	}
	return u
}

// drawWays makes the ways: beside a limit of one's own up to 25 ms of jitter on each of the two, else what newRandomUpstream has.
func (u *randomUpstream) drawWays(r *rand.Rand, per time.Duration) {
	if u.situation != besideOwn {
		trip := time.Duration(logUniform(r, 0.01, 0.5) * 1e9)
		if u.isWindow() {
			trip = min(trip, per/8)
		}
		u.drawTimes(r, trip)
		return
	}
	least := time.Duration(logUniform(r, 0.002, 0.1) * 1e9)
	u.shape, u.way = "uniform", throttletest.Span{Min: least, Max: least + time.Duration(r.Int64N(int64(25*time.Millisecond)+1))}
}

// drawPlainLimit makes a limit that does not change.
func (u *randomUpstream) drawPlainLimit(r *rand.Rand, per time.Duration) {
	l := throttletest.Limit{Kind: throttletest.Kind(u.kind), Per: per, Phase: time.Duration(r.Int64N(int64(per)))}
	if l.Kind == throttletest.Bucket {
		if l.Per = time.Second; u.rate < 10 {
			l.Per = time.Minute
		}
	}
	l.N = max(1, int(math.Round(u.rate*l.Per.Seconds())))
	u.rate = float64(l.N) / l.Per.Seconds()
	if l.Kind == throttletest.Bucket {
		spread := (max(0, u.way.Max-u.way.Min) + 3*u.way.Mean).Seconds()
		least := math.Ceil(1 + u.rate*spread)
		if u.situation == besideOwn && u.rate*spread <= 0.2 {
			least = 1
		}
		l.Burst = int(logUniform(r, least, max(least, 5*u.rate)+1))
	}
	u.limit = l
}

// drawOwn gives the client a limit of u.off times the true rate. But for that it is one that a careful reader of the
// upstream's documentation chooses: as many calls at once as the upstream allows. A third of those before a bucket, and
// bursts of a few before a window, are chosen with less care.
func (u *randomUpstream) drawOwn(r *rand.Rand) {
	u.own = pick(r, "bucket", 40, "sliding", 20, "fixed", 20, "leaky", 20)
	l := &u.ownLimit
	n := u.limit.N // at once
	if u.limit.Kind == throttletest.Bucket {
		n = u.limit.Burst
	}
	switch u.own {
	case "bucket", "leaky":
		l.N, l.Per, l.Burst = int(math.Round(u.rate*u.off*36000)), 10*time.Hour, 1
		b := []int{1, 5, 10}[r.IntN(3)]
		if careless := r.IntN(3) == 0 && !u.isWindow(); u.own == "bucket" && (b <= n || careless) {
			l.Burst = b
		}
		return
	case "sliding":
		l.Kind = throttletest.Sliding
	case "fixed":
		l.Kind = throttletest.FixedFirst // as a throttle.FixedWindow
	}
	if u.limit.Kind == throttletest.Bucket && u.own == "fixed" {
		n = max(1, n/2) // two windows may meet
	}
	if r.IntN(3) == 0 {
		n = int(logUniform(r, 1, float64(n)+1))
	}
	if l.N, l.Per = n, time.Duration(float64(n)/u.rate*1e9); u.off == 2 {
		l.N *= 2
	} else {
		l.Per = time.Duration(float64(l.Per) / u.off)
	}
}

// drawOutages draws one to three outages, how they look, and how long the run is. What happens between them is counted in
// calls, so that a slow upstream has time to be known, and a fast one costs no more.
func (u *randomUpstream) drawOutages(r *rand.Rand) {
	seconds := func(s float64) time.Duration { return time.Duration(s * 1e9) }
	pace := u.rate
	if u.workers == 0 {
		pace = min(pace, u.demand)
	}
	at := time.Duration(0)
	for range 1 + r.IntN(3) {
		from := at + seconds(max(5, logUniform(r, 50, 2000)/pace))
		at = from + seconds(logUniform(r, 1, 60))
		u.outages = append(u.outages, outage{from, at})
	}
	windows := 2 * u.limit.Per
	u.until = at + max(seconds(max(30, logUniform(r, 400, 4000)/pace, 40*float64(u.workers)/pace)), windows)
	u.calls = int(1.2*u.rate*u.until.Seconds()) + max(u.limit.Burst, u.limit.N) + 100
	u.down = pick(r, "503", 4, "503 with 1s", 2, "breaks off", 1, "hangs", 3)
	u.patience = seconds(logUniform(r, 1, 10))
}

// situated is what the description says of a situation.
func (u *randomUpstream) situated() string {
	if u.situation == "" {
		return ""
	}
	var parts []string
	for _, o := range u.outages {
		parts = append(parts, fmt.Sprintf("%v at %v", (o.to-o.from).Round(time.Second/10), o.from.Round(time.Second/10)))
	}
	if u.down != "" {
		parts = append(parts, "then "+u.down)
	}
	if u.down == "hangs" {
		parts = append(parts, fmt.Sprintf("given up after %v", u.patience.Round(time.Second/10)))
	}
	if u.rounding != "" {
		parts = append(parts, u.rounding)
	}
	if l := u.ownLimit; l.N > 0 {
		own := fmt.Sprintf("%s × %v, %.4g/s", u.own, u.off, float64(l.N)/l.Per.Seconds())
		if l.Kind == "" {
			own += fmt.Sprintf(" burst %d", l.Burst)
		} else {
			own += fmt.Sprintf(" as %d per %v", l.N, l.Per.Round(time.Millisecond))
		}
		parts = append(parts, own)
	}
	return u.situation + ": " + strings.Join(parts, ", ") + "; "
}

// faults are the outages as faults of the server.
func (u *randomUpstream) faults() (f []throttletest.Fault) {
	for _, o := range u.outages {
		fault := throttletest.Fault{From: o.from, To: o.to, Hang: u.down == "hangs"}
		switch u.down {
		case "503 with 1s":
			fault.RetryAfter = time.Second
		case "breaks off":
			fault.Err = errors.New("connection reset by peer")
		}
		f = append(f, fault)
	}
	return f
}

// downUntil is the end of the outage at a moment, or that moment.
func (u *randomUpstream) downUntil(at time.Duration) time.Duration {
	for _, o := range u.outages {
		if o.from <= at && at < o.to {
			return o.to
		}
	}
	return at
}

// impatient gives a request that an upstream may never answer up after u.patience, as a client with a
// ResponseHeaderTimeout does. Where all are answered it costs nothing.
func (u *randomUpstream) impatient(s *throttletest.Server, req *http.Request) (*http.Response, error) {
	ctx := context.WithoutCancel(req.Context())
	now := s.Elapsed()
	near := func(o outage) bool { return now < o.to && now+max(u.way.Max, u.way.Min+20*u.way.Mean) >= o.from }
	if u.down != "hangs" || !slices.ContainsFunc(u.outages, near) {
		return s.RoundTrip(req.WithContext(ctx))
	}
	ctx, cancel := context.WithTimeout(ctx, u.patience+u.mean())
	defer cancel()
	resp, err := s.RoundTrip(req.WithContext(ctx))
	if err != nil {
		err = os.ErrDeadlineExceeded
	}
	return resp, err
}

// told is the Retry-After that stands for a true time.
func (u *randomUpstream) told(d time.Duration) time.Duration {
	if u.rounding == "" || d <= 0 {
		return d
	}
	seconds := (d + time.Second - 1) / time.Second
	if u.rounding != "up" {
		seconds--
	}
	if u.rounding == "down, 1 at least" {
		seconds = max(seconds, 1)
	}
	return min(seconds, 60) * time.Second
}

// round makes the Retry-After of an answer what is told.
func (u *randomUpstream) round(h http.Header) {
	if s, err := strconv.Atoi(h.Get("Retry-After")); err == nil && u.rounding != "" {
		h.Set("Retry-After", strconv.Itoa(int(u.told(time.Duration(s)*time.Second)/time.Second)))
	}
}

// ownLimiter is the client's own limit of newSituation.
func (u *randomUpstream) ownLimiter() throttle.Limiter {
	l := u.ownLimit
	perSecond := rate.Limit(float64(l.N) / cmp.Or(l.Per, time.Second).Seconds())
	switch u.own {
	case "bucket":
		return throttle.NewBucket(perSecond, l.Burst)
	case "leaky":
		return throttle.NewLeaky(perSecond)
	case "sliding":
		return throttle.NewSlidingWindow(l.N, l.Per)
	case "fixed":
		return throttle.NewFixedWindow(l.N, l.Per)
	}
	return nil
}
