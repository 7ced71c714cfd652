package main

import (
	"context"
	"net/http"

	"github.com/anthropics/anthropic-sdk-go"
	claude "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	gpt "github.com/openai/openai-go/v3/option"
	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/usage"
)

// throttled is all that a user adds: a client with a meter of tokens by the law of a provider, whose key is the host, so
// that all models share it. The burst is a little below the provider's, since calls come closer together on their way.
func throttled(base http.RoundTripper, law usage.Law, cfg config) *http.Client {
	tokens := func(string) []throttle.Meter {
		bucket := throttle.NewBucket(rate.Limit(cfg.pool)*rate.Every(cfg.minute), cfg.pool*95/100)
		return []throttle.Meter{{Name: law.Name, Limiter: bucket, Hold: law.Hold, Settle: law.Settle, Failures: law.Failures}}
	}
	return &http.Client{Transport: &throttle.Transport{Base: base, Meters: tokens}}
}

// newOpenAI and newAnthropic make the SDKs. With throttle they leave retries to it; alone they retry twice.
func newOpenAI(client *http.Client, retries int) openai.Client {
	return openai.NewClient(gpt.WithAPIKey("key"), gpt.WithHTTPClient(client), gpt.WithMaxRetries(retries))
}

func newAnthropic(client *http.Client, retries int) anthropic.Client {
	return anthropic.NewClient(claude.WithAPIKey("key"), claude.WithHTTPClient(client), claude.WithMaxRetries(retries))
}

// askOpenAI and askAnthropic ask a model, and read the answer as it streams or as a whole.
func askOpenAI(ctx context.Context, client openai.Client, model, question string, streams bool) error {
	params := openai.ChatCompletionNewParams{
		Model: model, MaxCompletionTokens: openai.Int(longest),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)},
	}
	if !streams {
		_, err := client.Chat.Completions.New(ctx, params)
		return err
	}
	params.StreamOptions.IncludeUsage = openai.Bool(true) // otherwise nobody says what it has cost
	answer := client.Chat.Completions.NewStreaming(ctx, params)
	defer answer.Close()
	for answer.Next() {
	}
	return answer.Err()
}

func askAnthropic(ctx context.Context, client anthropic.Client, model, question string, streams bool) error {
	params := anthropic.MessageNewParams{
		Model: anthropic.Model(model), MaxTokens: longest,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(question))},
	}
	if !streams {
		_, err := client.Messages.New(ctx, params)
		return err
	}
	answer := client.Messages.NewStreaming(ctx, params)
	defer answer.Close()
	for answer.Next() {
	}
	return answer.Err()
}
