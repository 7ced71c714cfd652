package scenario

import (
	"time"

	"github.com/go-throttle/throttle/internal/lab"
	"github.com/go-throttle/throttle/throttletest"
)

// A config is how an upstream behaves.
type config struct {
	limits  []throttletest.Limit
	faults  []throttletest.Fault // outages, and at random: those have a Share
	latency throttletest.Span    // each way
	work    throttletest.Span

	model *lab.Model // which answers, in a stream; nil: 200 without a body
	tell  throttletest.Dialect
	retry time.Duration // as throttletest.Server.RetryAfter
}

// server returns an upstream that has not begun.
func (c config) server(seed int64) *throttletest.Server {
	s := throttletest.NewServer(c.limits...)
	s.Faults, s.Latency, s.Work, s.RetryAfter, s.Seed = c.faults, c.latency, c.work, c.retry, uint64(seed)
	s.Advertise.Dialect, s.Identify = c.tell, whose
	if c.model != nil {
		s.Handler, s.Stream = c.model, true
	}
	return s
}

// up is the first moment, at or later, that lies in no outage.
func (c config) up(at time.Duration) time.Duration {
	for _, f := range c.faults {
		if f.Share == 0 && f.From <= at && at < f.To {
			at = f.To
		}
	}
	return at
}

// A planner tells when an upstream would admit, to those who know all about it: its limits, their
// changes and its outages. What strikes at random is not foreseen. Work and latency are taken at
// their mean.
type planner struct {
	config
	accounts []lab.Account
	ends     []time.Duration // when calls in flight will be done
	mean     time.Duration   // of the work
}

// planner returns one for an upstream that nothing has reached yet.
func (c config) planner() *planner {
	p := &planner{config: c, mean: (c.work.Min + max(c.work.Min, c.work.Max)) / 2}
	for _, l := range c.limits {
		p.accounts = append(p.accounts, lab.NewAccount(l))
	}
	return p
}

// next is the first moment, at or later, at which one would be admitted. Calls of next and take
// must come in order of time.
func (p *planner) next(at time.Duration) time.Duration {
	for {
		at = p.up(at)
		p.settle(at)
		ready := at
		for i, a := range p.accounts {
			r := a.Ready(at)
			if r == lab.Never && p.limits[i].Kind == throttletest.InFlight {
				r = p.ends[0]
			}
			for _, c := range p.limits[i].Changes {
				if c.At > at { // what admits later may change before
					r = min(r, c.At)
				}
			}
			ready = max(ready, r)
		}
		if ready == at {
			return at
		}
		at = ready
	}
}

// take notes that one is admitted.
func (p *planner) take(at time.Duration) {
	p.settle(at)
	for _, a := range p.accounts {
		a.Take(at)
	}
	p.ends = append(p.ends, at+p.mean)
}

// settle ends what is done.
func (p *planner) settle(at time.Duration) {
	for ; len(p.ends) > 0 && p.ends[0] <= at; p.ends = p.ends[1:] {
		for _, a := range p.accounts {
			a.Done(at)
		}
	}
}

// could is how many could have been admitted from from to to, had there always been one waiting
// since the start; 0 if there is no limit.
func (c config) could(from, to time.Duration) (n int) {
	if len(c.limits) == 0 {
		return 0
	}
	p := c.planner()
	for at := p.next(0); at < to; at = p.next(at) {
		p.take(at)
		if at >= from {
			n++
		}
	}
	return n
}

// ideal is when calls that arrive at such moments, in order, would be admitted at best.
func (c config) ideal(arrive []time.Duration) []time.Duration {
	p := c.planner()
	at := make([]time.Duration, len(arrive))
	var last time.Duration
	for i, d := range arrive {
		last = p.next(max(last, d))
		p.take(last)
		at[i] = last
	}
	return at
}

// perSecond is what a limit admits a second in the long run; 0 for one of calls in flight.
func perSecond(l throttletest.Limit) float64 {
	if l.Kind == throttletest.InFlight {
		return 0
	}
	return float64(l.N) / l.Per.Seconds()
}

// rateAt is what is admitted a second in the long run at a moment: the lowest rate of the limits, 0
// in an outage and where there is no limit but one of calls in flight.
func (c config) rateAt(at time.Duration) (rate float64) {
	if c.up(at) != at {
		return 0
	}
	for _, l := range c.limits {
		for _, change := range l.Changes {
			if change.At <= at {
				l.N = change.N
			}
		}
		if r := perSecond(l); r > 0 && (rate == 0 || r < rate) {
			rate = r
		}
	}
	return rate
}
