package lab_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttletest"
)

// This file makes the upstreams of TestRandomUpstreams. All that one is follows from its seed.

// The kinds of upstreams beside those that have a limit, whose kind is that of the limit.
const (
	noLimit  = "none"   // admits everything
	atRandom = "random" // throttles a share of the requests, whatever the rate
)

// A run is so many calls at most, and so many windows at least: in the first ones a client that spaces calls
// evenly is behind one that sends all at once.
const (
	mostCalls = 20000
	windows   = 4
)

// A randomUpstream is an upstream and those who call it. An example:
//
//	sliding 40 per 10s, 4/s, changes 40 9 120; trip 35ms uniform; retry-after exact; advertised x-delta
//	to every 7th; own limit none; 12 workers; until 31m0s or 5210 calls
type randomUpstream struct {
	seed       uint64
	kind       string
	limit      throttletest.Limit // of the kinds that have one
	share      float64            // throttled at random
	retryAfter time.Duration      // when throttled: 0, a time, or throttletest.Exact
	way, work  throttletest.Span
	shape      string // of the times
	rate       float64

	advert  string // never, always, every, throttled, or a lie: scaled, full, skewed, edge
	dialect string
	every   int           // with every: in each so-manieth answer; with edge: in about one of so many
	scale   float64       // with scaled: of the truth
	skew    time.Duration // with skewed: of the server's clock
	noDate  bool          // with skewed: the answers have no Date

	own     string  // the client's limit: none, above, below, infinite, foreign; of newSituation none, bucket, leaky, sliding, fixed
	ownRate float64 // of above and below

	situation string             // of newSituation; "": of newRandomUpstream
	ownLimit  throttletest.Limit // of the client; N 0: own says all
	off       float64            // ownLimit, of the true rate
	outages   []outage           // in order
	down      string             // how outages look: 503, 503 with 1s, breaks off, hangs
	patience  time.Duration      // with hangs: after it a request is given up
	rounding  string             // of Retry-After, to whole seconds: up, down, or down, 1 at least; "": as throttletest does

	workers int     // 0: open load
	demand  float64 // of an open load, calls a second
	calls   int     // so many at most
	until   time.Duration
}

// logUniform draws a number between two whose logarithm is uniform: as many between 1 and 10 as between 10 and 100.
func logUniform(r *rand.Rand, least, most float64) float64 {
	return least * math.Exp(r.Float64()*math.Log(most/least))
}

// pick draws one of the names, each as often as its weight says.
func pick(r *rand.Rand, weights ...any) string {
	sum := 0
	for i := 1; i < len(weights); i += 2 {
		sum += weights[i].(int)
	}
	for i, n := 1, r.IntN(sum); ; i += 2 {
		if n -= weights[i].(int); n < 0 {
			return weights[i-1].(string)
		}
	}
}

