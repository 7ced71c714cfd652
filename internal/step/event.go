package step

import "time"

// Two numbers of attempts are the same if they differ by less than one of sameShare, or by one from few on: with fewer all would be.
const (
	sameShare = 10
	few       = 5
)

// Times that calls take vary if their deviation is one of leastVaried of their mean. It is that of about so many.
const (
	leastVaried = 10
	timed       = 64
)

// events are the throttled answers so far. An event begins with one to an attempt that was sent since the last event began.
type events struct {
	began time.Time // the latest one
	first time.Time // when the first of its throttled attempts was sent
	last  time.Time // throttled answer
	kept  int       // attempts in flight when it began, less those of them that were throttled since
	old   [4]int    // the same of the events before, the latest first
	ended bool      // something sent since has been answered, so kept is final
	times times
	clean [2]int // most in flight at the start of an attempt that was served, and had no throttled one beside it: since the event, and before
}

// observe notes an answer, and reports whether the events look like a limit of kept attempts.
func (e *events) observe(a *Sight) (alike bool) {
	switch later := !e.began.IsZero() && a.Sent.After(e.began); {
	case !a.Throttled:
		e.times.add(a.Now.Sub(a.Sent).Seconds())
		if a.Sent.After(e.last) || a.Sent.Before(e.first) {
			e.clean[0] = max(e.clean[0], a.Level.Most())
		}
		if !later || e.ended {
			return false
		}
		e.ended = true
		return e.alike()
	case e.began.IsZero() || later:
		copy(e.old[1:], e.old[:])
		e.old[0], e.kept, e.ended = e.kept, a.InFlight, false
		e.began, e.first, e.last = a.Now, a.Sent, a.Now
		alike = e.alike()
		e.clean = [2]int{0, e.clean[0]}
		return alike
	}
	e.kept--
	e.last = a.Now
	if a.Sent.Before(e.first) {
		e.first = a.Sent
	}
	return false
}

// alike reports whether the last three events kept the same, five if that is few, and nothing was served beside more. It may have been beside
// a little more if five did: where answers are on their way for some time the upstream has a place free now and then.
//
// Example: five of five workers are in flight, and one of them is throttled, whatever the reason: four are kept. But five were served
// before, and so it is no limit of four.
func (e *events) alike() bool {
	most, need := max(e.clean[0], e.clean[1]), 2
	if most > max(e.kept, e.old[0]) || e.kept < few {
		if need = len(e.old); most > e.kept+max(min(1, e.kept/few), e.kept/sameShare) {
			return false
		}
	}
	for _, k := range e.old[:need] {
		least, most := min(k, e.kept), max(k, e.kept)
		if least <= 0 || most-least > max(min(1, least/few), most/sameShare) {
			return false
		}
	}
	return true
}

// times is how long calls take that are served, of those answered since the first throttled answer.
type times struct{ n, mean, square float64 }

func (t *times) add(seconds float64) {
	t.n = min(t.n+1, timed)
	t.mean += (seconds - t.mean) / t.n
	t.square += (seconds*seconds - t.square) / t.n
}

// vary reports whether calls do not all take as long. If they do, a limit of what is in flight is one of a rate, by Little's law, and the
// search for a rate knows it better: it holds parts of a call.
func (t *times) vary() bool {
	return (t.square-t.mean*t.mean)*leastVaried*leastVaried > t.mean*t.mean
}
