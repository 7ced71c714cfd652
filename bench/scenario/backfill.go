package scenario

import (
	"context"
	"time"

	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/bench/upstream"
)

const second = time.Second

// A backfill is 400 calls that 32 workers get done as fast as the upstream lets them.
type backfill struct {
	name, title, about string
	limit              upstream.Limit
	told               []client.Limit // none: the limit is not known
	tell               upstream.Dialect
	retry              upstream.RetryAfter
	latency            upstream.Span // each way
}

// bucket100 is told of a token bucket, window100 of a window. A library that knows no windows may
// let 10 go at once.
var (
	bucket100 = []client.Limit{{N: 100, Per: second, Burst: 10}}
	window100 = []client.Limit{{N: 100, Per: second, Burst: 10, Window: true}}

	gcra100    = upstream.Limit{Kind: upstream.GCRA, N: 100, Per: second, Burst: 10}
	fixed100   = upstream.Limit{Kind: upstream.Fixed, N: 100, Per: second, Phase: 370 * time.Millisecond}
	sliding100 = upstream.Limit{Kind: upstream.Sliding, N: 100, Per: second, Counts: true}

	steady = upstream.Span{Min: 5 * time.Millisecond}
	uneven = upstream.Span{Min: 5 * time.Millisecond, Max: 10 * time.Millisecond}
)

func backfills() (all []Scenario) {
	one := upstream.RetryAfter{Told: true, Fixed: second}
	for _, b := range []backfill{
		{"backfill-known-bucket", "Backfill, limit known: token bucket",
			"The upstream is a token bucket of 100/s with a burst of 10, and the client is told so.",
			gcra100, bucket100, upstream.Silent, upstream.RetryAfter{}, steady},
		{"backfill-known-fixed", "Backfill, limit known: fixed window",
			"The upstream counts 100 in each second of its own clock, and the client is told of 100 in any second.",
			fixed100, window100, upstream.Silent, upstream.RetryAfter{}, steady},
		{"backfill-known-sliding", "Backfill, limit known: sliding window",
			"The upstream admits 100 in any second, and what it refuses counts too. The client is told of 100 in any second.",
			sliding100, window100, upstream.Silent, upstream.RetryAfter{}, steady},
		{"backfill-unknown", "Backfill, limit not known, no hint",
			"The upstream is a token bucket of 100/s with a burst of 10 and answers 429 without a word more.",
			gcra100, nil, upstream.Silent, upstream.RetryAfter{}, uneven},
		{"backfill-unknown-retry-after", "Backfill, limit not known, Retry-After: 1",
			"The same, and each 429 says Retry-After: 1, as many limiters do whatever the truth is.",
			gcra100, nil, upstream.Silent, one, uneven},
		{"backfill-unknown-draft-8", "Backfill, limit not known, RateLimit fields of draft 8",
			"The upstream counts 100 in each second of its own clock, and tells the window and what is left in RateLimit-Policy and RateLimit, and Retry-After.",
			fixed100, nil, upstream.Draft08, upstream.RetryAfter{Told: true}, uneven},
		{"backfill-unknown-x-ratelimit", "Backfill, limit not known, X-RateLimit fields",
			"The upstream counts 100 in each second of its own clock, and tells it in X-RateLimit-Limit, -Remaining and -Reset (seconds since 1970).",
			fixed100, nil, upstream.XEpoch, upstream.RetryAfter{}, uneven},
	} {
		s := Scenario{
			Name: b.name, Title: b.title,
			About:   "400 calls by 32 workers, 20 s at most. " + b.about,
			Metrics: []Metric{times, quotaUsed, refused, attempts, delivered},
			Takes:   6 * second, Virtual: true, Fits: knows, Run: b.run,
		}
		if b.told == nil {
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
	config := upstream.Config{Limits: []upstream.Limit{b.limit}, Tell: b.tell, Retry: b.retry, Latency: b.latency}
	s, err := begin(ctx, c, o, config, client.Job{Limits: b.told, Patience: patience, Workers: workers})
	if err != nil {
		return r, err
	}
	s.backlog(calls, workers, patience)
	took := s.server.Now()
	l := s.end()

	done := l.Delivered()
	r.Values = map[string]float64{
		"refused":   float64(l.Count(upstream.Refused)),
		"attempts":  l.Amplification(calls),
		"delivered": percent(done, calls),
	}
	best := ideal(config, make([]time.Duration, calls))
	if done == calls {
		took = l.Only(upstream.Admitted).Last()
		r.Values["time"] = float64(took) / float64(best[calls-1])
	}
	// The time in which so many could have been admitted, as a share of the time used. It says nothing of
	// who soon gives most of the calls up.
	if done > 0 && (done >= calls*9/10 || took >= patience) {
		r.Values["quota_used"] = 100 * float64(best[done-1]) / float64(took)
	}
	r.Traffic = traffic(config, l, min(patience, l.Last()+bin))
	return r, nil
}
