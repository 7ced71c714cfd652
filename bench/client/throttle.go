package client

import (
	"context"
	"strings"
	"time"

	"github.com/go-throttle/throttle"
	"golang.org/x/time/rate"
)

// The three setups of throttle follow its README: the limit where one is known, the line and the retries
// without one, and the zero Transport. Where retries are raised, so are the time behind a closed gate and the
// retry budget, whose default covers a sixth of failing calls: 0.5 a call and 100 in reserve cover a third.

// spread is by how much latencies differ here. SlidingWindow's documentation has it added to the window, as
// calls come closer to each other on the way.
const spread = 10 * time.Millisecond

// throttleLimited knows the limit: a window is a SlidingWindow, any other a Bucket, one that is to be used
// evenly a Leaky. Several are joined by All.
func throttleLimited() Client {
	return Client{
		Name:    "throttle: limit configured",
		Limits:  true,
		Retries: true,
		Bubble:  true,
		Told:    true,
		Urgent:  urgent,
		Start: func(job Job) (Doer, error) {
			t := patientThrottle(job)
			t.Limiter = limiterFor(job)
			gate(job, t)
			return over(t, job), nil
		},
	}
}

func urgent(ctx context.Context) context.Context { return throttle.WithPriority(ctx, 1) }

func limiterFor(job Job) throttle.Limiter {
	if len(job.Limits) == 0 {
		return nil
	}
	var all []throttle.Limiter
	for _, l := range job.Limits {
		switch {
		case job.Even:
			all = append(all, throttle.NewLeaky(rate.Limit(l.Rate())))
		case l.Window:
			all = append(all, throttle.NewSlidingWindow(l.N, l.Per+spread))
		default:
			all = append(all, throttle.NewBucket(rate.Limit(l.Rate()), l.Burst))
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return throttle.All(all...)
}

// throttleQueued knows no limit and finds it, from headers or 429s.
func throttleQueued() Client {
	return Client{
		Name:    "throttle: no limit configured",
		Retries: true,
		Bubble:  true,
		Urgent:  urgent,
		Start: func(job Job) (Doer, error) {
			t := patientThrottle(job)
			gate(job, t)
			return over(t, job), nil
		},
	}
}

func patientThrottle(job Job) *throttle.Transport {
	return &throttle.Transport{
		Base:  job.Base,
		Queue: throttle.QueueOptions{MaxInFlight: job.InFlight},
		Retry: throttle.Retry{
			MaxAttempts: manyRetries,
			MaxPause:    job.patience(),
			Budget:      throttle.Budget{PerCall: 0.5, Max: 100},
		},
	}
}

// throttleZero knows nothing at all: the defaults of Retry.
func throttleZero() Client {
	return Client{
		Name:    "throttle: zero value",
		Retries: true,
		Bubble:  true,
		Urgent:  urgent,
		Start: func(job Job) (Doer, error) {
			t := &throttle.Transport{Base: job.Base}
			gate(job, t)
			return over(t, job), nil
		},
	}
}

// gate tells of t's gate what Job.Gate wants to know; there is one host, so one key.
func gate(job Job, t *throttle.Transport) {
	if job.Gate == nil {
		return
	}
	job.Gate(func() bool {
		for s := range t.Stats() {
			reopens := s.Reason == "gate:reopening" || s.Reason == "gate:first-contact"
			if s.ClosedFor > 0 || strings.HasPrefix(s.Reason, "gate:") && !reopens {
				return true
			}
		}
		return false
	})
}
