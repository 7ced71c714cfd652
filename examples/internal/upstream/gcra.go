package upstream

import "time"

// gcra is the generic cell rate algorithm (ITU-T I.371): a token bucket that is kept as a single
// instant. It is exact: in every stretch of time t it admits at most burst + rate·t requests.
//
// It is not safe for concurrent use.
type gcra struct {
	interval time.Duration // one request's share of the time
	slack    time.Duration // how far next may run ahead of the clock: (burst − 1) intervals
	next     time.Time     // when the next request would be due, were they evenly spaced
}

func newGCRA(rate float64, burst int) gcra {
	interval := time.Duration(float64(time.Second) / rate)
	return gcra{interval: interval, slack: time.Duration(burst-1) * interval}
}

// admit tells whether a request may pass at now. A refused one costs nothing.
func (g *gcra) admit(now time.Time) bool {
	next := g.next
	if next.Before(now) {
		next = now
	}
	if next.Sub(now) > g.slack {
		return false
	}
	g.next = next.Add(g.interval)
	return true
}

// left tells how many requests may pass at now, and how long until the burst is whole again.
func (g *gcra) left(now time.Time) (requests int, whole time.Duration) {
	whole = max(0, g.next.Sub(now))
	if whole > g.slack {
		return 0, whole
	}
	return int((g.slack-whole)/g.interval) + 1, whole
}
