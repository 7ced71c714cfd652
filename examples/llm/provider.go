package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-throttle/throttle/examples/internal/calls"
	"github.com/go-throttle/throttle/internal/lab"
	"github.com/go-throttle/throttle/throttletest"
	"github.com/go-throttle/throttle/usage"
)

// The bound of an answer in tokens, and how many ask at the same time: together more than a pool has at once.
const longest, workers = 500, 48

// A provider is one fake and the SDK for it.
type provider struct {
	sdk    string
	models [2]string // share the pool
	law    usage.Law // of the limit that binds, which is the fake's first
	limits func(m *lab.Model, pool int) []throttletest.Limit
	say    throttletest.Dialect
	ask    func(client *http.Client, retries int) func(ctx context.Context, model, question string, streams bool) error
}

var ofOpenAI = provider{
	sdk: "openai-go", models: [2]string{"gpt-4o", "gpt-4o-mini"}, law: usage.OpenAI(),
	limits: func(m *lab.Model, pool int) []throttletest.Limit {
		return []throttletest.Limit{m.HoldsBound(pool)}
	},
	say: throttletest.OpenAI,
	ask: func(client *http.Client, retries int) func(context.Context, string, string, bool) error {
		sdk := newOpenAI(client, retries)
		return func(ctx context.Context, model, question string, streams bool) error {
			return askOpenAI(ctx, sdk, model, question, streams)
		}
	},
}

var ofAnthropic = provider{
	sdk: "anthropic", models: [2]string{"claude-opus-4-1", "claude-opus-4-0"}, law: inputLaw(),
	limits: func(m *lab.Model, pool int) []throttletest.Limit {
		return []throttletest.Limit{m.CountsInput(pool), m.CountsOutput(pool)}
	},
	say: throttletest.Anthropic,
	ask: func(client *http.Client, retries int) func(context.Context, string, string, bool) error {
		sdk := newAnthropic(client, retries)
		return func(ctx context.Context, model, question string, streams bool) error {
			return askAnthropic(ctx, sdk, model, question, streams)
		}
	},
}

// inputLaw is Anthropic's of input tokens, which bind here because questions are longer than answers.
func inputLaw() usage.Law {
	in, _ := usage.Anthropic()
	return in
}

// upstream is a fake of the provider, with that pool and minutes of that length.
func (p provider) upstream(cfg config) *throttletest.Server {
	model := &lab.Model{Median: 200}
	limits := p.limits(model, cfg.pool)
	for i := range limits {
		limits[i].Per = cfg.minute
	}
	s := throttletest.NewServer(limits...)
	s.Handler, s.Stream, s.RetryAfter, s.Advertise.Dialect = model, true, throttletest.Exact, p.say
	s.Latency = throttletest.Span{Min: 5 * time.Millisecond, Max: 15 * time.Millisecond}
	s.Work = throttletest.Span{Min: cfg.minute / 40, Max: cfg.minute / 10}
	return s
}

// A result is one row of the table.
type result struct {
	name                         string
	throttle                     bool
	delivered, tokens, throttled int
	used                         float64 // 1: all that the limit allowed
	wall                         time.Duration
	failure                      error // of the first call that failed
}

// run makes all calls, each other one with a stream for an answer, to both models in turns.
func (p provider) run(ctx context.Context, cfg config, with bool, step func()) result {
	upstream := p.upstream(cfg)
	client, retries, name := &http.Client{Transport: upstream}, 2, p.sdk+" alone"
	if with {
		client, retries, name = throttled(upstream, p.law, cfg), 0, p.sdk+" + throttle"
	}
	ask := p.ask(client, retries)
	var next, delivered atomic.Int64
	var first sync.Once
	r := result{name: name, throttle: with}
	start := time.Now()
	calls.Each(ctx, cfg.calls, workers, func() {
		i := int(next.Add(1) - 1)
		err := ask(ctx, p.models[i%2], question(i), i%4 < 2)
		if step(); err == nil {
			delivered.Add(1)
		} else if ctx.Err() == nil {
			first.Do(func() { r.failure = err })
		}
	})
	r.wall, r.delivered = time.Since(start), int(delivered.Load())
	ledger := upstream.Ledger()
	r.tokens, r.throttled = lab.Charged(ledger, 0, 0, upstream.Elapsed()+1), ledger.Tally().Throttled
	r.used = float64(r.tokens) / (float64(cfg.pool) * (1 + r.wall.Seconds()/cfg.minute.Seconds()))
	return r
}

// question is a text of 600 to 1,200 tokens.
func question(i int) string {
	return fmt.Sprintf("Question %d: %s?", i, strings.Repeat("why ", 600+i*97%600))
}
