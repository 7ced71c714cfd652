package sdks

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/go-throttle/throttle/throttletest"
)

func newAnthropic(throttled *http.Client, key string) anthropic.Client {
	return anthropic.NewClient(option.WithAPIKey(key), option.WithHTTPClient(throttled),
		option.WithMaxRetries(0),                  // its retries know nothing of the other calls
		option.WithRequestTimeout(10*time.Minute)) // includes the wait
}

var anthropicAPI = api{
	name: "anthropic",
	// 50 calls a minute, as a bucket.
	fake: func() fake {
		s := throttletest.NewServer(throttletest.Limit{Name: "Requests", N: 50, Per: time.Minute})
		s.Latency, s.Identify, s.Advertise.Dialect, s.RetryAfter = way, byBody, asJSON(throttletest.Anthropic), throttletest.Exact
		s.Work = throttletest.Span{Min: 200 * time.Millisecond, Max: 4 * time.Second}
		s.Body = `{"type":"error","error":{"type":"rate_limit_error","message":"Number of requests has exceeded your rate limit"}}`
		s.Handler = answer(func(r *http.Request) string {
			return `{"id":"m","type":"message","role":"assistant","model":"claude","stop_reason":"end_turn",` +
				`"content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":50,"output_tokens":50}}`
		})
		return fake{Server: s}
	},
	use: func(throttled *http.Client) caller {
		client := newAnthropic(throttled, "key")
		return func(ctx context.Context, i int) error {
			_, err := client.Messages.New(ctx, anthropicParams(i))
			return err
		}
	},
	drop: func(throttled *http.Client) dropper {
		client := newAnthropic(throttled, "key")
		return func(ctx context.Context) error {
			stream := client.Messages.NewStreaming(ctx, anthropicParams(0))
			stream.Next()
			return stream.Err()
		}
	},
	stream: anthropicStream,
	calls:  325, workers: 8, ideal: (325 - 50) * 1200 * time.Millisecond, slack: 1.3,
	silent: true,
}

func anthropicParams(i int) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: anthropic.ModelClaudeSonnet4_5, MaxTokens: 100,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(fmt.Sprint("call ", i)))},
	}
}

const anthropicStream = "event: message_start\n" +
	`data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","content":[],"usage":{"input_tokens":50,"output_tokens":1}}}` + "\n\n"
