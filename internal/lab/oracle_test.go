package lab_test

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/lab"
	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/throttletest"
)

// A schedule serves the calls of a randomUpstream as one who knows its limit could: each at the moment at which
// the limit has a unit for it, or if what is in flight allows it. It obeys what is advertised, even if it is a
// lie: a smaller quota than the true one, the time in a refusal, the second that an edge's page wants.
//
// It is a schedule, not a client: nothing of the library runs. It goes through the arrivals in order of time,
// and it knows how long each request will be on its way. It does not know which ones will be throttled at
// random, nor, if the limit is one by concurrency, how long work will take: it keeps the limit for
// requests from their sending to their answer.
//
// An example: Fixed, 2 per 10 s, three workers, 100 ms each way. Two requests arrive at 0.1 s and are answered
// at 0.2 s. The third is sent at 9.9 s and arrives at 10 s, when the next window begins.
type schedule struct {
	u        *randomUpstream
	rng      *rand.Rand
	accounts []lab.Account
	due      attempts
	head     *attempt   // waits for a unit, in due
	line     []*attempt // wait behind it
	flying   []time.Duration
	pauses   []pause
	n        int64 // requests
	sent     []attempt
	served   []time.Duration // when calls were answered, in order
}

// An attempt is a request of the oracle's.
type attempt struct {
	at        time.Duration // when it arrives, or wants to
	way, back time.Duration
	waits     bool // it is the head
}

// A pause is what an answer wants: nothing is to be sent from when it is heard until a moment.
type pause struct{ heard, until time.Duration }

// run serves what comes until u.until, at most u.calls calls. It returns when calls were answered.
func (o *schedule) run() {
	u := o.u
	o.rng = rand.New(rand.NewPCG(u.seed, 14))
	if u.limited() && u.limit.Kind != throttletest.InFlight {
		o.account(u.limit)
	}
	if u.tells() {
		o.account(u.advertised())
	}
	if u.ownLimit.N > 0 {
		o.account(u.ownLimit)
	}
	if u.own == "below" || u.own == "above" {
		o.account(throttletest.Limit{N: max(1, int(u.ownRate*3600)), Per: time.Hour, Burst: ownBurst})
	}
	for range u.workers {
		o.send(0)
	}
	if u.workers == 0 {
		for _, at := range u.arrivals() {
			o.send(at)
		}
	}
	for len(o.due) > 0 && len(o.served) < u.calls {
		o.step(heap.Pop(&o.due).(*attempt))
	}
	slices.Sort(o.served)
	o.served = slices.DeleteFunc(o.served, func(at time.Duration) bool { return at > u.until })
}

// advertised is the limit as the answers have it. What is scaled up is not obeyed by one who knows the truth.
//
// Times are written in whole seconds, rounded up, so what is said of a bucket may be less than the truth: one
// of 30/s with a burst of 45 is full after 1.5 s, and the answers say 45 per 2 s, which is 22.5/s.
func (u *randomUpstream) advertised() throttletest.Limit {
	l := u.limit
	scaled := func(n int) int {
		if u.scale > 0 && u.scale < 1 {
			n = int(float64(n) * u.scale)
		}
		return max(1, n)
	}
	perHour := scaled
	if l.Kind == throttletest.Bucket {
		perHour = func(n int) int {
			window := math.Ceil(float64(u.limit.Burst)*u.limit.Per.Seconds()/float64(n) - 1e-6)
			return int(float64(scaled(u.limit.Burst)) * 3600 / window)
		}
		l.Per = time.Hour
	}
	l.N, l.Burst, l.Changes = perHour(l.N), scaled(l.Burst), slices.Clone(l.Changes)
	for i := range l.Changes {
		l.Changes[i].N = perHour(l.Changes[i].N)
	}
	return l
}

func (o *schedule) account(l throttletest.Limit) {
	o.accounts = append(o.accounts, lab.NewAccount(l))
}

// send lets a call want to be sent at a moment. Under a limit by concurrency the moment of sending decides, so the
// way there counts as a part of the way back.
func (o *schedule) send(at time.Duration) {
	if at >= o.u.until {
		return
	}
	a := &attempt{way: drawSpan(o.u.way, o.rng), back: drawSpan(o.u.way, o.rng)}
	if o.u.limit.Kind == throttletest.InFlight {
		a.way, a.back = 0, a.back+a.way
	}
	a.at = at + a.way
	heap.Push(&o.due, a)
}

// step lets a arrive, or wait for as long as it must. Those who come while somebody waits get in line.
func (o *schedule) step(a *attempt) {
	if !a.waits && o.head != nil {
		o.line = append(o.line, a)
		return
	}
	if at := o.earliest(a); at > a.at {
		if at-a.way < o.u.until {
			o.head, a.at, a.waits = a, at, true
			heap.Push(&o.due, a)
		}
		return
	}
	if a.waits {
		if o.head = nil; len(o.line) > 0 {
			o.head, o.line = o.line[0], o.line[1:]
			o.head.waits, o.head.at = true, a.at
			heap.Push(&o.due, o.head)
		}
	}
	o.arrive(a)
}

