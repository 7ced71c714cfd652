package lab_test

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/throttletest"
)

// This file is about clients whose limit is configured: exactly right, or a little wrong. The upstream is strict, and the
// network delays each request by another time. So requests that leave evenly arrive unevenly, and even an exact limit is refused.
//
//	go test -v -run 'TestConfiguredLimit$' .                     the rows of every test run
//	THROTTLE_LONG=1 go test -v -run 'TestConfiguredLimit$' .     those of one load or one client, 40 s of CPU
//	THROTTLE_FULL=1 go test -v -run 'TestConfiguredLimit$' .     all
//	THROTTLE_LONG=1 go test -v -run 'TestConfiguredLimit$/sliding-10$/exact-burst-1/5ms-25ms/32' .
//	THROTTLE_SEEDS=1 THROTTLE_FIRST=501                          one run of each row, with seed 501

// A knownUpstream is one limit of the table.
type knownUpstream struct {
	name  string
	limit throttletest.Limit
}

var knownUpstreams = []knownUpstream{
	{"sliding-10", throttletest.Limit{Kind: throttletest.Sliding, N: 10, Per: time.Second}},
	{"sliding-20", throttletest.Limit{Kind: throttletest.Sliding, N: 20, Per: 2 * time.Second}},
	{"gcra-10", throttletest.Limit{Kind: throttletest.Bucket, N: 10, Per: time.Second, Burst: 1}}, // nginx's limit_req without a burst
	{"fixed-50", throttletest.Limit{Kind: throttletest.Fixed, N: 50, Per: time.Second}},
	{"sliding-100", throttletest.Limit{Kind: throttletest.Sliding, N: 100, Per: time.Second}},
}

// rate is the limit in units per second.
func (u knownUpstream) rate() rate.Limit {
	return rate.Limit(float64(u.limit.N) / u.limit.Per.Seconds())
}

// A knownClient is one column of the table.
type knownClient struct {
	name string
	new  func(s *sim, r rate.Limit) http.RoundTripper
	used float64 // share of the upstream's limit that is wanted where that counts in windows; 0: nothing is
	only string  // upstream; "": all
}

var knownClients = []knownClient{
	{"peer", func(s *sim, r rate.Limit) http.RoundTripper { return waitsAlone(s.port(0), r) }, 0, ""},
	{"oracle", func(s *sim, _ rate.Limit) http.RoundTripper {
		return s.configured(oracle(s.Limits[0], s.trip.spread()))
	}, 0, ""},
	{"exact-burst-1", func(s *sim, r rate.Limit) http.RoundTripper { return s.configured(throttle.NewBucket(r, 1)) }, 0.92, ""},
	{"exact-burst-5", func(s *sim, r rate.Limit) http.RoundTripper { return s.configured(throttle.NewBucket(r, 5)) }, 0.92, ""},
	{"exact-leaky", func(s *sim, r rate.Limit) http.RoundTripper { return s.configured(throttle.NewLeaky(r)) }, 0.92, ""},
	{"lower-5", func(s *sim, r rate.Limit) http.RoundTripper { return s.configured(throttle.NewBucket(0.95*r, 1)) }, 0.90, ""},
	{"twice", func(s *sim, r rate.Limit) http.RoundTripper { return s.configured(throttle.NewBucket(2*r, 1)) }, 0.85, ""},
	{"twice-leaky", func(s *sim, r rate.Limit) http.RoundTripper { return s.configured(throttle.NewLeaky(2 * r)) }, 0.85, "sliding-100"},
	{"none", func(s *sim, _ rate.Limit) http.RoundTripper { return s.configured(nil) }, 0.85, ""},
}

// configured returns a Transport with a limit of its own, or without one, which loses no call.
func (s *sim) configured(l throttle.Limiter) http.RoundTripper {
	return &throttle.Transport{Base: s.port(0), Limiter: l, Retry: throttle.Retry{MaxAttempts: 1 << 30, MaxPause: -1}}
}

