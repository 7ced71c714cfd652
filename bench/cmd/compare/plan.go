package main

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/bench/fleets"
	"github.com/go-throttle/throttle/bench/micro"
	"github.com/go-throttle/throttle/bench/report"
	"github.com/go-throttle/throttle/bench/scenario"
)

func scenarios() []scenario.Scenario { return slices.Concat(scenario.All(), micro.All(), fleets.All()) }

func clients() []client.Client {
	return slices.Concat(client.All(), []client.Client{scenario.Oracle()}, client.Metered(), client.Adaptive(), fleets.Clients())
}

// everything is the pattern for all but the scenarios of fleets and of limits that adapt.
const everything = "*"

// A job is one run to be made.
type job struct {
	scenario scenario.Scenario
	client   client.Client
	mode     string
	rep      int
}

// A plan is all that is to be run, in the order of the tables.
type plan struct {
	*config
	scenarios []scenario.Scenario
	clients   []client.Client
	jobs      []job
}

// plan picks what the command line asks for.
func (c *config) plan(scenarios []scenario.Scenario, clients []client.Client) (*plan, error) {
	p := &plan{config: c}
	var err error
	p.scenarios, err = pick(c.scenario, "scenario", scenarios, func(s scenario.Scenario) string { return s.Name })
	if err != nil {
		return nil, err
	}
	p.clients, err = pick(c.clients, "client", clients, func(c client.Client) string { return c.Name })
	if err != nil {
		return nil, err
	}
	if c.scenario == everything && !c.list {
		p.scenarios = slices.DeleteFunc(p.scenarios, func(s scenario.Scenario) bool { return s.Fleet || s.Adapts })
	}
	for _, s := range p.scenarios {
		for _, cl := range p.clients {
			if cl.Fleet != s.Fleet || cl.Metered != s.Metered || cl.Adapts != s.Adapts || s.Fits != nil && !s.Fits(cl) {
				continue
			}
			for rep := range c.repetitions(s, report.Real) {
				p.jobs = append(p.jobs, job{s, cl, report.Real, rep + 1})
			}
			if !s.Virtual || !cl.Bubble {
				continue
			}
			for rep := range c.repetitions(s, report.Virtual) {
				p.jobs = append(p.jobs, job{s, cl, report.Virtual, rep + 1})
			}
		}
	}
	if !c.list {
		p.clients = slices.DeleteFunc(p.clients, func(cl client.Client) bool {
			return !slices.ContainsFunc(p.jobs, func(j job) bool { return j.client.Name == cl.Name })
		})
	}
	if len(p.jobs) == 0 {
		return nil, fmt.Errorf("nothing to run: none of these clients fits these scenarios in this mode")
	}
	return p, nil
}

// pick returns those whose names match the patterns. Each pattern must match one.
func pick[T any](patterns, what string, all []T, name func(T) string) ([]T, error) {
	for _, pattern := range words(patterns) {
		if !slices.ContainsFunc(all, func(t T) bool { return match(pattern, name(t)) }) {
			return nil, fmt.Errorf("there is no %s %q; -list shows them", what, pattern)
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(t T) bool { return !matcher(patterns)(name(t)) }), nil
}

func words(patterns string) []string {
	var out []string
	for _, w := range strings.Split(patterns, ",") {
		if w = strings.TrimSpace(w); w != "" {
			out = append(out, w)
		}
	}
	return out
}

// matcher tells whether a name matches one of the patterns.
func matcher(patterns string) func(name string) bool {
	return func(name string) bool {
		return slices.ContainsFunc(words(patterns), func(pattern string) bool { return match(pattern, name) })
	}
}

// match is path.Match in which a slash is a letter like others: clients have one in their names.
func match(pattern, name string) bool {
	letter := strings.NewReplacer("/", "\x00")
	ok, err := path.Match(letter.Replace(pattern), letter.Replace(name))
	return ok && err == nil
}

// Phases, in their order. What costs CPU runs first or alone, so that it does not disturb the others.
const (
	virtual = iota // as many as there are cores
	shared         // in real time, many at once: they mostly wait
	alone          // one by one
	phases
)

func (j job) phase() int {
	switch {
	case j.mode == report.Virtual:
		return virtual
	case j.scenario.Alone:
		return alone
	}
	return shared
}

func (p *plan) workers(phase int) int {
	return [phases]int{virtual: runtime.GOMAXPROCS(0), shared: p.parallel, alone: 1}[phase]
}

// takes is a guess of how long a job takes.
func (p *plan) takes(j job) time.Duration {
	d := j.scenario.Takes
	if p.short {
		d /= 5
	}
	if j.mode == report.Virtual {
		d = 100*time.Millisecond + d/40
	}
	return d
}

// estimate is a guess of how long all of it takes.
func (p *plan) estimate() time.Duration {
	var sum, longest [phases]time.Duration
	for _, j := range p.jobs {
		sum[j.phase()] += p.takes(j)
		longest[j.phase()] = max(longest[j.phase()], p.takes(j))
	}
	var all time.Duration
	for phase := range phases {
		all += max(longest[phase], sum[phase]/time.Duration(p.workers(phase)))
	}
	return all
}

// list prints what could be run.
func (p *plan) list(out io.Writer) error {
	fmt.Fprint(out, "Scenarios, and how long one run takes:\n\n")
	for _, s := range p.scenarios {
		text := fmt.Sprintf("%s; %v", s.Title, s.Takes)
		if s.Metered || s.Adapts {
			text += ", in virtual time alone"
		} else if s.Virtual {
			text += ", in virtual time too"
		}
		entry(out, "  "+s.Name, text, p.columns)
	}
	fmt.Fprint(out, "\nClients:\n\n")
	for _, c := range p.clients {
		var words []string
		for _, w := range []struct {
			can  bool
			word string
		}{{c.Limits, "waits for its turn"}, {c.Retries, "retries"}, {c.Bubble, "runs in virtual time too"}, {c.Fleet, "shares a limit among processes"}} {
			if w.can {
				words = append(words, w.word)
			}
		}
		entry(out, "  "+c.Name, cmp.Or(strings.Join(words, ", "), "only sends"), p.columns)
	}
	return nil
}
