package throttleotel_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttleotel"
)

// perAttempt makes a span for each attempt, as otelhttp does: it clones the request with the span's ctx. Module bench has
// the same test with otelhttp itself.
type perAttempt struct {
	tracer trace.Tracer
	base   http.RoundTripper
}

func (p perAttempt) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, span := p.tracer.Start(req.Context(), "attempt", trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	return p.base.RoundTrip(req.Clone(ctx))
}

// tracing returns a provider of spans and what remembers them.
func tracing() (*sdktrace.TracerProvider, *tracetest.SpanRecorder) {
	r := tracetest.NewSpanRecorder()
	return sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r)), r
}

// attr returns an attribute's text; "": it is not there.
func attr(attrs []attribute.KeyValue, key attribute.Key) string {
	for _, a := range attrs {
		if a.Key == key {
			return a.Value.Emit()
		}
	}
	return ""
}

// script answers with these statuses, one after the other; the last one from then on. 0: an error.
func script(statuses ...int) baseFunc {
	return func(req *http.Request) (*http.Response, error) {
		code := statuses[0]
		if len(statuses) > 1 {
			statuses = statuses[1:]
		}
		if code == 0 {
			return nil, errors.New("broken")
		}
		resp := &http.Response{StatusCode: code, Header: http.Header{}, Body: http.NoBody, Request: req}
		if code == 429 {
			resp.Header.Set("Retry-After", "2")
		}
		return resp, nil
	}
}

// aSecond is the delay before each retry after a failure: by then the gate's reopening is over.
type aSecond struct{}

func (aSecond) NextBackOff() time.Duration { return time.Second }

// A call whose first attempts fail in different ways, and which then waits: its span has the event, those of the attempts
// the numbers, and links to the first.
func TestSpansOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp, spans := tracing()
		tracer := tp.Tracer("test")
		tr := &throttle.Transport{
			Base: perAttempt{tracer, throttleotel.Base(script(0, 429, 503, 200))}, Limiter: throttle.NewBucket(100, 100),
			Retry: throttle.Retry{Backoff: func() throttle.Backoff { return aSecond{} }},
		}
		p, _ := reader()
		stop, err := throttleotel.Instrument("x", tr, throttleotel.Options{MeterProvider: p})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		calls := throttleotel.Calls(tr, throttleotel.Options{TracerProvider: tp})
		ctx, outer := tracer.Start(t.Context(), "outer")
		if code, err := get(calls, ctx, "http://a.test:8080/secret?key=s3cret"); code != 200 || err != nil {
			t.Fatal(code, err)
		}
		outer.End()
		ended := spans.Ended()
		if len(ended) != 6 {
			t.Fatalf("%d spans, want 6", len(ended))
		}
		call := ended[4]
		if call.Name() != "throttle GET" || call.Parent().SpanID() != outer.SpanContext().SpanID() || attr(call.Attributes(), "http.response.status_code") != "200" {
			t.Errorf("the call's span is %s %v", call.Name(), call.Attributes())
		}
		for n, s := range ended[:4] {
			resend := attr(s.Attributes(), "http.request.resend_count")
			if want := []string{"", "1", "2", "3"}[n]; resend != want {
				t.Errorf("attempt %d has the resend_count %q, want %q", n+1, resend, want)
			}
			if s.Parent().SpanID() != call.SpanContext().SpanID() {
				t.Errorf("attempt %d is not the call's", n+1)
			}
			switch links := s.Links(); {
			case n == 0 && len(links) == 0:
			case n > 0 && len(links) == 1 && links[0].SpanContext.Equal(ended[0].SpanContext()):
			default:
				t.Errorf("attempt %d has the links %v", n+1, links)
			}
		}
		var waits []string
		for _, e := range call.Events() {
			waits = append(waits, e.Name+" "+attr(e.Attributes, "throttle.reason")+" "+attr(e.Attributes, "throttle.key")+" "+attr(e.Attributes, "throttle.wait")[:1])
		}
		if want := []string{"throttle.wait gate:retry-after a.test:8080 2"}; !slices.Equal(waits, want) {
			t.Errorf("the call's events are %q, want %q", waits, want)
		}
		for _, s := range ended {
			if text := attribute.NewSet(s.Attributes()...); strings.Contains(text.Encoded(attribute.DefaultEncoder()), "s3cret") {
				t.Error("a span holds the URL's query")
			}
		}
	})
}

// Without a span of the attempt, or one that is recorded, Base changes nothing; an error of the upstream is named by its
// type alone.
func TestSpansThatAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp, spans := tracing()
		tr := &throttle.Transport{Base: throttleotel.Base(script(503, 0)), Retry: throttle.Retry{MaxAttempts: 2}}
		if code, err := get(tr, t.Context(), "http://a.test/"); code != 503 || err != nil {
			t.Error(code, err)
		}
		req, _ := http.NewRequestWithContext(t.Context(), "BREW", "http://a.test/", nil)
		if _, err := throttleotel.Calls(tr, throttleotel.Options{TracerProvider: tp}).RoundTrip(req); err == nil {
			t.Error("no error")
		}
		never := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
		get(throttleotel.Calls(tr, throttleotel.Options{TracerProvider: never}), t.Context(), "http://a.test/")
		s := spans.Ended()
		if len(s) != 1 || s[0].Name() != "throttle _OTHER" || attr(s[0].Attributes(), "http.request.resend_count") != "" {
			t.Fatal(s)
		}
		if got := s[0].Status().Description; got != "*errors.errorString" {
			t.Errorf("the error is %q", got)
		}
	})
}
