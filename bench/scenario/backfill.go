package scenario

import (
	"context"
	"time"

	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/throttletest"
)

const second = time.Second

// A backfill is 400 calls that 32 workers get done as fast as the upstream lets them.
type backfill struct {
	name, title, about string
	limit              throttletest.Limit
	known              []client.Limit // none: the limit is not known
	tell               throttletest.Dialect
	retry              time.Duration     // as config.retry
	latency            throttletest.Span // each way
}

// bucket100 is configured as a token bucket, window100 as a window. A library that knows no windows may
// let 10 go at once.
var (
	bucket100 = []client.Limit{{N: 100, Per: second, Burst: 10}}
	window100 = []client.Limit{{N: 100, Per: second, Burst: 10, Window: true}}

	gcra100    = throttletest.Limit{N: 100, Per: second, Burst: 10}
	fixed100   = throttletest.Limit{Kind: throttletest.Fixed, N: 100, Per: second, Phase: 370 * time.Millisecond}
	sliding100 = throttletest.Limit{Kind: throttletest.Sliding, N: 100, Per: second, CountThrottled: true}

	steady = throttletest.Span{Min: 5 * time.Millisecond}
	uneven = throttletest.Span{Min: 5 * time.Millisecond, Max: 10 * time.Millisecond}
)

func backfills() (all []Scenario) {
	for _, b := range []backfill{
		{"backfill-known-bucket", "Backfill, limit known: token bucket",
			"The upstream is a token bucket of 100/s with a burst of 10, and the client is configured with it.",
			gcra100, bucket100, nil, 0, steady},
		{"backfill-known-fixed", "Backfill, limit known: fixed window",
			"The upstream counts 100 in each second of its own clock, and the client is configured with 100 in any second.",
			fixed100, window100, nil, 0, steady},
		{"backfill-known-sliding", "Backfill, limit known: sliding window",
			"The upstream admits 100 in any second, and what it throttles counts too. The client is configured with 100 in any second.",
			sliding100, window100, nil, 0, steady},
		{"backfill-unknown", "Backfill, limit not known, no hint",
			"The upstream is a token bucket of 100/s with a burst of 10 and answers 429 without a word more.",
			gcra100, nil, nil, 0, uneven},
		{"backfill-unknown-retry-after", "Backfill, limit not known, Retry-After: 1",
			"The same, and each 429 says Retry-After: 1, as many limiters do whatever the truth is.",
			gcra100, nil, nil, second, uneven},
		{"backfill-unknown-draft-8", "Backfill, limit not known, RateLimit fields of draft 8",
			"The upstream counts 100 in each second of its own clock, and tells the window and what is left in RateLimit-Policy and RateLimit, and Retry-After.",
			fixed100, nil, throttletest.Draft08, throttletest.Exact, uneven},
		{"backfill-unknown-x-ratelimit", "Backfill, limit not known, X-RateLimit fields",
			"The upstream counts 100 in each second of its own clock, and tells it in X-RateLimit-Limit, -Remaining and -Reset (seconds since 1970).",
			fixed100, nil, throttletest.XEpoch, 0, uneven},
	} {
		s := Scenario{
			Name: b.name, Title: b.title,
			About:   "400 calls by 32 workers, 20 s at most. " + b.about,
			Metrics: []Metric{times, quotaUsed, throttled, attempts, delivered},
			Takes:   6 * second, Virtual: true, Fits: knows, Run: b.run,
		}
		if b.known == nil {
			s.Takes = 20 * second
			s.Fits = resends
		}
		all = append(all, s)
	}
	return all
}

func (b backfill) run(ctx context.Context, c client.Client, o Options) (r Result, err error) {
	const patience = 20 * second
	calls, workers := 400, 32
	if o.Short {
		calls = 120
	}
	config := config{limits: []throttletest.Limit{b.limit}, tell: b.tell, retry: b.retry, latency: b.latency}
	s, err := begin(ctx, c, o, config, client.Job{Limits: b.known, Patience: patience, Workers: workers})
	if err != nil {
		return r, err
	}
	s.backlog(calls, workers, patience)
	took := s.server.Elapsed()
	l := s.end()

	done := len(firstAdmitted(l))
	r.Values = map[string]float64{
		"throttled": float64(l.Tally().Throttled),
		"attempts":  perCall(l, calls),
		"delivered": percent(done, calls),
	}
	best := ideal(config, make([]time.Duration, calls))
	if done == calls {
		took = last(l.Only(throttletest.Admitted))
		r.Values["time"] = float64(took) / float64(best[calls-1])
	}
	// The time in which so many could have been admitted, as a share of the time used. It says nothing of
	// who soon gives most of the calls up.
	if done > 0 && (done >= calls*9/10 || took >= patience) {
		r.Values["quota_used"] = 100 * float64(best[done-1]) / float64(took)
	}
	r.Traffic = traffic(config, l, min(patience, last(l)+bin))
	return r, nil
}
