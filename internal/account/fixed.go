package account

import (
	"time"

	"github.com/go-throttle/throttle/internal/moment"
)

// A FixedWindow is the account of a throttle.FixedWindow.
type FixedWindow struct {
	quota
	start time.Time // of the current window, or of the last one
	used  int64     // units since start; more than n fill the windows that follow without a gap
}

// at returns the window open at the given moment: its start, and the units used from it on. With no
// window open a new one would start now.
func (w *FixedWindow) at(now time.Time) (start time.Time, used int64) {
	if w.used == 0 {
		return now, 0
	}
	ended := int64(now.Sub(w.start) / w.per)
	if ended >= w.windows(w.used) {
		return now, 0
	}
	return w.start.Add(time.Duration(ended) * w.per), w.used - ended*w.n
}

func (w *FixedWindow) consume(at time.Time, n int) {
	at = w.c.lift(at)
	w.c.last = at
	start, used := w.at(at)
	w.start, w.used = start, plus(used, int64(n))
}

func (w *FixedWindow) takeBy(at, now time.Time, n int) (time.Time, error) {
	return takeReady(w, at, now, n)
}

// giveBack counts the windows that ended since the units were taken: what those held is gone, and
// with it all of a cost that fits one window.
func (w *FixedWindow) giveBack(at, now time.Time, n int) {
	now = w.c.lift(now)
	start, used := w.at(now)
	ended := int64((start.Sub(at) + w.per - 1) / w.per)
	if ended < w.windows(int64(n)) {
		w.start, w.used = start, max(0, used-(int64(n)-ended*w.n))
		w.c.last = now
	}
}

// after skips windows until the units fit, or until none is open for a cost above n. Under backlog
// windows follow each other without a gap, as under a debt.
func (w *FixedWindow) after(from time.Time, ahead int64, n int) time.Time {
	from = w.c.lift(from)
	switch {
	case n == 0 && (ahead == 0 || w.n == 0):
		return from
	case w.n == 0:
		return from.Add(Forever)
	}
	start, used := w.at(from)
	used = plus(used, ahead)
	full := w.windows(used)
	if int64(n) <= w.n {
		full = w.windows(max(0, plus(used, int64(n))-w.n))
	}
	return moment.Latest(from, start.Add(times(full, w.per)))
}

func (w *FixedWindow) available(now time.Time) float64 {
	_, used := w.at(w.c.lift(now))
	return float64(w.n - used)
}

func (w *FixedWindow) fresh(now time.Time) bool {
	_, used := w.at(w.c.lift(now))
	return used == 0
}

// Adjust takes n units, as a debt if they do not fit; n < 0 gives units of the open window back.
func (w *FixedWindow) Adjust(n int) {
	w.c.change(func(now time.Time) {
		if w.n == 0 { // the zero one
			return
		}
		if n > 0 {
			w.consume(now, n)
			return
		}
		start, used := w.at(now)
		w.start, w.used = start, max(0, used+int64(n))
	})
}
