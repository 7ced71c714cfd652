package plumbing

import (
	"fmt"
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/go-throttle/throttle"
)

// Above the Transport otelhttp makes one span for each call, its wait and all its attempts. Below it makes one for each
// attempt, and the wait is between them.
func Example_otelhttp() {
	spans := tracetest.NewSpanRecorder()
	provider := otelhttp.WithTracerProvider(trace.NewTracerProvider(trace.WithSpanProcessor(spans)))

	calls := &http.Client{Transport: otelhttp.NewTransport(&throttle.Transport{Base: &fake{refuse: 1}}, provider)}
	get(calls, "https://api.example.com/a")
	fmt.Println(len(spans.Ended()), "span for the call")
	spans.Reset()

	attempts := &http.Client{Transport: &throttle.Transport{Base: otelhttp.NewTransport(&fake{refuse: 1}, provider)}}
	get(attempts, "https://api.example.com/b")
	fmt.Println(len(spans.Ended()), "spans for the attempts")
	// Output:
	// upstream: GET api.example.com/a: 429
	// upstream: GET api.example.com/a: 200
	// caller: 200
	// 1 span for the call
	// upstream: GET api.example.com/b: 429
	// upstream: GET api.example.com/b: 200
	// caller: 200
	// 2 spans for the attempts
}
