package bench

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttleotel"
)

// A stub answers at once.
type stub struct{ resp http.Response }

func (s *stub) RoundTrip(req *http.Request) (*http.Response, error) {
	resp := s.resp // the Transport may change it
	resp.Request = req
	return &resp, nil
}

// newStub returns a stub that answers 200.
func newStub() *stub {
	return &stub{http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}}
}

// instruments are the two that a call has which waits: one counts it, one has its time.
type instruments struct {
	waits metric.Int64Counter
	time  metric.Float64Histogram
	add   []metric.AddOption
	rec   []metric.RecordOption
}

// newInstruments makes them with prepared attribute sets, which is the cheapest way to use them.
func newInstruments(b *testing.B, p metric.MeterProvider) (i instruments) {
	b.Helper()
	var err error
	m := p.Meter("direct")
	if i.waits, err = m.Int64Counter("waits"); err != nil {
		b.Fatal(err)
	}
	if i.time, err = m.Float64Histogram("time"); err != nil {
		b.Fatal(err)
	}
	set := func(more ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(append(more, attribute.String("policy", "x"), attribute.String("key", "a.test"))...))
	}
	i.add = []metric.AddOption{set(attribute.String("reason", "limit"))}
	i.rec = []metric.RecordOption{set()}
	return i
}

// provider is one whose measurements somebody could collect.
func provider() *sdkmetric.MeterProvider {
	return sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
}

// A setup is one way to measure a call that need not wait, over a Base that answers at once.
type setup struct {
	name string
	make func(b *testing.B, t *throttle.Transport) (after func(context.Context))
}

// setups are: alone; with the two instruments that throttleotel would use for a waiting call, used directly; with
// throttleotel; and with otelhttp below it.
var setups = []setup{
	{"alone", func(*testing.B, *throttle.Transport) func(context.Context) { return nil }},
	{"direct", func(b *testing.B, _ *throttle.Transport) func(context.Context) {
		i := newInstruments(b, provider())
		return func(ctx context.Context) { i.waits.Add(ctx, 1, i.add...); i.time.Record(ctx, 0, i.rec...) }
	}},
	{"throttleotel", func(b *testing.B, t *throttle.Transport) func(context.Context) {
		instrument(b, t)
		return nil
	}},
	{"otelhttp", func(_ *testing.B, t *throttle.Transport) func(context.Context) {
		t.Base = otelhttp.NewTransport(t.Base, otelhttp.WithMeterProvider(provider()), otelhttp.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))))
		return nil
	}},
}

// call returns a function that makes one call.
func (s setup) call(b *testing.B) func() {
	b.Helper()
	t := &throttle.Transport{Base: newStub(), Limiter: throttle.NewBucket(1e9, 1e9)}
	after := s.make(b, t)
	req, err := http.NewRequest("GET", "http://a.test/", nil)
	if err != nil {
		b.Fatal(err)
	}
	return func() {
		if _, err := t.RoundTrip(req); err != nil {
			b.Fatal(err)
		}
		if after != nil {
			after(req.Context())
		}
	}
}

// waits returns functions that do what telemetry does for a call that waits: two measurements, directly and by
// throttleotel's hooks.
func waits(b *testing.B) (direct, hooks func()) {
	b.Helper()
	i, ctx, t := newInstruments(b, provider()), b.Context(), new(throttle.Transport)
	instrument(b, t)
	e := throttle.Event{Key: "a.test", Reason: "limit", Wait: time.Second / 10}
	return func() {
			i.waits.Add(ctx, 1, i.add...)
			i.time.Record(ctx, e.Wait.Seconds(), i.rec...)
		}, func() {
			t.Hooks.Waiting(ctx, e)
			t.Hooks.Waited(ctx, e)
		}
}

// BenchmarkTelemetry is a call in each setup, one setup after the other.
//
//	go test -run '^$' -bench 'Telemetry$|Hooks' -count 5
func BenchmarkTelemetry(b *testing.B) {
	for _, s := range setups {
		b.Run(s.name, func(b *testing.B) { loop(b, s.call(b)) })
	}
}

// BenchmarkHooks is what telemetry does for a call that waits.
func BenchmarkHooks(b *testing.B) {
	direct, hooks := waits(b)
	b.Run("direct", func(b *testing.B) { loop(b, direct) })
	b.Run("throttleotel", func(b *testing.B) { loop(b, hooks) })
}

