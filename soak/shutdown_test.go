package soak

import (
	"context"
	"errors"
	"time"

	"github.com/go-throttle/throttle"
)

// An ending is a Shutdown of a Transport. Guarded by the world's lock.
type ending struct {
	began    time.Time
	until    time.Time // its ctx ends
	returned bool
	err      error
}

// shutdown ends a Transport, while its callers go on, and looks at what comes of it.
func (w *world) shutdown() {
	x := pick(w, w.trs...)
	now := time.Now()
	end := &ending{began: now, until: now.Add(w.dur(time.Millisecond, 3*time.Second))}
	w.locked(func() {
		w.note("shut %s down within %v", x.name, end.until.Sub(now))
		x.end = end
	})
	go func() {
		ctx, cancel := context.WithDeadline(context.Background(), end.until)
		defer cancel()
		err := x.tr.Shutdown(ctx)
		w.locked(func() { end.returned, end.err = true, err })
		w.happened()
	}()
	w.conduct(time.After(time.Until(end.until)+time.Second), nil, true)
}

// checkOpen: nothing that came after Shutdown is sent, and nothing at all once its time is over.
func (c *call) checkOpen(now time.Time) {
	if c.st.tr == nil || c.st.tr.end == nil {
		return
	}
	if e := c.st.tr.end; c.came.After(e.began) || now.After(e.until) {
		c.w.fail("%s sends a call that came at %v, shut down at %v until %v",
			c.st.name, c.came.Sub(c.w.born), e.began.Sub(c.w.born), e.until.Sub(c.w.born))
	}
}

// checkRefusal: a call that came after Shutdown, or still waits when its time is over, fails with ErrClosed.
func (c *call) checkRefusal(err error) {
	e := c.st.tr.end
	if e == nil || c.sent || c.ctx.Err() != nil || errors.Is(err, throttle.ErrClosed) {
		return
	}
	if now := time.Now(); c.came.After(e.began) || now.Equal(e.until) {
		c.w.fail("%s: a call that was shut out returns %v", c.st.name, err)
	}
}

// checkEnding: Shutdown returns when nobody is left, or when its time is over; then nobody waits who was never sent.
func (x *transport) checkEnding(now time.Time) {
	e := x.end
	if e == nil {
		return
	}
	inside := 0
	for _, st := range x.stations {
		inside += st.inside
		if !now.Before(e.until) && len(st.line) > 0 {
			x.w.fail("%s has %d calls in line after Shutdown's time is over", st.name, len(st.line))
		}
	}
	switch {
	case !e.returned && !now.Before(e.until):
		x.w.fail("%s is still shutting down, until %v", x.name, e.until.Sub(x.w.born))
	case e.returned && e.err == nil && inside > 0:
		x.w.fail("%s has shut down, and %d calls are there", x.name, inside)
	case e.returned && e.err != nil && (now.Before(e.until) || !errors.Is(e.err, context.DeadlineExceeded)):
		x.w.fail("%s: Shutdown returned %v, its time being over at %v", x.name, e.err, e.until.Sub(x.w.born))
	}
}

// slotted reports whether calls and the bodies of their answers hold slots.
func (st *station) slotted() bool {
	return st.bare != nil || st.opts.MaxInFlight > 0 || st.tr.tr.MaxInFlight > 0
}

// checkSlots: all keys together are within Transport.MaxInFlight.
func (x *transport) checkSlots() {
	held, most := 0, x.tr.MaxInFlight
	for _, st := range x.stations {
		held += len(st.flying) + st.bodies
	}
	if most > 0 && held > most {
		x.w.fail("%s has %d calls in flight, of %d", x.name, held, most)
	}
}
