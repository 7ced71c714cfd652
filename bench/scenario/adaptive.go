package scenario

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/throttletest"
)

// An adapting is an upstream without a limit, and workers that call it. The first two of ten minutes do not count.
type adapting struct {
	name, title, about string
	service            throttletest.Service // its Workers are the best fixed limit; 0: it is free, so that none is best
	change             changes              // of the service
	from               time.Duration        // when that begins; 0: never
	bursts             bool                 // calls come as they will, 20 a second and 400/s for 5 of each 30 s. False: each worker calls without pause
	course             bool                 // for a chart
	length             time.Duration        // 0: ten minutes
}

const (
	askers  = 100 // workers
	lasting = 10 * time.Minute
	begins  = 2 * time.Minute
	halfway = 4 * time.Minute
)

// changes sets up what changes a service.
type changes func(at schedule)

// A schedule lets f change the service at a moment, since the start.
type schedule func(at time.Duration, f func(*throttletest.Service))

// once changes it at halfway.
func once(f func(*throttletest.Service)) changes {
	return func(at schedule) { at(halfway, f) }
}

// swings has one change and then the other, for such times, until the end.
func swings(from, one, other time.Duration, f, g func(*throttletest.Service)) changes {
	return func(at schedule) {
		for t := from; t < lasting; t += one + other {
			at(t, f)
			at(t+one, g)
		}
	}
}

func slow(share float64) func(*throttletest.Service) {
	return func(s *throttletest.Service) { s.Work.Slow = share }
}

func others(share float64) func(*throttletest.Service) {
	return func(s *throttletest.Service) { s.Others = share }
}

// lognormal times of half a second.
func lognormal(sigma float64) throttletest.Span {
	return throttletest.Span{Mean: second / 2, Sigma: sigma}
}

var (
	mixed     = throttletest.Span{Mean: 200 * time.Millisecond, Sigma: 0.3, Slow: 0.1, SlowBy: 10}
	kept      = Metric{"kept", "throughput kept", "%", +1, 1}
	inFlight  = Metric{"in_flight", "in flight, mean", "", 0, 0}
	adaptWait = Metric{"p99", "p99 with the wait in our line", "s", -1, 2}
)

