// Llm asks two models each of OpenAI and Anthropic many questions, half of them with a stream for an answer, by the SDKs of both
// and against fakes that enforce limits of tokens, once by the SDK alone and once with throttle. It prints a table of all
// four, which run at the same time.
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
//	-brief  fewer calls, with a pool of 25,000 tokens, and shorter minutes
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/go-throttle/throttle/examples/internal/console"
)

func main() {
	p := console.New("llm", "Llm asks language models under limits of tokens, with and without throttle.")
	brief := p.Flags.Bool("brief", false, "fewer calls")
	p.Main(func(ctx context.Context, out io.Writer) error {
		cfg := size(*brief)
		cfg.columns = console.Columns()
		if console.Terminal() {
			cfg.bar = os.Stderr
		}
		_, err := run(ctx, cfg, out)
		return err
	})
}

// size is that of a run. In brief too the calls need several times what the pool has at once, so most of them depend on
// what comes back.
func size(brief bool) config {
	if brief {
		return config{calls: 80, pool: 25_000, minute: 1500 * time.Millisecond}
	}
	return config{calls: 200, pool: 60_000, minute: 2 * time.Second}
}

// config is what the flags say, and where to draw.
type config struct {
	calls   int           // of each row
	pool    int           // of tokens a minute; as many at once
	minute  time.Duration // how long one lasts
	columns int           // that may be written; 0: 80
	bar     io.Writer     // a terminal, for a progress bar; nil: none
}

// run lets all rows run at the same time, each against a fake of its own, and prints the table, after an interrupt what
// there is of it.
func run(ctx context.Context, cfg config, out io.Writer) ([]result, error) {
	step, finish := progress(cfg)
	providers := []provider{ofOpenAI, ofAnthropic}
	results := make([]result, 2*len(providers))
	var running sync.WaitGroup
	for i := range results {
		running.Go(func() { results[i] = providers[i/2].run(ctx, cfg, i%2 == 1, step) })
	}
	running.Wait()
	finish()
	rows := [][]string{{"client", "calls", "delivered", "tokens", "throttled", "used", "time"}}
	var failures []string
	for _, r := range results {
		rows = append(rows, []string{r.name, strconv.Itoa(cfg.calls), strconv.Itoa(r.delivered), strconv.Itoa(r.tokens), strconv.Itoa(r.throttled),
			fmt.Sprintf("%.0f %%", 100*r.used), fmt.Sprintf("%.1f s", r.wall.Seconds())})
		if r.failure != nil {
			failures = append(failures, console.Fill(r.name+", the first failure: "+r.failure.Error(), cfg.columns, "  "))
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
	bar := progressbar.NewOptions(4*cfg.calls, progressbar.OptionSetWriter(cfg.bar), progressbar.OptionSetWidth(min(40, cfg.columns/2)),
		progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(false))
	return func() { _ = bar.Add(1) }, func() {
		_ = bar.Exit()
		fmt.Fprint(cfg.bar, console.Erase)
	}
}
