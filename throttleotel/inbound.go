package throttleotel

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/go-throttle/throttle/inbound"
)

// Inbound is for [InstrumentInbound]: an inbound.Limit, or an inbound.Keyed of any type of keys. One that has LimitStats too, as
// a Limit has, is shown by limit.
type Inbound interface{ Stats() inbound.Stats }

// InstrumentInbound makes the metrics of a server's limits under a name, the attribute throttle.policy. Call it after the fields of
// a Limit are set. stop ends the measurements. It is an error if l is nil, if the name is empty or in use with the same
// MeterProvider, or if the meter refuses an instrument. A request costs nothing more; a collection looks at all shards of the table.
//
//	throttle.server.requests              counter, {request}, by throttle.outcome: admitted, refused, or would_refuse if l is a Shadow
//	throttle.server.refusals              counter, {request}, by throttle.limit and throttle.outcome: refused or would_refuse by that limit
//	throttle.server.newcomers             counter, {request}: those that found no slot in the table, and shared one limit
//	throttle.server.plan_errors           counter, {error}: answers of Plan that were errors, or no limits
//	throttle.server.queued_request.count  up-down counter, {request}: requests that are held
//	throttle.server.key.count             up-down counter, {key}: keys that have units of their own
//
// Clients and their keys are not shown: there is no end of them. A throttle.limit is the name of a limit in the RateLimit fields,
// "shared" or "_other", 101 at most. A request that several limits refuse counts for each. One that is held counts when it is let in or
// refused.
func InstrumentInbound(name string, l Inbound, o Options) (stop func(), err error) {
	if l == nil {
		return nil, errors.New("throttleotel: InstrumentInbound: the limits are nil")
	}
	free, err := claim("server", name, o)
	if err != nil {
		return nil, err
	}
	s := &server{of: l, attrs: []attribute.KeyValue{policyAttr.String(name)}}
	if limit, ok := l.(*inbound.Limit); ok {
		s.shadow = limit.Shadow
	}
	registration, err := s.register(o.meterProvider().Meter(scope))
	if err != nil {
		free()
		return nil, fmt.Errorf("throttleotel: InstrumentInbound(%q): %w", name, err)
	}
	return sync.OnceFunc(func() {
		_ = registration.Unregister()
		free()
	}), nil
}

// A server is one instrumented Limit or Keyed. All that it shows is in their statistics.
type server struct {
	of     Inbound
	shadow bool
	attrs  []attribute.KeyValue

	requests, refusals, newcomers, planErrors metric.Int64ObservableCounter
	queued, keys                              metric.Int64ObservableUpDownCounter

	mu                sync.Mutex // of a collection
	admitted, refused uint64     // the most so far: a request that is given up while it goes moves from one to the other
}

// register makes the instruments and registers the function that observes them.
func (s *server) register(m metric.Meter) (metric.Registration, error) {
	i := instruments{Meter: m}
	s.requests = i.observedCounter("throttle.server.requests", "{request}", "Requests that were let in or refused.")
	s.refusals = i.observedCounter("throttle.server.refusals", "{request}", "Requests that a limit has refused.")
	s.newcomers = i.observedCounter("throttle.server.newcomers", "{request}", "Requests of keys without a slot.")
	s.planErrors = i.observedCounter("throttle.server.plan_errors", "{error}", "Answers of Plan that were errors.")
	s.queued = i.upDown("throttle.server.queued_request.count", "{request}", "Requests that are held.")
	s.keys = i.upDown("throttle.server.key.count", "{key}", "Keys that have units of their own.")
	return i.observe(s.collect)
}

// collect observes a snapshot.
func (s *server) collect(_ context.Context, o metric.Observer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.of.Stats()
	s.admitted = max(s.admitted, now.Admitted)
	s.refused = max(s.refused, now.Refused)
	all := metric.WithAttributes(s.attrs...)
	o.ObserveInt64(s.newcomers, int64(now.Newcomers), all)
	o.ObserveInt64(s.planErrors, int64(now.PlanErrors), all)
	o.ObserveInt64(s.queued, int64(now.Waiting), all)
	o.ObserveInt64(s.keys, int64(now.Keys), all)
	outcome := map[bool]string{false: "refused", true: "would_refuse"}
	o.ObserveInt64(s.requests, int64(s.admitted), s.with(outcomeAttr.String("admitted")))
	o.ObserveInt64(s.requests, int64(s.refused), s.with(outcomeAttr.String(outcome[s.shadow])))
	by, ok := s.of.(interface{ LimitStats() []inbound.LimitStats })
	if !ok {
		return nil
	}
	for _, one := range by.LimitStats() {
		for would, n := range map[bool]uint64{false: one.Refused, true: one.WouldRefuse} {
			if n > 0 {
				o.ObserveInt64(s.refusals, int64(n), s.with(limitAttr.String(one.Name), outcomeAttr.String(outcome[would])))
			}
		}
	}
	return nil
}

// with is the attribute set with more values.
func (s *server) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(s.attrs[:1:1], more...)...)
}