// adapts are the upstreams: those that are free, where nothing but harm can be done, and those with a bottleneck.
var adapts = []adapting{
	{name: "free-usual", title: "Times that vary as usual", about: "Lognormal times of 0.5 s, σ 0.5.", service: throttletest.Service{Work: lognormal(0.5)}},
	{name: "free-tail", title: "Times with a heavy tail", about: "Lognormal times of 0.5 s, σ 1.5.", service: throttletest.Service{Work: lognormal(1.5)}, course: true},
	{name: "free-slower", title: "Four times as slow, for good", about: "Lognormal times of 0.5 s, σ 0.5; of 2 s from the fourth minute on.", from: halfway,
		service: throttletest.Service{Work: lognormal(0.5)}, change: once(func(s *throttletest.Service) { s.Work.Mean *= 4 })},
	{name: "free-mix", title: "More slow calls", about: "A tenth of the calls take 2 s, the others 0.2 s; half of them from the fourth minute on.", from: halfway,
		service: throttletest.Service{Work: mixed}, change: once(slow(0.5))},
	{name: "free-swings", title: "A mix that swings", about: "5 % of the calls take 2 s and the others 0.2 s, and each other minute 30 % do.", from: halfway,
		service: throttletest.Service{Work: throttletest.Span{Mean: mixed.Mean, Sigma: mixed.Sigma, Slow: 0.05, SlowBy: 10}},
		change:  swings(halfway, time.Minute, time.Minute, slow(0.3), slow(0.05))},
	{name: "free-long", title: "Long calls", about: "Lognormal times of 10 s, σ 1.", service: throttletest.Service{Work: throttletest.Span{Mean: 10 * second, Sigma: 1}}},
	{name: "free-stalls", title: "Stalls", about: "Lognormal times of 0.5 s, σ 0.5; nothing gets on for 300 ms of each 5 s.", service: throttletest.Service{Work: lognormal(0.5)},
		change: swings(0, 300*time.Millisecond, 4700*time.Millisecond, others(1), others(0))},
	{name: "free-bursts", title: "Bursts", about: "Lognormal times of 0.2 s, σ 0.5. 20 calls a second come, and 400 for 5 s of each 30 s.", bursts: true,
		service: throttletest.Service{Work: throttletest.Span{Mean: 200 * time.Millisecond, Sigma: 0.5}}},
	{name: "full-queue", title: "A queue", about: "20 servers, exponential times of 0.1 s.", service: throttletest.Service{Workers: 20, Work: throttletest.Span{Mean: 100 * time.Millisecond}}},
	{name: "full-fewer", title: "A queue that gets fewer servers", about: "20 servers, exponential times of 0.1 s; 5 servers from the fourth minute on.", from: halfway,
		service: throttletest.Service{Workers: 20, Work: throttletest.Span{Mean: 100 * time.Millisecond}}, change: once(func(s *throttletest.Service) { s.Workers = 5 })},
	{name: "full-others", title: "A queue that others use too", about: "20 servers, exponential times of 0.1 s; others take 60 % of them each other minute.", from: halfway,
		service: throttletest.Service{Workers: 20, Work: throttletest.Span{Mean: 100 * time.Millisecond}}, change: swings(halfway, time.Minute, time.Minute, others(0.6), others(0))},
	{name: "full-mix", title: "A queue with slow calls", about: "20 servers; a tenth of the calls take 2 s, the others 0.2 s.", service: throttletest.Service{Workers: 20, Work: mixed}},
	{name: "full-pool", title: "A pool of ten", about: "A pool of 10, times of 0.3 s, σ 0.5.", service: throttletest.Service{Workers: 10, Work: throttletest.Span{Mean: 300 * time.Millisecond, Sigma: 0.5}}},
	{name: "full-collapse", title: "A collapse", about: "16 cores that all requests share, and each beyond 16 costs 5 %; times of 0.1 s alone, σ 0.5.", course: true,
		service: throttletest.Service{Workers: 16, Share: true, Loss: 0.05, Work: throttletest.Span{Mean: 100 * time.Millisecond, Sigma: 0.5}}},
}

func adaptive() []Scenario {
	var all []Scenario
	for i := range adapts {
		a := &adapts[i]
		about, count, best := a.about, "eight", "without a limit"
		if a.from > 0 {
			count = "six"
		}
		if a.service.Workers > 0 {
			best = fmt.Sprintf("with a fixed limit of %d", a.service.Workers)
		}
		if !a.bursts {
			about += " 100 workers call it without pause."
		}
		about += " The last " + count + " of ten minutes count. Kept is the throughput " + best + "."
		all = append(all, Scenario{Name: "adaptive-" + a.name, Title: a.title, About: about, Metrics: []Metric{kept, inFlight, adaptWait},
			Takes: time.Minute, Virtual: true, Adapts: true, Run: a.run})
	}
	return append(all, Scenario{Name: "adaptive-random", Title: "Free upstreams at random",
		About: "100 random upstreams that are free: times lognormal, σ 0.3 to 1.8, or 1 to 50 % of them 10 to 100 times as long as the others. 8 to 67 workers make some 8,000 calls. " +
			"Kept is the throughput without a limit. Upstreams that keep the target of 1.2 × p90 barely, as 9 of 100 calls take longer, count too.",
		Metrics: []Metric{{"mean", "kept, mean", "%", +1, 1}, {"p5", "kept, 5th percentile", "%", +1, 1}, {"worst", "kept at worst", "%", +1, 1}},
		Takes:   10 * time.Minute, Virtual: true, Adapts: true, Run: randomFree})
}