// waitsAlone is how programs without this library do it: each attempt waits for an x/time/rate limiter, and each caller waits for
// its own Retry-After. The other callers go on meanwhile.
func waitsAlone(base http.RoundTripper, r rate.Limit) http.RoundTripper {
	l := rate.NewLimiter(r, 1)
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		for {
			if err := l.Wait(req.Context()); err != nil {
				return nil, err
			}
			resp, err := base.RoundTrip(req)
			if err != nil || resp.StatusCode != http.StatusTooManyRequests {
				return resp, err
			}
			resp.Body.Close()
			after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
			time.Sleep(time.Duration(after) * time.Second)
		}
	})
}

// A knownLoad is who calls, and over which network.
type knownLoad struct {
	trip    trip // each way takes half, so half of the jitter is on the way there
	workers int
}

var knownLoads = []knownLoad{
	{trip{5 * time.Millisecond, 25 * time.Millisecond}, 32},
	{trip{5 * time.Millisecond, 7 * time.Millisecond}, 32},
	{trip{5 * time.Millisecond, 55 * time.Millisecond}, 32},
	{trip{5 * time.Millisecond, 25 * time.Millisecond}, 4},
	{trip{5 * time.Millisecond, 25 * time.Millisecond}, 1},
}

func (l knownLoad) String() string { return fmt.Sprintf("%v-%v/%d", l.trip.min, l.trip.max, l.workers) }

// reach is the share of the limit that so many workers can use at all: one worker with 15 ms a call makes 67 calls a second.
func (l knownLoad) reach(u knownUpstream) float64 {
	return min(1, float64(l.workers)/((l.trip.min+l.trip.max)/2).Seconds()/float64(u.rate()))
}

// A knownRow is a cell of the table, and what came of it: means over the seeds.
type knownRow struct {
	knownUpstream
	client knownClient
	knownLoad
	used, first, throttled float64 // shares; used is of the last 5 of 10 minutes, first of the first minute
	least                  float64 // the least use of a seed
	disobeyed              int
}

func (r *knownRow) name() string {
	return r.knownUpstream.name + "/" + r.client.name + "/" + r.knownLoad.String()
}

// bounds are the least shares that are wanted in the last 5 minutes and in the first one: those of the long form are four deviations
// or more below the mean of each row. The short form runs one seed, so its bounds leave more room for chance.
func (r *knownRow) bounds() (used, first float64) {
	room := race.Pick(0.02, 0)
	switch {
	case r.client.used == 0:
		return 0, 0
	case r.limit.Kind != throttletest.Bucket && r.workers == 1: // few answers: 73 % with a deviation of 4
		used, first = r.client.used, 0.55
	case r.limit.Kind != throttletest.Bucket:
		used, first = r.client.used, 0.70 // 72 % where a second is ten calls and twice as many are configured
	case r.trip.max-r.trip.min <= 20*time.Millisecond:
		used, first = 0.76, 0.55
	default:
		used, first = 0.68, 0.53
	}
	return used - room, first - room
}

// run measures 10 minutes for each seed.
func (r *knownRow) run(t *testing.T, seeds []uint64) {
	const minute = time.Minute
	r.least = math.Inf(1)
	for _, seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			limit := r.limit
			limit.Phase = time.Duration(seed%7) * limit.Per / 7
			s := newSim(r.trip, seed, limit)
			s.RetryAfter = time.Second
			s.run(t, 10*minute, r.workers, r.client.new(s, r.rate()))
			results, n, reach := s.results(), float64(len(seeds)), r.reach(r.knownUpstream)
			end, start := results(5*minute, 10*minute), results(0, minute)
			if end.lost > 0 {
				t.Errorf("%d calls lost", end.lost)
			}
			r.used += end.used / reach / n
			r.first += start.used / reach / n
			r.throttled += end.share() / n
			r.least = min(r.least, end.used/reach)
			r.disobeyed += end.disobeyed
		})
	}
}

