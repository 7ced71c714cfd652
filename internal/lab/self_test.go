package lab_test

import (
	"math"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/lab"
	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/throttletest"
)

// This file checks the simulation itself, with clients that have nothing to find out.

// The figures that the tables stand on: two plain clients that do not hold back get just what the limit
// gives, and what they send too early is counted.
func TestSimLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(wildTrip, 1, throttletest.Limit{N: 100, Burst: 10})
		s.RetryAfter = time.Second
		s.run(t, 10*time.Second, 16, s.port(0), s.port(1))
		r := s.result(0, 10*time.Second)
		if r.used < 1.009 || r.used > 1.011 || r.Throttled < 8000 || r.disobeyed < 8000 || r.events < 100 {
			t.Errorf("in a hurry: %v, %d while advertised not to; want the limit and its burst, used 101 %%", r, r.disobeyed)
		}
		// What is throttled after the end is nobody's loss.
		all, calls, lost := s.Ledger().Tally(), int(s.calls.Load()), int(s.lost.Load())
		if calls != all.Admitted || lost > all.Throttled || lost < all.Throttled-32 || s.jain(2, 0, time.Hour) < 0.9 {
			t.Errorf("%+v, %d calls, %d lost, Jain %v", all, calls, lost, s.jain(2, 0, time.Hour))
		}
	})
}

// What a client has heard, as moments: two events, the first with an echo, and what was sent while it
// was advertised not to.
func TestSimEvents(t *testing.T) {
	arrival := func(sent, answered int, v throttletest.Verdict, retryAfter int) throttletest.Arrival {
		return throttletest.Arrival{Sent: time.Duration(sent), At: time.Duration(sent), Answered: time.Duration(answered), Verdict: v, RetryAfter: time.Duration(retryAfter)}
	}
	l := throttletest.Ledger{
		arrival(1, 10, throttletest.Throttled, 20), // until 30
		arrival(2, 11, throttletest.Throttled, 0),  // an echo
		arrival(10, 20, throttletest.Admitted, 0),  // heard of it at the same moment
		arrival(29, 35, throttletest.Throttled, 0), // too early
		arrival(30, 36, throttletest.Admitted, 0),
		arrival(40, 0, throttletest.Admitted, 0), // never answered
	}
	answers := byClient(l)[""]
	if got := events(answers); !slices.Equal(got, []time.Duration{10, 35}) {
		t.Errorf("events at %v", got)
	}
	if got := disobeyed(answers); got != 1 {
		t.Errorf("%d sent too early", got)
	}
	if got := flightsOf(l, ""); got != (flight{first: 10, early: 2, most: 2, peak: 2}) {
		t.Errorf("%+v", got)
	}
}

// Clients that know the limit reach what theory says they can, in a cell of each kind.
func TestSimOracle(t *testing.T) {
	race.Long(t)
	t.Setenv("THROTTLE_SIM", "oracle")
	for _, k := range []throttletest.Kind{throttletest.Fixed, throttletest.FixedFirst, throttletest.Sliding, throttletest.Bucket} {
		t.Run(string(k), func(t *testing.T) {
			c := advertisedCell{dialect: "draft-08", limit: throttletest.Limit{Kind: k, N: 100, Per: time.Second}}
			overSeeds(t, 1, c.run).want(t, 0.98, 0)
		})
	}
	for _, c := range []finderCell{
		{limit: throttletest.Limit{Kind: throttletest.Bucket, N: 100, Burst: 10}, trip: wildTrip, retryAfter: 1, used: 0.995},
		{limit: throttletest.Limit{Kind: throttletest.Sliding, N: 100, Per: time.Second}, trip: wildTrip, retryAfter: 1, used: 0.975},
		{limit: throttletest.Limit{Kind: throttletest.Bucket, N: 100, Burst: 1}, trip: shortTrip, used: 0.95 * 10 / (10 + 0.83*2), refused: 0.017}, // a client that knows T and J can use T/(T + 0.83 J)
	} {
		t.Run(c.name(), func(t *testing.T) { overSeeds(t, 1, c.run).want(t, c.used, c.refused) })
	}
	t.Run("scopes", TestScopes)
}

// Plain clients that keep the bare laws reach what was found for them.
func TestSimLaw(t *testing.T) {
	race.Long(t)
	t.Setenv("THROTTLE_SIM", "law")
	t.Run("fleet", TestFleet)
	noted := advertisedCell{dialect: "draft-08", limit: throttletest.Limit{Kind: throttletest.Sliding, N: 100, Per: time.Second}}
	t.Run(noted.name(), func(t *testing.T) { overSeeds(t, 1, noted.run).want(t, 0.95, 0.01) })
	found := finderCell{limit: throttletest.Limit{Kind: throttletest.Bucket, N: 100, Burst: 10}, trip: wildTrip, retryAfter: 1}
	t.Run(found.name(), func(t *testing.T) { overSeeds(t, 1, found.run).want(t, 0.89, 0.007) })
}

// TestSimCost logs what a simulated request costs in real time: by itself, and with a Transport.
func TestSimCost(t *testing.T) {
	race.Long(t)
	for _, tells := range []string{"", "draft-08", "x-epoch"} {
		for _, client := range []string{"plain", "oracle"} {
			t.Run(client+tells, func(t *testing.T) {
				t.Setenv("THROTTLE_SIM", client)
				began := time.Now()
				var n int
				synctest.Test(t, func(t *testing.T) {
					s := newSim(shortTrip, 1, throttletest.Limit{Kind: throttletest.Bucket, N: 1000})
					if tells != "" {
						s.Advertise.Dialect = dialectOf(tells)
					}
					rt := s.port(0)
					if os.Getenv("THROTTLE_SIM") == "oracle" {
						rt = s.client(0)
					}
					s.run(t, 10*time.Second, 16, rt)
					n = len(s.Ledger())
				})
				t.Logf("%v for each of %d requests", time.Since(began)/time.Duration(n), n)
			})
		}
	}
}

func TestJain(t *testing.T) {
	l := throttletest.Ledger{
		{Client: "a", Verdict: throttletest.Admitted}, {Client: "a", Verdict: throttletest.Throttled}, {Client: "b", Verdict: throttletest.Admitted},
		{Verdict: throttletest.Failed}, // its client is ""
	}
	for _, c := range []struct {
		clients []string
		want    float64
	}{{[]string{"a", "b"}, 1}, {[]string{"a"}, 1}, {[]string{"a", "b", "c", "d"}, 0.5}, {[]string{"c"}, 0}, {nil, 2. / 3}} {
		if got := lab.Jain(l, c.clients...); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("Jain's index of %q is %v, want %v", c.clients, got, c.want)
		}
	}
	if got := lab.Jain(nil); got != 0 {
		t.Errorf("Jain's index of nobody is %v", got)
	}
}
