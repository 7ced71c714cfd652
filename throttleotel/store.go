package throttleotel

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/go-throttle/throttle/fleet"
)

// modes are the values of throttle.store.mode, as fleet.Stats has them.
var modes = []string{"shared", "alone", "closed", "open"}

// InstrumentFleet makes the metrics of a fleet's limiter under a name, the attribute throttle.policy: how this process
// gets its units from the store. A Transport that uses the limiter is instrumented by itself, by [Instrument], and may
// have the same name. stop ends the measurements. It is an error if l is nil, if the name is empty or in use with
// the same MeterProvider, or if the meter refuses an instrument.
//
//	throttle.store.units         counter, {unit}, by throttle.store.state: granted, used, expired, or alone
//	throttle.store.trips         counter, {trip}: requests to the store
//	throttle.store.errors        counter, {trip}: those that failed or came back too late
//	throttle.store.round_trip    gauge, s: of a request to the store, smoothed
//	throttle.store.mode          gauge, 1: 1 for the mode that holds, by throttle.store.mode: shared, or alone, closed or open
//	throttle.store.member.count  up-down counter, {member}: processes that use the limit, as the store has said
//
// Units that were used without the store are "alone" as well as "used". If more than a twentieth of what was granted
// expires, Options.Validity of package fleet does not suit the load.
func InstrumentFleet(name string, l *fleet.Limiter, o Options) (stop func(), err error) {
	if l == nil {
		return nil, errors.New("throttleotel: InstrumentFleet: the Limiter is nil")
	}
	free, err := claim("store", name, o)
	if err != nil {
		return nil, err
	}
	s := &store{limiter: l, attrs: []attribute.KeyValue{policyAttr.String(name)}}
	registration, err := s.register(o.meterProvider().Meter(scope))
	if err != nil {
		free()
		return nil, fmt.Errorf("throttleotel: InstrumentFleet(%q): %w", name, err)
	}
	return sync.OnceFunc(func() {
		_ = registration.Unregister()
		free()
	}), nil
}

// A store is one instrumented limiter of a fleet. All that it shows is in Limiter.Stats.
type store struct {
	limiter *fleet.Limiter
	attrs   []attribute.KeyValue

	units, trips, errors metric.Int64ObservableCounter
	members              metric.Int64ObservableUpDownCounter
	roundTrip, mode      metric.Float64ObservableGauge
}

// register makes the instruments and registers the function that observes them.
func (s *store) register(m metric.Meter) (metric.Registration, error) {
	i := instruments{Meter: m}
	s.units = i.observedCounter("throttle.store.units", "{unit}", "Units that the store has granted, and what became of them.")
	s.trips = i.observedCounter("throttle.store.trips", "{trip}", "Requests to the store.")
	s.errors = i.observedCounter("throttle.store.errors", "{trip}", "Requests to the store that failed or came back too late.")
	s.members = i.upDown("throttle.store.member.count", "{member}", "Processes that use the limit.")
	s.roundTrip = i.gauge("throttle.store.round_trip", "s", "A request to the store, smoothed.")
	s.mode = i.gauge("throttle.store.mode", "1", "1 for the mode that holds.")
	return i.observe(s.collect)
}

// collect observes a snapshot of the limiter. It does not ask the store.
func (s *store) collect(_ context.Context, o metric.Observer) error {
	now := s.limiter.Stats()
	all := metric.WithAttributes(s.attrs...)
	o.ObserveInt64(s.trips, int64(now.Trips), all)
	o.ObserveInt64(s.errors, int64(now.Failed), all)
	o.ObserveInt64(s.members, int64(now.Members), all)
	o.ObserveFloat64(s.roundTrip, now.RoundTrip.Seconds(), all)
	for state, n := range map[string]uint64{"granted": now.Granted, "used": now.Used, "expired": now.Expired, "alone": now.Alone} {
		o.ObserveInt64(s.units, int64(n), s.with("throttle.store.state", state))
	}
	for _, mode := range modes {
		holds := 0.0
		if mode == now.Mode {
			holds = 1
		}
		o.ObserveFloat64(s.mode, holds, s.with("throttle.store.mode", mode))
	}
	return nil
}

// with is the attribute set with one value more.
func (s *store) with(key attribute.Key, value string) metric.MeasurementOption {
	return metric.WithAttributes(append(s.attrs[:1:1], key.String(value))...)
}
