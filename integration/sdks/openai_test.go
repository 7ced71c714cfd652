package sdks

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttletest"
	"github.com/go-throttle/throttle/usage"
)

func newOpenAI(throttled *http.Client, key string) openai.Client {
	return openai.NewClient(option.WithAPIKey(key), option.WithHTTPClient(throttled),
		option.WithMaxRetries(0)) // its retries know nothing of the other calls, and wait for 8 s at most
}

// newTokenTransport is for API keys with 300 requests and 90,000 tokens a minute, which all models share. An attempt holds the
// tokens that OpenAI will hold, and its answer says what it has cost. The bursts are a tenth of the limits.
func newTokenTransport() *throttle.Transport {
	law := usage.OpenAI()
	return &throttle.Transport{
		Key: throttle.ByCredential,
		Meters: func(string) []throttle.Meter { // for each key new limiters
			return []throttle.Meter{
				{Name: "requests", Limiter: throttle.NewBucket(300.0/60, 30)},
				{Name: law.Name, Limiter: throttle.NewBucket(90_000.0/60, 9_000), Hold: law.Hold, Settle: law.Settle, Failures: law.Failures},
			}
		},
	}
}

var openAI = api{
	name: "openai",
	// 300 calls a minute, as a bucket, and tokens enough for all of them.
	fake: func() fake {
		s := throttletest.NewServer(
			throttletest.Limit{Name: "requests", N: 300, Per: time.Minute},
			throttletest.Limit{Name: "tokens", N: 100_000, Per: time.Minute, Cost: func(*http.Request) int { return 100 }},
		)
		s.Latency, s.Identify, s.Advertise.Dialect = way, byBody, asJSON(throttletest.OpenAI)
		s.Work = throttletest.Span{Min: 200 * time.Millisecond, Max: 2 * time.Second}
		s.Body = `{"error":{"message":"Rate limit reached","type":"requests","param":null,"code":"rate_limit_exceeded"}}`
		s.Handler = answer(func(r *http.Request) string {
			return `{"id":"c","object":"chat.completion","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hi"}}],` +
				`"usage":{"prompt_tokens":50,"completion_tokens":50,"total_tokens":100}}`
		})
		return fake{Server: s}
	},
	use: func(throttled *http.Client) caller {
		client := newOpenAI(throttled, "key")
		return func(ctx context.Context, i int) error {
			_, err := client.Chat.Completions.New(ctx, openAIParams(i))
			return err
		}
	},
	drop: func(throttled *http.Client) dropper {
		client := newOpenAI(throttled, "key")
		return func(ctx context.Context) error {
			stream := client.Chat.Completions.NewStreaming(ctx, openAIParams(0))
			stream.Next()
			return stream.Err()
		}
	},
	stream: openAIStream,
	calls:  1950, workers: 16, ideal: (1950 - 300) * 200 * time.Millisecond, slack: 1.3,
	silent: true,
}

func openAIParams(i int) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:    openai.ChatModelGPT4oMini,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(fmt.Sprint("call ", i))},
	}
}

const openAIStream = `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hi"}}]}` + "\n\n"

// TestTokens: the meters of the page hold what OpenAI will hold, and the answers settle them.
func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTokenTransport()
		tr.Base = openAI.fake()
		client := newOpenAI(&http.Client{Transport: tr}, "key")
		_, failed := send(t, func(ctx context.Context, i int) error {
			params := openAIParams(i)
			params.MaxCompletionTokens = openai.Int(4_000)
			_, err := client.Chat.Completions.New(ctx, params)
			return err
		}, 50, 8)
		if failed > 0 {
			t.Errorf("%d calls failed", failed)
		}
		for s := range tr.Stats() {
			if m := s.Meters[1]; m.Name != "tokens" || m.Estimate != 50*4_000 || m.Settled != 50*100 || m.Held != 0 {
				t.Errorf("the meter of tokens: %+v", m)
			}
			if s.Sent != 50 || s.Throttled > 0 {
				t.Errorf("%d attempts, %d of them throttled, want 50 and 0", s.Sent, s.Throttled)
			}
		}
	})
}
