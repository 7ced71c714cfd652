package throttle

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-throttle/throttle/internal/gate"
	"github.com/go-throttle/throttle/internal/learn"
	"github.com/go-throttle/throttle/internal/queue"
)

// A look is what was seen of a station's Queue when a moment was over.
type look struct {
	queue   *queue.Queue
	line    *queue.Line
	epoch   uint32
	epochAt time.Time // when the epoch was seen to have changed
	probing bool
	asking  bool // one who asks foreign limiters stays the head
	lanes   bool // more than one has waiters
	served  uint32
	waiters []*queue.Waiter
}

// check looks at everything when a moment is over: all goroutines but this one wait for something. It
// reports whether anything has been wrong.
func (s *soak) check() (broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.moments.Add(1)
	now := time.Now()
	for c := range s.paid { // foreign limiters said yes, but then the call could not go
		if c.asks == 0 {
			c.unpay()
		}
	}
	clear(s.suspects)
	lines := map[*soakModel]int{}
	for _, st := range s.stations {
		s.checkStation(st, now, lines)
	}
	for _, x := range s.trs {
		s.checkTable(x, now)
	}
	for _, b := range s.buckets {
		if b.inside > 0 { // it has a Queue of its own, which is none of ours to see
			lines[b.model]++
		}
	}
	for _, m := range s.models {
		if wrong := m.settle(now); wrong != "" {
			s.fail("%s; it is paid by %s", wrong, s.payers(m))
		}
		if n := m.set.Watchers(); n != lines[m] {
			s.fail("%s is watched by %d, and %d lines wait for it", m.name, n, lines[m])
		}
	}
	asking := len(s.paid) > 0
	for _, f := range s.foreign {
		if d := f.taken - f.returned - f.started; d < 0 || d > 0 && f.adjusts && !asking {
			s.fail("%s gave %d units, got %d back, and %d have started", f.name, f.taken, f.returned, f.started)
		}
	}
	return s.wrong > 0
}

func (s *soak) payers(m *soakModel) (names []string) {
	for _, st := range s.stations {
		if slices.Contains(st.models, m) {
			names = append(names, st.name)
		}
	}
	return names
}

// state describes a line that does not move.
func (st *station) state() string {
	q := st.q
	if q == nil {
		return fmt.Sprintf("%d at %s, which is gone", st.inside, st.name)
	}
	if q.Line == nil {
		return fmt.Sprintf("%d at %s, which has no line; gate %+v, slots %d", st.inside, st.name, q.Gate.Trouble, q.Slots)
	}
	l := q.Line
	all := fmt.Sprintf("%d at %s, %d of them under way; waiters %s, told %v, asking %p, gate %+v, foreign %+v, slots %d of %d",
		st.inside, st.name, len(st.flying), listed(l.Ordered()), l.Told, l.Asking, q.Gate.Trouble, q.Foreign, q.Slots, q.Room.Opts.MaxInFlight)
	if q.Learned != nil {
		all += fmt.Sprintf(", finder %+v", q.Learned.Finder)
		for i, a := range q.Learned.Lanes {
			all += fmt.Sprintf(", lane %d", i)
			for _, t := range a.Quotas {
				all += fmt.Sprintf(" %+v", *t)
			}
		}
	}
	if sh := q.Room.Shared; sh != nil {
		all += fmt.Sprintf(", shared: %d entries, told %v, asking %p, its head is this: %v, waiting %v", sh.Count, sh.Told, sh.Asking, sh.Head() == q, sh.Waiting)
	}
	return all
}

// checkStation checks one line and its gate.
func (s *soak) checkStation(st *station, now time.Time, lines map[*soakModel]int) {
	q := st.q
	if st.tr != nil {
		q = st.tr.find(st.key())
		st.q = q
	}
	if q == nil {
		if st.inside > 0 {
			s.fail("%s has been dropped with %d calls", st.name, st.inside)
		}
		return
	}
	q.Room.Mu.Lock()
	defer q.Room.Mu.Unlock()
	s.checkCounts(st, q)
	s.checkGate(st, q, now)
	s.checkLearned(st, q)
	s.checkOrder(st, q)
	if q.Line != nil {
		for _, m := range st.models {
			lines[m]++
		}
		s.checkIdle(st, q, now)
	}
	seen := look{queue: q, line: q.Line, epoch: q.Gate.Epoch, epochAt: st.seen.epochAt, waiters: st.seen.waiters[:0]}
	if q != st.seen.queue || seen.epoch != st.seen.epoch {
		seen.epochAt = now
	}
	seen.probing = q.Gate.Trouble != nil && q.Gate.Cause != gate.Open && q.Gate.Probing
	if q.Line != nil {
		seen.served, seen.asking = q.Line.Served, q.Line.Asking != nil
		q.Line.Each(func(w *queue.Waiter) { seen.waiters = append(seen.waiters, w) })
		seen.lanes = len(q.Line.Scopes) > 1
	}
	st.seen = seen
	st.refused, st.succeeded, st.failed, st.paused = false, false, false, false
	st.quiet = slices.DeleteFunc(st.quiet, func(q quiet) bool { return !now.Before(q.until) })
}

