package recipes

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttleotel"
)

// Metrics returns a client, and a handler for GET /metrics, which Prometheus scrapes. docs/grafana.json is a dashboard
// for what it finds there.
func Metrics(base http.RoundTripper, limit throttle.Limiter) (*http.Client, http.Handler, error) {
	registry := prometheus.NewRegistry()
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo())
	if err != nil {
		return nil, nil, err
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	t := &throttle.Transport{Base: base, Limiter: limit}
	if _, err := throttleotel.Instrument("api", t, throttleotel.Options{MeterProvider: provider}); err != nil {
		return nil, nil, err
	}
	return &http.Client{Transport: t}, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}
