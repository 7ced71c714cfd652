package throttle

import (
	"math"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/hint"
)

// A report is what one attempt tells the gate.
type report struct {
	outcome outcome
	epoch   uint32        // when it was sent
	call    uint64        // which call it belongs to
	told    time.Duration // refusal: how long to wait; 0: not told
	trip    time.Duration // its round trip; 0: not measured
}

type outcome uint8

const (
	success   outcome = iota
	cancelled         // by the caller: says nothing of the upstream
	neutral           // nothing that counts: a 500, a certificate, a URL
	failure
	refusal
)

// learn takes a report in and reports whether a closing began or grew.
func (g *gate) learn(r report, now time.Time, pace rate.Limit) (stopped bool) {
	g.measure(r)
	if r.outcome <= neutral && !g.wary() {
		return false
	}
	if g.trouble == nil {
		g.trouble = new(trouble)
	}
	g.closed(now, pace) // ends a closing that is over
	defer g.watch()
	current := r.epoch == g.epoch
	if g.mode == counted && current {
		g.flying = max(0, g.flying-1)
	}
	if g.first && r.outcome != cancelled {
		g.first, g.mode, g.flying = false, reopened, 0
	}
	switch r.outcome {
	case success:
		g.succeed(r, now, pace)
	case cancelled:
		if current && g.probe { // it was the probe: the next is due at once
			g.probeAt(now)
		}
	case neutral:
		if current && g.cause != open {
			g.probeFailed(now)
		}
	case failure:
		return current && g.failed(r, now)
	case refusal:
		return g.refuse(r, current, now, pace)
	}
	return false
}

// A place is where and when an attempt was made.
type place struct {
	paid       uint8 // see waiter
	cost       int
	host, path string
	sent       time.Time
	refused    bool
}

// heard takes in what an attempt has shown: what it says of quotas, what a refusal
// says of the rate, and what the gate makes of it. It returns the limits that are new.
func (q *Queue) heard(r *report, h *hint.Hint, p place, now time.Time) (news []Learned) {
	if l := q.learned; l != nil && p.paid > 0 {
		l.landed(p.paid-1, p.cost)
	}
	p.refused = r.outcome == refusal
	id := max(p.paid, 1) - 1
	if len(h.Quotas) > 0 && q.teachable(h) {
		known := len(q.learned.lanes)
		id, news = q.learned.hear(h.Quotas, id, p, float64(q.counters.sent), now)
		if known == 1 && q.line != nil && id > 0 { // until more is known, all fall under these quotas
			q.line.move(id)
		}
	}
	if q.learned != nil {
		q.learned.trip(r.trip)
	}
	pace := q.pace()
	q.gate.closed(now, pace) // if it is over, the rate that was found is the one to reopen at
	gate := *r
	if r.outcome == refusal {
		q.counters.throttled++
		pace = q.limits.pace(now) // a first refusal closes for one unit's time
		if r.told == 0 {
			r.told = resetOf(h)
			gate.told = r.told
		}
		if q.learned != nil && q.learned.shut(id, h, now) {
			gate.outcome = success // the quota holds its calls back: the others' may go on
		}
	}
	current := r.epoch == q.gate.epoch
	stopped := q.gate.learn(gate, now, pace)
	if stopped && q.gate.cause == failing {
		q.gate.flow = q.flow(now)
	}
	if f := q.search(r, id, now); f != nil {
		switch r.outcome {
		case refusal:
			if f.refuse(p.sent, now, q.gate.reopens(now), current, r.told > 0, q.gate.srtt) {
				news = append(news, f.learned(now))
			}
		case success:
			f.accept(max(1, p.cost), current)
		}
	}
	if stopped || q.learned != nil && q.room.maxPause >= 0 && !q.learned.spent(id, now).IsZero() {
		q.expel(now)
	}
	return news
}

// teachable makes room for what h tells; false if nothing of it can be kept.
func (q *Queue) teachable(h *hint.Hint) bool {
	if q.learned == nil && slices.ContainsFunc(h.Quotas, func(t hint.Quota) bool { return useful(&t) }) {
		q.learn()
	}
	return q.learned != nil
}

func (q *Queue) learn() {
	q.learned = newLearned()
	q.gate.listens = true
	q.gate.watch()
}

// search returns the finder, and makes it at the first refusal that neither a
// limit of ours nor a told quota explains.
func (q *Queue) search(r *report, id uint8, now time.Time) *finder {
	known := len(q.limits.own)+len(q.limits.foreign) > 0
	if r.outcome == refusal && !known && (q.learned == nil || q.learned.find == nil && !q.learned.explains(id, now)) {
		if q.learned == nil {
			q.learn()
		}
		window := math.Inf(1)
		if r.told > 0 {
			window = (now.Sub(q.room.base) - q.gate.met + r.told).Seconds()
		}
		q.learned.find = newFinder(now, q.gate.reopens(now), q.served(), window, q.flow(now))
	}
	if q.learned == nil {
		return nil
	}
	return q.learned.find
}

// served is how many calls have been, about: those sent, neither refused nor under way.
func (q *Queue) served() float64 {
	under := int(q.calls-q.ended.Load()) - int(q.resting.Load())
	if q.line != nil {
		under -= q.line.count
	}
	return max(0, float64(q.counters.sent)-float64(q.counters.throttled)-float64(max(0, under)))
}

