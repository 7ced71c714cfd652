package throttle

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/moment"
	"github.com/go-throttle/throttle/internal/queue"
)

// TestSoak mixes all that the library has, at random, in virtual time, before upstreams that fail and
// lie, and checks the invariants of ARCHITECTURE.md after every moment in which something happened.
//
//	go test -run TestSoak -soak.duration 1h -soak.seeds 20 -timeout 1h .
//	go test -run TestSoak -soak.duration 1h -soak.seed 7 .
//
// A seed makes the same world and load again. The order of what happens at the same moment, and the
// library's own jitter, are new each time: -count repeats a seed; without -soak.seed each count takes
// new ones.
var (
	soakDuration = flag.Duration("soak.duration", 2*time.Minute, "TestSoak: virtual time of each seed")
	soakSeed     = flag.Uint64("soak.seed", 0, "TestSoak: the only seed; 0: as many as -soak.seeds")
	soakSeeds    = flag.Int("soak.seeds", 8, "TestSoak: number of seeds")
	soakVerbose  = flag.Bool("soak.verbose", false, "TestSoak: tell what is done to the world")
	soakRuns     atomic.Uint64 // of TestSoak in this process
)

func TestSoak(t *testing.T) {
	first := 1 + (soakRuns.Add(1)-1)*uint64(*soakSeeds)
	last := first + uint64(*soakSeeds) - 1
	if *soakSeed != 0 {
		first, last = *soakSeed, *soakSeed
	}
	var sum soakSum
	t.Run("seed", func(t *testing.T) {
		for seed := first; seed <= last; seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				r := rand.New(&lockedSource{src: rand.NewPCG(seed, 11)})
				for left := *soakDuration; left > 0 && !t.Failed(); {
					span := min(left, 5*time.Second+time.Duration(r.ExpFloat64()*float64(time.Minute)))
					left -= span
					synctest.Test(t, func(t *testing.T) {
						s := newSoak(t, seed, r, &sum)
						s.run(span)
					})
				}
			})
		}
	})
	t.Logf("seeds %d to %d, %v each: %s", first, last, *soakDuration, sum.String())
}

// A soakSum counts what all seeds did.
type soakSum struct {
	worlds, moments, calls, attempts, throttled, retried, refused, cancelled atomic.Int64
}

func (c *soakSum) String() string {
	return fmt.Sprintf("%d worlds, %d moments checked, %d calls, %d attempts, %d refused upstream, %d failed or cancelled, %d turned away here, %d retries",
		c.worlds.Load(), c.moments.Load(), c.calls.Load(), c.attempts.Load(), c.throttled.Load(), c.cancelled.Load(), c.refused.Load(), c.retried.Load())
}

// A soak is one world: upstreams, limiters, lines and callers.
type soak struct {
	t    *testing.T
	seed uint64
	born time.Time
	sum  *soakSum
	poke chan struct{} // something has happened
	ctx  context.Context
	stop context.CancelFunc // of all callers

	r *rand.Rand

	mu                  sync.Mutex // a leaf: nothing of the library is called under it, but by check
	log                 []string   // what was done to the world last
	models              []*soakModel
	foreign             []*soakForeign
	stations            []*station
	hosts               map[string]*soakHost
	trs                 []*soakTransport
	buckets             []*soakBucketLine
	paid                map[*soakCall]bool             // their own limiters were paid for an asking that is not over
	booked              []func()                       // cancel reservations
	bodies              int                            // request bodies made and not closed
	answers             int                            // response bodies made and not closed
	over                bool                           // no new calls
	suspects, suspected map[*queue.Queue]*queue.Waiter // heads that could have gone and have not: now, and a moment ago
	wrong               int
}

