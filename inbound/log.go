package inbound

import "slices"

// This file counts small sliding limits exactly: no window of their length, wherever it begins, holds more units than the
// limit, and a client that keeps to the limit is never refused. A cell is a log of as many moments as the limit has units, in
// order: each is when a unit comes back, and those that are over are free. A unit is taken in the place of the first one,
// and comes back a window later; if the first one is not free that is a debt, and the unit counts from when it will be.
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
	return max(0, int64(c[min(n, l.most)-1])-now)
}

// takeLogged takes n units at the moment at which all of them fit, which it returns: they are used together.
func (l *law) takeLogged(c cell, now, n int64) mark {
	if n == 0 {
		return mark{}
	}
	log, rounds, more := c[:l.most], n/l.most, n%l.most
	at := now + l.waitLogged(c, now, n)
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

// backLogged undoes a take: those of its moments that have not made room for later ones go back to when it took place. No
// matter whose they are if others have the same: such units are alike.
func (l *law) backLogged(c, then cell, n int64) {
	log, rounds, more := c[:l.most], n/l.most, n%l.most
	all := l.most - more
	for i, back := range log {
		switch windows := (int64(back) - int64(then[0])) / l.per; {
		case back != then[0]+uint64(windows*l.per):
		case windows == rounds+1 && more > 0:
			log[i], more = then[0], more-1
		case windows == rounds && rounds > 0 && all > 0:
			log[i], all = then[0], all-1
		}
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
