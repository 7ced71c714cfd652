package scenario

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/throttletest"
)

func outages() []Scenario {
	metrics := []Metric{
		{"attempts_in", "attempts per call of the outage", "", -1, 3},
		attempts,
		{"peak", "peak second after / capacity", "", -1, 2},
		{"throttled_after", "throttled after the return", "", -1, 0},
		{"throttled_share", "throttled after, share", "%", -1, 1},
		{"backlog", "backlog done after", "s", -1, 1},
		{"backlog_ideal", "backlog / ideal", "", -1, 2},
		delivered,
	}
	about := "60 calls a second for 25 s by 200 senders, 45 s at most; 503 to all from 5 s to 15 s; a token bucket of 100/s with a burst " +
		"of 10 at all times. Right is not to knock at the closed door, and to come back no faster and no slower than the limit. "
	brown := []Metric{attempts, {"closings", "closings of the gate", "", -1, 0}, throttled, delivered}
	return []Scenario{
		{
			Name: "outage-known", Title: "Outage and retry storm, limit known", About: about + "The client knows the limit.",
			Metrics: metrics, Takes: 45 * second, Virtual: true, Fits: both, Run: outage{known: bucket100}.run,
		},
		{
			Name: "outage-unknown", Title: "Outage and retry storm, limit not known", About: about + "The client does not know the limit.",
			Metrics: metrics, Takes: 45 * second, Virtual: true, Fits: resends, Run: outage{}.run,
		},
		{
			Name: "outage-unknown-retry-after", Title: "Outage and retry storm, limit not known, Retry-After: 1",
			About:   about + "The client does not know the limit, and each 429 says Retry-After: 1.",
			Metrics: metrics, Takes: 45 * second, Virtual: true, Fits: resends, Run: outage{retry: second}.run,
		},
		{
			Name: "outage-weaker", Title: "Outage, and weaker after it than configured",
			About:   about + "The client knows that limit, but from 15 s on the upstream admits only 70/s.",
			Metrics: metrics, Takes: 45 * second, Virtual: true, Fits: both, Run: outage{known: bucket100, weaker: 70}.run,
		},
		{
			Name: "brown-out", Title: "Brown-out: 30 % random 503",
			About: "60 calls a second of 100 known, by 200 senders. For a minute of virtual time, or 15 s of real time, 30 % of what arrives is " +
				"answered 503 at random. Right is to send those again, and to go on with all others.",
			Metrics: brown, Takes: 25 * second, Virtual: true, Fits: both, Run: brownOut,
		},
	}
}

type outage struct {
	known  []client.Limit
	weaker int           // what is admitted a second after it; 0: as before
	retry  time.Duration // as config.retry
}

func (o outage) run(ctx context.Context, c client.Client, opts Options) (r Result, err error) {
	down, up, length, end := 5*second, 15*second, 25*second, 45*second
	if opts.Short { // an outage of 3 s: short ones cost more, as probes are at least 250 ms apart
		down, up, length, end = second, 4*second, 7*second, 15*second
	}
	limit := gcra100
	if o.weaker > 0 {
		limit.Changes = []throttletest.Change{{At: up, N: o.weaker}}
	}
	config := config{
		limits: []throttletest.Limit{limit}, faults: []throttletest.Fault{{From: down, To: up}}, latency: throttletest.Span{Min: 10 * time.Millisecond},
		retry: o.retry,
	}
	s, err := begin(ctx, c, opts, config, client.Job{Limits: o.known, Patience: 40 * second, Workers: 200})
	if err != nil {
		return r, err
	}
	due := evenly(60, 0, length)
	s.arrivals(due, 200, end)
	l := s.end()

	in := func(a throttletest.Arrival) bool {
		call := number(a)
		return call >= 0 && down <= due[call] && due[call] < up
	}
	calls := 60 * int((up-down)/second)
	after := l.Between(up, end)
	rejected := after.Tally().Throttled
	r.Values = map[string]float64{
		"attempts_in":     perCall(l.Where(in), calls),
		"attempts":        perCall(l, len(due)),
		"peak":            float64(after.Peak(second)) / config.rateAt(up),
		"throttled_after": float64(rejected),
		"throttled_share": percent(rejected, len(after)),
		"delivered":       percent(len(firstAdmitted(l)), len(due)),
	}
	if len(firstAdmitted(l)) == len(due) {
		var at []time.Duration
		for _, t := range firstAdmitted(l) {
			at = append(at, t)
		}
		slices.Sort(at)
		best := caughtUp(due, ideal(config, due), up) - up
		done := caughtUp(due, at, up) - up
		r.Values["backlog"] = done.Seconds()
		r.Values["backlog_ideal"] = float64(done) / float64(best)
	}
	r.Traffic = traffic(config, l, last(l)+bin)
	return r, nil
}

// caughtUp is the first moment after an outage at which all that was due by then, but for those that
// are on their way, had been admitted. Both are in order.
func caughtUp(due, admitted []time.Duration, up time.Duration) time.Duration {
	const onTheirWay = 50 * time.Millisecond
	for n, at := range admitted {
		if at < up {
			continue
		}
		waiting, _ := slices.BinarySearch(due, at-onTheirWay)
		if n+1 >= waiting {
			return at
		}
	}
	return admitted[len(admitted)-1]
}

func brownOut(ctx context.Context, c client.Client, o Options) (r Result, err error) {
	length := 15 * second
	switch {
	case o.Short:
		length = 5 * second
	case o.Virtual:
		length = 60 * second
	}
	config := config{
		limits: []throttletest.Limit{gcra100}, faults: []throttletest.Fault{{From: second, To: second + length, Share: 0.3}},
		latency: throttletest.Span{Min: 10 * time.Millisecond},
	}
	var closed func() bool
	job := client.Job{Limits: bucket100, Patience: 30 * second, Workers: 200, Gate: func(f func() bool) { closed = f }}
	s, err := begin(ctx, c, o, config, job)
	if err != nil {
		return r, err
	}
	closings := s.watch(closed)
	due := evenly(60, 0, length+2*second)
	s.arrivals(due, 200, length+20*second)
	l := s.end()
	r.Values = map[string]float64{
		"attempts":  perCall(l, len(due)),
		"throttled": float64(l.Tally().Throttled),
		"delivered": percent(len(firstAdmitted(l)), len(due)),
	}
	if closed != nil {
		r.Values["closings"] = float64(closings.Load())
	}
	r.Traffic = traffic(config, l, last(l)+bin)
	return r, nil
}

// watch counts how often a gate closes, until the run ends. A closing shorter than the time between
// two looks can be missed; those for failures are longer.
func (s *stage) watch(closed func() bool) *atomic.Int64 {
	var n atomic.Int64
	if closed == nil {
		return &n
	}
	s.watching.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		was := false
		for {
			select {
			case <-s.ctx.Done():
				return
			case <-tick.C:
			}
			is := closed()
			if is && !was {
				n.Add(1)
			}
			was = is
		}
	})
	return &n
}
