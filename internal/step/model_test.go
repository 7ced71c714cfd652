package step

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-throttle/throttle/internal/race"
)

// A model is an upstream, and a client that keeps so many workers busy: what its Step bounds goes at once. After a throttled answer that the
// Step does not explain it stops for a round trip; as long as nothing is held one attempt goes then, and each that is served lets one more go.
type model struct {
	most    func(at time.Duration) int // served at once; nil: any number
	rate    float64                    // of a token bucket, a second; 0: none
	burst   float64
	random  float64       // share that is throttled whatever comes
	call    time.Duration // whole, half to three halves of it
	even    bool          // all calls take as long
	way     time.Duration // of it, there and back
	wait    time.Duration // that throttled answers name
	workers int
	blind   bool // there is no Step
	seen    func()

	rng     *rand.Rand
	step    *Step
	now     time.Time
	due     answers
	flying  int // attempts
	working int // at the upstream
	tokens  float64
	filled  time.Time
	closed  time.Time // until then
	reopens time.Time // since then
	allowed int       // after a closing, with nothing held; 0: all
	served  []time.Duration
	turned  []time.Duration // throttled
}

// An answer, or at work a request that arrives at the upstream, or ends there.
type answer struct {
	at   time.Time
	kind int
	Sight
}

const (
	arrives = iota
	ends
	returns
	opens
)

type answers []answer

func (a answers) Len() int           { return len(a) }
func (a answers) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a answers) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *answers) Push(x any)        { *a = append(*a, x.(answer)) }
func (a *answers) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

var start = time.Unix(1e9, 0)

// run lets it work for d.
func (m *model) run(d time.Duration, seed uint64) {
	m.rng, m.step, m.now, m.filled, m.tokens = rand.New(rand.NewPCG(seed, 1)), new(Step), start, start, m.burst
	for m.send(); len(m.due) > 0 && m.due[0].at.Sub(start) < d; m.send() {
		e := heap.Pop(&m.due).(answer)
		switch m.now = e.at; e.kind {
		case arrives:
			m.arrive(e)
		case ends:
			m.working--
			m.after(m.way/2, returns, e.Sight)
		case returns:
			m.take(e.Sight)
		}
	}
}

func (m *model) after(d time.Duration, kind int, s Sight) {
	heap.Push(&m.due, answer{m.now.Add(d), kind, s})
}

// send starts what may start.
func (m *model) send() {
	for m.flying < m.workers && !m.now.Before(m.closed) {
		if b := m.step.Bound(m.now); !m.blind && b > 0 && m.flying >= b || m.allowed > 0 && (m.blind || b == 0) && m.flying >= m.allowed {
			return
		}
		m.flying++
		l := LevelOf(m.flying)
		m.step.Start(l, m.now)
		jitter := time.Duration(m.rng.Float64() * float64(m.way) / 20)
		m.after(m.way/2+jitter, arrives, Sight{Level: l, Sent: m.now})
	}
}

// arrive serves a request, or turns it away.
func (m *model) arrive(e answer) {
	m.tokens = min(m.burst, m.tokens+m.rate*m.now.Sub(m.filled).Seconds())
	m.filled = m.now
	if m.most != nil && m.working >= m.most(m.now.Sub(start)) || m.rate > 0 && m.tokens < 1 || m.rng.Float64() < m.random {
		e.Throttled, e.Wait = true, m.wait
		m.after(m.way/2, returns, e.Sight)
		return
	}
	m.tokens--
	m.working++
	part := 0.5 + m.rng.Float64()
	if m.even {
		part = 1
	}
	m.after(time.Duration(float64(m.call-m.way)*part), ends, e.Sight)
}

// take takes an answer.
func (m *model) take(s Sight) {
	m.flying--
	s.InFlight, s.Now = m.flying, m.now
	v := Unknown
	if !m.blind {
		v = m.step.Observe(&s)
	}
	if m.seen != nil {
		m.seen()
	}
	if !s.Throttled {
		m.served = append(m.served, m.now.Sub(start))
		if m.allowed > 0 && s.Sent.After(m.reopens) {
			if m.allowed++; m.allowed >= m.workers {
				m.allowed = 0
			}
		}
		return
	}
	m.turned = append(m.turned, m.now.Sub(start))
	if pause := max(m.wait, m.call); v != Above && s.Sent.After(m.reopens) || m.wait > 0 {
		if v == Below {
			pause = m.wait
		}
		m.closed, m.reopens, m.allowed = m.now.Add(pause), m.now.Add(pause-1), 1
		m.after(pause, opens, Sight{})
	}
}

// counts is what was served and throttled from one moment to another.
func (m *model) counts(from, to time.Duration) (served, throttled float64) {
	in := func(all []time.Duration) (n float64) {
		for _, at := range all {
			if from <= at && at < to {
				n++
			}
		}
		return n
	}
	return in(m.served), in(m.turned)
}

func always(n int) func(time.Duration) int { return func(time.Duration) int { return n } }

