package queue

import (
	"math"
	"slices"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/gate"
	"github.com/go-throttle/throttle/internal/learn"
)

// This file is what a queue makes of an attempt's answer.

// Heard takes in what an attempt has shown: what it says of quotas, what a refusal
// says of the rate, and what the gate makes of it. It returns the limits that are new.
func (q *Queue) Heard(r *gate.Report, h *hint.Hint, p learn.Place, now time.Time) (news []learn.Known) {
	if l := q.Learned; l != nil && p.Paid > 0 {
		l.Landed(p.Paid-1, p.Cost)
	}
	p.Refused = r.Outcome == gate.Refusal
	id := max(p.Paid, 1) - 1
	if len(h.Quotas) > 0 && q.teachable(h) {
		known := len(q.Learned.Lanes)
		id, news = q.Learned.Hear(h.Quotas, id, p, float64(q.Counters.Sent), now)
		if known == 1 && q.Line != nil && id > 0 { // until more is known, all fall under these quotas
			q.Line.move(id)
		}
	}
	if q.Learned != nil {
		q.Learned.Trip(r.Trip)
	}
	pace := q.Pace()
	q.Gate.Closed(now, pace) // if it is over, the rate that was found is the one to reopen at
	answer := *r
	if r.Outcome == gate.Refusal {
		q.Counters.throttled++
		pace = q.Limits.Pace(now) // a first refusal closes for one unit's time
		if r.Told == 0 {
			r.Told = resetOf(h)
			answer.Told = r.Told
		}
		if q.Learned != nil && q.Learned.Shut(id, h, now) {
			answer.Outcome = gate.Success // the quota holds its calls back: the others' may go on
		}
	} else if h.Throttled { // final for its own call
		q.Counters.throttled++
	}
	current := r.Epoch == q.Gate.Epoch
	stopped := q.Gate.Learn(answer, now, pace)
	if stopped && q.Gate.Cause == gate.Failing {
		q.Gate.Flow = q.Flow(now)
	}
	news = append(news, q.seek(r, id, p, current, now)...)
	if stopped || q.Learned != nil && q.Room.MaxPause >= 0 && !q.Learned.Spent(id, now).IsZero() {
		q.Expel(now)
	}
	return news
}

// seek tells the finder, if there is one or now has to be, what an attempt has shown, and returns the rate
// that is new.
func (q *Queue) seek(r *gate.Report, id uint8, p learn.Place, current bool, now time.Time) (news []learn.Known) {
	looked := q.Learned != nil && q.Learned.Finder != nil
	f := q.finder(r, id, current, now)
	if f == nil {
		return nil
	}
	switch r.Outcome {
	case gate.Refusal:
		tightened := !looked && len(q.Limits.Accounts) > 0 // a limit of ours, from now on
		if f.Refuse(p.Sent, now, q.Gate.Reopens(now), current, r.Told > 0, q.Gate.Srtt) || tightened {
			return []learn.Known{f.View(now)}
		}
	case gate.Success:
		f.Accept(max(1, p.Cost), p.Sent, current)
	}
	return nil
}

// teachable reports whether there is a Learner for what h tells, and makes it if
// something of that can be kept.
func (q *Queue) teachable(h *hint.Hint) bool {
	if q.Learned == nil && slices.ContainsFunc(h.Quotas, func(t hint.Quota) bool { return learn.Useful(&t) }) {
		q.startLearning()
	}
	return q.Learned != nil
}

func (q *Queue) startLearning() {
	q.Learned = learn.New()
	q.Gate.Listens = true
	q.Gate.Watch()
}

// finder returns what looks for a limit, nil if nothing does. It is made at the first refusal that
// neither a limit of ours nor a told quota explains; where there is one of ours, see doubt.go.
func (q *Queue) finder(r *gate.Report, id uint8, current bool, now time.Time) *learn.Finder {
	if len(q.Limits.Accounts)+len(q.Limits.Foreign) > 0 {
		return q.finderBeside(r, id, current, now)
	}
	if r.Outcome == gate.Refusal && (q.Learned == nil || q.Learned.Finder == nil && !q.Learned.Explains(id, now)) {
		if q.Learned == nil {
			q.startLearning()
		}
		q.Learned.Finder = learn.NewFinder(now, q.firstRefusal(r, now))
	}
	if q.Learned == nil {
		return nil
	}
	return q.Learned.Finder
}

func (q *Queue) firstRefusal(r *gate.Report, now time.Time) learn.FirstRefusal {
	first := learn.FirstRefusal{Until: q.Gate.Reopens(now), Burst: q.served(), Window: math.Inf(1), Flow: q.Flow(now)}
	if r.Told > 0 {
		first.Window = (now.Sub(q.Room.Base) - q.Gate.Met + r.Told).Seconds()
	}
	if g := &q.Gate; g.Trouble != nil && now.Sub(g.Opened) < time.Second {
		first.Opened, first.Srtt = g.Opened, g.Srtt
		first.Served = g.Grown + 1
		first.Sent = first.Served + g.Flying + 1
	}
	return first
}

// served is how many calls have been, about: those sent, neither refused nor under way.
func (q *Queue) served() float64 {
	under := int(q.Begun-q.Ended.Load()) - int(q.Resting.Load())
	if q.Line != nil {
		under -= q.Line.Count
	}
	return max(0, float64(q.Counters.Sent)-float64(q.Counters.throttled)-float64(max(0, under)))
}

// Flow is the rate that the upstream has answered so far while the gate was open, 0 if that
// has not been long. Where nothing was refused, it is a rate that the upstream bears.
func (q *Queue) Flow(now time.Time) float64 {
	t := now.Sub(q.Room.Base) - q.Gate.Met - q.Gate.ClosedTime(now)
	if t < learn.LongEnough {
		return 0
	}
	return q.served() / t.Seconds()
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

// AllLearned is what observers see of what is learned; nil: nothing is.
func (q *Queue) AllLearned() []learn.Known {
	q.Room.Mu.Lock()
	defer q.Room.Mu.Unlock()
	if q.Learned == nil {
		return nil
	}
	return q.Learned.All(time.Now())
}
