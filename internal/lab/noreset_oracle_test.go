package lab_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/throttletest"
)

// A quotaWorld is an upstream that advertises one quota, as some do: with or without its end, its window or what remains, by a
// clock that may be wrong.
type quotaWorld struct {
	seed                      uint64
	limit                     throttletest.Limit
	reset                     string // "", "delta", "epoch"
	window, remaining, noDate bool
	skew                      time.Duration
	workers                   int // 0: calls come evenly, at share of the limit
	share                     float64
}

func newQuotaWorld(seed uint64) *quotaWorld {
	r := rand.New(rand.NewPCG(seed, 21))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	w := &quotaWorld{seed: seed, reset: pick("", "", "delta", "epoch", "epoch"), window: r.IntN(2) == 0, remaining: r.IntN(5) > 0, noDate: r.IntN(2) == 0}
	if w.reset == "" || !w.remaining {
		w.window = true
	}
	if r.IntN(2) == 0 {
		w.skew = time.Duration((r.Float64()*48 - 24) * float64(time.Hour)).Round(time.Second)
	}
	per := []time.Duration{10 * time.Second, time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}[r.IntN(6)]
	w.limit = throttletest.Limit{Kind: throttletest.Kind(pick("fixed", "fixed", "fixed", "fixed-first", "sliding", "sliding-counter", "bucket")), N: int(logUniform(r, 10, 1000)), Per: per}
	if w.limit.Kind == throttletest.Fixed {
		w.limit.Phase = time.Duration(r.Int64N(int64(per))).Round(time.Millisecond)
	}
	if w.workers = []int{0, 1, 4, 32, 100}[r.IntN(5)]; w.workers == 0 {
		w.share = 0.3 + 0.6*r.Float64()
	}
	return w
}

func (w *quotaWorld) String() string {
	return fmt.Sprintf("seed %d: %s %d per %v, reset %q, window %v, remaining %v, no date %v, skew %v, workers %d, share %.2f",
		w.seed, w.limit.Kind, w.limit.N, w.limit.Per, w.reset, w.window, w.remaining, w.noDate, w.skew, w.workers, w.share)
}

// dialect writes what the world says.
func (w *quotaWorld) dialect(h http.Header, states []throttletest.State, now time.Time) {
	q := states[0]
	h.Set("X-Ratelimit-Limit", strconv.Itoa(q.Limit))
	if w.remaining {
		h.Set("X-Ratelimit-Remaining", strconv.Itoa(q.Remaining))
	}
	if w.window {
		h.Set("X-Ratelimit-Window", strconv.Itoa(int(q.Window.Seconds())))
	}
	switch w.reset {
	case "delta":
		h.Set("X-Ratelimit-Reset", strconv.Itoa(int((q.Reset + time.Second - 1).Seconds())))
	case "epoch":
		h.Set("X-Ratelimit-Reset", strconv.FormatInt(now.Add(q.Reset+time.Second-1).Unix(), 10))
	}
}

// A quotaVerdict is how the client fares in a quotaWorld.
type quotaVerdict struct {
	w       *quotaWorld
	used    float64
	refused float64
	sent    int
	waited  time.Duration // the longest wait of an even demand below the limit, beyond the round trip
	starved time.Duration // the longest time without an answer
}

func (w *quotaWorld) run(t *testing.T) (v quotaVerdict) {
	v.w = w
	synctest.Test(t, func(t *testing.T) {
		s := newSim(advertisedTrip, w.seed, w.limit)
		s.NoDate, s.Skew, s.Advertise.Dialect = w.noDate, w.skew, w.dialect
		d := 4 * w.limit.Per
		if c := s.client(0); w.workers > 0 {
			s.run(t, d, w.workers, c)
		} else {
			var wg sync.WaitGroup
			var mu sync.Mutex
			ctx, cancel := context.WithCancel(t.Context())
			gap := time.Duration(float64(w.limit.Per) / float64(w.limit.N) / w.share)
			for at := time.Duration(0); at < d; at += gap {
				wg.Go(func() {
					start := time.Now()
					_, err := get(ctx, c, s.URL())
					mu.Lock()
					defer mu.Unlock()
					if wait := time.Since(start) - advertisedTrip.max; err == nil || ctx.Err() != nil {
						v.waited = max(v.waited, wait)
					}
				})
				time.Sleep(gap)
			}
			cancel()
			wg.Wait()
		}
		r := s.result(0, d)
		v.used, v.refused, v.sent = r.used, r.share(), r.Total()
		last := time.Duration(0)
		for _, a := range s.Ledger() {
			if a.Verdict == throttletest.Admitted {
				v.starved, last = max(v.starved, a.At-last), a.At
			}
		}
		v.starved = max(v.starved, d-last)
	})
	return v
}

// Whatever an upstream says of one quota, and whatever its clock shows: where the window is advertised an even demand below the limit does not
// wait, and next to nothing is throttled, hardly more than one call for each time that somebody asks. Without a reset that holds for all. Two
// counters that estimate a window throttle a tenth of a small limit.
func TestQuotaWorlds(t *testing.T) {
	n, from := race.Pick(4, 100), 1
	fmt.Sscan(os.Getenv("THROTTLE_SEEDS"), &n)
	fmt.Sscan(os.Getenv("THROTTLE_FROM"), &from)
	for seed := from; seed < from+n; seed++ {
		w := newQuotaWorld(uint64(seed))
		v := w.run(t)
		t.Logf("%.1f %% used, %.1f %% of %d throttled, waited %v, starved %v; %v", 100*v.used, 100*v.refused, v.sent, v.waited, v.starved, w)
		refused, unit := v.refused*float64(v.sent), w.limit.Per/time.Duration(w.limit.N)
		switch endless := w.reset == ""; {
		case !w.window || !endless && w.limit.Kind == throttletest.SlidingCounter:
		case v.waited > 2*unit && w.workers == 0:
			t.Errorf("a demand of %.0f %% waits for %v; %v", 100*w.share, v.waited, w)
		case refused > 4+0.01*float64(v.sent) && (endless || v.refused > 0.12):
			t.Errorf("%.0f of %d throttled; %v", refused, v.sent, w)
		case v.starved > 2*w.limit.Per && w.workers > 0, v.used < 0.75 && w.workers >= 32 && w.remaining:
			t.Errorf("%.1f %% used, nothing for %v; %v", 100*v.used, v.starved, w)
		}
	}
}

// A window that begins with the first request after the last one ends a way there later than that request was sent. Were it asked before, it
// would look as if units came back one by one.
func TestWindowThatBeginsWithACall(t *testing.T) {
	for _, seed := range []uint64{81, 294, 366} {
		if v := newQuotaWorld(seed).run(t); v.refused > 0 || v.used < 0.95 {
			t.Errorf("%.1f %% used, %.1f %% throttled, want all and none; %v", 100*v.used, 100*v.refused, v.w)
		}
	}
}
