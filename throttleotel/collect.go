package throttleotel

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/go-throttle/throttle"
)

// A client is one instrumented Transport. What Transport.Stats knows is observed when somebody collects; the rest is
// counted by hooks as it happens.
type client struct {
	t            *throttle.Transport
	series       *table
	stopped      atomic.Bool
	registration metric.Registration

	waits, throttled, failures, closings metric.Int64Counter
	inQueue                              metric.Float64Histogram

	requests, resends                      metric.Int64ObservableCounter
	queued, active, most, keys             metric.Int64ObservableUpDownCounter
	remaining, limit, tokens, oldest, load metric.Float64ObservableGauge
	limitInstruments

	mu    sync.Mutex // of a collection: each reader makes its own
	looks looks
}

// buckets are the bounds of the histogram in seconds: from what a timer can resolve to Retry.MaxPause.
var buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// register makes the instruments and registers the function that observes them.
func (c *client) register(m metric.Meter) error {
	i := instruments{Meter: m}
	c.waits = i.counter("throttle.client.waits", "{request}", "Waits that began.")
	c.throttled = i.counter("throttle.client.throttled_responses", "{response}", "Attempts that the upstream has throttled.")
	c.failures = i.counter("throttle.client.failures", "{request}", "Attempts that failed.")
	c.closings = i.counter("throttle.client.closings", "{closing}", "Closings of the gate by an answer.")
	c.inQueue = i.histogram("throttle.client.request.time_in_queue", "How long the attempts waited that waited and were sent.")
	c.requests = i.observedCounter("throttle.client.requests", "{request}", "Attempts that were sent or refused.")
	c.resends = i.observedCounter("throttle.client.resends", "{request}", "Attempts that were sent after the first of their call.")
	c.queued = i.upDown("throttle.client.queued_request.count", "{request}", "Calls in line.")
	c.active = i.upDown("throttle.client.active_request.count", "{request}", "Attempts in flight.")
	c.most = i.upDown("throttle.client.active_request.limit", "{request}", "Attempts that may be in flight.")
	c.load = i.gauge("throttle.client.load", "1", "What the bound of attempts in flight follows, in its own unit.")
	c.keys = i.upDown("throttle.client.key.count", "{key}", "Keys that the Transport keeps.")
	c.remaining = i.gauge("throttle.client.closed.remaining", "s", "How much longer the gate is closed.")
	c.limit = i.gauge("throttle.client.limit", "{unit}/s", "The limit in units per second.")
	c.tokens = i.gauge("throttle.client.tokens", "{unit}", "Units ready now; negative: a debt.")
	c.oldest = i.gauge("throttle.client.oldest_wait", "s", "How long the oldest call in line has waited.")
	c.limitInstruments.register(&i)
	var err error
	c.registration, err = i.observe(c.collect)
	return err
}

// A view is what a collection sees of the keys of one series: of one key, mostly.
type view struct {
	waiting, inFlight, most, keys     int64
	load                              float64 // the highest
	sent, resent                      uint64
	tokens, config, advertised, found float64               // the least; math.MaxFloat64: none
	closedFor, oldest                 time.Duration         // the longest
	closedBy                          string                // the reason, of closedFor
	limits                            map[string]*limitView // by reason
}

// collect observes what the Transport and the hooks know now. Its totals are read before its keys are: what comes in
// between is counted under its key alone, and not among the others too.
func (c *client) collect(_ context.Context, o metric.Observer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.t.Totals()
	views, now := map[*series]*view{}, &look{at: time.Now(), taken: map[limitID]int64{}}
	since := c.looks.since(now.at)
	for k := range c.t.Stats() {
		s := c.series.of(k.Key)
		v := views[s]
		if v == nil {
			v = &view{tokens: math.MaxFloat64, config: math.MaxFloat64, advertised: math.MaxFloat64, found: math.MaxFloat64}
			views[s] = v
		}
		v.take(&k)
		v.takeLimits(&k, since, now)
	}
	c.looks.add(now)
	named, namedAgain := uint64(0), uint64(0)
	c.series.each(func(s *series) {
		v := views[s]
		if s == c.series.other {
			s.sent.rest(all.Sent, named)
			s.resent.rest(all.Retried, namedAgain)
		} else if v != nil {
			s.sent.follow(v.sent)
			s.resent.follow(v.resent)
		} else { // the key was dropped
			s.sent.last, s.resent.last = 0, 0
		}
		named, namedAgain = named+s.sent.total, namedAgain+s.resent.total
		c.observeCounts(o, s)
		if v != nil {
			c.observeNow(o, s, v)
		}
		c.observeLimits(o, s, v)
	})
	c.observeShared(o, views)
	return nil
}

