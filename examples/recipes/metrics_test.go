package recipes

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet"
	"github.com/go-throttle/throttle/throttleotel"
	"github.com/go-throttle/throttle/throttletest"
)

// scrape is GET /metrics.
func scrape(h http.Handler) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// TestMetrics: after 20 calls at ten a second Prometheus finds 20 calls; all but the first have waited.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := throttletest.NewServer(perSecond(10))
		client, metrics, err := Metrics(upstream, throttle.NewBucket(10, 1))
		if err != nil {
			t.Fatal(err)
		}
		all(t, 20, func(int) error { return status(client.Get("http://api.test/")) })
		found := scrape(metrics)
		for _, want := range []string{
			`throttle_client_requests_total{throttle_key="api.test",throttle_outcome="admitted",throttle_policy="api"} 20`,
			`throttle_client_waits_total{throttle_key="api.test",throttle_policy="api",throttle_reason="limit:shared"} 19`,
			`throttle_client_request_time_in_queue_seconds_count{throttle_key="api.test",throttle_policy="api"} 19`,
			`throttle_client_limit_per_second{throttle_key="api.test",throttle_limit_source="config",throttle_policy="api"} 10`,
		} {
			if !strings.Contains(found, "\n"+want+"\n") {
				t.Errorf("there is no %s", want)
			}
		}
		if t.Failed() {
			t.Log(found)
		}
		none(t, upstream, 20)
	})
}

// A dashboard is the part of docs/grafana.json that says what is queried.
type dashboard struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
	}
	Templating struct {
		List []struct {
			Query any
		}
	}
}

// queries reads the dashboard, and returns each panel's queries by its title.
func queries(t *testing.T) (panels map[string][]string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	panels = map[string][]string{}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			panels[p.Title] = append(panels[p.Title], target.Expr)
		}
	}
	for _, v := range d.Templating.List {
		if q, ok := v.Query.(map[string]any); ok {
			panels["variables"] = append(panels["variables"], q["query"].(string))
		}
	}
	return panels
}

// everything returns what Prometheus scrapes, and a function that makes traffic in which all happens that the dashboard has a
// panel for: an outage, an upstream that throttles, a line that is full, units of a fleet, and at the end a pause.
func everything(t *testing.T) (metrics http.Handler, traffic func()) {
	t.Helper()
	registry := prometheus.NewRegistry()
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo())
	if err != nil {
		t.Fatal(err)
	}
	o := throttleotel.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))}
	upstream := throttletest.NewServer(throttletest.Limit{N: 5, Burst: 1})
	upstream.RetryAfter, upstream.Faults = time.Second, []throttletest.Fault{{To: 500 * time.Millisecond}}
	shared := fleet.New(new(fleet.Memory), "api", 20, 5, fleet.Options{})
	tr := &throttle.Transport{Base: upstream, Limiter: shared, Queue: throttle.QueueOptions{MaxWaiting: 20}}
	for _, instrument := range []func() (func(), error){
		func() (func(), error) { return throttleotel.Instrument("api", tr, o) },
		func() (func(), error) { return throttleotel.InstrumentFleet("api", shared, o) },
	} {
		stop, err := instrument()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
	client := &http.Client{Transport: tr}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), func() {
		var full atomic.Bool
		for !full.Load() || upstream.Ledger().Tally().Throttled == 0 { // once is enough, unless the machine is very busy
			var calls sync.WaitGroup
			for range 40 {
				calls.Go(func() {
					if err := status(client.Get("http://api.test/")); errors.Is(err, throttle.ErrQueueFull) {
						full.Store(true)
					}
				})
			}
			calls.Wait()
		}
		tr.Pause("api.test", time.Hour)
	}
}

// TestDashboard: each metric and each label that docs/grafana.json names exists after traffic in which everything
// happens.
func TestDashboard(t *testing.T) {
	panels := queries(t)
	if len(panels) != 8+1 {
		t.Errorf("%d panels, want 8", len(panels)-1)
	}
	var found string
	synctest.Test(t, func(t *testing.T) {
		metrics, traffic := everything(t)
		scrape(metrics) // how much of a limit is used shows the second time
		traffic()
		found = scrape(metrics)
	})
	name := regexp.MustCompile(`\b(?:throttle|http|error)_[a-z_]+\b`)
	for title, exprs := range panels {
		for _, expr := range exprs {
			for _, n := range name.FindAllString(expr, -1) {
				metric := strings.Contains(found, "\n"+n+"{")
				label := strings.Contains(found, "{"+n+"=") || strings.Contains(found, ","+n+"=")
				if !metric && !label {
					t.Errorf("%s: there is neither a metric nor a label %s", title, n)
				}
			}
		}
	}
	if t.Failed() {
		t.Log(found)
	}
}