func (x *soakTransport) find(key string) *queue.Queue {
	if x.tr.table == nil {
		return nil
	}
	x.tr.table.Mu.Lock()
	defer x.tr.table.Mu.Unlock()
	if k := x.tr.table.keys[key]; k != nil {
		return &k.Queue
	}
	return nil
}

// checkCounts: who waits, and who is under way, is known; lines exist only while somebody waits.
func (s *soak) checkCounts(st *station, q *queue.Queue) {
	inLine, flying, tasks := 0, len(st.flying), 0
	if q.Line != nil {
		if inLine = q.Line.Count; inLine == 0 {
			s.fail("%s has a line, and nobody waits", st.name)
		}
	}
	if l := st.seen.line; l != nil && l != q.Line && l.Timer != nil && l.Timer.Stop() {
		s.fail("the timer of a line of %s that is gone still runs", st.name)
	}
	for c := range st.flying {
		if c.task {
			flying--
		}
	}
	for g := range st.groups {
		for w, t := range g.waiting {
			tasks++
			if w.State == queue.Waiting && (t.ctx.Err() != nil || g.ctx.Err() != nil) {
				s.fail("a task of %s waits though its context has ended", st.name)
			}
		}
	}
	if inLine+int(q.Resting.Load()) != st.inside-flying+tasks {
		s.fail("%s: %d in line, %d resting; of %d calls %d are under way, and %d tasks wait", st.name, inLine, q.Resting.Load(), st.inside, flying, tasks)
	}
	slots, most := 0, q.Room.Opts.MaxInFlight
	if st.tr == nil || most > 0 {
		slots = len(st.flying) + st.bodies
	}
	if q.Slots != slots || most > 0 && slots > most {
		s.fail("%s counts %d slots of %d; %d calls are under way, %d answers held", st.name, q.Slots, most, len(st.flying), st.bodies)
	}
	if st.tr != nil && int(q.Begun-q.Ended.Load()) != st.inside {
		s.fail("%s: %d calls begun, %d ended; %d are there", st.name, q.Begun, q.Ended.Load(), st.inside)
	}
}

// checkGate: one event is one closing; behind a closed gate there is at most one probe that still has
// its time; what the gate counts is there.
func (s *soak) checkGate(st *station, q *queue.Queue, now time.Time) {
	g, seen := &q.Gate, &st.seen
	if g.Trouble == nil || g.Cause == gate.Open {
		st.probes = probes{}
	}
	if seen.queue == q && g.Epoch != seen.epoch {
		allowed := uint32(0)
		for _, why := range []bool{st.refused, st.failed, st.paused, seen.probing && st.succeeded} {
			if why {
				allowed++
			}
		}
		if g.Epoch-seen.epoch > allowed {
			s.fail("%s: the epoch went from %d to %d; refused in it: %v, failed: %v, paused: %v, probe answered: %v",
				st.name, seen.epoch, g.Epoch, st.refused, st.failed, st.paused, seen.probing && st.succeeded)
		}
	}
	if g.Trouble == nil {
		return
	}
	if g.Cause != gate.Open {
		p := &st.probes
		if !p.closed || !p.since.Equal(g.Since) {
			*p = probes{closed: true, since: g.Since}
		}
		for c, at := range st.flying {
			if at.After(g.Since) && now.Sub(at) >= time.Second && !c.aged {
				c.aged = true
				p.aged++
			}
		}
		if p.started > 1+p.landed+p.aged {
			s.fail("%d calls have started since the gate closed at %v, %d were answered and %d have had a second: %s", p.started, g.Since.Sub(s.born), p.landed, p.aged, st.state())
		}
		if st.tr != nil && g.Probing && g.ProbeOut && len(st.flying) == 0 {
			s.fail("%s waits for a probe, and none is out", st.name)
		}
		if !g.Probing && now.After(g.Until) && q.Line != nil && q.Line.Asking == nil && q.Unshared() && q.Room.Opts.MaxInFlight == 0 {
			s.fail("%s: the gate was to open at %v", st.name, g.Until.Sub(s.born))
		}
	}
	if g.Mode == gate.Counted && (g.Flying < 0 || g.Flying > len(st.flying)) {
		s.fail("%s: the reopening counts %d calls, %d are under way", st.name, g.Flying, len(st.flying))
	}
}

// checkLearned: a call is counted in its lane and in each of the lane's quotas while it is under way.
func (s *soak) checkLearned(st *station, q *queue.Queue) {
	if q.Learned == nil {
		return
	}
	out := 0
	calls := map[*learn.ToldQuota]int{}
	for _, a := range q.Learned.Lanes {
		if out += a.Out; a.Out < 0 {
			s.fail("%s: a lane has %d calls", st.name, a.Out)
		}
		for _, t := range a.Quotas {
			calls[t] += a.Out
		}
	}
	if out > len(st.flying) {
		s.fail("%s: its lanes count %d calls, %d are under way", st.name, out, len(st.flying))
	}
	for t, n := range calls {
		if t.Calls != n || n == 0 && t.Units != 0 || t.Calls < 0 || t.Units < 0 {
			s.fail("%s: quota %q counts %d calls of %v units, its lanes %d", st.name, t.Name, t.Calls, t.Units, n)
		}
	}
}