// observeCounts observes what only grows. A series that has never sent or refused anything is not there.
func (c *client) observeCounts(o metric.Observer, s *series) {
	for what := range outcomes {
		n := s.refused[what].Load()
		if what == admitted {
			n = s.sent.total
		}
		if n > 0 {
			o.ObserveInt64(c.requests, int64(n), s.with(outcomeAttr.String(texts[what])))
		}
	}
	if n := s.resent.total; n > 0 {
		o.ObserveInt64(c.resends, int64(n), s.set)
	}
}

// observeNow observes what is true at this moment.
func (c *client) observeNow(o metric.Observer, s *series, v *view) {
	o.ObserveInt64(c.queued, v.waiting, s.set)
	o.ObserveInt64(c.active, v.inFlight, s.set)
	if v.most > 0 {
		o.ObserveInt64(c.most, v.most, s.set)
	}
	if v.load > 0 {
		o.ObserveFloat64(c.load, v.load, s.set)
	}
	o.ObserveInt64(c.keys, v.keys, s.set)
	o.ObserveFloat64(c.oldest, v.oldest.Seconds(), s.set)
	if v.tokens < math.MaxFloat64 {
		o.ObserveFloat64(c.tokens, v.tokens, s.set)
	}
	for source, limit := range map[string]float64{"config": v.config, "advertised": v.advertised, "found": v.found} {
		if limit < math.MaxFloat64 {
			o.ObserveFloat64(c.limit, limit, s.with(sourceAttr.String(source)))
		}
	}
	if v.closedFor > 0 {
		o.ObserveFloat64(c.remaining, v.closedFor.Seconds(), s.with(reasonAttr.String(v.closedBy)))
	}
}

// take adds a key to the view. Counts are added up; of limits the least matters, of times the longest.
func (v *view) take(k *throttle.KeyStats) {
	v.keys++
	v.waiting += int64(k.Waiting)
	v.inFlight += int64(k.InFlight)
	v.most += int64(k.MaxInFlight)
	v.load = max(v.load, k.Load)
	v.sent += k.Sent
	v.resent += k.Retried
	v.tokens, v.config = min(v.tokens, k.Tokens), min(v.config, float64(k.Limit))
	for i := range k.Learned {
		if l := &k.Learned[i]; l.Source == "throttled" {
			v.found = min(v.found, float64(l.Rate))
		} else {
			v.advertised = min(v.advertised, advertised(l))
		}
	}
	if k.ClosedFor > v.closedFor {
		v.closedFor, v.closedBy = k.ClosedFor, k.Reason
	}
	if !k.Oldest.IsZero() {
		v.oldest = max(v.oldest, time.Since(k.Oldest))
	}
}

// advertised is an advertised quota in units per second: the rate at which calls are spaced for it, or its size by its
// window. An example: 5,000 an hour with 4,000 left hold nobody back yet, and are 1.39/s.
func advertised(l *throttle.Learned) float64 {
	limit := float64(l.Rate)
	if l.Limit > 0 && l.Window > 0 {
		limit = min(limit, float64(l.Limit)/l.Window.Seconds())
	}
	return limit
}

// instruments makes instruments of one meter. It keeps their errors, and those that a callback observes.
type instruments struct {
	metric.Meter
	err      error
	observed []metric.Observable
}

// made notes an error, and an instrument to be observed.
func (i *instruments) made(observed metric.Observable, err error) {
	i.err = errors.Join(i.err, err)
	if observed != nil {
		i.observed = append(i.observed, observed)
	}
}

// observe has the instruments observed by f, if all could be made.
func (i *instruments) observe(f metric.Callback) (metric.Registration, error) {
	if i.err != nil {
		return nil, i.err
	}
	return i.RegisterCallback(f, i.observed...)
}

func (i *instruments) counter(name, unit, about string) metric.Int64Counter {
	c, err := i.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about))
	i.made(nil, err)
	return c
}

func (i *instruments) histogram(name, about string) metric.Float64Histogram {
	h, err := i.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about), metric.WithExplicitBucketBoundaries(buckets...))
	i.made(nil, err)
	return h
}

func (i *instruments) observedCounter(name, unit, about string) metric.Int64ObservableCounter {
	c, err := i.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(about))
	i.made(c, err)
	return c
}

func (i *instruments) upDown(name, unit, about string) metric.Int64ObservableUpDownCounter {
	c, err := i.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(about))
	i.made(c, err)
	return c
}

func (i *instruments) gauge(name, unit, about string) metric.Float64ObservableGauge {
	g, err := i.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(about))
	i.made(g, err)
	return g
}
