package inbound

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/go-throttle/throttle/internal/load"
	"github.com/go-throttle/throttle/internal/shed"
)

// This file looks how busy the process is, and says what it has seen.

// A view is what looks have shown, guarded by looking.
type view struct {
	pulse              shed.Pulse
	law                shed.Law
	use                load.Use
	waits              float64       // where runnable goroutines are not counted, what stands for them
	calm               bool          // at some moment of the window
	at                 time.Duration // of the window's start
	ended, side        int64         // then
	turned             time.Duration // when quickest was begun anew
	endedThen          [2]int64      // at that time, and a second before
	periods, throttled float64       // of about a second
}

// tick looks how busy the process is, if it is time to and nobody else does, and lets requests go if the limit has risen.
func (c *shedder) tick(now time.Duration) {
	if int64(now) >= c.due.Load() && c.look(now) && c.waiting.Load() > 0 {
		c.grant(false)
	}
}

// look reports whether it has looked. Somebody else may be looking, or have looked just now.
func (c *shedder) look(now time.Duration) bool {
	if !c.looking.TryLock() {
		return false
	}
	defer c.looking.Unlock()
	if int64(now) < c.due.Load() {
		return false
	}
	c.lookLocked(now)
	return true
}

// lookLocked is one look, and the end of a window if it is over. Go before 1.26 does not count runnable goroutines; how long
// they wait stands for them then, once in a window. That is the same for those that work and for those that do not.
func (c *shedder) lookLocked(now time.Duration) {
	v, at := &c.view, c.start.Add(now)
	runnable, procs := c.from.Runnable(), c.from.Procs()
	every := shed.Look
	counted := !math.IsNaN(runnable)
	if counted {
		runnable /= max(1, c.from.Cores())
	} else {
		every = shed.Window
		v.use = c.from.Use(at)
		if l := v.use.Latency; l >= 0 {
			v.waits = l.Seconds() * shed.PerSecond
		}
		runnable = v.waits
	}
	c.due.Store(int64(now + every))
	c.procs.Store(int64(procs))
	n := c.n.Load()
	calm := c.calm.Swap(c.isCalm(n)) || v.pulse.Unused()
	v.calm = v.calm || calm
	if !v.pulse.Add(at, runnable, calm) {
		return
	}
	if counted {
		v.use = c.from.Use(at)
	}
	ended, side, cores := c.ended.Load(), c.side.Load(), c.from.Cores()
	if !counted {
		side = v.side
	}
	v.law.Step(&shed.Input{
		Runnable: v.pulse.Value(), Timed: !counted, Last: v.pulse.Last(), Usable: max(1, cores), Cores: procs, Calm: v.calm,
		InFlight: int(n), Waiting: int(c.waiting.Load()), Done: int(ended - v.ended), Side: int(side - v.side),
		Quickest: c.quick().Seconds(), CPU: v.use.CPU * cores * (now - v.at).Seconds(),
	})
	v.at, v.calm, v.ended, v.side = now, false, ended, side
	v.periods, v.throttled = v.periods*0.9+float64(v.use.Periods), v.throttled*0.9+float64(v.use.Throttled)
	limit := int64(math.MaxInt64)
	if l := v.law.Limit(); l > 0 {
		limit = int64(l)
	}
	c.limit.Store(limit)
	c.estimateLocked(now, ended)
}

// fewEnded is how many requests must have ended for the quickest of them to stand for others.
const fewEnded = 20

// estimateLocked says how long a request takes at least: as long as the quickest of this second and the last one.
func (c *shedder) estimateLocked(now time.Duration, ended int64) {
	v := &c.view
	if now-v.turned >= time.Second {
		c.before.Store(c.quickest.Swap(math.MaxInt64))
		v.turned, v.endedThen = now, [2]int64{ended, v.endedThen[0]}
	}
	est := time.Duration(0)
	if ended-v.endedThen[1] >= fewEnded {
		est = c.quick()
	}
	c.est.Store(int64(est))
}

// quick is how long the quickest request of this second and the last one took; 0: none has ended.
func (c *shedder) quick() time.Duration {
	if q := min(c.quickest.Load(), c.before.Load()); q < math.MaxInt64 {
		return time.Duration(q)
	}
	return 0
}

// stats is a snapshot.
func (c *shedder) stats() OverloadStats {
	c.tick(c.now())
	s := OverloadStats{
		Admitted: c.admitted.Load(), Refused: c.refused.Load(), Full: c.full.Load(), Low: c.low.Load(), Late: c.late.Load(),
		Left: c.left.Load(), Allowed: c.allowed.Load(), InFlight: int(c.n.Load()), Waiting: int(c.waiting.Load()),
		Streams: int(c.streams.Load()), Exempt: int(c.exempt.Load()),
	}
	c.looking.Lock()
	defer c.looking.Unlock()
	v := &c.view
	s.Limit, s.Runnable = v.law.Limit(), v.pulse.Value()
	s.Latency, s.CPU, s.Pressure, s.Throttled = v.use.Latency, v.use.CPU, v.use.Pressure, math.NaN()
	if v.periods > 0 {
		s.Throttled = v.throttled / v.periods
	}
	b := int(c.bound.Load())
	switch held := fmt.Sprintf("%d requests may be in flight, %d are, and %d wait", min(b, cmp.Or(s.Limit, b)), s.InFlight, s.Waiting); {
	case c.Adaptive != nil && (s.Limit == 0 || b <= s.Limit):
		if s.Limit = b; s.InFlight >= b || s.Waiting > 0 {
			s.Why = "the load that Adaptive follows: " + held
		}
	case s.Limit > 0:
		high, low := v.law.Bounds()
		s.Why = fmt.Sprintf("%.1f goroutines wait for each core (fewer in flight above %.0f that work, more below %.0f): %s", s.Runnable, high, low, held)
	}
	return s
}
