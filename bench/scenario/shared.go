package scenario

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/throttletest"
)

// shared are the scenarios of callers who share one limit.
func shared() []Scenario {
	return []Scenario{
		{
			Name: "fan-out", Title: "Fan-out: 1,000 callers at 200 a second, evenly",
			About: "1,000 callers come within a fraction of a second, one after the other, and are to start evenly. At the same time 1,000 goroutines, " +
				"each sleeping until its own due time before it sends, show what timers and the network allow. Out of order is how many places " +
				"a call arrives from its place among the callers, on average.",
			Metrics: []Metric{
				{"spacing_ratio", "CV / CV of sleepers", "", -1, 2}, spacing, {"spacing_sleepers", "CV of sleepers", "", 0, 3},
				{"displaced", "out of order by", "", -1, 1}, quotaUsed, throttled,
			},
			Takes: 6 * second, Alone: true, Virtual: true, Fits: limits, Run: fanOut,
		},
		{
			Name: "waiters-cancel", Title: "10,000 waiters, half of whom give up",
			About: "10,000 callers wait for 1,000 a second, a burst of 10. At 1 s every second one of them cancels. Quota used is that of the two and a half " +
				"seconds after, by those who are left: slots booked for who has gone are lost.",
			Metrics: []Metric{quotaUsed, throttled}, Takes: 4 * second, Alone: true, Virtual: true, Fits: limits, Run: waitersCancel,
		},
		{
			Name: "priority", Title: "Interactive calls among a backlog",
			About: "300 workers keep a backlog before a token bucket of 100/s with a burst of 10, known. Every quarter of a second a call comes that a " +
				"person waits for. Its wait is from then to its arrival at the upstream.",
			Metrics: []Metric{
				{"wait", "interactive wait, median", "ms", -1, 0}, {"wait_worst", "interactive wait, longest", "ms", -1, 0}, quotaUsed, throttled,
			},
			Takes: 12 * second, Virtual: true, Fits: limits, Run: priority,
		},
		{
			Name: "multi-limit", Title: "An API with three limits",
			About: "10 in any second, 300 in any minute and 5 in flight, known; calls take 300 to 700 ms. 16 workers never stop asking, for three " +
				"minutes of virtual or one of real time.",
			Metrics: []Metric{quotaUsed, throttled, attempts}, Takes: 62 * second, Virtual: true, Fits: limits, Run: multiLimit,
		},
	}
}

func fanOut(ctx context.Context, c client.Client, o Options) (r Result, err error) {
	callers := 1000
	if o.Short {
		callers = 200
	}
	const rate = 200
	length := time.Duration(callers) * second / rate
	config := config{limits: []throttletest.Limit{{N: rate, Per: second, Burst: 20}}}
	known := []client.Limit{{N: rate, Per: second, Burst: 1}}
	s, err := begin(ctx, c, o, config, client.Job{Limits: known, Even: true, Patience: time.Minute, Workers: callers})
	if err != nil {
		return r, err
	}
	sleepers, err := begin(ctx, sleeper, o, config, client.Job{})
	if err != nil {
		s.end()
		return r, err
	}
	for i := range callers {
		sleepers.wg.Go(func() {
			time.Sleep(time.Duration(i)*second/rate - sleepers.server.Elapsed())
			sleepers.call(sleepers.ctx, i, i)
		})
	}
	for i := range callers {
		s.wg.Go(func() { s.call(s.ctx, i, i) })
		time.Sleep(100 * time.Microsecond) // so that there is an order
	}
	stop := time.AfterFunc(2*length+5*second, s.cancel)
	s.wg.Wait()
	stop.Stop()
	sleepers.wg.Wait()
	l, even := s.end().Only(throttletest.Admitted), sleepers.end().Only(throttletest.Admitted)

	from, to := second/4, length-second/4
	r.Values = map[string]float64{
		"spacing": evenness(l.Between(from, to)), "spacing_sleepers": evenness(even.Between(from, to)),
		"displaced":  displaced(l),
		"quota_used": percent(len(l.Between(from, to)), config.could(from, to)),
		"throttled":  float64(s.server.Ledger().Tally().Throttled),
	}
	if cv := r.Values["spacing_sleepers"]; cv > 1e-6 { // in virtual time both are 0
		r.Values["spacing_ratio"] = r.Values["spacing"] / cv
	}
	r.Traffic = traffic(config, l, last(l)+bin)
	return r, nil
}

