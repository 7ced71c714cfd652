package inbound

import (
	"math"
	"math/bits"
	"slices"
)

// This file counts sliding limits: those of many units by an estimate, small ones by a log.

// turn is the sliding window at a moment: when its newer half began, the units of the older half and of the newer.
// A debt fills the halves that follow: 12 units at 0 s under 5/s are (0, 12), from 1 s on (5, 7), and from 2 s on
// (5, 2).
func (l *law) turn(c cell, now int64) (start, before, since int64) {
	start, before, since = int64(c[0]), int64(c[1]>>32), int64(c[1]&math.MaxUint32)
	k := (now - start) / l.per
	switch {
	case before+since == 0:
		return now, 0, 0
	case k <= 0:
		return start, before, since
	case k > 1 && k-1 > since/l.most: // all is over
		return now, 0, 0
	}
	before, since = min(l.most, max(0, since-(k-1)*l.most)), max(0, since-k*l.most)
	if before+since == 0 {
		return now, 0, 0
	}
	return start + k*l.per, before, since
}

// waitSliding finds the first moment at which since + before·left/per + n is no more than the limit, left being
// the time to the end of the newer half.
//
// Example: 5/s, 4 before and 2 since, at half of the window: 2 + 4·0.5 = 4, so one unit fits. For two, 4·left must
// be no more than 1 s: left is 250 ms, in 250 ms.
func (l *law) waitSliding(c cell, now, n int64) int64 {
	if l.tooLong(n) {
		return never
	}
	start, before, since := l.turn(c, now)
	n = min(n, l.most)
	k := ceilDiv(max(0, since+n-l.most), l.most) // halves to wait for until the newer one has room
	if k > 0 {
		before, since = min(l.most, since-(k-1)*l.most), max(0, since-k*l.most)
	}
	left := l.per
	if free := l.most - n - since; before > free {
		hi, lo := bits.Mul64(uint64(free), uint64(l.per))
		q, _ := bits.Div64(hi, lo, uint64(before)) // free < before, so it fits
		left = int64(q)
	}
	return max(0, start+k*l.per+l.per-left-now)
}

// share is units·left/per, rounded up: what still counts of the units of the older half. Of 100 units that came a window
// and a quarter ago, on average, 75 count.
func share(units, left, per int64) int64 {
	hi, lo := bits.Mul64(uint64(units), uint64(left))
	q, r := bits.Div64(hi, lo, uint64(per)) // left <= per, so it fits
	if r > 0 {
		q++
	}
	return int64(q)
}

// A log counts exactly: no window, wherever it begins, holds more units than the limit, and a client that keeps to it is never
// refused. A cell is a log of as many moments as the limit has units, in order: each is when a unit comes back, and those
// that are over are free. n units are taken in the places of the first n, once all of them are free, and come back a window
// later.
//
// Example: 3/10s sliding, one unit at 1 s and two at 4 s. Left is what is free, back is when one more is.
//
//	at 1 s       0 0 11      left 2
//	at 4 s       11 14 14    left 0, back at 11 s
//	at 11.5 s    11 14 14    left 1
//	one unit     14 14 21.5  left 0, back at 14 s
//
// Each n units of a debt move all moments by one window, as in throttle.SlidingWindow, which keeps the same log.

// maxLogged is the largest sliding limit that is logged, 8 bytes a unit. By two counters a client that sends evenly gets
// n − 1 of n units: half of 1, two thirds of 3, and of more than 20 at least 95 %.
const maxLogged = 20

// waitLogged: n units fit when the nth is back.
func (l *law) waitLogged(c cell, now, n int64) int64 {
	if l.tooLong(n) {
		return never
	}
	return l.untilBack(c, now, n)
}

// untilBack is how long until n units are back, or all if n are more.
func (l *law) untilBack(c cell, now, n int64) int64 { return max(0, int64(c[min(n, l.most)-1])-now) }

// takeLogged takes n units at the moment at which all of them fit, which it returns: they are used together.
func (l *law) takeLogged(c cell, now, n int64) mark {
	if n == 0 {
		return mark{}
	}
	log, rounds, more := c[:l.most], n/l.most, n%l.most
	at := now + l.untilBack(c, now, n)
	if rounds > 0 {
		for i := range log {
			log[i] = uint64(at + rounds*l.per)
		}
	}
	for i := range more {
		log[i] = uint64(at + (rounds+1)*l.per)
	}
	slices.Sort(log)
	return mark{uint64(at)}
}

// backLogged makes a take of held units one of n less: its moments, the latest first, get the places that those of the smaller
// take would have. Moments that have made room for later ones are not among them. No matter whose they are if others have the
// same: such units are alike.
func (l *law) backLogged(c, then cell, held, n int64) {
	log, rounds, more := c[:l.most], held/l.most, held%l.most
	all, less, last := l.most-more, (held-n)/l.most, (held-n)%l.most
	for i := l.most - 1; i >= 0; i-- {
		windows := (int64(log[i]) - int64(then[0])) / l.per
		switch {
		case log[i] != then[0]+uint64(windows*l.per):
			continue
		case windows == rounds+1 && more > 0:
			more--
		case windows == rounds && rounds > 0 && all > 0:
			all--
		default:
			continue
		}
		to := then[0] + uint64(less*l.per)
		if last > 0 {
			to += uint64(l.per)
			last--
		}
		log[i] = min(log[i], to)
	}
	slices.Sort(log)
}

// restLogged: the reset is when all units are back.
func (l *law) restLogged(c cell, now int64) (units, reset int64) {
	for units < l.most && int64(c[units]) <= now {
		units++
	}
	return units, max(0, int64(c[l.most-1])-now)
}
