package soak

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-throttle/throttle"
)

// A look is what was seen of a station when a moment was over.
type look struct {
	plain bool // who goes next depends on priority and arrival alone
	line  []*call
}

// check looks at everything when a moment is over: all goroutines but this one wait for something. It
// reports whether anything has been wrong.
func (w *world) check() (broken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sum.moments.Add(1)
	for _, x := range w.trs {
		stats := x.stats()
		for _, st := range x.stations {
			w.checkStation(st, stats[st.key])
		}
		x.checkSlots()
		x.checkEnding(time.Now())
		x.checkMeters(false)
	}
	for _, st := range w.stations {
		if st.bare != nil {
			w.checkStation(st, &throttle.KeyStats{QueueStats: st.bare.Stats()})
		}
	}
	now := time.Now()
	for _, m := range w.models {
		if wrong := m.settle(now); wrong != "" {
			w.fail("%s; it is paid by %s", wrong, w.payers(m))
		}
	}
	for _, f := range w.foreign {
		// While somebody waits the units of one call may be there, which is held by something else, or for which others are asked.
		waits := slices.ContainsFunc(w.stations, func(st *station) bool { return st.stats.Waiting > 0 && slices.Contains(st.foreign, f) })
		if d := f.taken - f.returned - f.started; d < 0 || d > 0 && f.adjusts && !waits && w.asking == 0 {
			w.fail("%s gave %d units, got %d back, and %d have started", f.name, f.taken, f.returned, f.started)
		}
	}
	return w.wrong > 0
}

// stats are those of all keys.
func (x *transport) stats() map[string]*throttle.KeyStats {
	all := map[string]*throttle.KeyStats{}
	for s := range x.tr.Stats() {
		all[s.Key] = &s
	}
	return all
}

func (w *world) payers(m *model) (names []string) {
	for _, st := range w.stations {
		if slices.Contains(st.models, m) {
			names = append(names, st.name)
		}
	}
	return names
}

// checkStation checks one line; nil: it does not exist.
func (w *world) checkStation(st *station, stats *throttle.KeyStats) {
	now := time.Now()
	st.quiet = slices.DeleteFunc(st.quiet, func(q quiet) bool { return !now.Before(q.until) })
	if stats == nil {
		if st.inside > 0 {
			w.fail("%s has been dropped with %d calls", st.name, st.inside)
		}
		st.seen, st.shares, st.stats = look{}, shares{}, throttle.KeyStats{}
		return
	}
	st.stats = *stats
	w.checkCounts(st)
	plain := stats.ClosedFor == 0 && !slices.ContainsFunc(stats.Learned, func(l throttle.Learned) bool { return l.Source != "throttled" })
	// A closing that is over does not show, but until a slot is free its probe waits, and that may be any call.
	plain = plain && (st.tr == nil || st.tr.tr.MaxInFlight == 0) && !strings.HasPrefix(stats.Reason, "gate:")
	if st.seen.plain && plain {
		w.checkOrder(st)
	}
	w.checkShares(st, plain)
	st.seen.plain, st.seen.line = plain, append(st.seen.line[:0], st.line...)
}

// checkCounts: the library counts those who wait and those who are under way as the callers do.
func (w *world) checkCounts(st *station) {
	inFlight, slots := len(st.flying), st.slotted()
	if slots {
		inFlight += st.bodies
	}
	if most := st.opts.MaxInFlight; st.stats.InFlight != inFlight || most > 0 && inFlight > most {
		w.fail("%s counts %d calls in flight, of %d; %d are under way, and %d answers held", st.name, st.stats.InFlight, most, len(st.flying), st.bodies)
	}
	least, most := len(st.line), st.inside // the others may be about to be sent again, but a bare line's
	for c := range st.flying {
		if !c.task {
			most--
		}
	}
	for g := range st.groups {
		if n := len(g.waiting); g.ctx.Err() == nil { // otherwise they have left
			least, most = least+n, most+n
		}
	}
	if n := st.stats.Waiting; n < least || n > most || st.bare != nil && n != most {
		w.fail("%s counts %d in line, not %d to %d; of %d calls %d are under way", st.name, n, least, most, st.inside, len(st.flying))
	}
}

