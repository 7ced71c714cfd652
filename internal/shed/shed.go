// Package shed decides how many requests a server should have in flight, by goroutines that wait for a core, and whose
// requests go unserved.
//
//	shed.go    how busy the process is, smoothed
//	law.go     the limit in flight that follows from that
//	levels.go  which priorities are turned away
//
// It is pure: it has no lock and reads no clock.
package shed

import (
	"math"
	"time"
)

// A Pulse smooths how many goroutines wait for a core, for each core, out of looks at it that come whenever somebody comes by. The
// zero value has seen none.
//
// Between two looks counts the smaller of both, and nothing if the server had so little to do meanwhile that no request
// can have waited. So a burst of 100 requests each 100 ms, which is gone after 5 ms, is no load, although each look sees its
// beginning; neither is what was seen before the server was idle. The mean of 100 ms is smoothed by half:
//
//	0 ms    100 goroutines for two cores    50 of each wait
//	10 ms   80                              40: these 10 ms count as 40
//	100 ms  60, the mean was 35             half of it, 17.5, and half of what was before
type Pulse struct {
	began time.Time // of the window; zero: never looked
	last  time.Time
	seen  float64 // by the last look
	area  float64 // of the window, × seconds
	mean  float64 // of the last window
	value float64
}

// The law's times.
const (
	Look   = 10 * time.Millisecond  // between two looks at runnable goroutines, at least
	Window = 100 * time.Millisecond // for which a mean is made, and after which the limit may move
)

// Unused reports whether nobody has looked yet.
func (p *Pulse) Unused() bool { return p.began.IsZero() }

// Add notes a look. calm: no request can have waited at some moment since the last one. It reports whether a window has ended.
func (p *Pulse) Add(now time.Time, runnable float64, calm bool) bool {
	if p.began.IsZero() {
		p.began, p.last = now, now
	}
	if !calm {
		p.area += min(runnable, p.seen) * now.Sub(p.last).Seconds()
	}
	p.last, p.seen = now, runnable
	took := now.Sub(p.began)
	if took < Window {
		return false
	}
	keep := math.Exp2(-took.Seconds() / Window.Seconds())
	p.mean = p.area / took.Seconds()
	p.value = p.value*keep + p.mean*(1-keep)
	p.began, p.area = now, 0
	return true
}

// Value is what was seen so far, as of the last window's end, and Last what that window has shown.
func (p *Pulse) Value() float64 { return p.value }
func (p *Pulse) Last() float64  { return p.mean }