// flow is the rate that the upstream has answered so far while the gate was open, 0 if that
// has not been long. Where nothing was refused, it is a rate that the upstream bears.
func (q *Queue) flow(now time.Time) float64 {
	t := now.Sub(q.room.base) - q.gate.met - q.gate.closedTime(now)
	if t < longEnough {
		return 0
	}
	return q.served() / t.Seconds()
}

// reopens is when the gate opens as far as is known, now if it is open.
func (g *gate) reopens(now time.Time) time.Time {
	if g.trouble == nil || g.cause == open {
		return now
	}
	return latest(g.until, now)
}

// resetOf is the reset of a quota of which nothing remains, where a refusal tells
// no other time.
func resetOf(h *hint.Hint) (reset time.Duration) {
	for i := range h.Quotas {
		if h.Quotas[i].Remaining == 0 {
			reset = max(reset, h.Quotas[i].Reset)
		}
	}
	return reset
}

// later20 is a told wait with its jitter.
func later20(wait time.Duration) time.Duration {
	wait = min(wait, maxBelief)
	return wait + jitter(min(wait/20, time.Second))
}

// allLearned is for Stats.
func (q *Queue) allLearned() []Learned {
	q.room.mu.Lock()
	defer q.room.mu.Unlock()
	if q.learned == nil {
		return nil
	}
	return q.learned.all(time.Now())
}

// measure smooths the round trip as TCP does (RFC 6298, alpha 1/8). A failure's
// is no measure of the upstream at work.
func (g *gate) measure(r report) {
	switch {
	case r.trip <= 0 || r.outcome != success && r.outcome != refusal:
	case g.srtt == 0:
		g.srtt = r.trip
	default:
		g.srtt += (r.trip - g.srtt) / 8
	}
}

func (g *gate) succeed(r report, now time.Time, pace rate.Limit) {
	if g.untold > 0 && r.epoch >= g.untoldEpoch {
		g.untold = 0
	}
	if g.cause == open {
		g.row = 0
	}
	if r.epoch != g.epoch {
		return
	}
	if g.mode == counted {
		if g.grown++; g.grown%4 == 0 || g.flow == 0 || float64(g.allowed) < 2*g.flow*g.srtt.Seconds() {
			g.allowed++ // slower above what it has borne before
		}
	}
	switch {
	case g.cause == open || !g.probing:
	case g.floor.After(now): // a pause or a told time that came while the probe was out holds
		g.probing, g.probe, g.until = false, false, g.floor
	default:
		g.epoch++ // another probe may still be out: it is none of the reopening's calls
		g.reopen(now, pace)
	}
}

// probeFailed plans the next probe, if the last one was still awaited: the
// older the outage, the later.
func (g *gate) probeFailed(now time.Time) {
	if g.probing && g.probe {
		g.probeAt(now.Add(min(max(now.Sub(g.rowStart)/50, firstProbe), maxProbeGap)))
	}
}

// failed notes a failure of the current epoch.
func (g *gate) failed(r report, now time.Time) (stopped bool) {
	if g.cause != open {
		g.probeFailed(now)
		return false
	}
	if g.row == 0 {
		g.rowCall, g.rowMixed, g.rowStart = r.call, false, now
	}
	g.row++
	g.rowMixed = g.rowMixed || r.call != g.rowCall
	if g.row < failuresToClose || !g.rowMixed {
		return false
	}
	g.epoch++
	g.close(failing, now.Add(firstProbe), now)
	g.probing = true
	return true
}

// refuse notes a refusal. One of an older epoch is an echo: it extends the
// closing by what it was told, and changes nothing else.
func (g *gate) refuse(r report, current bool, now time.Time, pace rate.Limit) (stopped bool) {
	wait := min(r.told, maxBelief)
	if !current {
		if wait <= 0 {
			return false
		}
		if until := now.Add(wait); g.cause != open && !until.After(g.until) {
			g.floor = latest(g.floor, until) // a probe that is out may open it earlier
			return false
		}
		g.probing = g.probing || r.told > maxBelief
		g.close(told, now.Add(wait), now)
		return true
	}
	g.epoch++
	if g.probing { // until was the probe's time, and it has been used
		g.probeAt(now)
	}
	if wait > 0 {
		g.probing = r.told > maxBelief
		x := later20(wait)
		j := x - wait
		if until := now.Add(x); g.close(told, until, now) {
			g.slack = j
		}
		return true
	}
	if g.untold++; g.untold == 1 {
		g.untoldEpoch = g.epoch
	}
	g.probing = g.untold >= 3
	g.close(throttled, now.Add(g.untoldWait(r.trip, pace)), now)
	g.rowStart = now
	return true
}

// untoldWait is how long to close for a refusal that told no time. A stray one
// hardly costs throughput; those that follow without a success back off with
// full jitter.
func (g *gate) untoldWait(trip time.Duration, pace rate.Limit) time.Duration {
	srtt := g.srtt
	if srtt <= 0 {
		srtt = max(trip, time.Millisecond)
	}
	switch {
	case g.untold == 1 && pace > 0 && pace != rate.Inf:
		return unitTime(1, pace)
	case g.untold <= 2:
		return srtt
	}
	ceiling := maxUntold
	if k := g.untold - 2; k < 32 && srtt < maxUntold>>k {
		ceiling = srtt << k
	}
	return 1 + jitter(ceiling)
}
