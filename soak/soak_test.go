package soak

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
)

// TestSoak builds worlds at random, lets them run, and checks each moment in which something happened.
// A seed makes the same world and load again. The order of what happens at the same moment, and the
// library's own jitter, are new each time: -count repeats a seed; without -soak.seed each count takes
// new ones.
var (
	soakDuration = flag.Duration("soak.duration", race.Pick(20*time.Second, 2*time.Minute), "TestSoak: virtual time of each seed")
	soakSeed     = flag.Uint64("soak.seed", 0, "TestSoak: the only seed; 0: as many as -soak.seeds")
	soakSeeds    = flag.Int("soak.seeds", race.Pick(3, 8), "TestSoak: number of seeds")
	soakVerbose  = flag.Bool("soak.verbose", false, "TestSoak: print what is done to the world")
	soakRuns     atomic.Uint64 // of TestSoak in this process
)

// What the library promises, and this package relies on.
const (
	maxBelief = 24 * time.Hour         // the longest that anything advertised is believed
	maxLate   = 5 * time.Millisecond   // that a late take is made up for
	readAhead = 16 << 10               // bytes of an answer that are read before another attempt
	readTime  = 100 * time.Millisecond // and for so long
	idleTime  = time.Hour              // after which a key without calls may be dropped, at the latest
)

func TestSoak(t *testing.T) {
	t.Setenv("THROTTLE_TABLE_SIZE", "8") // heeded in builds that check invariants: tables overflow
	first := 1 + (soakRuns.Add(1)-1)*uint64(*soakSeeds)
	last := first + uint64(*soakSeeds) - 1
	if *soakSeed != 0 {
		first, last = *soakSeed, *soakSeed
	}
	failFast := flag.Lookup("test.failfast").Value.String() == "true" // which does not stop what runs in parallel
	var sum totals
	t.Run("seed", func(t *testing.T) {
		for seed := first; seed <= last; seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				r := rand.New(&lockedSource{src: rand.NewPCG(seed, 11)})
				for left := *soakDuration; left > 0 && !t.Failed() && !(failFast && sum.broken.Load()); {
					span := min(left, 5*time.Second+time.Duration(r.ExpFloat64()*float64(time.Minute)))
					left -= span
					synctest.Test(t, func(t *testing.T) { newWorld(t, seed, r, &sum).run(span) })
				}
			})
		}
	})
	t.Logf("seeds %d to %d, %v each: %s", first, last, *soakDuration, sum.String())
}

// totals count what all seeds did.
type totals struct {
	worlds, moments, calls, attempts, throttled, retried, refused, failed atomic.Int64
	broken                                                                atomic.Bool // something was wrong
}

func (c *totals) String() string {
	return fmt.Sprintf("%d worlds, %d moments checked, %d calls, %d attempts, %d throttled, %d retries, %d calls failed or cancelled, %d refused",
		c.worlds.Load(), c.moments.Load(), c.calls.Load(), c.attempts.Load(), c.throttled.Load(), c.retried.Load(), c.failed.Load(), c.refused.Load())
}

// A world is upstreams, limiters, lines and callers.
type world struct {
	t    *testing.T
	seed uint64
	born time.Time
	sum  *totals
	poke chan struct{} // something has happened
	ctx  context.Context
	stop context.CancelFunc // of all callers

	r *rand.Rand

	mu       sync.Mutex // a leaf: nothing of the library is called under it, but between two moments
	log      []string   // what was done to the world last
	models   []*model
	foreign  []*foreign
	stations []*station
	hosts    map[string]*host
	trs      []*transport
	buckets  []*bucketLine
	asking   int                            // foreign limiters that have not answered
	booked   []func()                       // cancel reservations
	bodies   int                            // request bodies made and not closed
	open     int                            // response bodies made and not closed
	answers  map[*http.Response]*answerBody // of them those that nobody has got
	over     bool                           // no new calls
	wrong    int
}

