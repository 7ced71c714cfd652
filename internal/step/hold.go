package step

import (
	"math"
	"time"
)

// The constants of a hold.
const (
	likely     = 0.02             // share of what is held that is throttled, if the limit is there
	unlikely   = 0.1              // and if it is lower
	leastAbove = 0.2              // share of what is above it that is throttled
	enough     = 6.0              // ln, 400 times as likely: a cut, a proof
	strikes    = 3                // cuts in a row that may not help; of a trial, in all
	cutShare   = 20               // a cut takes one of so many away, at least
	jumpShare  = 8                // a trial's first probe is one of so many above; so is a gift, and a rise that is no luck
	trialRound = 20               // answers, at least, before a trial's probe
	probeWait  = 10 * time.Second // after a probe that was throttled, at first, and after a trial that failed
	longest    = 10 * time.Minute // of a rest; and without being full
	quiet      = time.Minute      // without a throttled answer before a gift; and between probes, at most, or
	seldom     = 100              // answers, and times the pause that a throttled one names, if that is longer
	costs      = 30               // times the pause that a throttled answer names pass before the next one should
	restFactor = 4                // a rest after another
)

// A tally counts answers.
type tally struct{ served, throttled float64 }

// share is what was throttled of them.
func (t tally) share() float64 { return t.throttled / max(1, t.served+t.throttled) }

// likelihood is that of the answers by their own share, ln.
func (t tally) likelihood() (l float64) {
	for _, n := range []float64{t.served, t.throttled} {
		if n > 0 {
			l += n * math.Log(n/(t.served+t.throttled))
		}
	}
	return l
}

// hold begins a trial.
func (s *Step) hold(most int, now time.Time) {
	s.most, s.proven, s.cuts, s.begun, s.full, s.next, s.costly = most, false, 0, now, now, now, time.Time{}
	s.gap = probeWait
	s.change(now)
}

// change begins anew to count what is held.
func (s *Step) change(now time.Time) {
	s.since, s.score, s.served, s.under, s.over, s.from = now, 0, 0, tally{}, tally{}, s.most
	s.stop()
}

// stop ends a probe. A trial's next one goes far enough to tell much at once.
func (s *Step) stop() {
	s.probing, s.served, s.above = false, 0, 1
	if !s.proven {
		s.above = max(2, s.most/jumpShare)
	}
}

// due reports whether a probe may go: a round was served, and it is time.
func (s *Step) due(now time.Time) bool {
	round := s.most
	if !s.proven {
		round = max(trialRound, s.most)
	}
	return !s.probing && s.served >= round && !now.Before(s.next)
}

// probe begins one.
func (s *Step) probe(now time.Time) {
	s.probing, s.served, s.since = true, 0, now
	if s.proven {
		s.over = tally{}
	}
}

// serve notes an answer that was served. A probe has been served if a round is.
func (s *Step) serve(a *Sight) {
	n := a.Level.Most()
	if 5*n >= 4*s.most {
		s.full = a.Now
	} else if a.Now.Sub(s.full) > longest {
		s.forget(a.Now)
		return
	}
	switch {
	case n == 0 || a.Sent.Before(s.since):
		return
	case n > s.most:
		s.over.served++
	default:
		s.under.served++
		s.score = max(0, s.score-math.Log((1-likely)/(1-unlikely)))
	}
	if 5*n >= 4*s.most {
		s.served++
	}
	if s.proven && s.under.served >= 4*float64(s.most) && s.under.share() < likely {
		s.cuts = 0
	}
	if s.probing && s.served >= s.most+s.above && s.over.served > 0 {
		if s.most += s.above; !s.proven && s.cuts > 0 { // it was lower before
			s.cuts = strikes
		}
		s.probing, s.served, s.above, s.over = false, 0, min(2*s.above, s.most), tally{}
	}
}

// throttle notes a throttled answer. Within what is held that is evidence against it, and the first after a quiet time a sign of others. If it
// names a time the calls of all stop for that, so two in a short time are enough.
func (s *Step) throttle(a *Sight) Verdict {
	switch n := a.Level.Most(); {
	case n == 0 || a.Sent.Before(s.since):
		return Above
	case n > s.most || s.probing: // beside a probe's calls any one may be throttled
		s.over.throttled++
		if s.probing && s.over.share() >= leastAbove {
			s.fail(a)
		}
		if !s.proven {
			s.prove(a)
		}
		return Above
	}
	s.under.throttled++
	s.score += math.Log(unlikely / likely)
	calm := a.Now.Sub(s.hit) > quiet
	if s.hit = a.Now; calm && s.proven {
		s.give(a)
		return Below
	}
	soon := false
	if a.Wait > 0 && a.Now.Sub(s.costly) > a.Wait {
		soon = a.Now.Sub(s.costly) < costs*a.Wait
		s.costly = a.Now
	}
	if s.score >= enough || soon {
		s.lower(a)
	}
	return Below
}

// fail ends a probe that was throttled. What was served before it, in the same run, was luck, unless it is much, or was held before.
func (s *Step) fail(a *Sight) {
	if s.proven {
		if gain := s.most - s.from; gain > 0 && (gain >= max(2, s.from/jumpShare) || s.most <= s.known) {
			s.gap = probeWait
		} else {
			s.most = s.from
		}
		s.from, s.since = s.most, a.Now
		s.wait(a)
		round := time.Duration(seldom * s.times.mean / float64(s.most) * 1e9)
		s.gap = min(2*s.gap, max(quiet, seldom*a.Wait, round))
	}
	s.stop()
}

// give leaves a part of what is held to others who have come. Each client gives as large a part, and takes back one at a time, so their shares
// become more equal.
func (s *Step) give(a *Sight) {
	s.known = s.most
	s.most, s.gap = max(1, s.most-max(1, s.most/jumpShare)), probeWait
	s.change(a.Now)
	s.wait(a)
}

// wait plans the next probe.
func (s *Step) wait(a *Sight) {
	s.gap = max(s.gap, costs*a.Wait)
	s.next = a.Now.Add(s.gap)
}

// prove ends a trial if two shares, of what was throttled above and not below, are so much likelier than one.
func (s *Step) prove(a *Sight) {
	all := tally{s.over.served + s.under.served, s.over.throttled + s.under.throttled}
	if s.over.share() < leastAbove || s.under.share() > s.over.share()/10 || s.over.likelihood()+s.under.likelihood()-all.likelihood() < enough {
		return
	}
	s.proven, s.from = true, s.most
	s.stop()
	s.wait(a)
}

// lower lowers what is held, or ends the hold.
func (s *Step) lower(a *Sight) {
	s.cuts++
	if s.most == 1 || s.cuts > strikes || 4*s.kept < s.most || !s.proven && 2*s.kept < s.most {
		s.forget(a.Now)
		return
	}
	s.known = s.most
	if s.most = max(1, min(s.most-max(1, s.most/cutShare), s.kept)); 5*s.most < 4*s.known {
		s.gap = probeWait
	}
	s.change(a.Now)
	if s.proven {
		s.wait(a)
	}
}

// forget ends the hold. The next trial has to wait, longer each time.
func (s *Step) forget(now time.Time) {
	if s.restedOf = min(restFactor*s.restedOf, longest); s.restedOf == 0 || now.Sub(s.begun) > longest {
		s.restedOf = probeWait
	}
	s.most, s.proven, s.probing, s.rest = 0, false, false, now.Add(s.restedOf)
}
