package throttleredis

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/fleet"
)

// TestFigures are the figures of several processes on one server, in real time. They need a machine that does nothing
// else, so nobody judges them but who runs them:
//
//	THROTTLE_FULL=1 go test -v -run TestFigures .
func TestFigures(t *testing.T) {
	if os.Getenv("THROTTLE_FULL") == "" {
		t.Skip("needs an idle machine; THROTTLE_FULL=1 runs it")
	}
	const run = 10 * time.Second
	for _, c := range []struct {
		processes, workers int
		limit              rate.Limit
	}{{4, 4, 1000}, {16, 2, 1000}, {4, 4, 50}, {16, 2, 50}, {4, 32, 50000}, {16, 8, 50000}} {
		srv := start(t)
		u, ws := startWorkers(t, c.processes, job{Redis: srv.addr(), Limit: c.limit, Burst: 10, Mode: fleet.Alone, Workers: c.workers})
		until(t, "all processes use units", func() bool {
			for i := range ws {
				if u.count(i) == 0 {
					return false
				}
			}
			return true
		})
		time.Sleep(time.Second)
		trips, used := uint64(0), uint64(0)
		for _, w := range ws {
			s := w.stats()
			trips, used = trips-s.Trips, used-s.Used
		}
		from := time.Now()
		time.Sleep(run)
		to := time.Now()
		for _, w := range ws {
			s := w.stats()
			trips, used = trips+s.Trips, used+s.Used
			w.kill()
		}
		n, sum, squares := 0, 0.0, 0.0
		for i := range ws {
			mine := 0
			for _, x := range u.uses {
				if x.member == i && x.at.After(from) && x.at.Before(to) {
					mine++
				}
			}
			n, sum, squares = n+mine, sum+float64(mine), squares+float64(mine)*float64(mine)
		}
		t.Logf("%2d processes at %5v/s: %.3f used (%.0f calls a second), a window of L at most %.0f + %v·L (the bound: %v), Jain %.3f, %.3f trips a call",
			c.processes, c.limit, float64(n)/(to.Sub(from).Seconds()*float64(c.limit)), float64(n)/to.Sub(from).Seconds(),
			u.burst(float64(c.limit)), c.limit, fmt.Sprint(10+float64(c.limit)*validity.Seconds()+1), sum*sum/(float64(len(ws))*squares), float64(trips)/float64(used))
	}
}
