package scenario

import (
	"context"
	"math"
	"time"

	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/throttletest"
)

// An unlike is an upstream that answers 429 without a word more: for a limit, or for none.
type unlike struct {
	name, title, about string
	config             config
}

// learning compares two upstreams whose 429s look the same: being slower ends those of the first, and
// changes nothing for the second.
func learning() (all []Scenario) {
	there := throttletest.Span{Min: 25 * time.Millisecond}
	for _, u := range []unlike{
		{"steady-unknown", "A limit that nobody advertises",
			"The upstream is a token bucket of 100/s with a burst of 10. Right is to find that rate, and to try a higher one now and then.",
			config{limits: []throttletest.Limit{gcra100}, latency: there}},
		{"random-429", "Throttled at random, without a limit",
			"The upstream has no limit and answers 1 % of what arrives with 429. Right is to go on as fast as it answers.",
			config{faults: []throttletest.Fault{{Share: 0.01, Status: 429}}, latency: there}},
	} {
		all = append(all, Scenario{
			Name: u.name, Title: u.title,
			About: "32 workers never stop asking for a minute (real time: 10 s); an answer takes 50 ms, and a 429 says nothing but that. " +
				u.about + " Used is what was served of what could have been, from 5 s on.",
			Metrics: []Metric{quotaUsed, {"throttled_share", "throttled, share", "%", -1, 1}},
			Takes:   10 * second, Virtual: true, Fits: resends, Run: u.run,
		})
	}
	return all
}

func (u unlike) run(ctx context.Context, c client.Client, o Options) (r Result, err error) {
	const workers = 32
	from, to := 5*second, 10*second
	if o.Virtual && !o.Short {
		to = 60 * second
	}
	s, err := begin(ctx, c, o, u.config, client.Job{Patience: to, Workers: workers})
	if err != nil {
		return r, err
	}
	s.backlog(math.MaxInt, workers, to)
	l := s.end()

	could := u.config.could(from, to)
	if could == 0 { // no limit: the workers are
		could = int(workers * (to - from).Seconds() / (2 * u.config.latency.Min).Seconds())
	}
	later := l.Between(from, to)
	tally := later.Tally()
	r.Values = map[string]float64{
		"quota_used":      percent(tally.Admitted, could),
		"throttled_share": percent(tally.Throttled, len(later)),
	}
	r.Traffic = traffic(u.config, l, to)
	return r, nil
}
