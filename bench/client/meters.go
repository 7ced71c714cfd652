package client

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/usage"
	"golang.org/x/time/rate"
)

// A Meter is a limit of tokens a minute. What a call costs is known when its answer has ended.
type Meter struct {
	Law  usage.Law // how the upstream charges it
	N    int       // tokens a minute, and at once
	Mean int       // of what a call costs in the end, which only a client that says so is given
}

// rate is the tokens a second.
func (m *Meter) rate() rate.Limit { return rate.Limit(float64(m.N) / 60) }

// estimate is the most that a request may cost, as far as it is known beforehand: its input if the limit counts that, and
// the bound of its output if it counts that.
func (m *Meter) estimate(req *http.Request) (n int) {
	if m.Law.Counts.Input > 0 {
		n = usage.Law{Holds: usage.HoldsInput}.Hold(req)
	}
	if bound, ok := usage.Bound(req); ok && m.Law.Counts.Output > 0 {
		n += bound
	}
	return n
}

// Metered are the clients for scenarios of meters, the library last. They are given Job.Meter and no other limit.
func Metered() []Client {
	var all []Client
	for _, c := range []struct {
		name  string
		start func(Job) http.RoundTripper
	}{
		{"openai-cookbook", newCookbook},
		{"x/time/rate: bound", func(job Job) http.RoundTripper { return newEstimated(job, job.Meter.estimate) }},
		{"x/time/rate: average known", func(job Job) http.RoundTripper {
			return newEstimated(job, func(*http.Request) int { return job.Meter.Mean })
		}},
		{"x/time/rate: average guessed 20 % too low", func(job Job) http.RoundTripper {
			return newEstimated(job, func(*http.Request) int { return job.Meter.Mean * 4 / 5 })
		}},
		{"throttle: meters", throttleMetered},
	} {
		start := func(job Job) (Doer, error) { return over(c.start(job), job), nil }
		all = append(all, Client{Name: c.name, Limits: true, Retries: true, Bubble: true, Metered: true, Start: start})
	}
	return all
}

// throttleMetered has one meter by the law of the provider. Where that holds less than a call may cost, the meter learns
// what calls cost, as the documentation of Law.Learns says.
func throttleMetered(job Job) http.RoundTripper {
	t, law := patientThrottle(job), job.Meter.Law
	m := throttle.Meter{Name: law.Name, Limiter: throttle.NewBucket(job.Meter.rate(), job.Meter.N), Hold: law.Hold, Settle: law.Settle, Failures: law.Failures}
	if law.Learns() {
		m.Hold, m.Learn, m.Streams = law.Most, true, law.Streams
	}
	t.Meters = func(string) []throttle.Meter { return []throttle.Meter{m} }
	return t
}

// estimated waits for rate.Limiter.WaitN with an estimate, which nobody corrects later. A call that is throttled waits as
// long as Retry-After says and pays again; the others hear nothing of it.
type estimated struct {
	base     http.RoundTripper
	limiter  *rate.Limiter
	estimate func(*http.Request) int
}

func newEstimated(job Job, estimate func(*http.Request) int) http.RoundTripper {
	return &estimated{job.Base, rate.NewLimiter(job.Meter.rate(), job.Meter.N), estimate}
}

func (e *estimated) RoundTrip(req *http.Request) (*http.Response, error) {
	for {
		if err := e.limiter.WaitN(req.Context(), e.estimate(req)); err != nil {
			return nil, unsent(req, err)
		}
		resp, err := e.base.RoundTrip(req)
		if err != nil || resp.StatusCode != http.StatusTooManyRequests {
			return resp, err
		}
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		discard(resp)
		if req, err = again(req, time.Duration(max(1, seconds))*time.Second); err != nil {
			return nil, err
		}
	}
}

// again waits before a request is sent once more.
func again(req *http.Request, d time.Duration) (*http.Request, error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	next := req.Clone(req.Context())
	var err error
	next.Body, err = req.GetBody()
	return next, err
}

// A cookbook does what the script api_request_parallel_processor.py in the repository openai/openai-cookbook does: capacity
// comes back evenly up to that of a minute, each request takes an estimate of what it costs, in order, those to be sent again
// before others, and after each throttled answer none is sent for 15 s. Capacity is never given back. The limit is to be
// configured as a part of the true one, here 75 %. The script looks each millisecond whether it can go on, gives a request up
// after five attempts, and is one loop; this one sleeps until it can, never gives up, and callers take the loop's place in turn.
type cookbook struct {
	job  Job
	rate float64 // a second; capacity is at most that of a minute

	mu      sync.Mutex
	left    float64   // of the capacity
	at      time.Time // as of then
	paused  time.Time // until then
	busy    bool      // somebody is in turn
	retries []chan struct{}
	fresh   []chan struct{}
}

const (
	cookbookShare = 0.75
	cookbookPause = 15 * time.Second
)

func newCookbook(job Job) http.RoundTripper {
	r := cookbookShare * float64(job.Meter.rate())
	return &cookbook{job: job, rate: r, left: 60 * r, at: time.Now()}
}

func (c *cookbook) RoundTrip(req *http.Request) (*http.Response, error) {
	for line := &c.fresh; ; line = &c.retries {
		c.enter(line)
		err := c.wait(req)
		c.leave()
		if err != nil {
			return nil, unsent(req, err)
		}
		resp, err := c.job.Base.RoundTrip(req)
		if err != nil || resp.StatusCode != http.StatusTooManyRequests {
			return resp, err
		}
		c.locked(func() { c.paused = time.Now().Add(cookbookPause) })
		discard(resp)
		if req, err = again(req, 0); err != nil {
			return nil, err
		}
	}
}

func (c *cookbook) locked(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// enter waits until it is the caller's turn. Whoever leaves at the end of the run comes through too, and finds its ctx over.
func (c *cookbook) enter(line *[]chan struct{}) {
	turn := make(chan struct{})
	c.locked(func() {
		if !c.busy {
			c.busy = true
			close(turn)
			return
		}
		*line = append(*line, turn)
	})
	<-turn
}

// leave hands the turn on.
func (c *cookbook) leave() {
	c.locked(func() {
		for _, line := range []*[]chan struct{}{&c.retries, &c.fresh} {
			if len(*line) > 0 {
				close((*line)[0])
				*line = (*line)[1:]
				return
			}
		}
		c.busy = false
	})
}

// wait waits until no pause is left and the capacity suffices, and takes it.
func (c *cookbook) wait(req *http.Request) error {
	for cost := float64(c.job.Meter.estimate(req)); ; {
		d := c.try(cost)
		if d <= 0 {
			return nil
		}
		timer := time.NewTimer(d)
		select {
		case <-timer.C:
		case <-req.Context().Done():
			timer.Stop()
			return req.Context().Err()
		}
	}
}

// try takes the capacity and returns 0, or returns how long to wait.
func (c *cookbook) try(cost float64) (d time.Duration) {
	c.locked(func() {
		now := time.Now()
		c.left, c.at = min(60*c.rate, c.left+c.rate*now.Sub(c.at).Seconds()), now
		switch short := cost - c.left; {
		case now.Before(c.paused):
			d = c.paused.Sub(now)
		case short > 0:
			d = time.Duration(short/c.rate*float64(time.Second)) + time.Millisecond
		default:
			c.left -= cost
		}
	})
	return d
}
