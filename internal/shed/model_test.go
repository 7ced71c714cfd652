package shed

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// A server in virtual time: Go's scheduler, as one queue of goroutines and slices of 10 ms on each core; requests that wait for something
// else and then need a core; clients that leave after a second while their requests go on, as most handlers do. A
// request that is looked at, or wakes up, needs a core for a moment, and waits for it behind all others: that is why a server
// that turns most requests away has many goroutines that wait.
type server struct {
	rng     *rand.Rand
	cores   float64
	cpu, io float64                 // seconds, means
	sigma   float64                 // of io, lognormal; 0: fixed
	long    float64                 // share of requests that need 20 × the CPU
	load    func(t float64) float64 // × capacity
	speed   func(t float64) float64 // of each core; nil: 1
	quota   float64                 // cores; 0: none
	pool    int                     // connections that the wait is for; 0: any number
	batch   int                     // arrive together
	wait    float64                 // in front of the limit
	secs    float64
	shed    bool
	fixed   int // limit

	law           Law
	pulse         Pulse
	calm, wasCalm bool
	passOn        bool // the next place above the limit that is free
	looked        float64
	line          []*visit
	n, done, side int
	quick         [2]float64 // the quickest request of the last second, and of this one
	turned        float64
	at            float64
	events        events
	jobs          []*job
	busy          int
	inPool        int
	poolQ         []*visit
	spent         float64 // CPU of the period
	stopped       bool
	used          float64 // CPU of the window

	result
}

type result struct {
	arrived, good, late, refused int
	times                        []float64
}

type visit struct{ at, begun, cpu, io float64 }

// A job is a goroutine that needs a core for a while, and then does something.
type job struct {
	cpu float64
	do  func()
}

const pass = 0.00004 // s, for a request that is looked at

type event struct {
	at float64
	do func()
}
type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	v := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return v
}

func (s *server) after(d float64, do func()) { heap.Push(&s.events, event{s.at + d, do}) }

// usable is the cores that the server may use on average.
func (s *server) usable() float64 {
	if s.quota > 0 {
		return min(s.cores, s.quota)
	}
	return s.cores
}

func (s *server) capacity() float64 { return s.usable() / (s.cpu * (1 + 19*s.long)) }

// run runs the server for secs seconds.
func (s *server) run() *result {
	if s.quota > 0 {
		s.period()
	}
	s.quick = [2]float64{math.Inf(1), math.Inf(1)}
	s.arrive()
	for s.at < s.secs {
		e := heap.Pop(&s.events).(event)
		s.at = e.at
		e.do()
	}
	return &s.result
}

// job runs do once a core has had so much time for it.
func (s *server) job(cpu float64, do func()) {
	s.jobs = append(s.jobs, &job{cpu, do})
	s.dispatch()
}

func (s *server) dispatch() {
	for s.busy < int(s.cores) && len(s.jobs) > 0 && !s.stopped {
		j := s.jobs[0]
		s.jobs = s.jobs[1:]
		s.busy++
		part, speed := min(j.cpu, slice), 1.0
		if s.speed != nil {
			speed = s.speed(s.at)
		}
		s.after(part/speed, func() {
			s.busy--
			s.spent += part
			s.used += part
			s.stopped = s.quota > 0 && s.spent >= s.quota*0.1
			if j.cpu -= part; j.cpu > 1e-12 {
				s.jobs = append(s.jobs, j)
			} else {
				j.do()
			}
			s.dispatch()
		})
	}
}

// period begins one of the quota's.
func (s *server) period() {
	s.spent = max(0, s.spent-s.quota*0.1)
	s.stopped = s.spent >= s.quota*0.1
	s.dispatch()
	s.after(0.1, s.period)
}

func (s *server) arrive() {
	k := max(1, s.batch)
	s.after(s.rng.ExpFloat64()*float64(k)/(max(1e-9, s.load(s.at))*s.capacity()), func() {
		for range k {
			v := &visit{at: s.at, cpu: s.cpu * s.rng.ExpFloat64(), io: s.io}
			if s.sigma > 0 {
				v.io *= math.Exp(s.rng.NormFloat64()*s.sigma - s.sigma*s.sigma/2)
			}
			if s.long > 0 && s.rng.Float64() < s.long {
				v.cpu *= 20
			}
			s.arrived++
			s.job(pass, func() { s.come(v) })
		}
		s.arrive()
	})
}