// A sleeper sends at once: who calls it has slept.
var sleeper = client.Client{Name: "sleepers", Bubble: true, Start: func(job client.Job) (client.Doer, error) {
	return sender{job}, nil
}}

// displaced is how far from its place a call arrives, on average.
func displaced(l throttletest.Ledger) (mean float64) {
	for place, a := range l {
		mean += math.Abs(float64(number(a) - place))
	}
	return mean / float64(max(1, len(l)))
}

func waitersCancel(ctx context.Context, c client.Client, o Options) (r Result, err error) {
	waiters := 10_000
	if o.Short {
		waiters = 8_000
	}
	const rate, burst = 1000, 10
	config := config{limits: []throttletest.Limit{{N: rate, Per: second, Burst: burst + rate/50}}}
	known := []client.Limit{{N: rate, Per: second, Burst: burst}}
	s, err := begin(ctx, c, o, config, client.Job{Limits: known, Patience: time.Minute, Workers: waiters})
	if err != nil {
		return r, err
	}
	leave, cancel := context.WithCancel(s.ctx)
	for i := range waiters {
		ctx := s.ctx
		if i%2 == 1 {
			ctx = leave
		}
		s.wg.Go(func() { s.call(ctx, i, i) })
	}
	time.Sleep(second - s.server.Elapsed())
	cancel()
	from, to := 5*second/4, 15*second/4
	time.Sleep(to - s.server.Elapsed())
	l := s.end().Between(from, to)
	r.Values = map[string]float64{
		"quota_used": percent(l.Tally().Admitted, config.could(from, to)),
		"throttled":  float64(l.Tally().Throttled),
	}
	return r, nil
}

func priority(ctx context.Context, c client.Client, o Options) (r Result, err error) {
	length := 8 * second
	if o.Virtual && !o.Short {
		length = 30 * second
	}
	config := config{limits: []throttletest.Limit{gcra100}, latency: steady}
	s, err := begin(ctx, c, o, config, client.Job{Limits: bucket100, Patience: time.Minute, Workers: 300})
	if err != nil {
		return r, err
	}
	const first = 1 << 20 // of the interactive calls' numbers
	due := evenly(4, second, length-second-4*second)
	var people sync.WaitGroup
	for i, d := range due {
		people.Go(func() {
			time.Sleep(d - s.server.Elapsed())
			ctx := s.ctx
			if s.urgent != nil {
				ctx = s.urgent(ctx)
			}
			s.call(ctx, first+i, first)
		})
	}
	s.backlog(math.MaxInt, 300, length)
	people.Wait()
	l := s.end()
	admitted := firstAdmitted(l)
	waits := make([]time.Duration, len(due))
	for i, d := range due {
		at, ok := admitted[first+i]
		if !ok {
			at = length // and still waiting
		}
		waits[i] = at - d
	}
	slices.Sort(waits)
	all := l.Between(second, length)
	r.Values = map[string]float64{
		"wait":       waits[len(waits)/2].Seconds() * 1000,
		"wait_worst": waits[len(waits)-1].Seconds() * 1000,
		"quota_used": percent(all.Tally().Admitted, config.could(second, length)),
		"throttled":  float64(l.Tally().Throttled),
	}
	return r, nil
}

func multiLimit(ctx context.Context, c client.Client, o Options) (r Result, err error) {
	length := time.Minute
	if o.Virtual && !o.Short {
		length = 3 * time.Minute
	}
	config := config{
		limits: []throttletest.Limit{
			{Kind: throttletest.Sliding, N: 10, Per: second},
			{Kind: throttletest.Sliding, N: 300, Per: time.Minute},
			{Kind: throttletest.InFlight, N: 5},
		},
		work: throttletest.Span{Min: 300 * time.Millisecond, Max: 700 * time.Millisecond},
	}
	job := client.Job{
		Limits:   []client.Limit{{N: 10, Per: second, Burst: 1, Window: true}, {N: 300, Per: time.Minute, Burst: 1, Window: true}},
		InFlight: 5, Patience: 2 * time.Minute, Workers: 16,
	}
	s, err := begin(ctx, c, o, config, job)
	if err != nil {
		return r, err
	}
	s.backlog(math.MaxInt, 16, length)
	l := s.end().Between(0, length)
	r.Values = map[string]float64{
		"quota_used": percent(l.Tally().Admitted, config.could(0, length)),
		"throttled":  float64(l.Tally().Throttled),
		"attempts":   perCall(l, max(1, len(firstAdmitted(l)))),
	}
	r.Traffic = traffic(config, l, length)
	return r, nil
}