// newRandomUpstream draws the upstream of a seed. At first the rate is drawn, then times that go with it.
//
// The least is 300 calls and a minute. No limit is drawn that nobody could keep: a client that knows it, but not how long the next request will
// be on its way, is throttled by a bucket unless its burst is at least 1 + J·L (J the spread of the way
// there, L the rate), and loses the share J ÷ window of a window, which is 1/8 at most here.
func newRandomUpstream(seed uint64) *randomUpstream {
	r := rand.New(rand.NewPCG(seed, 12))
	u := &randomUpstream{seed: seed, rate: logUniform(r, 0.5, 300)}
	u.kind = pick(r, noLimit, 8, atRandom, 27, string(throttletest.Fixed), 15, string(throttletest.FixedFirst), 7,
		string(throttletest.Sliding), 17, string(throttletest.Bucket), 16, string(throttletest.InFlight), 10)
	u.until = time.Duration(max(logUniform(r, 60, 3600), 300/u.rate) * 1e9)
	u.calls = int(max(logUniform(r, 1000, mostCalls), 60*u.rate))
	u.workers = int(logUniform(r, 1, 65))
	trip := time.Duration(logUniform(r, 0.01, 1) * 1e9)
	switch u.kind {
	case noLimit, atRandom:
		trip = min(max(time.Duration(float64(u.workers)/u.rate*1e9), 10*time.Millisecond), 2*time.Second)
	case string(throttletest.InFlight):
		u.limit.N = int(logUniform(r, 1, 40))
		trip = min(max(time.Duration(float64(u.limit.N)/u.rate*1e9), 10*time.Millisecond), 5*time.Second)
	}
	pers := []time.Duration{1, 1, 2, 5, 10, 30, 60, 60, 120, 300}
	per := pers[r.IntN(len(pers))] * time.Second
	if u.isWindow() {
		for u.rate*windows*per.Seconds() > mostCalls {
			per /= 2
		}
		per = max(per.Round(time.Second), time.Second)
		u.until, u.calls = max(u.until, windows*per), max(u.calls, int(windows*u.rate*per.Seconds()))
		trip = min(trip, per/8)
	}
	u.drawTimes(r, trip)
	u.drawLimit(r, per)
	u.drawAdvert(r)
	u.retryAfter = map[string]time.Duration{"none": 0, "exact": throttletest.Exact, "1s": time.Second,
		"more": time.Duration(2+r.IntN(9)) * time.Second}[pick(r, "none", 45, "exact", 30, "1s", 20, "more", 5)]
	if u.kind == atRandom {
		u.share = logUniform(r, 0.001, 0.2)
		if u.retryAfter < 0 {
			u.retryAfter = time.Second
		}
	}
	if r.IntN(10) < 3 {
		u.workers, u.demand = 0, u.rate*logUniform(r, 0.2, 1.5)
	} else if !u.limited() {
		u.rate = float64(u.workers) / (u.mean()).Seconds()
	}
	u.own = pick(r, "none", 50, "above", 15, "below", 10, "infinite", 10, "foreign", 15)
	u.ownRate = u.rate * map[bool]float64{true: logUniform(r, 1.2, 10), false: logUniform(r, 0.2, 0.95)}[u.own == "above"]
	return u
}

// limited reports whether there is a limit, and isWindow whether it counts in windows.
func (u *randomUpstream) limited() bool { return u.kind != noLimit && u.kind != atRandom }
func (u *randomUpstream) isWindow() bool {
	return u.limited() && u.kind != string(throttletest.Bucket) && u.kind != string(throttletest.InFlight)
}

// tells reports whether answers advertise the limit, or what is like it.
func (u *randomUpstream) tells() bool {
	return slices.Contains([]string{"always", "every", "throttled", "scaled", "full", "skewed"}, u.advert)
}

// mean is the mean time of a call.
func (u *randomUpstream) mean() time.Duration { return 2*meanOf(u.way) + meanOf(u.work) }

func meanOf(s throttletest.Span) time.Duration {
	return max(s.Min, (s.Min+s.Max)/2, s.Min+s.Mean)
}

// drawTimes gives a round trip of this mean its shape, and to the work a part of it.
func (u *randomUpstream) drawTimes(r *rand.Rand, trip time.Duration) {
	work := time.Duration(0)
	if u.kind == string(throttletest.InFlight) || r.IntN(3) == 0 {
		work = time.Duration(float64(trip) * (0.2 + 0.7*r.Float64()))
	}
	u.shape = pick(r, "constant", 30, "uniform", 40, "exponential", 30)
	spread := r.Float64()
	span := func(mean time.Duration) throttletest.Span {
		switch u.shape {
		case "uniform":
			return throttletest.Span{Min: time.Duration(float64(mean) * (1 - spread)), Max: time.Duration(float64(mean) * (1 + spread))}
		case "exponential":
			return throttletest.Span{Min: mean / 4, Mean: mean - mean/4}
		}
		return throttletest.Span{Min: mean}
	}
	u.way, u.work = span((trip-work)/2), span(work)
}

