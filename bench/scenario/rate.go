package scenario

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/throttletest"
)

var (
	spacing  = Metric{"spacing", "spacing (CV)", "", -1, 3}
	fairness = Metric{"fairness", "fairness among workers (Jain)", "", +1, 3}
)

// A pace is a rate that is known and has always somebody waiting for it.
type pace struct {
	rate, burst int
	even        bool
}

func rates() (all []Scenario) {
	for _, rate := range []int{200, 5000} {
		for _, p := range []pace{{rate, 1, false}, {rate, 10, false}, {rate, 1, true}} {
			how, what := fmt.Sprintf("burst%d", p.burst), fmt.Sprintf("a burst of %d", p.burst)
			if p.even {
				how, what = "even", "starts spaced evenly"
			}
			all = append(all, Scenario{
				Name:  fmt.Sprintf("rate-%d-%s", rate, how),
				Title: fmt.Sprintf("%d a second, known, %s", rate, what),
				About: fmt.Sprintf("64 workers never stop asking for %d calls a second with %s. The upstream allows for 20 ms of timers' "+
					"lateness. Quota used counts from half a second on; what is lost to late timers is missing in it.", rate, what),
				Metrics: []Metric{quotaUsed, throttled, spacing, fairness},
				Takes:   p.length(Options{}) + second/2, Alone: true, Virtual: rate < 1000, Fits: limits, Run: p.run,
			})
		}
	}
	return all
}

func (p pace) length(o Options) time.Duration {
	switch {
	case o.Short:
		return second
	case p.rate > 1000:
		return 5 * second / 2
	}
	return 3 * second
}

func (p pace) run(ctx context.Context, c client.Client, o Options) (r Result, err error) {
	length := p.length(o)
	room := p.burst + int(math.Ceil(0.02*float64(p.rate)))
	config := config{limits: []throttletest.Limit{{N: p.rate, Per: second, Burst: room}}}
	known := []client.Limit{{N: p.rate, Per: second, Burst: p.burst}}
	s, err := begin(ctx, c, o, config, client.Job{Limits: known, Even: p.even, Patience: time.Minute, Workers: 64})
	if err != nil {
		return r, err
	}
	s.backlog(math.MaxInt, 64, length)
	l := s.end()

	from := second / 2
	admitted := l.Between(from, length).Only(throttletest.Admitted)
	r.Values = map[string]float64{
		"quota_used": percent(len(admitted), config.could(from, length)),
		"throttled":  float64(l.Tally().Throttled),
		"spacing":    evenness(admitted),
		"fairness":   jain(l, 64),
	}
	return r, nil
}