// missed tells whether the row misses its bounds.
func (r *knownRow) missed() bool { return r.mark() != " " }

func (r *knownRow) String() string {
	used, first := r.bounds()
	line := fmt.Sprintf("%-40s used %5.1f %% (least %5.1f), first minute %5.1f %%, throttled %5.2f %%", r.name(), 100*r.used, 100*r.least, 100*r.first, 100*r.throttled)
	if r.client.used > 0 {
		line += fmt.Sprintf(", want %.0f and %.0f", 100*used, 100*first)
	}
	if r.disobeyed > 0 {
		line += fmt.Sprintf(", %d sent too early", r.disobeyed)
	}
	if r.missed() {
		line += " MISSED"
	}
	return line
}

// chosen tells whether the row is run: two always, those of one load or one client with THROTTLE_LONG, and all with THROTTLE_FULL.
func (r *knownRow) chosen() bool {
	first, exact := r.knownLoad == knownLoads[0], r.client.name == "exact-burst-1"
	return simFull() || race.Pick(r.limit.N == 10 && first && (exact || r.client.name == "none"), first || exact)
}

// knownSeeds are the seeds of a row. They are not those with which constants were chosen, which begin at 501.
func knownSeeds() []uint64 {
	first := uint64(101)
	fmt.Sscan(os.Getenv("THROTTLE_FIRST"), &first)
	n := race.Pick(1, 3)
	fmt.Sscan(os.Getenv("THROTTLE_SEEDS"), &n)
	seeds := make([]uint64, max(1, n))
	for i := range seeds {
		seeds[i] = first + uint64(i)
	}
	return seeds
}

// A client whose limit is exactly right, or a little wrong, uses nearly all of what the upstream allows.
func TestConfiguredLimit(t *testing.T) {
	var done []*knownRow
	for _, u := range knownUpstreams {
		for _, c := range knownClients {
			for _, l := range knownLoads {
				r := &knownRow{knownUpstream: u, client: c, knownLoad: l}
				if c.only != "" && c.only != u.name || !r.chosen() {
					continue
				}
				t.Run(r.name(), func(t *testing.T) {
					r.run(t, knownSeeds())
					if done = append(done, r); r.missed() {
						t.Error(r)
					} else {
						t.Log(r)
					}
				})
			}
		}
	}
	t.Log(knownSummary(done))
}

// knownSummary shows the use of each row, a line for each upstream and load.
func knownSummary(rows []*knownRow) string {
	var b strings.Builder
	fmt.Fprintf(&b, "used in the last 5 of 10 minutes, in %%; *: missed, ': the first minute is missed\n%-24s", "")
	for _, c := range knownClients {
		fmt.Fprintf(&b, " %13s", c.name)
	}
	for _, u := range knownUpstreams {
		for _, l := range knownLoads {
			line, some := fmt.Sprintf("\n%-24s", u.name+"/"+l.String()), false
			for _, c := range knownClients {
				cell := ""
				for _, r := range rows {
					if r.knownUpstream.name == u.name && r.knownLoad == l && r.client.name == c.name {
						cell, some = fmt.Sprintf("%.1f%s", 100*r.used, r.mark()), true
					}
				}
				line += fmt.Sprintf(" %13s", cell)
			}
			if some {
				b.WriteString(line)
			}
		}
	}
	missed := 0
	for _, r := range rows {
		if r.missed() {
			missed++
		}
	}
	fmt.Fprintf(&b, "\n%d of %d rows missed", missed, len(rows))
	return b.String()
}

// mark tells in one character which bound the row misses.
func (r *knownRow) mark() string {
	used, first := r.bounds()
	switch {
	case r.used < used:
		return "*"
	case r.first < first:
		return "'"
	}
	return " "
}
