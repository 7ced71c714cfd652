// Package step finds a limit of the attempts in flight that only throttled answers show, and holds it: an upstream that serves K requests at
// once throttles the one after them.
//
//	level.go   a number of attempts, in one byte
//	step.go    a Step: what others ask of it, and what it makes of answers
//	event.go   whether events of throttled answers look like such a limit
//	hold.go    the law of a hold: probes, cuts, and the proof
//
// The signal is how many attempts are in flight that the upstream serves. The number at the start of an attempt is not that: of 80 that are
// sent at once 60 are throttled, which are in flight too, and the way to the upstream shuffles all. So an event begins with a throttled answer,
// and *kept* is the attempts in flight then, less those of them that are throttled later. Under a limit of K each event keeps about K.
//
// A limit of a rate may look the same for a while, as the first bursts of a token bucket of burst 20 do. So a hold is a trial until it is
// proven. If calls all take as long, a rate looks the same for good, by Little's law, and nothing is tried.
//
//	nothing   three events in a row kept the same, nothing was served beside more, and calls do not all take as long -> trial
//	trial     a round was served, so a few more go: they are throttled and the others are not -> proven
//	trial     the others are throttled too -> lower, or nothing, with a rest that grows
//	proven    one more is tried after 10 s, 20 s, 40 s ... 10 min; it is served for a round -> higher, and two more at once, four more ...
//	proven    the first of what is held is throttled after a quiet minute: others have come -> an eighth lower
//	proven    what is held is throttled -> lower
//	proven    that does not help -> nothing, with a rest
//
// Example: 80 workers call an upstream that serves 20 at once for 100 ms each, and answers 429 without a time. The first burst keeps 20, the
// slow starts after it are throttled at the 21st call and keep 20. From then on 20 are in flight. 20 calls later 22 go once; the two are throttled.
// The next probe, 10 s later, is one call.
//
// Nothing here reads a clock or has a lock: moments are given by the caller, who guards a Step with a lock of its own.
package step

import "time"

// A Step is a limit of the attempts in flight, if there is one. The zero value knows nothing. What only asks may be asked of nil.
type Step struct {
	events
	most     int  // attempts in flight, that are held; 0: none
	proven   bool // otherwise it is a trial
	probing  bool // more go
	above    int  // so many more: at the next probe, or at this one
	from     int  // most before the probes in a row that were served
	known    int  // most before the last cut or gift
	served   int  // answers near most, since the last probe
	cuts     int  // in a row
	score    float64
	under    tally         // answers to attempts up to most, since the last change
	over     tally         // and to those above
	begun    time.Time     // the hold
	full     time.Time     // when one near most was answered last
	since    time.Time     // an answer to what was sent before says nothing
	costly   time.Time     // the last throttled answer under most that named a time
	hit      time.Time     // the last throttled answer under most
	next     time.Time     // when the next probe may go
	gap      time.Duration // after the next one that is throttled
	rest     time.Time     // until which no trial begins
	restedOf time.Duration // how long that was
}

// A Sight is what an answer shows.
type Sight struct {
	Level     Level         // of the attempts in flight when its own started, that included; 0: not known
	InFlight  int           // the others that are in flight now
	Throttled bool          // otherwise it was served
	Random    bool          // as far as others know, answers are throttled at random: no trial begins
	Wait      time.Duration // for which the upstream wants to be left alone; 0: it has not said
	Sent, Now time.Time     // when its attempt started, and when it came
}

// A Verdict is what a Step says of a throttled answer.
type Verdict uint8

// The verdicts.
const (
	Unknown Verdict = iota // nothing: it is as if there were no Step
	Above                  // it was above the limit, a probe, so it says nothing of a rate
	Below                  // it was within the limit, and is one of few
)

// Most is how many attempts are held; 0: any number.
func (s *Step) Most() int {
	if s == nil {
		return 0
	}
	return s.most
}

// Proven reports whether what is held has been proven.
func (s *Step) Proven() bool { return s != nil && s.proven }

// Twice reports whether there were two events, so that there may be a limit.
func (s *Step) Twice() bool { return s.old[0] > 0 }

// Bound is how many attempts may be in flight at now; 0: any number. With a probe that is more than Most.
func (s *Step) Bound(now time.Time) int {
	switch {
	case s == nil || s.most == 0:
		return 0
	case s.probing || s.due(now):
		return s.most + s.above
	}
	return s.most
}

// Start notes that an attempt starts, with so many in flight. It may begin a probe.
func (s *Step) Start(l Level, now time.Time) {
	if s.most > 0 && l.Most() > s.most && s.due(now) {
		s.probe(now)
	}
}

// Observe takes in an answer.
func (s *Step) Observe(a *Sight) Verdict {
	if s.events.observe(a) && s.most == 0 && s.times.vary() && !a.Random && !a.Now.Before(s.rest) {
		s.hold(s.kept, a.Now)
		return Unknown
	}
	switch {
	case s.most == 0:
		return Unknown
	case !a.Throttled:
		s.serve(a)
		return Unknown
	}
	was := s.proven
	v := s.throttle(a)
	if !was && !s.proven {
		return Unknown
	}
	return v
}