// checkOrder: nobody went before one who came earlier and has the same or a higher priority.
func (w *world) checkOrder(st *station) {
	for _, late := range st.seen.line {
		if !late.sent {
			continue
		}
		for _, c := range st.seen.line {
			if st.flows && (c.flow != late.flow || c.prio != late.prio) {
				continue // turns are those of flows
			}
			if c.came.Before(late.came) && c.prio >= late.prio && slices.Contains(st.line, c) {
				w.fail("%s: a call of priority %d that came at %v went before one of priority %d that came at %v",
					st.name, late.prio, late.came.Sub(w.born), c.prio, c.came.Sub(w.born))
				return
			}
		}
	}
}

// left describes the lines that do not move.
func (w *world) left() (at []string) {
	for _, st := range w.stations {
		if st.inside > 0 {
			at = append(at, fmt.Sprintf("%d at %s, %d of them never sent, %d under way: %+v", st.inside, st.name, len(st.line), len(st.flying), st.stats))
		}
	}
	return at
}

// checkEnd: nothing is left when all callers have gone.
func (w *world) checkEnd() {
	time.Sleep(time.Hour) // bodies that are closed late
	if w.check() {
		return
	}
	w.locked(func() {
		if w.bodies != 0 || w.open != 0 {
			w.fail("%d request bodies and %d answers are not closed", w.bodies, w.open)
		}
		for _, x := range w.trs {
			x.checkMeters(true)
		}
		for _, f := range w.foreign {
			if len(f.watches) > 0 {
				w.fail("%s is watched by %d, and nobody waits", f.name, len(f.watches))
			}
		}
	})
	time.Sleep(idleTime + 2*maxBelief)
	for _, x := range w.trs {
		if x.end == nil && x.meters == nil { // otherwise no key is made that could replace others, or a meter is never as new
			x.checkIdle()
		}
	}
}

// The host whose calls only let a Transport drop idle keys.
const sweeper = "sweeper.test"

// checkIdle: a key without calls is dropped at last, as others are used, but one that waits for a
// probe, or whose own limiter was changed by hand.
func (x *transport) checkIdle() {
	ctx := throttle.WithCost(context.Background(), -1) // which is an error: nothing is sent
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+sweeper+"/", nil)
	if err != nil {
		panic(err)
	}
	for range 20 * (1 + len(x.stations)) {
		x.tr.RoundTrip(req)
	}
	for key, s := range x.stats() {
		own := x.own[key]
		if key != sweeper && s.Reason == "" && !slices.ContainsFunc(own.models, func(m *model) bool { return m.changed }) {
			x.w.locked(func() { x.w.fail("%s %s is never dropped: %+v", x.name, key, *s) })
		}
	}
}

// Only the third time in a row may be meant for one route.
func TestAloneInARow(t *testing.T) {
	const a, b = "a.test/a", "a.test/b"
	at := func(s int) time.Time { return time.Unix(1e9+int64(s), 0) }
	timed := func(s int, route string) answered { return answered{at: at(s), route: route, timed: true} }
	served := func(s int, route string) answered { return answered{at: at(s), route: route, served: true} }
	for name, c := range map[string]struct {
		answers []answered
		want    bool
	}{
		"the second":                {[]answered{timed(1, a), served(2, b), timed(9, a)}, false},
		"the third":                 {[]answered{timed(1, a), served(2, b), timed(3, a), timed(9, a)}, true},
		"nothing else was served":   {[]answered{timed(1, a), timed(3, a), timed(9, a)}, false},
		"another one meanwhile":     {[]answered{timed(1, a), served(2, b), timed(3, a), timed(4, b), timed(9, a)}, false},
		"another one, at once":      {[]answered{timed(1, a), served(2, b), timed(3, a), timed(9, a), timed(9, b)}, true},
		"served meanwhile":          {[]answered{timed(1, a), served(2, b), timed(3, a), served(4, a), timed(9, a)}, false},
		"served, and quotas":        {[]answered{timed(1, a), served(2, b), timed(3, a), {at(4), a, false, true, true}, timed(9, a)}, true},
		"served before the row":     {[]answered{served(0, a), timed(1, a), served(2, b), timed(3, a), timed(9, a)}, true},
		"what came later is moot":   {[]answered{timed(1, a), served(2, b), timed(9, a), timed(10, a)}, false},
		"served, and then in a row": {[]answered{timed(1, a), served(2, a), timed(3, a), served(3, b), timed(4, a), timed(9, a)}, true},
	} {
		st := &station{answers: c.answers}
		if got := st.alone(quiet{since: at(9), until: at(19), route: a}); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
