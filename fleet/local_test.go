package fleet

import (
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
)

// TestLocalLimitWastesLittle: a member whose calls a local limit holds back takes little more of the shared one than it
// uses, so that the others can use the rest. Units that it holds and cannot use would expire: 10 % of the limit, once.
func TestLocalLimitWastesLittle(t *testing.T) {
	for _, local := range race.Pick([]rate.Limit{5, 100}, []rate.Limit{5, 20, 50, 100}) {
		bubble(t, func(t *testing.T) {
			led, m, start := new(ledger), new(Memory), time.Now()
			ps := fleetOf(3, m, led, 1000, 1, Options{})
			slow := newProcess(3, m, led, 1000, 1, Options{})
			slow.q = throttle.NewQueue(throttle.All(throttle.NewLeaky(local), slow.lim), throttle.QueueOptions{})
			slow.work(4, nil)
			time.Sleep(10 * time.Second)
			killAll(append(ps, slow))
			used := usedOf(led, start.Add(time.Second), start.Add(10*time.Second), 1000)
			s := slow.lim.Stats()
			t.Logf("local %v/s: %.3f of the limit used; the slow member used %d, %d expired", local, used, s.Used, s.Expired)
			if used < 0.97 || float64(s.Used) < 6*float64(local) {
				t.Errorf("local %v/s: %.3f of the limit used; the slow member used %d, %d expired", local, used, s.Used, s.Expired)
			}
		})
	}
}
