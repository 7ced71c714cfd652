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

// BenchmarkTelemetry is a call that need not wait, over a Base that answers at once: alone; with the two instruments that
// throttleotel would use for a waiting call, used directly; with throttleotel; and with otelhttp below it.
//
//	go test -run '^$' -bench 'Telemetry|Hooks' -count 5
func BenchmarkTelemetry(b *testing.B) {
	for _, c := range []struct {
		name string
		make func(b *testing.B, t *throttle.Transport) (after func(context.Context))
	}{
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
	} {
		b.Run(c.name, func(b *testing.B) {
			t := &throttle.Transport{Base: newStub(), Limiter: throttle.NewBucket(1e9, 1e9)}
			after := c.make(b, t)
			req, err := http.NewRequest("GET", "http://a.test/", nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := t.RoundTrip(req); err != nil {
					b.Fatal(err)
				}
				if after != nil {
					after(req.Context())
				}
			}
		})
	}
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

// BenchmarkHooks is what telemetry does for a call that waits: two measurements, directly and by throttleotel's hooks.
func BenchmarkHooks(b *testing.B) {
	b.Run("direct", func(b *testing.B) {
		i, ctx := newInstruments(b, provider()), b.Context()
		b.ReportAllocs()
		for b.Loop() {
			i.waits.Add(ctx, 1, i.add...)
			i.time.Record(ctx, .1, i.rec...)
		}
	})
	b.Run("throttleotel", func(b *testing.B) {
		t, ctx := new(throttle.Transport), b.Context()
		instrument(b, t)
		e := throttle.Event{Key: "a.test", Reason: "limit", Wait: time.Second / 10}
		b.ReportAllocs()
		for b.Loop() {
			t.Hooks.Waiting(ctx, e)
			t.Hooks.Waited(ctx, e)
		}
	})
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