// loop measures f.
func loop(b *testing.B, f func()) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		f()
	}
}

// BenchmarkTelemetryInTurns is the cost of throttleotel in one figure: all setups in turns of 1,000 calls, so that a machine
// that slows down slows all of them, and the medians over the turns. A call's figures are more than alone, those of a
// wait more than the same instruments called directly.
//
//	go test -run '^$' -bench TelemetryInTurns -benchtime 2000x
//
//	more-ns/call      throttleotel, for a call that need not wait
//	otelhttp-ns/call  otelhttp, for the same call
//	more-ns/wait      throttleotel's hooks, for a call that waits
//	ratio/wait        these by the same instruments called directly
//	allocs/call, allocs/wait, otelhttp-allocs/call
func BenchmarkTelemetryInTurns(b *testing.B) {
	var fs []func()
	for _, s := range setups {
		fs = append(fs, s.call(b))
	}
	direct, hooks := waits(b)
	fs = append(fs, direct, hooks)
	took := make([][]float64, len(fs))
	for b.Loop() {
		for i, f := range fs {
			start := time.Now()
			for range 1000 {
				f()
			}
			took[i] = append(took[i], float64(time.Since(start).Nanoseconds())/1000)
		}
	}
	ns := make([]float64, len(fs))
	for i := range fs {
		slices.Sort(took[i])
		ns[i] = took[i][len(took[i])/2]
	}
	const alone, throttleotel, otelhttp, directly, byHooks = 0, 2, 3, 4, 5
	b.ReportMetric(0, "ns/op") // a turn
	b.ReportMetric(ns[throttleotel]-ns[alone], "more-ns/call")
	b.ReportMetric(ns[otelhttp]-ns[alone], "otelhttp-ns/call")
	b.ReportMetric(ns[byHooks]-ns[directly], "more-ns/wait")
	b.ReportMetric(ns[byHooks]/ns[directly], "ratio/wait")
	own := testing.AllocsPerRun(100, fs[alone]) // the stub's
	b.ReportMetric(testing.AllocsPerRun(100, fs[throttleotel])-own, "allocs/call")
	b.ReportMetric(testing.AllocsPerRun(100, hooks), "allocs/wait")
	b.ReportMetric(testing.AllocsPerRun(100, fs[otelhttp])-own, "otelhttp-allocs/call")
}

// instrument puts throttleotel on t until the benchmark ends.
func instrument(b *testing.B, t *throttle.Transport) {
	b.Helper()
	stop, err := throttleotel.Instrument("x", t, throttleotel.Options{MeterProvider: provider()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(stop)
}

// TestOtelhttp: with otelhttp itself between the two, each resend has its number and its link.
func TestOtelhttp(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	p := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	n := 0
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		resp := http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}
		if n++; n < 3 {
			resp.StatusCode = 429
		}
		return &resp, nil
	})
	tr := &throttle.Transport{
		Limiter: throttle.NewBucket(1000, 1000),
		Base:    otelhttp.NewTransport(throttleotel.Base(base), otelhttp.WithTracerProvider(p), otelhttp.WithMeterProvider(provider())),
	}
	client := &http.Client{Transport: throttleotel.Calls(tr, throttleotel.Options{TracerProvider: p})}
	resp, err := client.Get("http://a.test/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	ended := spans.Ended()
	if len(ended) != 4 {
		t.Fatalf("%d spans, want those of three attempts and of the call", len(ended))
	}
	slices.SortFunc(ended, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	call, attempts := ended[0], ended[1:] // a span of otelhttp ends with the body
	for n, s := range attempts {
		resend := ""
		for _, a := range s.Attributes() {
			if a.Key == "http.request.resend_count" {
				resend = a.Value.Emit()
			}
		}
		links := s.Links()
		linked := len(links) == 1 && links[0].SpanContext.Equal(attempts[0].SpanContext())
		if want := []string{"", "1", "2"}[n]; resend != want || linked != (n > 0) || s.Parent().SpanID() != call.SpanContext().SpanID() {
			t.Errorf("attempt %d: resend_count %q, links %v", n+1, resend, links)
		}
	}
}

// A roundTripper is a function as an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
