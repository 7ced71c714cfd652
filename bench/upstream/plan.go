package upstream

import (
	"container/heap"
	"slices"
	"time"
)

// A Planner tells when an upstream would admit, to those who know all about it: its limits, their
// changes and its outages. A brown-out strikes at random, so it is not foreseen. Work and latency
// are taken at their mean.
type Planner struct {
	config  Config
	models  []model
	changes []Change
	ends    durations // when calls in flight will be done
	work    time.Duration
}

// Planner returns one for an upstream that nothing has reached yet.
func (c Config) Planner() *Planner {
	p := &Planner{config: c, changes: slices.Clone(c.Changes), work: c.Work.mean()}
	for _, l := range c.Limits {
		p.models = append(p.models, l.model())
	}
	return p
}

// Next is the first moment, at or later, at which one would be admitted. Calls of Next and Take
// must come in order of time.
func (p *Planner) Next(at time.Duration) time.Duration {
	for {
		at = p.config.up(at)
		p.settle(at)
		ready := at
		for _, m := range p.models {
			r := m.ready(at)
			if r == Never { // only a cap on calls in flight says so
				r = p.ends[0]
			}
			ready = max(ready, r)
		}
		if len(p.changes) > 0 && ready > p.changes[0].At { // what admits later may change before
			ready = max(at, p.changes[0].At)
		}
		if ready == at {
			return at
		}
		at = ready
	}
}

// Take notes that one is admitted.
func (p *Planner) Take(at time.Duration) {
	p.settle(at)
	var wait time.Duration
	for _, m := range p.models {
		wait = max(wait, m.take(at))
	}
	heap.Push(&p.ends, at+wait+p.work)
}

func (p *Planner) settle(at time.Duration) {
	for len(p.ends) > 0 && p.ends[0] <= at {
		heap.Pop(&p.ends)
		for _, m := range p.models {
			m.done()
		}
	}
	for len(p.changes) > 0 && p.changes[0].At <= at {
		p.models[p.changes[0].Limit].set(p.changes[0].At, p.changes[0].N)
		p.changes = p.changes[1:]
	}
}

// Could is how many could have been admitted from from to to, had there always been one waiting
// since the start; 0 if there is no limit.
func (c Config) Could(from, to time.Duration) (n int) {
	if len(c.Limits) == 0 {
		return 0
	}
	p := c.Planner()
	for at := p.Next(0); at < to; at = p.Next(at) {
		p.Take(at)
		if at >= from {
			n++
		}
	}
	return n
}

// Ideal is when calls that become due at such moments, in order, would be admitted at best.
func (c Config) Ideal(due []time.Duration) []time.Duration {
	p := c.Planner()
	at := make([]time.Duration, len(due))
	var last time.Duration
	for i, d := range due {
		last = p.Next(max(last, d))
		p.Take(last)
		at[i] = last
	}
	return at
}

// durations is a heap, the smallest first.
type durations []time.Duration

func (d durations) Len() int           { return len(d) }
func (d durations) Less(i, j int) bool { return d[i] < d[j] }
func (d durations) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *durations) Push(x any)        { *d = append(*d, x.(time.Duration)) }
func (d *durations) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// RateAt is what is admitted a second in the long run at a moment: the lowest rate of the limits, 0
// in an outage and where there is no limit but one of calls in flight.
func (c Config) RateAt(at time.Duration) (rate float64) {
	if c.up(at) != at {
		return 0
	}
	for i, l := range c.Limits {
		for _, change := range c.Changes {
			if change.Limit == i && change.At <= at {
				l.N = change.N
			}
		}
		if r := l.Rate(); r > 0 && (rate == 0 || r < rate) {
			rate = r
		}
	}
	return rate
}
