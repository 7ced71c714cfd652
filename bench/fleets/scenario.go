package fleets

import (
	"context"
	"fmt"
	"time"

	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/bench/scenario"
)

const (
	limit   = 1000 // units per second
	burst   = 50
	workers = 4   // of each process, that never stop asking
	demand  = 0.6 // of the limit, where the processes do not want all there is
)

var (
	used   = scenario.Metric{Name: "used", Title: "used", Unit: "%", Better: +1, Digits: 1}
	excess = scenario.Metric{Name: "excess", Title: "above burst + limit·L", Unit: "units", Better: -1}
	trips  = scenario.Metric{Name: "trips", Title: "round trips per call", Better: -1, Digits: 2}
	cpu    = scenario.Metric{Name: "cpu", Title: "CPU of Redis", Unit: "% of a core", Better: -1, Digits: 1}
	jain   = scenario.Metric{Name: "jain", Title: "fairness (Jain)", Better: +1, Digits: 3}
	p50    = scenario.Metric{Name: "p50", Title: "added wait, p50", Unit: "ms", Better: -1, Digits: 2}
	p99    = scenario.Metric{Name: "p99", Title: "added wait, p99", Unit: "ms", Better: -1, Digits: 2}
	gone   = scenario.Metric{Name: "gone", Title: "used while it is gone", Unit: "%", Better: +1, Digits: 1}
	back   = scenario.Metric{Name: "back", Title: "used once it is back", Unit: "%", Better: +1, Digits: 1}
	worst  = scenario.Metric{Name: "worst", Title: "added wait, longest", Unit: "ms", Better: -1, Digits: 0}
)

// All are the scenarios, in the order of the tables.
func All() (all []scenario.Scenario) {
	for _, w := range []well{
		{"fleet-1", "One process, and the limit in Redis", terms{limit, burst, 1}},
		{"fleet-4", "4 processes, one limit", terms{limit, burst, 4}},
		{"fleet-16", "16 processes, one limit", terms{limit, burst, 16}},
		{"fleet-16-slow", "16 processes, one low limit", terms{50, 10, 16}},
	} {
		all = append(all, scenario.Scenario{
			Name: w.name, Title: w.title,
			About: fmt.Sprintf("%d/s with a burst of %d. First %d workers in each process never stop asking: used, what a window of length L holds beyond "+
				"burst + limit·L at worst, round trips to Redis, its CPU, fairness among the processes. Then %.0f calls a second come at random moments, "+
				"half of them to one process: added wait, until a unit may be used.", w.Limit, w.Burst, workers, demand*float64(w.Limit)),
			Metrics: []scenario.Metric{used, excess, trips, cpu, jain, p50, p99}, Takes: w.takes(scenario.Options{}), Alone: true, Fleet: true, Run: w.run,
		})
	}
	for _, f := range []fault{
		{"stalled", "hangs", "stopped (SIGSTOP)", (*server).stall, (*server).resume},
		{"killed", "is killed", "killed, and started again empty", func(s *server) error { s.kill(); return nil }, (*server).start},
	} {
		all = append(all, scenario.Scenario{
			Name: "fleet-" + f.name, Title: "Redis " + f.title + " for four seconds, 4 processes",
			About: fmt.Sprintf("%d/s with a burst of %d, and Redis is %s twice. At first %d workers in each process never stop asking: used meanwhile and, from "+
				"a second after its return on, once it is back. Then %.0f calls a second come at random moments, as many to each process: added wait of those "+
				"that come while Redis is gone. A call that is not served by the end counts with the time that it has waited.", limit, burst, f.how, workers, demand*limit),
			Metrics: []scenario.Metric{gone, back, excess, p50, p99, worst}, Takes: f.takes(scenario.Options{}), Alone: true, Fleet: true, Run: f.run,
		})
	}
	return all
}

// well is a fleet with a Redis that works.
type well struct {
	name, title string
	terms
}

// times are when the processes have got going, when they stop asking for all there is, and when all ends.
func (w well) times(o scenario.Options) (going, quiet, rest, end time.Duration) {
	if o.Short {
		return 300 * time.Millisecond, time.Second, 1200 * time.Millisecond, 2 * time.Second
	}
	if w.Limit < 100 { // as many calls need more time
		return time.Second, 6 * time.Second, 8 * time.Second, 14 * time.Second
	}
	return time.Second / 2, 7 * time.Second / 2, 4 * time.Second, 7 * time.Second
}

func (w well) takes(o scenario.Options) time.Duration {
	_, _, _, end := w.times(o)
	return end + time.Second
}

func (w well) run(ctx context.Context, c client.Client, o scenario.Options) (r scenario.Result, err error) {
	going, quiet, rest, end := w.times(o)
	s, err := begin(ctx, c, o, w.terms, []load{
		{To: quiet, Workers: workers}, {From: rest, To: end, Rate: demand * float64(w.Limit), Uneven: true},
	})
	if err != nil {
		return r, err
	}
	_ = s.at(ctx, going)
	before := s.redis.cpu(ctx)
	_ = s.at(ctx, quiet)
	cost := s.redis.cpu(ctx) - before
	l, err := s.end()
	if err != nil {
		return r, err
	}
	waits := l.waits(rest+(end-rest)/10, end-(end-rest)/20)
	r.Values = known(map[string]float64{
		"used":   l.used(w.Limit, going, quiet),
		"excess": l.excess(w.terms, 0, quiet),
		"trips":  float64(l.tripsIn(0)) / float64(max(1, l.count(-1, 0, quiet))),
		"cpu":    100 * cost.Seconds() / (quiet - going).Seconds(),
		"jain":   l.jain(w.Members, going, quiet),
		"p50":    quantile(waits, 0.50),
		"p99":    quantile(waits, 0.99),
	})
	return r, nil
}

// A fault is what happens to Redis for a while.
type fault struct {
	name, title, how string
	begin, end       func(*server) error
}

// gap is when Redis is gone, since the beginning of a load, and when the load ends.
func (f fault) gap(o scenario.Options) (from, to, end time.Duration) {
	if o.Short {
		return 400 * time.Millisecond, time.Second, 1500 * time.Millisecond
	}
	return time.Second, 5 * time.Second, 7 * time.Second
}

func (f fault) takes(o scenario.Options) time.Duration {
	_, _, end := f.gap(o)
	return 2*end + 1500*time.Millisecond
}

func (f fault) run(ctx context.Context, c client.Client, o scenario.Options) (r scenario.Result, err error) {
	const members = 4
	from, to, end := f.gap(o)
	second := end + 500*time.Millisecond // the second load's beginning
	t := terms{limit, burst, members}
	s, err := begin(ctx, c, o, t, []load{{To: end, Workers: workers}, {From: second, To: second + end, Rate: demand * limit}})
	if err != nil {
		return r, err
	}
	for _, base := range []time.Duration{0, second} {
		_ = s.at(ctx, base+from)
		if err := f.begin(s.redis); err != nil {
			s.close()
			return r, err
		}
		_ = s.at(ctx, base+to)
		if err := f.end(s.redis); err != nil {
			s.close()
			return r, err
		}
	}
	l, err := s.end()
	if err != nil {
		return r, err
	}
	waits := l.waits(second+from, second+to)
	recovered := min(to+time.Second, (to+end)/2)
	r.Values = known(map[string]float64{
		"gone":   l.used(limit, from, to),
		"back":   l.used(limit, recovered, end),
		"excess": l.excess(t, 0, end),
		"p50":    quantile(waits, 0.50),
		"p99":    quantile(waits, 0.99),
		"worst":  quantile(waits, 1),
	})
	return r, nil
}