func newSoak(t *testing.T, seed uint64, r *rand.Rand, sum *soakSum) *soak {
	time.Sleep(time.Until(time.Unix(1e9, 0))) // bubbles begin in 2000, when an epoch still looked like a span
	s := &soak{
		t: t, seed: seed, born: time.Now(), sum: sum, poke: make(chan struct{}, 1), r: r,
		hosts: map[string]*soakHost{}, paid: map[*soakCall]bool{}, suspects: map[*queue.Queue]*queue.Waiter{}, suspected: map[*queue.Queue]*queue.Waiter{},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// run is a world from its beginning to its end.
func (s *soak) run(span time.Duration) {
	defer s.stop()
	s.sum.worlds.Add(1)
	s.build()
	var callers sync.WaitGroup
	s.populate(&callers)
	s.conduct(time.After(span), nil, true)
	broken := false
	s.locked(func() {
		broken = s.wrong > 0
		s.calm()
	})
	done := make(chan struct{})
	go func() {
		callers.Wait()
		close(done)
	}()
	if !broken && !s.conduct(time.After(moment.MaxBelief+time.Hour), done, false) { // nothing told is believed for longer
		s.locked(func() { s.fail("calls are left behind: %v", s.left()) })
	}
	s.stop()
	select {
	case <-done:
	case <-time.After(time.Hour):
		panic(fmt.Sprintf("seed %d: callers whose contexts have ended do not come back", s.seed))
	}
	synctest.Wait()
	if !s.check() {
		s.checkEnd()
	}
}

// conduct checks after each moment in which something happened, until end or done, and reports
// whether it was done. If it meddles, it changes the world now and then.
func (s *soak) conduct(end <-chan time.Time, done <-chan struct{}, meddle bool) bool {
	for {
		longest := 500 * time.Millisecond
		if !meddle {
			longest = time.Hour
		}
		tick := time.NewTimer(s.dur(time.Millisecond, longest))
		var over, finished bool
		select {
		case <-s.poke:
		case <-tick.C:
		case <-end:
			over = true
		case <-done:
			finished = true
		}
		tick.Stop()
		synctest.Wait() // all that can happen at this moment has happened
		broken := s.check()
		switch {
		case finished:
			return true
		case over, broken:
			return false
		case len(s.suspects) > 0:
			s.suspects, s.suspected = s.suspected, s.suspects
			time.Sleep(time.Nanosecond) // a timer that is due now may not have been run
			synctest.Wait()
			s.check()
			clear(s.suspected)
		case meddle && s.n(12) == 0:
			s.locked(s.meddle)
		}
	}
}

// happened wakes the conductor.
func (s *soak) happened() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

func (s *soak) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// fail reports an invariant that is broken, with what was done last; only the first few count, as the
// rest follows from them. It and tell are called with mu held.
func (s *soak) fail(format string, args ...any) {
	s.t.Helper()
	if s.wrong++; s.wrong > 3 {
		return
	}
	s.t.Errorf("seed %d, %v: %s\nbefore that:\n  %s", s.seed, time.Since(s.born), fmt.Sprintf(format, args...), strings.Join(s.log, "\n  "))
	s.over = true
}

// tell notes what is done to the world.
func (s *soak) tell(format string, args ...any) {
	line := fmt.Sprintf("%v ", time.Since(s.born)) + fmt.Sprintf(format, args...)
	if s.log = append(s.log, line); len(s.log) > 12 {
		s.log = s.log[1:]
	}
	if *soakVerbose {
		fmt.Printf("seed %d: %s\n", s.seed, line)
	}
}

// A lockedSource is a source of random numbers for several goroutines.
type lockedSource struct {
	mu  sync.Mutex
	src rand.Source
}

func (l *lockedSource) Uint64() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.src.Uint64()
}

// n is a random number below k.
func (s *soak) n(k int) int { return s.r.IntN(k) }

// one reports true once in k times.
func (s *soak) one(k int) bool { return s.n(k) == 0 }

// dur is a random time, rather a short one.
func (s *soak) dur(least, most time.Duration) time.Duration {
	f := s.r.Float64()
	return least + time.Duration(f*f*f*float64(most-least))
}

func pick[T any](s *soak, of ...T) T { return of[s.n(len(of))] }