// earliest is when a may arrive, a.at if it may now.
func (o *schedule) earliest(a *attempt) time.Duration {
	at := o.u.downUntil(a.at)
	for _, p := range o.pauses {
		if sent := at - a.way; p.heard <= sent && sent < p.until {
			at = p.until + a.way
		}
	}
	for _, account := range o.accounts {
		at = max(at, account.Ready(a.at))
	}
	if o.u.limit.Kind == throttletest.InFlight {
		o.flying = slices.DeleteFunc(o.flying, func(end time.Duration) bool { return end <= a.at })
		if len(o.flying) >= o.inFlight(a.at) {
			at = max(at, slices.Min(o.flying))
		}
	}
	return at
}

// inFlight is the limit by concurrency at a moment.
func (o *schedule) inFlight(at time.Duration) int {
	n := o.u.limit.N
	for _, c := range o.u.limit.Changes {
		if c.At <= at {
			n = c.N
		}
	}
	return n
}

// arrive charges a and answers it.
func (o *schedule) arrive(a *attempt) {
	o.n++
	o.sent = append(o.sent, *a)
	throttled, end := o.u.struck(o.n), a.at+a.back
	if !throttled {
		for _, account := range o.accounts {
			account.Take(a.at)
		}
		end += drawSpan(o.u.work, o.rng)
		o.served = append(o.served, end)
	}
	if o.u.limit.Kind == throttletest.InFlight {
		o.flying = append(o.flying, end)
	}
	wait := time.Duration(0)
	if throttled {
		wait = o.u.retryAfter
	}
	if o.u.edged(o.n) {
		wait = max(wait, time.Second)
	}
	if wait > 0 {
		o.pauses = slices.DeleteFunc(o.pauses, func(p pause) bool { return p.until < a.at-time.Minute })
		o.pauses = append(o.pauses, pause{end, end + wait})
	}
	if throttled || o.u.workers > 0 { // a call is sent again, or a worker has the next one
		o.send(end)
	}
}

// attempts are what is due, the next one first.
type attempts []*attempt

func (h attempts) Len() int           { return len(h) }
func (h attempts) Less(i, j int) bool { return h[i].at < h[j].at }
func (h attempts) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is of heap.Interface.
func (h *attempts) Push(x any) { *h = append(*h, x.(*attempt)) }

// Pop is of heap.Interface.
func (h *attempts) Pop() any {
	a := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return a
}

// drawSpan draws a time as a throttletest.Server does.
func drawSpan(s throttletest.Span, r *rand.Rand) time.Duration {
	switch {
	case s.Mean > 0:
		return s.Min + time.Duration(r.ExpFloat64()*float64(s.Mean))
	case s.Max > s.Min:
		return s.Min + time.Duration(r.Int64N(int64(s.Max-s.Min)+1))
	}
	return s.Min
}

// longestBelow is the longest time in which the client was served less than a tenth of what the oracle was, if
// the oracle was served at least 20 calls in it, to the second.
//
// D(t) is what the client was served until t less a tenth of that of the oracle. The client is below a tenth
// from a to b if D(b) < D(a).
func longestBelow(client, oracle []time.Duration, until time.Duration) (longest time.Duration) {
	n := int(until/time.Second) + 1
	d, calls := make([]float64, n+1), make([]int, n+1)
	for _, at := range client {
		d[min(n, int(at/time.Second)+1)]++
	}
	for _, at := range oracle {
		i := min(n, int(at/time.Second)+1)
		calls[i]++
		d[i] -= 0.1
	}
	for i := range n {
		d[i+1] += d[i]
		calls[i+1] += calls[i]
	}
	for a, least := 0, 1; a+least <= n; a++ {
		for b := n; b >= a+least; b-- {
			if d[b] < d[a]-1e-6 && calls[b]-calls[a] >= 20 {
				longest, least = time.Duration(b-a)*time.Second, b-a+1
				break
			}
		}
	}
	return longest
}

// A client that sends what the oracle sends, when it does, is served as much and never throttled for the limit.
func TestOracleIsRight(t *testing.T) {
	race.Long(t)
	kinds := make(map[string]int)
	for seed := uint64(1); seed <= 80; seed++ {
		u := newRandomUpstream(seed)
		if u.calls = min(u.calls, 1500); u.kind == string(throttletest.InFlight) {
			if len(u.limit.Changes) > 0 { // what is in flight when a limit falls may be throttled
				continue
			}
			u.way, u.work = throttletest.Span{Min: meanOf(u.way)}, throttletest.Span{Min: meanOf(u.work)}
		}
		kinds[u.kind]++
		u.replay(t)
	}
	if t.Log(kinds); len(kinds) < 7 {
		t.Error("want upstreams of all kinds")
	}
}