// run has the client do it, and the one that it is compared with.
func (a *adapting) run(ctx context.Context, c client.Client, o Options) (r Result, err error) {
	faster := time.Duration(1) // by which time runs
	if o.Short {
		faster = 10
	}
	name := client.NoLimit
	if a.service.Workers > 0 {
		name = client.FixedLimit
	}
	all := client.Adaptive()
	best := all[slices.IndexFunc(all, func(c client.Client) bool { return c.Name == name })]
	job := client.Job{Workers: askers, InFlight: a.service.Workers}
	possible, err := a.ask(ctx, best, job, o.Seed, faster)
	if err != nil {
		return r, err
	}
	length := lasting / faster
	job.Usual = possible.usual(begins/faster, cmp.Or(a.from, lasting)/faster)
	did := possible
	if c.Name != best.Name {
		if did, err = a.ask(ctx, c, job, o.Seed, faster); err != nil {
			return r, err
		}
	}
	from := cmp.Or(a.from, begins) / faster
	r.Values = map[string]float64{
		"kept":      percent(did.ended(from, length), possible.ended(from, length)),
		"in_flight": did.inFlight(from, length),
		"p99":       did.wait(from, length).Seconds(),
	}
	if a.course {
		r.Course = &Course{Bin: courseBin, Answers: did.bins(length), Possible: possible.bins(length)}
	}
	return r, nil
}

// ask has the client's workers call the upstream.
func (a *adapting) ask(ctx context.Context, c client.Client, job client.Job, seed int64, faster time.Duration) (*asking, error) {
	service := &throttletest.Service{Workers: a.service.Workers, Share: a.service.Share, Loss: a.service.Loss, Work: a.service.Work, Seed: uint64(seed)}
	server := &throttletest.Server{Handler: service}
	server.Elapsed()
	job.Base = server
	d, err := c.Start(job)
	if err != nil {
		return nil, err
	}
	if a.change != nil {
		a.change(func(at time.Duration, f func(*throttletest.Service)) {
			time.AfterFunc(at/faster, func() { service.Change(f) })
		})
	}
	k := &asking{server: server, doer: d}
	if a.bursts {
		k.burst(ctx, cmp.Or(a.length, lasting)/faster)
	} else {
		k.workers(ctx, job.Workers, cmp.Or(a.length, lasting)/faster)
	}
	k.ledger = server.Ledger()
	return k, nil
}

// randomFree is the worst, the mean and so on of many free upstreams. The seeds are not those of the tests of internal/aimd.
func randomFree(ctx context.Context, c client.Client, o Options) (r Result, err error) {
	n, calls := 100, 8000.
	if o.Short {
		n, calls = 1, 2000
	}
	var all []float64
	for i := range n {
		rng := rand.New(rand.NewPCG(uint64(i), uint64(4700+o.Seed)))
		median, work := 0.1*math.Exp(rng.Float64()*3), throttletest.Span{Sigma: 0.3 + 1.5*rng.Float64()}
		if rng.IntN(3) == 0 {
			work = throttletest.Span{Sigma: 0.2, Slow: 0.01 + 0.49*rng.Float64(), SlowBy: 10 + 90*rng.Float64()}
		}
		mean := median * math.Exp(work.Sigma*work.Sigma/2)
		work.Mean = time.Duration(mean * float64(second))
		workers := 8 + rng.IntN(60)
		length := max(time.Minute, time.Duration(calls*mean*(1+work.Slow*work.SlowBy)/float64(workers)*float64(second)))
		a := &adapting{service: throttletest.Service{Work: work}, length: length}
		job := client.Job{Workers: workers}
		free, err := a.ask(ctx, client.Adaptive()[0], job, int64(i), 1)
		if err != nil {
			return r, err
		}
		job.Usual, job.InFlight = free.usual(length/5, length), workers
		did, err := a.ask(ctx, c, job, int64(i), 1)
		if err != nil {
			return r, err
		}
		all = append(all, percent(did.ended(length/5, length), free.ended(length/5, length)))
	}
	slices.Sort(all)
	r.Values = map[string]float64{"mean": 0, "p5": all[len(all)/20], "worst": all[0]}
	for _, v := range all {
		r.Values["mean"] += v / float64(len(all))
	}
	return r, nil
}
