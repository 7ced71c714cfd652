package fleet

import (
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/race"
)

// TestOutageWithinBound: what docs/fleet.md says that an outage of the store adds for everybody: the burst of all the
// shares, a burst when it is back, and what was granted ahead, less a fifth of the limit while it lasts.
func TestOutageWithinBound(t *testing.T) {
	for seed := range race.Pick(uint64(3), 6) {
		bubble(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			members, limit, burst := 1+r.IntN(8), rate.Limit(20+r.IntN(2000)), 1+r.IntN(100)
			outage := time.Duration(300+r.IntN(5000)) * time.Millisecond
			led, start := new(ledger), time.Now()
			ps := fleetOf(members, new(Memory), led, limit, burst, Options{})
			time.Sleep(3 * time.Second)
			for _, p := range ps {
				p.link.set(func() { p.link.hang = time.Now().Add(outage) })
			}
			time.Sleep(outage + 3*time.Second)
			killAll(ps)
			more := float64(max(burst, members)+burst) + 0.8*float64(limit)*validity250.Seconds()
			got := led.burst(start, time.Now(), limit)
			t.Logf("%d at %v/s, burst %d, %v: %.1f + limit·L, at most %.1f", members, limit, burst, outage, got, float64(burst)+bound(limit)+more)
			checkBurst(t, led, start, time.Now(), limit, burst, bound(limit)+more)
		})
	}
}
