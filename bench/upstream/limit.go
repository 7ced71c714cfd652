package upstream

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A Kind is how a limit counts.
type Kind string

const (
	GCRA       Kind = "gcra"        // token bucket: N per Per evenly, up to Burst at once (ITU-T I.371)
	Fixed      Kind = "fixed"       // N per window; windows begin at Phase, Phase + Per, ...
	FixedFirst Kind = "fixed-first" // N per window; one begins with the first request after the last one's end
	Sliding    Kind = "sliding"     // at most N in any stretch of Per: a log of moments
	Queue      Kind = "queue"       // leaky bucket: what comes too early is delayed; at most Burst wait
	InFlight   Kind = "in-flight"   // at most N at work at once
)

// A Limit is one limit of an upstream. Several hold together: a request that one of them refuses
// costs nothing in the others.
type Limit struct {
	Kind   Kind
	N      int
	Per    time.Duration // unused by InFlight
	Burst  int           // GCRA: 0 means N. Queue: how many may wait
	Phase  time.Duration // Fixed: when a window begins
	Counts bool          // Fixed, FixedFirst, Sliding: refused requests count too
	Name   string        // in told headers; "" is "default"
}

// Rate is the requests per second in the long run; 0 for InFlight.
func (l Limit) Rate() float64 {
	if l.Kind == InFlight {
		return 0
	}
	return float64(l.N) / l.Per.Seconds()
}

// Never is a moment that does not come.
const Never = time.Duration(math.MaxInt64)

// A model decides for one Limit. Moments are counted from the upstream's start, and it is asked in
// their order.
type model interface {
	ready(at time.Duration) time.Duration // the first moment, at or later, that admits one if nobody else comes
	take(at time.Duration) time.Duration  // notes one that is admitted; the wait that it is put to
	refuse(at time.Duration)              // notes one that is not
	done()                                // one that was admitted has its answer
	set(at time.Duration, n int)          // from now on N is n
	tell(at time.Duration) Told
}

func (l Limit) model() model {
	switch l.Kind {
	case Fixed, FixedFirst:
		return &fixedModel{Limit: l}
	case Sliding:
		return &slidingModel{Limit: l}
	case InFlight:
		return &flightModel{Limit: l}
	case Queue:
		m := &queueModel{bucketModel{Limit: l}}
		m.set(0, l.N)
		return m
	}
	m := &bucketModel{Limit: l}
	m.Burst = cmp.Or(l.Burst, l.N)
	m.set(0, l.N)
	return m
}

// bucketModel is a token bucket kept as one moment, tat: when all that was taken will be paid.
type bucketModel struct {
	Limit
	unit float64 // ns
	tat  float64
}

func (m *bucketModel) set(at time.Duration, n int) {
	unit := float64(m.Per) / float64(n)
	if debt := m.tat - float64(at); debt > 0 && m.unit > 0 {
		m.tat = float64(at) + debt/m.unit*unit
	}
	m.N, m.unit = n, unit
}

func (m *bucketModel) ready(at time.Duration) time.Duration {
	first := m.tat - float64(m.Burst-1)*m.unit
	if first <= float64(at)+0.5 { // half a nanosecond: sums of fractions err
		return at
	}
	return time.Duration(math.Ceil(first - 0.5))
}

func (m *bucketModel) take(at time.Duration) time.Duration {
	m.tat = max(m.tat, float64(at)) + m.unit
	return 0
}

func (m *bucketModel) refuse(time.Duration) {}
func (m *bucketModel) done()                {}

func (m *bucketModel) tell(at time.Duration) Told {
	debt := max(0, m.tat-float64(at))
	left := max(0, float64(m.Burst)-debt/m.unit)
	window := time.Duration(float64(m.Burst) * m.unit) // in which a whole burst comes back
	return Told{Name: m.Name, Limit: m.Burst, Left: int(left + 1e-9), Reset: time.Duration(debt), Window: window}
}

// queueModel lets requests out one unit apart, and refuses those that would be more than Burst to wait.
type queueModel struct{ bucketModel }

func (m *queueModel) ready(at time.Duration) time.Duration {
	first := m.tat - float64(m.Burst)*m.unit
	if first <= float64(at)+0.5 {
		return at
	}
	return time.Duration(math.Ceil(first - 0.5))
}

func (m *queueModel) take(at time.Duration) time.Duration {
	wait := max(0, m.tat-float64(at))
	m.tat = max(m.tat, float64(at)) + m.unit
	return time.Duration(wait)
}

type fixedModel struct {
	Limit
	used int
	end  time.Duration
}

func (m *fixedModel) set(_ time.Duration, n int) { m.N = n }

func (m *fixedModel) turn(at time.Duration) {
	if at < m.end {
		return
	}
	m.used = 0
	if m.Kind == Fixed {
		m.end = m.Phase%m.Per + (at-m.Phase%m.Per+m.Per)/m.Per*m.Per
	}
}

// open begins a window with a request, where requests do so.
func (m *fixedModel) open(at time.Duration) {
	m.turn(at)
	if m.Kind == FixedFirst && at >= m.end {
		m.end = at + m.Per
	}
}

func (m *fixedModel) ready(at time.Duration) time.Duration {
	if m.used < m.N || at >= m.end {
		return at
	}
	return m.end
}

func (m *fixedModel) take(at time.Duration) time.Duration {
	m.open(at)
	m.used++
	return 0
}

func (m *fixedModel) refuse(at time.Duration) {
	if m.Counts {
		m.take(at)
	}
}

func (m *fixedModel) done() {}

func (m *fixedModel) tell(at time.Duration) Told {
	m.turn(at)
	return Told{Name: m.Name, Limit: m.N, Left: max(0, m.N-m.used), Reset: max(0, m.end-at), Window: m.Per}
}

type slidingModel struct {
	Limit
	log []time.Duration
}

func (m *slidingModel) set(_ time.Duration, n int) { m.N = n }

func (m *slidingModel) turn(at time.Duration) {
	gone, _ := slices.BinarySearch(m.log, at-m.Per+1)
	m.log = m.log[gone:]
}

func (m *slidingModel) ready(at time.Duration) time.Duration {
	if len(m.log) < m.N {
		return at
	}
	return max(at, m.log[len(m.log)-m.N]+m.Per)
}

func (m *slidingModel) take(at time.Duration) time.Duration {
	m.turn(at)
	m.log = append(m.log, at)
	return 0
}

func (m *slidingModel) refuse(at time.Duration) {
	if m.Counts {
		m.take(at)
	}
}

func (m *slidingModel) done() {}

func (m *slidingModel) tell(at time.Duration) Told {
	m.turn(at)
	var reset time.Duration // until the oldest leaves the log
	if len(m.log) > 0 {
		reset = m.log[0] + m.Per - at
	}
	return Told{Name: m.Name, Limit: m.N, Left: max(0, m.N-len(m.log)), Reset: reset, Window: m.Per}
}

// flightModel caps what is at work at once. When one ends it is told, so ready knows of now alone.
type flightModel struct {
	Limit
	flying int
}

func (m *flightModel) set(_ time.Duration, n int) { m.N = n }

func (m *flightModel) ready(at time.Duration) time.Duration {
	if m.flying < m.N {
		return at
	}
	return Never
}

func (m *flightModel) take(time.Duration) time.Duration {
	m.flying++
	return 0
}

func (m *flightModel) refuse(time.Duration) {}
func (m *flightModel) done()                { m.flying-- }

func (m *flightModel) tell(time.Duration) Told {
	return Told{Name: m.Name, Limit: m.N, Left: max(0, m.N-m.flying)}
}
