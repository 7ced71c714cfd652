package sdks

import (
	"context"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/go-throttle/throttle/throttletest"
)

// azureOptions are for every client of the SDK: armcompute.ClientOptions and the like embed them.
func azureOptions(throttled *http.Client) policy.ClientOptions {
	return policy.ClientOptions{
		Transport: throttled,
		Retry:     policy.RetryOptions{MaxRetries: -1}, // none: its retries know nothing of the other calls
	}
}

var azure = api{
	name:   "azcore",
	stream: "{",
	fake: func() fake {
		s := throttletest.NewServer()
		s.Latency = way
		s.Handler = answer(func(*http.Request) string { return `{"value":[]}` })
		return fake{Server: s}
	},
	use: func(throttled *http.Client) caller {
		call := newAzureCall(throttled)
		return func(ctx context.Context, _ int) error {
			_, err := call(ctx)
			return err
		}
	},
	drop: func(throttled *http.Client) dropper {
		call := newAzureCall(throttled)
		return func(ctx context.Context) error {
			resp, err := call(ctx)
			if err != nil {
				return err
			}
			return first(resp.Body)
		}
	},
	silent: true,
}

// newAzureCall makes a call through a pipeline, as generated clients do. A ctx withStream asks for a body that stays open.
func newAzureCall(throttled *http.Client) func(ctx context.Context) (*http.Response, error) {
	options := azureOptions(throttled)
	client, err := azcore.NewClient("sdks", "v1.0.0", runtime.PipelineOptions{}, &options)
	return func(ctx context.Context) (*http.Response, error) {
		if err != nil {
			return nil, err
		}
		req, err := runtime.NewRequest(ctx, http.MethodGet, "https://management.azure.com/subscriptions")
		if err != nil {
			return nil, err
		}
		if isStream(ctx) {
			runtime.SkipBodyDownload(req)
		}
		return client.Pipeline().Do(req)
	}
}