// Of an upstream that serves so many at once nearly all is used, and hardly anything is throttled, once that is found: with many workers or
// a few more than it serves, calls that are short or long, times that are named or not.
func TestLimitIsHeld(t *testing.T) {
	const from, to = 2 * time.Minute, 10 * time.Minute
	for _, most := range []int{1, 5, 20, 100} {
		for _, call := range []time.Duration{200 * time.Millisecond, 5 * time.Second} {
			for _, wait := range []time.Duration{0, time.Second} {
				for _, more := range []int{2, 4} {
					if race.Pick(0, 1) == 0 && (most > 20 || most < 5 || more > 2) {
						continue
					}
					m := &model{most: always(most), call: call, way: call / 20, wait: wait, workers: more * most}
					m.run(to, 1)
					served, throttled := m.counts(from, to)
					used := served / (float64(most) * (to - from).Seconds() / call.Seconds())
					t.Logf("%d at once, calls of %v, %v named, %d workers: %.1f %% used, %.2f %% throttled", most, call, wait, m.workers, 100*used, 100*throttled/(served+throttled))
					if used < 0.88 || throttled > max(0.03*(served+throttled), 1.5*(to-from).Minutes()) { // most reach 97 %; of one at a time 5 s long a probe is much
						t.Errorf("%d at once, calls of %v, %v named, %d workers: %.1f %% used, %.2f %% throttled", most, call, wait, m.workers, 100*used, 100*throttled/(served+throttled))
					}
				}
			}
		}
	}
}

// Where there is no such limit, a Step costs little, and finds nothing that lasts: calls are throttled at random, or for a rate.
func TestWithoutLimitNothingIsLost(t *testing.T) {
	for _, m := range []model{
		{random: 0.01, workers: 32}, {random: 0.05, workers: 32}, {random: 0.2, workers: 8}, {random: 0.05, workers: 1}, {random: 0.05, workers: 4},
		{rate: 20, burst: 20, workers: 32}, {rate: 200, burst: 20, workers: 64}, {rate: 5, burst: 1, workers: 4}, {rate: 10, burst: 100, workers: 200},
	} {
		m.call, m.way = 200*time.Millisecond, 20*time.Millisecond
		without := m
		without.blind = true
		m.run(5*time.Minute, 2)
		without.run(5*time.Minute, 2)
		served, throttled := m.counts(0, 10*time.Minute)
		could, would := without.counts(0, 10*time.Minute)
		t.Logf("random %v, rate %v, burst %v, %d workers: %.0f served and %.0f throttled, without %.0f and %.0f", m.random, m.rate, m.burst, m.workers, served, throttled, could, would)
		if served < 0.88*could || throttled/(throttled+served) > 1.5*would/(would+could)+0.01 {
			t.Errorf("random %v, rate %v, burst %v, %d workers: %.0f served, without a Step %.0f", m.random, m.rate, m.burst, m.workers, served, could)
		}
	}
}

// If calls all take as long a limit in flight is one of a rate, which the search for a rate holds more exactly.
func TestEvenTimesAreARate(t *testing.T) {
	for _, m := range []model{{most: always(20)}, {rate: 100, burst: 20}} {
		m.even, m.call, m.way, m.workers = true, 200*time.Millisecond, 10*time.Millisecond, 80
		if m.run(time.Minute, 4); m.step.Most() > 0 || !m.step.Twice() {
			t.Errorf("rate %v: %d are held", m.rate, m.step.Most())
		}
	}
}

// A client gives up a part after a quiet minute, because who has come needs room, and takes it back if nobody has come.
func TestGift(t *testing.T) {
	m := &model{call: 200 * time.Millisecond, way: 10 * time.Millisecond, workers: 100}
	m.most = func(at time.Duration) int {
		if 3*time.Minute < at && at < 3*time.Minute+time.Second {
			return 18 // another one's calls
		}
		return 20
	}
	least := 20
	m.seen = func() {
		if m.now.Sub(start) > 2*time.Minute {
			least = min(least, m.step.Most())
		}
	}
	m.run(6*time.Minute, 5)
	if least < 15 || least > 18 || m.step.Most() < 19 || m.step.Most() > 21 {
		t.Errorf("%d at least, and %d at the end; want an eighth less, and 20", least, m.step.Most())
	}
}

// A limit that falls or rises is followed.
func TestLimitIsFollowed(t *testing.T) {
	for _, then := range []int{5, 60} {
		m := &model{call: 200 * time.Millisecond, way: 10 * time.Millisecond, workers: 100}
		m.most = func(at time.Duration) int {
			if at < 3*time.Minute {
				return 20
			}
			return then
		}
		m.run(10*time.Minute, 3)
		served, throttled := m.counts(7*time.Minute, 10*time.Minute)
		if used := served / (float64(then) * 180 / 0.2); used < 0.95 || throttled > 0.02*served {
			t.Errorf("from 20 to %d at once: %.1f %% used, %.0f throttled of %.0f", then, 100*used, throttled, served)
		}
	}
}
