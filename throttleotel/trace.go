package throttleotel

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-throttle/throttle"
)

// Base returns a RoundTripper that sends requests by rt (nil: http.DefaultTransport) and sets http.request.resend_count on
// the span of each attempt but the first. It belongs below what makes that span:
//
//	otelhttp.NewTransport(throttleotel.Base(http.DefaultTransport))
//
// If there is a span of [Calls] above, each resend is linked to the span of its call's first attempt.
func Base(rt http.RoundTripper) http.RoundTripper { return &attempts{rt} }

// attempts is what Base returns.
type attempts struct{ base http.RoundTripper }

// RoundTrip marks the span of the attempt.
func (a *attempts) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		mark(ctx, span)
	}
	return orDefault(a.base).RoundTrip(req)
}

// CloseIdleConnections calls the method of that name that rt has, if it has one.
func (a *attempts) CloseIdleConnections() { closeIdle(a.base) }

// mark says which attempt a span is about. The first attempt sends the caller's own request, so throttle.Attempt is 0
// there.
func mark(ctx context.Context, span trace.Span) {
	n, own := throttle.Attempt(ctx), span.SpanContext()
	c, ok := ctx.Value(callKey{}).(*tracedCall)
	if ok && c.span.Equal(own) { // nothing in between has made a span for the attempt
		return
	}
	if n > 1 {
		span.SetAttributes(resendAttr.Int(n - 1))
	}
	switch {
	case !ok:
	case n <= 1:
		c.first.Store(&own)
	default:
		if first := c.first.Load(); first != nil {
			span.AddLink(trace.Link{SpanContext: *first})
		}
	}
}

// callKey is the key of a tracedCall in the ctx of its attempts.
type callKey struct{}

// A tracedCall is what the attempts of a call know of each other.
type tracedCall struct {
	span  trace.SpanContext                 // of the call
	first atomic.Pointer[trace.SpanContext] // of its first attempt; nil: not sent yet, or not recorded
}

// Calls returns a RoundTripper that makes a span, of kind internal, for each call of rt: a throttle.Transport, or what is
// around it. It lasts until the response's headers, so it shows the wait, the attempts and the pauses between them. Only
// Options.TracerProvider is used. If rt is nil it is http.DefaultTransport.
func Calls(rt http.RoundTripper, o Options) http.RoundTripper {
	p := o.TracerProvider
	if p == nil {
		p = otel.GetTracerProvider()
	}
	return &calls{rt, p.Tracer(scope)}
}

// calls is what Calls returns.
type calls struct {
	base   http.RoundTripper
	tracer trace.Tracer
}

// RoundTrip makes the span of a call. It does not change the response.
func (c *calls) RoundTrip(req *http.Request) (*http.Response, error) {
	attrs := []attribute.KeyValue{attribute.String("http.request.method", method(req.Method))}
	if req.URL != nil {
		attrs = append(attrs, attribute.String("server.address", strings.ToValidUTF8(req.URL.Hostname(), "\uFFFD")))
	}
	ctx, span := c.tracer.Start(req.Context(), "throttle "+method(req.Method), trace.WithAttributes(attrs...))
	defer span.End()
	if span.IsRecording() {
		ctx = context.WithValue(ctx, callKey{}, &tracedCall{span: span.SpanContext()})
	}
	resp, err := orDefault(c.base).RoundTrip(req.WithContext(ctx))
	if err == nil {
		span.SetAttributes(statusAttr.Int(resp.StatusCode))
	} else {
		fail(span, err)
	}
	return resp, err
}

// fail says why a call got no response. The text of the error is left out: that of another RoundTripper may hold anything.
func fail(span trace.Span, err error) {
	var e *throttle.Error
	if !errors.As(err, &e) {
		what := errorType(&throttle.Event{Err: err})
		span.SetAttributes(errorAttr.String(what))
		span.SetStatus(codes.Error, what)
		return
	}
	what := texts[outcomeOf(err)]
	span.SetAttributes(outcomeAttr.String(what), errorAttr.String(what))
	if e.Reason != "" {
		span.SetAttributes(reasonAttr.String(e.Reason))
	}
	span.SetStatus(codes.Error, "refused: "+what)
}

// CloseIdleConnections calls the method of that name that rt has, if it has one.
func (c *calls) CloseIdleConnections() { closeIdle(c.base) }

// method is a request's method as the conventions want it: one of those that are known, or _OTHER, because a method
// that somebody makes up must not make a span's name.
func method(m string) string {
	switch m {
	case "":
		return http.MethodGet
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return m
	}
	return "_OTHER"
}
