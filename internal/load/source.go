package load

import (
	"math"
	"sync"
	"time"
)

// A Source is a function of the user's that says how high a load is. Whoever comes by asks it, at most once in a while, and
// without any lock: it may block, panic or call us. While one asks the others go on with the last reading.
//
// # States, under mu
//
//	asking   somebody is in the function; nobody else asks
//	last     the last reading, and asked, when it was asked for
//
// Two come by at once: one is first under mu, and asks. One that asks for longer than the interval holds only itself: the
// next one asks after it has come back. A panic, or a Goexit, ends the asking with a reading that says nothing.
type Source struct {
	mu     sync.Mutex
	asking bool
	asked  time.Time // for the last reading
	last   Reading
}

// A Reading is what a Source has said.
type Reading struct {
	Load float64 // NaN: nothing
	N    uint64  // its number; 0: there was none yet
}

// Look returns the last reading, after asking for a new one if the last one was asked for at least that long ago, or never.
func (s *Source) Look(ask func() float64, every time.Duration) (r Reading) {
	r, due := s.begin(every)
	if !due {
		return r
	}
	said := math.NaN()
	defer func() {
		_ = recover() // a panic says nothing
		r = s.end(said)
	}()
	said = ask()
	return r
}

// begin returns the last reading, and whether the caller is to ask for the next one.
func (s *Source) begin(every time.Duration) (last Reading, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.asking || s.last.N > 0 && now.Sub(s.asked) < every {
		return s.last, false
	}
	s.asking, s.asked = true, now
	return s.last, true
}

// end notes what the function has said.
func (s *Source) end(said float64) Reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking, s.last = false, Reading{said, s.last.N + 1}
	return s.last
}
