package throttleotel

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-throttle/throttle"
)

// An outcome is how an attempt has left the line, as throttle.outcome.
type outcome int

// The outcomes. What is admitted is counted by the Transport; the others are counted in series.refused.
const (
	admitted outcome = iota
	queueFull
	waitTooLong
	deadline
	paused
	closed
	canceled
	failed
	outcomes
)

// texts are the values of throttle.outcome.
var texts = [outcomes]string{"admitted", "queue_full", "wait_too_long", "deadline", "paused", "closed", "canceled", "error"}

// outcomeOf sorts the reason for which an attempt was not sent. The order matters: a wait that exceeds the caller's
// deadline matches ErrWaitTooLong too.
func outcomeOf(err error) outcome {
	for _, o := range []struct {
		is error
		outcome
	}{
		{throttle.ErrQueueFull, queueFull},
		{throttle.ErrPaused, paused},
		{throttle.ErrClosed, closed},
		{context.DeadlineExceeded, deadline},
		{throttle.ErrWaitTooLong, waitTooLong},
		{context.Canceled, canceled},
	} {
		if errors.Is(err, o.is) {
			return o.outcome
		}
	}
	return failed
}

// hooks are the functions that count. Each looks up the series of its key, and adds to an instrument with a prepared
// attribute set.
func (c *client) hooks() throttle.Hooks {
	return throttle.Hooks{
		Waiting:   c.counts(c.onWaiting),
		Waited:    c.counts(c.onWaited),
		Refused:   c.counts(c.onRefused),
		Throttled: c.counts(c.onThrottled),
		Failed:    c.counts(c.onFailed),
		Closed:    c.counts(c.onClosed),
	}
}

// counts is hook with the series of the event's key, until stop.
func (c *client) counts(hook func(context.Context, *series, throttle.Event)) func(context.Context, throttle.Event) {
	return func(ctx context.Context, e throttle.Event) {
		if !c.stopped.Load() {
			hook(ctx, c.series.of(e.Key), e)
		}
	}
}

func (c *client) onWaiting(ctx context.Context, s *series, e throttle.Event) {
	c.waits.Add(ctx, 1, s.add(word{key: reasonAttr, text: reason(&e)})...)
}

func (c *client) onWaited(ctx context.Context, s *series, e throttle.Event) {
	c.inQueue.Record(ctx, e.Wait.Seconds(), s.record...)
	addEvent(ctx, "throttle.wait", &e, admitted)
}

func (c *client) onRefused(ctx context.Context, s *series, e throttle.Event) {
	o := outcomeOf(e.Err)
	s.refused[o].Add(1)
	addEvent(ctx, "throttle.refused", &e, o)
}

func (c *client) onThrottled(ctx context.Context, s *series, e throttle.Event) {
	c.throttled.Add(ctx, 1, s.add(word{key: statusAttr, code: e.Status, after: e.Wait > 0})...)
}

func (c *client) onFailed(ctx context.Context, s *series, e throttle.Event) {
	c.failures.Add(ctx, 1, s.add(word{key: errorAttr, text: errorType(&e)})...)
}

func (c *client) onClosed(ctx context.Context, s *series, e throttle.Event) {
	c.closings.Add(ctx, 1, s.add(word{key: reasonAttr, text: reason(&e)})...)
}

// reason is the event's, or "unknown" of one that has none.
func reason(e *throttle.Event) string {
	if e.Reason == "" {
		return "unknown"
	}
	return e.Reason
}

// errorType is error.type of a failed attempt, as the conventions of HTTP want it: the status as text, or without an
// answer "timeout" or the type of the error.
func errorType(e *throttle.Event) string {
	var timeout interface{ Timeout() bool }
	switch {
	case e.Status != 0:
		return strconv.Itoa(e.Status)
	case errors.As(e.Err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	return fmt.Sprintf("%T", e.Err)
}

// addEvent puts an event on the span of ctx, if that is recorded.
func addEvent(ctx context.Context, name string, e *throttle.Event, o outcome) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	attrs := []attribute.KeyValue{keyAttr.String(strings.ToValidUTF8(e.Key, "\uFFFD")), waitAttr.Float64(e.Wait.Seconds())}
	if o != admitted {
		attrs = append(attrs, outcomeAttr.String(texts[o]))
	}
	if e.Reason != "" {
		attrs = append(attrs, reasonAttr.String(e.Reason))
	}
	span.AddEvent(name, trace.WithAttributes(attrs...))
}