func newWorld(t *testing.T, seed uint64, r *rand.Rand, sum *totals) *world {
	time.Sleep(time.Until(time.Unix(1e9, 0))) // bubbles begin in 2000, when an epoch still looked like a span
	w := &world{
		t: t, seed: seed, born: time.Now(), sum: sum, poke: make(chan struct{}, 1), r: r,
		hosts: map[string]*host{}, answers: map[*http.Response]*answerBody{},
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// run is a world from its beginning to its end.
func (w *world) run(span time.Duration) {
	defer w.stop()
	w.sum.worlds.Add(1)
	w.build()
	var callers sync.WaitGroup
	w.populate(&callers)
	w.conduct(time.After(span), nil, true)
	broken := false
	w.locked(func() { broken = w.wrong > 0 })
	if !broken && w.one(2) {
		w.shutdown()
	}
	w.locked(func() {
		broken = w.wrong > 0
		w.calm()
	})
	done := make(chan struct{})
	go func() {
		callers.Wait()
		close(done)
	}()
	if !broken && !w.conduct(time.After(maxBelief+time.Hour), done, false) {
		w.locked(func() { w.fail("calls are left behind: %v", w.left()) })
	}
	w.stop()
	select {
	case <-done:
	case <-time.After(time.Hour):
		panic(fmt.Sprintf("seed %d: callers whose contexts have ended do not come back", w.seed))
	}
	synctest.Wait()
	if !w.check() {
		w.checkEnd()
	}
}

// conduct checks after each moment in which something happened, until end or done, and reports
// whether it was done. If it meddles, it changes the world now and then.
func (w *world) conduct(end <-chan time.Time, done <-chan struct{}, meddle bool) bool {
	for {
		longest := 500 * time.Millisecond
		if !meddle {
			longest = time.Hour
		}
		tick := time.NewTimer(w.dur(time.Millisecond, longest))
		var over, finished bool
		select {
		case <-w.poke:
		case <-tick.C:
		case <-end:
			over = true
		case <-done:
			finished = true
		}
		tick.Stop()
		synctest.Wait() // all that can happen at this moment has happened
		broken := w.check()
		switch {
		case finished:
			return true
		case over, broken:
			return false
		case meddle && w.n(12) == 0:
			w.locked(w.meddle)
		}
	}
}

// happened wakes the conductor.
func (w *world) happened() {
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// watch lets the conductor look at what an observer may see.
func (w *world) watch() throttle.Hooks {
	seen := func(context.Context, throttle.Event) { w.happened() }
	return throttle.Hooks{
		Waited: seen, Throttled: seen, Failed: seen, Learned: seen,
		Refused: func(ctx context.Context, _ throttle.Event) {
			if c := callOf(ctx); c != nil {
				w.locked(func() { c.refused = true })
			}
			w.sum.refused.Add(1)
			w.happened()
		},
		Retrying: func(context.Context, throttle.Event) {
			w.sum.retried.Add(1)
			w.happened()
		},
	}
}

func (w *world) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// fail reports what is broken, with what was done last; only the first few count, as the rest follows
// from them. It and note are called with mu held.
func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	if w.wrong++; w.wrong > 3 {
		return
	}
	w.t.Errorf("seed %d, %v: %s\nbefore that:\n  %s", w.seed, time.Since(w.born), fmt.Sprintf(format, args...), strings.Join(w.log, "\n  "))
	w.over = true
	w.sum.broken.Store(true)
}

// note remembers what is done to the world.
func (w *world) note(format string, args ...any) {
	line := fmt.Sprintf("%v ", time.Since(w.born)) + fmt.Sprintf(format, args...)
	if w.log = append(w.log, line); len(w.log) > 12 {
		w.log = w.log[1:]
	}
	if *soakVerbose {
		fmt.Printf("seed %d: %s\n", w.seed, line)
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
func (w *world) n(k int) int { return w.r.IntN(k) }

// one reports true once in k times.
func (w *world) one(k int) bool { return w.n(k) == 0 }

// dur is a random time, more often a short one.
func (w *world) dur(least, most time.Duration) time.Duration {
	f := w.r.Float64()
	return least + time.Duration(f*f*f*float64(most-least))
}

func pick[T any](w *world, of ...T) T { return of[w.n(len(of))] }