func (s *server) come(v *visit) {
	s.look()
	l := s.limit()
	if l == 0 || s.n < l {
		s.n++
		s.start(v)
		return
	}
	if s.side++; s.wait == 0 {
		s.refused++
		return
	}
	s.line = append(s.line, v)
	s.after(s.wait, func() {
		if i := slices.Index(s.line, v); i >= 0 {
			s.line = slices.Delete(s.line, i, i+1)
			s.job(pass/4, func() { s.refused++; s.side++ })
		}
	})
}

// start begins the wait for something else.
func (s *server) start(v *visit) {
	if v.begun == 0 {
		v.begun = s.at
	}
	if s.pool > 0 && s.inPool >= s.pool {
		s.poolQ = append(s.poolQ, v)
		return
	}
	s.inPool++
	s.after(v.io, func() {
		s.inPool--
		if len(s.poolQ) > 0 && s.inPool < s.pool {
			next := s.poolQ[0]
			s.poolQ = s.poolQ[1:]
			s.start(next)
		}
		s.job(v.cpu, func() { s.finish(v) })
	})
}

func (s *server) finish(v *visit) {
	s.n--
	s.done++
	s.calm = s.calm || s.isCalm()
	s.quick[1] = min(s.quick[1], s.at-v.begun)
	if took := s.at - v.at; took <= 1 {
		s.good++
		if v.at > 2 { // the beginning is a spike
			s.times = append(s.times, took)
		}
	} else {
		s.late++
	}
	s.look()
	for l, freed := s.limit(), true; len(s.line) > 0; freed = false {
		if l > 0 && s.n >= l {
			if !freed {
				return
			}
			if s.passOn = !s.passOn; !s.passOn {
				return
			}
		}
		last := len(s.line) - 1
		next := s.line[last]
		s.line = s.line[:last]
		s.n++
		s.side++
		s.job(pass/2, func() { s.start(next) })
	}
}

// isCalm reports that no request can wait for another one, nor does the limit hold any back.
func (s *server) isCalm() bool {
	l := s.limit()
	return float64(s.n) <= s.cores && len(s.line) == 0 && (l == 0 || s.n < l)
}

// look is what a request does that comes by.
func (s *server) look() {
	if !s.shed || s.at-s.looked < Look.Seconds() {
		return
	}
	s.looked = s.at
	usable := min(s.cores, max(1, s.usable()))
	s.wasCalm = s.wasCalm || s.calm
	if s.at-s.turned > 1 {
		s.turned, s.quick = s.at, [2]float64{s.quick[1], math.Inf(1)}
	}
	if s.pulse.Add(time.Unix(1000, int64(s.at*1e9)), float64(len(s.jobs))/usable, s.calm) {
		s.law.Step(&Input{
			Runnable: s.pulse.Value(), Last: s.pulse.Last(), Usable: usable, Cores: int(s.cores),
			Calm: s.wasCalm, InFlight: s.n, Waiting: len(s.line), Done: s.done, Quickest: s.quickest(), Side: s.side, CPU: s.used,
		})
		s.wasCalm, s.done, s.side, s.used = false, 0, 0, 0
	}
	s.calm = s.isCalm()
}

// quickest is the time of the quickest request of the last second and this one.
func (s *server) quickest() float64 {
	if q := min(s.quick[0], s.quick[1]); !math.IsInf(q, 1) {
		return q
	}
	return 0
}

// limit is that of the law, or a fixed one.
func (s *server) limit() int {
	if s.fixed > 0 {
		return s.fixed
	}
	return s.law.Limit()
}

func (r *result) quantile(p float64) float64 {
	if len(r.times) == 0 {
		return math.NaN()
	}
	slices.Sort(r.times)
	return r.times[int(p*float64(len(r.times)-1))]
}
