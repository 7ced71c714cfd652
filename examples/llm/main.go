// Llm asks two models each of OpenAI and Anthropic many questions, half of them with a stream for an answer, by the SDKs of both
// and against fakes that enforce limits of tokens, once by the SDK alone and once with throttle. It prints a table of all four.
//
// Run it from the root of the repository:
//
//	go run ./examples/llm
//
// Both models of a provider share a pool of 60,000 tokens a minute, and a minute lasts two seconds here. OpenAI's law: the bound of the answer is
// held when a call arrives, and corrected when the answer has ended. Anthropic's: input counts when a call arrives, and output,
// which has a limit of its own, while it streams. Throttle knows these laws from package usage, and reads in
// each answer what it has cost. The columns:
//
//	tokens      that the limit has charged
//	throttled   calls that were answered 429
//	used        of what the limit allowed in that time, in percent
//
// Flags:
//
//	-brief  fewer calls: little more than the pool has at once, so it shows that all works, not what the limits do
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/go-throttle/throttle/examples/internal/console"
)

func main() {
	cfg := config{calls: 200, minute: 2 * time.Second, columns: console.Columns()}
	p := console.New("llm", "Llm asks language models under limits of tokens, with and without throttle.")
	brief := p.Flags.Bool("brief", false, "fewer calls")
	p.Main(func(ctx context.Context, out io.Writer) error {
		if *brief {
			cfg.calls = 60
		}
		if console.Terminal() {
			cfg.bar = os.Stderr
		}
		_, err := run(ctx, cfg, out)
		return err
	})
}

// config is what the flags say, and where to draw.
type config struct {
	calls   int           // of each row
	minute  time.Duration // how long one lasts
	columns int           // that may be written; 0: 80
	bar     io.Writer     // a terminal, for a progress bar; nil: none
}

// run lets all rows run one after the other and prints the table, after an interrupt what there is of it.
func run(ctx context.Context, cfg config, out io.Writer) ([]result, error) {
	rows := [][]string{{"client", "calls", "delivered", "tokens", "throttled", "used", "time"}}
	var results []result
	var failures []string
	for _, p := range []provider{ofOpenAI, ofAnthropic} {
		for _, with := range []bool{false, true} {
			step, finish := progress(cfg)
			r := p.run(ctx, cfg.calls, cfg.minute, with, step)
			finish()
			results = append(results, r)
			rows = append(rows, []string{r.name, strconv.Itoa(cfg.calls), strconv.Itoa(r.delivered), strconv.Itoa(r.tokens), strconv.Itoa(r.throttled),
				fmt.Sprintf("%.0f %%", 100*r.used), fmt.Sprintf("%.1f s", r.wall.Seconds())})
			if r.failure != nil {
				failures = append(failures, console.Fill(r.name+", the first failure: "+r.failure.Error(), cfg.columns, "  "))
			}
		}
	}
	if err := console.Print(out, cfg.columns, true, rows); err != nil {
		return nil, err
	}
	for _, text := range failures {
		fmt.Fprintln(out, text)
	}
	for _, r := range results {
		if r.throttle && r.delivered < cfg.calls && ctx.Err() == nil {
			return results, errors.New("not all calls were delivered with throttle")
		}
	}
	return results, nil
}

// progress is a bar on a terminal that grows with each call; elsewhere there is none.
func progress(cfg config) (step, finish func()) {
	if cfg.bar == nil {
		return func() {}, func() {}
	}
	bar := progressbar.NewOptions(cfg.calls, progressbar.OptionSetWriter(cfg.bar), progressbar.OptionSetWidth(min(40, cfg.columns/2)),
		progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(false))
	return func() { _ = bar.Add(1) }, func() {
		_ = bar.Exit()
		fmt.Fprint(cfg.bar, console.Erase)
	}
}
