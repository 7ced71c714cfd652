package shed

import "math"

// A Law sets the limit. The zero value has none yet.
//
//	no limit       until more than Start goroutines wait for each core
//	above High     as many fewer in flight as goroutines wait beyond High, but half of them at least; again once the last
//	               cut can be seen
//	below Low      more, by a twentieth and 1, if the limit is used
//	calm           no limit, since no request waits for others
//	below 1        no limit, if it is not used: requests that mostly wait for something else are never calm
//
// Of the goroutines only those count that work for requests in flight, see own. Those of short requests count for less, see
// weigh: 40 that need a core for 0.5 ms each are a wait of 20 ms.
//
// Example: two cores, 5 ms of work for each request, four times the load that they can do. After 0.2 s 240 requests are
// in flight, of which 238 wait, 119 for each core, 103 too many: 206 should go, and the limit becomes the half, 120, and
// two windows later 60, and then 34. With requests that wait for 300 ms for something else, of 400 in flight 300 do, and of
// the other 100 66 are too many: the limit becomes 334.
//
// A cut shows when requests that it has held back would have come to their work: after the time of the quickest ones. Without
// that a limit for requests that wait for something else is cut three times before the first cut shows: 68 % of what
// such a server can do were served, and 87 % with it. Cuts by a factor (0.7 or 0.8) served 95 % of what the best
// limit for a random server gives, these 99 %.
type Law struct {
	limit float64 // 0: none
	since int     // windows since it was cut

	done, side, slices float64 // of about a second
	weight             float64 // see weigh; 0: nothing was seen
}

// A slice of Go's scheduler is at most 10 ms, so 16 goroutines that wait for a core are a wait of 160 ms at most, and 80 ms
// if each request works for 5 ms. Start is twice that because a server at 0.8 of its capacity reaches 16 for a moment if 2 % of
// its requests take 20 times as long; with 16 it would refuse 0.2 %, and with 32 it refuses nobody. An overloaded
// one passes 32 as soon.
const (
	Start = 32
	High  = 16
	Low   = 8

	most   = 0.5 // of those in flight, and of the limit, that a cut leaves at least
	settle = 2   // windows until a cut shows in what is seen, which is smoothed
	grow   = 1.05
	used   = 0.8 // of the limit
	keep   = 0.9
	slice  = 0.010 // s
	full   = 0.005 // s of CPU time: a request of so much or more counts in full
	least  = 0.1   // of one, that it counts at least
)

// PerSecond turns a scheduling latency into goroutines that wait for each core, where these are not counted.
const PerSecond = High / 0.040

// An Input is what one window has shown.
type Input struct {
	Runnable float64 // goroutines that wait, for each core that the process may use, see Pulse
	Timed    bool    // it is made of how long they have waited, see PerSecond
	Last     float64 // the same in this window alone
	Usable   float64 // cores that the process may use
	Cores    int     // that it has
	Calm     bool    // at some moment no request can have waited
	InFlight int
	Waiting  int     // in front of the limit
	Done     int     // requests that have ended
	Side     int     // times that requests were looked at, or woken, without beginning their work
	Quickest float64 // seconds that the quickest request of the last second or two took; 0: not known
	CPU      float64 // seconds of CPU time that the process has used; NaN: not known
}

// Step is the end of a window.
func (l *Law) Step(in *Input) {
	n, own := float64(in.InFlight), l.own(in)
	weight := l.weigh(in)
	runnable := own * weight * in.Runnable
	l.since++
	switch {
	case l.limit > 0 && runnable > High || runnable > Start:
		if l.limit == 0 || float64(l.since) >= settle+in.Quickest/Window.Seconds() {
			excess := max(0, own*min(in.Last, in.Runnable)-High/weight) * in.Usable
			to := max(n*most, n-excess)
			if l.limit > 0 {
				to = min(l.limit, max(to, l.limit*most))
			}
			l.limit, l.since = math.Floor(max(2, float64(in.Cores), to)), 0
		}
	case in.Calm || runnable < 1 && !l.isUsed(in):
		l.limit = 0
	case l.limit > 0 && runnable < Low && l.isUsed(in):
		l.limit = math.Floor(l.limit*grow + 1)
	}
}

// isUsed reports whether the limit holds requests back, or nearly does.
func (l *Law) isUsed(in *Input) bool { return in.Waiting > 0 || float64(in.InFlight) > used*l.limit }

// own is the share of the goroutines that wait for a core which do the work of requests in flight. Others are requests
// that are looked at and turned away, or wait in front of the limit and wake up: each needs a core for a moment, and
// waits for it behind the work. At four times the load there are eight of them for each that works. A request that works
// for longer than a slice waits several times.
//
// Without that the limit falls until a few work and all others are such: 78 % of what two cores can do were served at four times the
// load, and 95 % with it.
func (l *Law) own(in *Input) float64 {
	l.done, l.side = l.done*keep+float64(in.Done), l.side*keep+float64(in.Side)
	if in.CPU >= 0 {
		l.slices = l.slices*keep + in.CPU/slice
	}
	work := max(l.done+1, l.slices)
	return work / (work + l.side)
}

// weigh returns for how much a goroutine counts: for the CPU time of a request, as a part of 5 ms. Without that three of 141
// random servers that are well refuse 1 to 14 %, and none with it.
func (l *Law) weigh(in *Input) float64 {
	l.weight = 1
	if cpu := l.slices * slice; !in.Timed && cpu > 0 && cpu < full*l.done {
		l.weight = max(least, cpu/(full*l.done))
	}
	return l.weight
}

// Bounds are above how many goroutines of requests in flight for each core the limit falls, and below how many it rises.
func (l *Law) Bounds() (high, low float64) {
	if l.weight == 0 {
		return High, Low
	}
	return High / l.weight, Low / l.weight
}

// Limit is how many requests may be in flight; 0: any number.
func (l *Law) Limit() int { return int(l.limit) }
