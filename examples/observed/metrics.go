package main

import (
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet"
	"github.com/go-throttle/throttle/throttleotel"
)

// metrics returns what Prometheus scrapes: the metrics of a client, and of the limiter that it shares with its fleet.
func metrics(t *throttle.Transport, shared *fleet.Limiter) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	o := throttleotel.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))}
	_, err = throttleotel.Instrument("observed", t, o)
	_, ferr := throttleotel.InstrumentFleet("observed", shared, o)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), errors.Join(err, ferr)
}