// drawLimit makes the limit, and its changes every two to six minutes.
func (u *randomUpstream) drawLimit(r *rand.Rand, per time.Duration) {
	if !u.limited() {
		return
	}
	flying := u.limit.N
	u.limit = throttletest.Limit{Kind: throttletest.Kind(u.kind), Per: per, Phase: time.Duration(r.Int64N(int64(per)))}
	u.limit.N = max(1, int(u.rate*per.Seconds()))
	spread := max(0, u.way.Max-u.way.Min) + 3*u.way.Mean
	switch u.limit.Kind {
	case throttletest.Bucket:
		if u.limit.Per = time.Second; u.rate < 10 {
			u.limit.Per = time.Minute
		}
		u.limit.N = max(1, int(u.rate*u.limit.Per.Seconds()))
		least := math.Ceil(1 + u.rate*spread.Seconds())
		u.limit.Burst = int(logUniform(r, least, max(least, 5*u.rate)+1))
	case throttletest.InFlight:
		u.limit.Per, u.limit.N = 0, flying
		u.rate = float64(u.limit.N) / u.mean().Seconds()
	}
	if r.IntN(5) < 2 {
		for at := time.Duration(0); ; {
			if at += time.Duration(120+r.IntN(240)) * time.Second; at >= u.until {
				break
			}
			u.limit.Changes = append(u.limit.Changes, throttletest.Change{At: at, N: max(1, int(float64(u.limit.N)*logUniform(r, 0.125, 8)))})
		}
	}
	if u.limit.Kind != throttletest.InFlight {
		u.rate = float64(u.limit.N) / u.limit.Per.Seconds()
	}
}

// drawAdvert says what the answers tell. Where no limit can be advertised they are silent, or lie now and then.
func (u *randomUpstream) drawAdvert(r *rand.Rand) {
	u.advert = pick(r, "never", 40, "always", 20, "every", 13, "throttled", 7, "scaled", 8, "full", 3, "skewed", 3, "edge", 6)
	if !u.isWindow() && u.kind != string(throttletest.Bucket) {
		u.advert = pick(r, "never", 80, "edge", 20)
	}
	u.dialect = []string{"draft-03", "draft-06", "draft-07", "draft-08", "x-delta", "x-epoch"}[r.IntN(6)]
	switch u.advert {
	case "every":
		u.every = 2 + r.IntN(40)
	case "edge":
		u.every = int(logUniform(r, 200, 5000))
	case "scaled":
		if u.scale = 0.2 + 0.7*r.Float64(); r.IntN(2) == 0 {
			u.scale = 1 + 4*r.Float64()
		}
	case "skewed":
		u.dialect, u.skew = "x-epoch", time.Duration((r.Float64()-0.5)*float64(2*24*time.Hour))
		if u.noDate = r.IntN(4) == 0; !u.noDate && r.IntN(2) == 0 {
			u.skew /= 10000 // seconds
		}
	}
}

func (u *randomUpstream) String() string {
	what := u.situated() + u.kind
	switch {
	case u.kind == string(throttletest.InFlight):
		what += fmt.Sprintf(" %d", u.limit.N)
	case u.limited():
		what += fmt.Sprintf(" %d per %v, %.3g/s", u.limit.N, u.limit.Per, u.rate)
	}
	if u.kind == string(throttletest.Bucket) {
		what += fmt.Sprintf(", burst %d", u.limit.Burst)
	}
	for i, c := range u.limit.Changes {
		what += fmt.Sprintf("%s %d", []string{"", ", changes"}[max(0, 1-i)], c.N)
	}
	if u.share > 0 {
		what += fmt.Sprintf(", %.2f %% at random", 100*u.share)
	}
	what += fmt.Sprintf("; trip %v %s", u.mean().Round(time.Millisecond/10), u.shape)
	what += "; retry-after " + cmp.Or(map[time.Duration]string{0: "none", throttletest.Exact: "exact"}[u.retryAfter], u.retryAfter.String())
	what += "; advertised " + u.advert
	if u.advert != "never" && u.advert != "edge" {
		what += " " + u.dialect
	}
	what += map[string]string{"every": fmt.Sprintf(" (%d)", u.every), "edge": fmt.Sprintf(" (%d)", u.every),
		"scaled": fmt.Sprintf(" × %.2f", u.scale), "skewed": fmt.Sprintf(" by %v, no date %v", u.skew.Round(time.Second), u.noDate)}[u.advert]
	if what += "; own limit " + u.own; u.own == "above" || u.own == "below" {
		what += fmt.Sprintf(" (%.3g/s)", u.ownRate)
	}
	if u.workers > 0 {
		return what + fmt.Sprintf("; %d workers; until %v or %d calls", u.workers, u.until.Round(time.Second), u.calls)
	}
	return what + fmt.Sprintf("; open load of %.3g/s; until %v or %d calls", u.demand, u.until.Round(time.Second), u.calls)
}

