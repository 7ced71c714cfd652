package scenario

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/internal/lab"
	"github.com/go-throttle/throttle/throttletest"
	"github.com/go-throttle/throttle/usage"
)

// What the calls of these scenarios are, in tokens: asked, where 4 bytes are one, and an answer of at most so many. The
// logarithm of its length is normal with a deviation of 1, so half of the answers are longer than middle, and the mean of
// min(length, most) is middle·√e·Φ(ln(most/middle)-1) + most·(1-Φ(ln(most/middle))) = 298 + 21.
const (
	asked   = 100
	most    = 2000
	middle  = 200
	average = 319
)

// A metered is a limit of tokens a minute, and the law that a client knows of it.
type metered struct {
	name, title, about string
	law                usage.Law
	limit              func(m *lab.Model, n int) throttletest.Limit
	tell               throttletest.Dialect
	path               string
	cost               int // of a call, on average
	workers            int
	work               time.Duration
}

// busy is how many of the workers the limit can keep at work.
func (m metered) busy() int { return m.workers * 5 / 8 }

func meters() (all []Scenario) {
	_, output := usage.Anthropic()
	const chat, messages = "/v1/chat/completions", "/v1/messages"
	for _, m := range []metered{
		{"hold", "held at the start", "The limit holds the most that the output may have until the answer has ended, as OpenAI's does.",
			usage.OpenAI(), (*lab.Model).HoldsBound, throttletest.OpenAI, chat, asked + average, 64, 0},
		{"small", "held at the start, little", "The limit holds the most that the output may have until the answer has ended, and is so small that one call holds a quarter of it.",
			usage.OpenAI(), (*lab.Model).HoldsBound, throttletest.OpenAI, chat, asked + average, 16, 0},
		{"end", "counted at the end", "The limit holds nothing, and counts input and output when the answer has ended, as Groq's may.",
			usage.Groq(), (*lab.Model).CountsAtEnd, throttletest.OpenAI, chat, asked + average, 64, 0},
		{"stream", "counted as they stream", "The limit holds nothing, and counts output while it streams, as Anthropic's does.",
			output, (*lab.Model).CountsOutput, throttletest.Anthropic, messages, average, 64, 0},
		{"input", "of the input alone", "The limit counts the input alone, and nothing is advertised, as with Gemini.",
			usage.Gemini(), (*lab.Model).CountsInput, nil, chat, asked, 64, 0},
	} {
		for _, m.work = range []time.Duration{5 * second, 30 * second} {
			if m.name == "small" && m.work < 30*second {
				continue // not small
			}
			all = append(all, Scenario{
				Name:  "meters-" + m.name + "-" + m.work.String(),
				Title: "Tokens a minute, " + m.title + ", calls of " + m.work.String(),
				About: fmt.Sprintf("%s %d workers never stop asking, and the limit can keep %d of them busy. Their calls take %v ± half, bring %d tokens, want %d at most, and "+
					"get %d on average. Used is from the sixth minute on; a wait lasts until the upstream admits the call.",
					m.about, m.workers, m.busy(), m.work, asked, most, average),
				Metrics: []Metric{{"used", "used", "%", +1, 1}, {"throttled", "throttled, of 100 requests", "", -1, 2},
					{"wait_p50", "wait, p50", "s", -1, 1}, {"wait_p99", "wait, p99", "s", -1, 1}},
				Takes: 2 * time.Minute, Virtual: true, Metered: true, Run: m.run,
			})
		}
	}
	return all
}

func (m metered) run(ctx context.Context, c client.Client, o Options) (r Result, err error) {
	from := 5 * time.Minute // the burst has been used up by then
	to := from + 120*m.work
	if o.Short {
		to = from + 12*m.work
	}
	perMinute := int(float64(m.busy()*m.cost) / m.work.Minutes())
	model := &lab.Model{Median: middle, Seed: uint64(o.Seed)}
	config := config{
		limits: []throttletest.Limit{m.limit(model, perMinute)}, model: model, tell: m.tell, retry: throttletest.Exact,
		latency: throttletest.Span{Min: 20 * time.Millisecond}, work: throttletest.Span{Min: m.work / 2, Max: m.work * 3 / 2},
	}
	s, err := begin(ctx, c, o, config, client.Job{Meter: &client.Meter{Law: m.law, N: perMinute, Mean: m.cost}, Workers: m.workers})
	if err != nil {
		return r, err
	}
	begun := m.ask(s, to)
	l := s.end()

	var waits []float64
	first := firstAdmitted(l)
	for id, at := range begun {
		if from <= at && at < to {
			until, ok := first[id]
			if !ok {
				until = to
			}
			waits = append(waits, (until - at).Seconds())
		}
	}
	slices.Sort(waits)
	later := l.Between(from, to)
	r.Values = map[string]float64{
		"used":      100 * float64(lab.Charged(l, 0, from, to)) / (to - from).Minutes() / float64(perMinute),
		"throttled": percent(later.Tally().Throttled, len(later)),
		"wait_p50":  waits[len(waits)/2],
		"wait_p99":  waits[len(waits)*99/100],
	}
	return r, nil
}

// ask has the workers ask until the run is so old, and returns when each call began.
func (m metered) ask(s *stage, until time.Duration) map[int]time.Duration {
	head := `{"max_tokens":` + strconv.Itoa(most) + `,"stream":true,"stream_options":{"include_usage":true},"input":"`
	body := head + strings.Repeat("x", 4*asked-len(head)-2) + `"}`
	stop := time.AfterFunc(until-s.server.Elapsed(), s.cancel)
	defer stop.Stop()
	begun := make([][]time.Duration, m.workers)
	for w := range begun {
		s.wg.Go(func() {
			for s.ctx.Err() == nil {
				id := len(begun[w])*m.workers + w
				begun[w] = append(begun[w], s.server.Elapsed())
				req, err := http.NewRequestWithContext(s.ctx, http.MethodPost, s.server.URL()+m.path, strings.NewReader(body))
				if err != nil {
					panic(err) // the URL is our own
				}
				mark(req, id, w)
				sent := time.Now()
				if resp, err := s.doer.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				if time.Since(sent) == 0 {
					time.Sleep(time.Millisecond) // a call refused at once would stop a bubble's clock
				}
			}
		})
	}
	s.wg.Wait()
	all := make(map[int]time.Duration)
	for w := range begun {
		for i, at := range begun[w] {
			all[i*m.workers+w] = at
		}
	}
	return all
}
