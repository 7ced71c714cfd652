package throttleotel

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-throttle/throttle"
)

// scope is the name of the meter and of the tracer.
const scope = "github.com/go-throttle/throttle/throttleotel"

// Options change where measurements and spans go. The zero value uses the globals of package otel.
type Options struct {
	// MeterProvider makes the instruments; nil: otel.GetMeterProvider().
	MeterProvider metric.MeterProvider

	// TracerProvider makes the spans of [Calls]; nil: otel.GetTracerProvider(). Instrument does not use it: its events
	// go to spans that are there.
	TracerProvider trace.TracerProvider

	// MaxKeys is how many keys have series of their own, those that come first; 0: 100. A negative number is an error.
	MaxKeys int
}

// meterProvider is MeterProvider or the global one.
func (o Options) meterProvider() metric.MeterProvider {
	if o.MeterProvider == nil {
		return otel.GetMeterProvider()
	}
	return o.MeterProvider
}

// maxKeys is MaxKeys or its default.
func (o Options) maxKeys() int {
	if o.MaxKeys == 0 {
		return 100
	}
	return o.MaxKeys
}

// Instrument makes t's metrics under a name, the attribute throttle.policy, and adds events to the spans of its calls.
// Call it after the other fields of t are set, and before the first request: it joins functions of its own to t.Hooks,
// so a later assignment to that takes metrics away without an error. stop ends the measurements; it may be called more
// than once, and t stays usable.
//
// It is an error if t is nil, was used or instrumented before, if the name is empty or in use with the same
// MeterProvider, if MaxKeys is negative, or if the meter refuses an instrument. Then t is as it was.
func Instrument(name string, t *throttle.Transport, o Options) (stop func(), err error) {
	switch {
	case t == nil:
		return nil, errors.New("throttleotel: Instrument: the Transport is nil")
	case used(t):
		return nil, fmt.Errorf("throttleotel: Instrument(%q): the Transport was used before", name)
	}
	free, err := claim("client", name, o)
	if err != nil {
		return nil, err
	}
	if as, already := claimed.LoadOrStore(t, name); already {
		free()
		return nil, fmt.Errorf("throttleotel: Instrument(%q): the Transport is instrumented already, as %q", name, as)
	}
	c, hooks := &client{t: t, series: newTable(name, o.maxKeys())}, t.Hooks
	// The first collection may come at once, and asks for Stats: from then on t must not be changed.
	t.Hooks = t.Hooks.Join(c.hooks())
	if err := c.register(o.meterProvider().Meter(scope)); err != nil {
		t.Hooks = hooks
		free()
		claimed.Delete(t)
		return nil, fmt.Errorf("throttleotel: Instrument(%q): %w", name, err)
	}
	return sync.OnceFunc(func() {
		c.stopped.Store(true)
		_ = c.registration.Unregister() // its only error is that it was unregistered before
		free()
		claimed.Delete(t)
	}), nil
}

// used reports whether t has served a request, or was asked for Stats or the like, which makes its table of keys. Then
// its Hooks can no longer be changed. No method says so, because nobody else needs to know.
func used(t *throttle.Transport) bool {
	table := reflect.ValueOf(t).Elem().FieldByName("table")
	return table.Kind() == reflect.Pointer && !table.IsNil()
}

// A claimant is one name with one MeterProvider. Two Transports under one name would report the same series, and a
// collection would add them up or keep the last of them, as the instrument may be.
type claimant struct {
	provider any
	of, name string
}

// claimed are the names in use, and the Transports that are instrumented. They belong to the process, as the global
// providers do.
var claimed sync.Map

// claim takes a name, until free.
func claim(of, name string, o Options) (free func(), err error) {
	switch {
	case name == "":
		return nil, errors.New("throttleotel: the name is empty")
	case o.MaxKeys < 0:
		return nil, fmt.Errorf("throttleotel: Options.MaxKeys is %d, must not be negative", o.MaxKeys)
	}
	who := claimant{of: of, name: name}
	if p := o.meterProvider(); reflect.TypeOf(p).Comparable() {
		who.provider = p
	}
	if _, taken := claimed.LoadOrStore(who, true); taken {
		return nil, fmt.Errorf("throttleotel: the name %q is in use", name)
	}
	return func() { claimed.Delete(who) }, nil
}

// orDefault is base, or http.DefaultTransport if it is nil.
func orDefault(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		return http.DefaultTransport
	}
	return base
}

// closeIdle passes CloseIdleConnections on.
func closeIdle(base http.RoundTripper) {
	if c, ok := orDefault(base).(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
