package sdks

import (
	"context"
	"net/http"
	"time"

	"github.com/stripe/stripe-go/v83"

	"github.com/go-throttle/throttle/throttletest"
)

func newStripe(throttled *http.Client, key string) *stripe.Client {
	backends := stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		HTTPClient:        throttled,
		MaxNetworkRetries: stripe.Int64(0), // throttle sends again, with the same Idempotency-Key
		EnableTelemetry:   stripe.Bool(false),
	})
	return stripe.NewClient(key, stripe.WithBackends(backends))
}

var stripeAPI = api{
	name:   "stripe",
	stream: "{",
	// 25 calls a second; a refusal says nothing. The SDK gives each POST an Idempotency-Key, by which the ledger tells calls apart.
	fake: func() fake {
		s := throttletest.NewServer(throttletest.Limit{N: 25})
		s.Latency, s.Advertise.Dialect = way, asJSON(nil)
		s.Body = `{"error":{"code":"rate_limit","type":"invalid_request_error","message":"Request rate limit exceeded."}}`
		s.Handler = answer(func(r *http.Request) string { return `{"id":"cus_1","object":"customer"}` })
		return fake{Server: s}
	},
	use: func(throttled *http.Client) caller {
		client := newStripe(throttled, "sk_test_key")
		return func(ctx context.Context, i int) error {
			_, err := client.V1Customers.Create(ctx, &stripe.CustomerCreateParams{Name: stripe.String("Jenny")})
			return err
		}
	},
	drop: func(throttled *http.Client) dropper {
		client := newStripe(throttled, "sk_test_key")
		return func(ctx context.Context) error {
			pdf, err := client.V1Quotes.PDF(ctx, "qt_1", nil)
			if err != nil {
				return err
			}
			return first(pdf.LastResponse.Body)
		}
	},
	calls: 3000, workers: 16, ideal: (3000 - 25) * 40 * time.Millisecond, slack: 1.3,
}
