package scenario

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/throttletest"
)

// A match is a limit that the client knows exactly, or nearly so, before an upstream without any slack. The network delays each
// request by another time: calls that leave evenly arrive unevenly, so even the exact limit is throttled now and then.
type match struct {
	limit   throttletest.Limit
	known   client.Limit
	latency throttletest.Span // each way
}

const matchWorkers = 32

func matches() (all []Scenario) {
	window := throttletest.Limit{Kind: throttletest.Sliding, N: 10, Per: second}
	even := throttletest.Limit{N: 10, Per: second, Burst: 1}
	away, here := throttletest.Span{Min: 2500 * time.Microsecond, Max: 12500 * time.Microsecond}, throttletest.Span{}
	exact, five := client.Limit{N: 10, Per: second, Burst: 1}, client.Limit{N: 10, Per: second, Burst: 5}
	lower, twice := client.Limit{N: 19, Per: 2 * second, Burst: 1}, client.Limit{N: 20, Per: second, Burst: 1}
	for _, e := range []struct {
		name, title string
		match
	}{
		{"exact-sliding", "Exactly the limit, 10 in any second", match{window, exact, away}},
		{"exact-sliding-burst5", "Exactly the limit, 10 in any second, in bursts of 5", match{window, five, away}},
		{"exact-gcra", "Exactly the limit, one each 100 ms", match{even, exact, away}},
		{"lower-sliding", "5 % below the limit, 10 in any second", match{window, lower, away}},
		{"twice-sliding", "Twice the limit, 10 in any second", match{window, twice, away}},
		{"exact-local", "Exactly the limit, 10 in any second, on one machine", match{window, exact, here}},
		{"exact-local-burst5", "Exactly the limit, 10 in any second, on one machine, in bursts of 5", match{window, five, here}},
	} {
		all = append(all, Scenario{
			Name: e.name, Title: e.title, About: e.about(),
			Metrics: []Metric{quotaUsed, {"first", "quota used, first minute", "%", +1, 1}, {"throttled_share", "throttled, share", "%", -1, 2}, delivered},
			Takes:   61 * second, Virtual: e.latency != here, Fits: e.fits, Run: e.run,
		})
	}
	return all
}

func (m match) about() string {
	admits, delay, counts := "10 in any second", "Only the machine itself delays requests.", "A minute counts."
	if m.limit.Kind != throttletest.Sliding {
		admits = "one each 100 ms, as nginx's limit_req without a burst,"
	}
	if m.latency != (throttletest.Span{}) {
		delay = "Requests are 2.5 to 12.5 ms on their way, at random, and so are the answers."
		counts = "The last 5 of 10 minutes of virtual time count, or a minute of real time."
	}
	return fmt.Sprintf("The upstream admits %s and answers others 429 with Retry-After: 1. The client is told %g/s with a burst of %d; "+
		"32 workers never stop asking. %s %s", admits, m.known.Rate(), m.known.Burst, delay, counts)
}

// fits are the clients that keep a limit. The oracle leaves room for what overtakes on its way by a smaller burst, so it
// has none for a burst of 1.
func (m match) fits(c client.Client) bool {
	return c.Limits && (c.Name != OracleName || m.limit.Kind == throttletest.Sliding)
}

// length is how long a run is, and from when on it counts.
func (m match) length(o Options) (from, length time.Duration) {
	switch {
	case o.Short && !o.Virtual:
		return 0, 6 * second
	case o.Short:
		return time.Minute, 2 * time.Minute
	case !o.Virtual:
		return 0, time.Minute
	}
	return 5 * time.Minute, 10 * time.Minute
}

func (m match) run(ctx context.Context, c client.Client, o Options) (r Result, err error) {
	from, length := m.length(o)
	config := config{limits: []throttletest.Limit{m.limit}, retry: second, latency: m.latency}
	s, err := begin(ctx, c, o, config, client.Job{Limits: []client.Limit{m.known}, Patience: time.Minute, Workers: matchWorkers})
	if err != nil {
		return r, err
	}
	s.backlog(math.MaxInt, matchWorkers, length)
	l := s.end()

	used := func(from, to time.Duration) float64 {
		return percent(l.Between(from, to).Tally().Admitted, config.could(from, to))
	}
	counted := l.Between(from, length).Tally()
	r.Values = map[string]float64{
		"quota_used":      used(from, length),
		"throttled_share": percent(counted.Throttled, counted.Total()),
		"delivered":       served(l, matchWorkers),
	}
	if from > 0 {
		r.Values["first"] = used(0, time.Minute)
	}
	return r, nil
}

// served is the share of the calls that were admitted, in percent. The last ones, one for each worker, may still be under way and
// do not count.
func served(l throttletest.Ledger, workers int) float64 {
	begun := 0
	for _, a := range l {
		begun = max(begun, number(a)+1)
	}
	begun = max(0, begun-workers)
	n := 0
	for call := range firstAdmitted(l) {
		if call < begun {
			n++
		}
	}
	return percent(n, begun)
}
