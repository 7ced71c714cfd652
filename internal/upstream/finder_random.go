package upstream

import (
	"math"
	"time"
)

// This file is about calls that are throttled at random beside a limit, or without one. Were each of them taken for the
// limit, the rate would be cut for every one, and soon next to nothing would be left of it.
//
// What is known is a share. A throttled answer is an event, for which a rate may be cut, only if so many come that
// the share does not explain them. The share is known from when a search is put aside, because its 429s are as frequent in holds
// as above them. It stays known when the search comes back, if there is a limit as well, and what is throttled in
// holds makes it smaller. Only another search that is put aside makes it larger. Ten minutes after the search was put aside, or
// after mostExplained 429s, it is forgotten: it may be wrong. If it was right, two events in holds show it again.
//
// Example: a limit of 100/s, and one call of a hundred is throttled at random. The search cuts four or five rates before it is
// put aside. In the ramp eight of ten calls are throttled above 100/s, so the search comes back, with a share of 5 %. After 20 s in
// holds, 2,000 calls and 20 of them throttled, it is 1.6 %. From then on a 429 by itself cuts nothing, and a probe
// ends when some ten come soon after each other. 97/s are held.

const (
	// Throttled answers are an event if it is surer, ln, that their odds are moreFrequent times as high as those of the share.
	// 7 stands for 1,000 to 1.
	surer        = 7.0
	moreFrequent = 3.0

	// No larger share than mostAtRandom is taken to be random, or trebled odds could not be seen. If more of the answers are
	// throttled a verdict takes one event more, because few answers before a limit that is exceeded by half look like that:
	// without it 29 % are throttled in TestSearchPutAsideInVain, not 4. If it were forbidden, a dozen answers would decide,
	// and 53 % would be used of 35 % at random, not 73 (TestRandomThrottlingOfOneInThree).
	mostAtRandom = 0.4

	// When a search comes back, what was throttled until the event counts if it is enoughRandom answers or more. If it is less, it
	// may be that of the limit, so the share is at most guessedShare. After 60 calls in holds of which none is throttled, it is smaller.
	enoughRandom = 8
	guessedShare = 0.05

	// Of n answers of which none was throttled, the share is at most 3/n in 19 of 20 cases. Half of the answers in holds are
	// forgotten when mostHeld of them were throttled, or a share that becomes smaller would be noticed late.
	ruleOfThree = 3.0
	mostHeld    = 64

	// A share is forgotten when it has explained so many 429s: they may have been those of the limit, because what was random has
	// ended. At 1 % and 100/s that is after ten minutes, at 15 % after half a minute.
	mostExplained = 500
)

// An atRandom is what is known of calls that are throttled at random.
type atRandom struct {
	share     float64 // of the units answered, at most; 0: none is known
	excess    float64 // ln of how much likelier it is that more are throttled
	run       float64 // throttled answers since that was last 0, or since the last event
	from      float64 // the rate at which the first of them went
	held      tally   // answers in holds
	explained float64 // throttled answers beside a limit that were no event
	last      float64 // the share that was known before it was forgotten, or before the search was put aside again
}

// note counts an answer, and reports whether so many are throttled that it is an event. It is Page's cumulative sum
// (Biometrika 41, 1954). All that is in flight is supposed to be served, because throttled answers mostly come back
// sooner: of 250 calls that went at once the 21 that are throttled at random may come back first. n and inFlight are units.
func (r *atRandom) note(n float64, throttled, holding bool, inFlight float64) (event bool) {
	if r.share == 0 {
		return false
	}
	more := moreFrequent * r.share / (1 + (moreFrequent-1)*r.share)
	served := math.Log((1 - r.share) / (1 - more))
	if throttled {
		r.excess += math.Log(more / r.share)
		r.run++
	} else if r.excess -= n * served; r.excess <= 0 {
		r.excess, r.run = 0, 0
	}
	if r.excess-inFlight*served >= surer {
		return true
	}
	if holding {
		if r.held.add(n, throttled); r.held.throttled > mostHeld {
			r.held = tally{r.held.throttled / 2, r.held.answered / 2}
		}
		r.share = min(r.share, r.held.mostShare(ruleOfThree))
	}
	return false
}

// putAside is what is known when a search is put aside because that share is throttled at random.
func (r *atRandom) putAside(share float64) { *r = atRandom{share: share, last: max(r.share, r.last)} }

// comeBack is what is known when a search comes back, after such answers while it was aside. gained: being faster has
// served more. A share that was known before was right, as far as it goes: otherwise the search would not have been put aside again.
func (r *atRandom) comeBack(aside tally, gained bool) {
	share := 2 * r.last
	if gained {
		share = max(share, guessedShare)
	}
	if aside.throttled -= r.run; aside.throttled >= enoughRandom {
		share = aside.mostShare(0)
	}
	*r = atRandom{share: min(share, r.share)}
}

// event reports whether a throttled answer may begin an event. Where some are throttled at random, it takes more of them.
func (f *finder) event(sent, now time.Time, current bool, inFlight float64) bool {
	f.forgetShare(now)
	r := &f.random
	if r.share == 0 || !sent.After(f.lastCut) { // none is known, or it is one of the last event
		f.throttled++
		return r.share == 0 && current
	}
	if r.run == 0 {
		r.from = f.rate(sent)
	}
	if !r.note(0, true, f.phase == holding, inFlight) {
		r.explained++
		return false
	}
	f.throttled, r.run = f.throttled+r.run, 0
	return true
}

// throttledAt is the rate at which an event began whose last call went at sent. Where some are throttled at random, the
// rate has risen while it was not yet clear that there is one.
func (f *finder) throttledAt(sent time.Time) float64 {
	rs := f.rate(sent)
	if f.random.share > 0 {
		rs = max(min(rs, f.random.from), f.w)
	}
	return rs
}

// forgetShare forgets what is throttled at random if that is old, or has explained much. Two events in holds are enough to
// know it again.
func (f *finder) forgetShare(now time.Time) {
	if r := &f.random; r.share > 0 && (now.After(f.check.until) || r.explained > mostExplained) {
		*r = atRandom{last: r.share}
		f.check.evidence = max(f.check.evidence, sure-2*math.Log(rarer))
	}
}

// likelyRandom reports whether a throttled answer is most likely one of those at random.
func (f *finder) likelyRandom() bool { return f.phase == aside || f.random.share > 0 && f.accepted }