// struck reports whether the n-th request is throttled at random, and edged whether the n-th answer is from
// the edge, which advertises 1 a second and nothing remaining. It depends on n alone, so the client and the
// oracle meet the same fate.
func (u *randomUpstream) struck(n int64) bool {
	return u.share > 0 && rand.New(rand.NewPCG(u.seed, uint64(n))).Float64() < u.share
}
func (u *randomUpstream) edged(n int64) bool {
	return u.advert == "edge" && rand.New(rand.NewPCG(u.seed+1<<40, uint64(n))).IntN(u.every) == 0
}

// server makes the upstream.
func (u *randomUpstream) server() (*throttletest.Server, http.RoundTripper) {
	s := throttletest.NewServer()
	if u.limited() {
		s.Limits = []throttletest.Limit{u.limit}
	}
	s.Latency, s.Work, s.Seed, s.RetryAfter, s.Skew = u.way, u.work, u.seed, u.retryAfter, u.skew
	s.NoDate, s.Faults = u.noDate, u.faults()
	if u.share > 0 {
		var n atomic.Int64
		s.Faults = []throttletest.Fault{{Status: 429, RetryAfter: u.retryAfter, Match: func(*http.Request) bool { return u.struck(n.Add(1)) }}}
	}
	if a := &s.Advertise; u.tells() {
		a.Dialect, a.Every, a.Throttled = dialectOf(u.dialect), u.every, u.advert == "throttled"
		a.Edit = func(st throttletest.State) throttletest.State {
			switch u.advert {
			case "scaled":
				st.Limit, st.Remaining = max(1, int(float64(st.Limit)*u.scale)), int(float64(st.Remaining)*u.scale)
			case "full":
				st.Remaining = st.Limit
			}
			return st
		}
	}
	var n atomic.Int64
	return s, roundTrip(func(req *http.Request) (*http.Response, error) {
		resp, err := u.impatient(s, req)
		if err != nil {
			return nil, err
		}
		if u.round(resp.Header); u.edged(n.Add(1)) {
			trio := http.Header{"X-Ratelimit-Limit": {"1"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"1"}}
			for k, v := range trio {
				resp.Header[k] = v
			}
		}
		return resp, nil
	})
}

// ownBurst is the burst of a limit of the client's own.
const ownBurst = 5

// limiter is the client's own limit.
func (u *randomUpstream) limiter() throttle.Limiter {
	switch u.own {
	case "above", "below":
		return throttle.NewBucket(rate.Limit(u.ownRate), ownBurst)
	case "infinite":
		return throttle.NewBucket(rate.Inf, 0)
	case "foreign":
		return freeLimiter{}
	}
	return u.ownLimiter()
}

// A freeLimiter is a limiter of somebody else's that never lets anybody wait.
type freeLimiter struct{}

// Take takes.
func (freeLimiter) Take(context.Context, int) (time.Duration, error) { return 0, nil }

// arrivals are the moments at which the calls of an open load come: at random, as if from many users.
func (u *randomUpstream) arrivals() (at []time.Duration) {
	r := rand.New(rand.NewPCG(u.seed, 13))
	for t := 0.0; len(at) < u.calls; {
		if t += r.ExpFloat64() / u.demand; t >= u.until.Seconds() {
			break
		}
		at = append(at, time.Duration(t*1e9))
	}
	return at
}