// The same in each situation, and the client's own limit holds what is sent. There are enough calls after an outage.
func TestOracleIsRightInSituations(t *testing.T) {
	race.Long(t)
	for _, situation := range situations {
		for seed := uint64(1); seed <= 80; seed++ {
			u := newSituation(situation, seed)
			o := u.replay(t)
			if n := len(u.outages); n > 0 {
				last := u.outages[n-1].to
				if after := slices.IndexFunc(o.served, func(at time.Duration) bool { return at > last }); after < 0 || len(o.served)-after < 300 {
					t.Errorf("%v: %d of %d are served after the last outage, want 300", u, len(o.served)-after, len(o.served))
				}
			}
			if u.ownLimit.N > 0 {
				own := lab.NewAccount(u.ownLimit)
				for _, a := range o.sent {
					if own.Ready(a.at) > a.at {
						t.Fatalf("%v: what arrives at %v breaks the client's own limit", u, a.at)
					}
					own.Take(a.at)
				}
			}
		}
	}
}

// replay sends what the oracle sends, when it does.
func (u *randomUpstream) replay(t *testing.T) *schedule {
	o := &schedule{u: u}
	o.run()
	synctest.Test(t, func(t *testing.T) {
		s, rt := u.server()
		if s.Latency = (throttletest.Span{}); u.kind == string(throttletest.InFlight) {
			s.Latency = u.way
		}
		s.Elapsed()
		var wg sync.WaitGroup
		for _, a := range o.sent {
			time.Sleep(a.at - s.Elapsed())
			wg.Go(func() {
				req, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL(), nil)
				if _, err := rt.RoundTrip(req); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		served, refused := u.tally(s.Ledger())
		if refused > 0 || len(served) < len(o.served) {
			t.Errorf("%v: of %d, %d are served and %d throttled for a limit; want %d and 0", u, len(o.sent), len(served), refused, len(o.served))
		}
	})
	return o
}

// What the oracle serves is what arithmetic says, where it can say it.
func TestOracleByHand(t *testing.T) {
	ways := throttletest.Span{Min: 50 * time.Millisecond}
	hour := time.Hour
	for name, c := range map[string]struct {
		u    randomUpstream
		want int
	}{
		"nothing":        {randomUpstream{kind: noLimit, workers: 10, until: time.Minute}, 6000},
		"open load":      {randomUpstream{kind: noLimit, demand: 1000, calls: 500, until: time.Minute}, 500},
		"fixed":          {randomUpstream{kind: "fixed", limit: throttletest.Limit{Kind: "fixed", N: 100, Per: time.Minute}, workers: 5, until: hour}, 6000},
		"sliding":        {randomUpstream{kind: "sliding", limit: throttletest.Limit{Kind: "sliding", N: 100, Per: time.Minute}, workers: 50, until: hour}, 6000},
		"bucket":         {randomUpstream{kind: "bucket", limit: throttletest.Limit{Kind: "bucket", N: 2, Per: time.Second, Burst: 10}, workers: 5, until: hour}, 7210},
		"in flight":      {randomUpstream{kind: "in-flight", limit: throttletest.Limit{Kind: "in-flight", N: 3}, workers: 50, until: time.Minute}, 1800},
		"half":           {randomUpstream{kind: "fixed", limit: throttletest.Limit{Kind: "fixed", N: 100, Per: time.Minute}, workers: 5, until: hour, advert: "scaled", scale: 0.5}, 3000},
		"own":            {randomUpstream{kind: noLimit, workers: 50, until: hour, own: "below", ownRate: 1}, 3600},
		"own window":     {randomUpstream{kind: noLimit, workers: 50, until: hour, ownLimit: throttletest.Limit{Kind: "sliding", N: 30, Per: time.Minute}}, 1800},
		"down for half":  {randomUpstream{kind: noLimit, workers: 10, until: time.Minute, outages: []outage{{0, 20 * time.Second}, {30 * time.Second, 40 * time.Second}}}, 3000},
		"times obeyed":   {randomUpstream{kind: atRandom, share: 1, retryAfter: time.Second, workers: 4, until: hour}, 0},
		"one in a while": {randomUpstream{kind: atRandom, share: 0.01, retryAfter: 10 * time.Second, workers: 1, until: hour}, 3600 * 99 / 20}, // 10 s of each 100 calls, and 10 s for them
	} {
		c.u.way = ways
		if c.u.calls == 0 {
			c.u.calls = 1 << 30
		}
		o := &schedule{u: &c.u}
		if o.run(); len(o.served) < c.want*96/100 || len(o.served) > c.want*104/100 {
			t.Errorf("%s: %d served, want %d", name, len(o.served), c.want)
		}
	}
}
