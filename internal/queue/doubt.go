package queue

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/gate"
	"github.com/go-throttle/throttle/internal/learn"
)

const (
	doubtEvents = 8                // refused in a row, not by one event
	doubtGap    = 10 * time.Second // between two of them, at most
	doubtShare  = 0.03             // refused, of what was answered: a finder alone costs a third of that
	doubtClosed = 0.1              // or of the time that the gate was closed
	doubtLeast  = 0.3              // of the configured rate: what accepts less is no slower limit
	doubtOver   = 1.05             // of the configured rate: a finder that is there holds nothing back
	doubtVain   = 10 * time.Minute // until a finder that was of no use is tried again
)

// A doubt is whether the upstream bears what is configured: it refuses, again and again, although that
// is kept. While a finder stands beside the limit, it counts what that one is good for.
type doubt struct {
	events      int // refusals of distinct epochs
	began, last time.Time
	served      float64   // when it began
	refused     float64   // since then
	closed      float64   // seconds, since then
	vain        time.Time // no other finder before then, as the last was of no use; zero: it was not
}

// finderBeside is finder where there is a limit of ours. It is made when refusals keep coming, and can
// only tighten: it goes when it is above that limit, and when to be slower has not helped.
func (q *Queue) finderBeside(r *gate.Report, id uint8, current bool, now time.Time) *learn.Finder {
	l := q.Learned
	if l != nil && l.Finder != nil {
		if r.Outcome == gate.Refusal {
			q.doubt.refused++
			if current {
				q.doubt.closed += q.Gate.Reopens(now).Sub(now).Seconds()
			}
		}
		switch pace := float64(q.Limits.Pace(now)); {
		case l.Finder.Rate(now) > doubtOver*pace:
			l.Finder, q.doubt = nil, nil
		case l.Finder.Held() < doubtLeast/2*pace, l.Finder.Cuts() >= doubtEvents && q.doubt.inVain(q, now):
			l.Finder, q.doubt = nil, &doubt{vain: now.Add(doubtVain)}
		}
		return l.Finder
	}
	if r.Outcome != gate.Refusal || l != nil && l.Explains(id, now) || !q.doubts(current, now) {
		return nil
	}
	if l == nil {
		q.startLearning()
	}
	bears := (1 - q.doubt.share(q)) * float64(q.Limits.Pace(now)) // about
	q.Learned.Finder, q.doubt = learn.NewFinderAt(bears, now, q.Gate.Reopens(now)), &doubt{began: now, served: q.served()}
	return q.Learned.Finder
}

// share is how much of what was answered has been refused since the doubt began.
func (d *doubt) share(q *Queue) float64 {
	return d.refused / max(1, d.refused+q.served()-d.served)
}

// inVain reports whether as much is refused, or closed, as if nothing were held back.
func (d *doubt) inVain(q *Queue, now time.Time) bool {
	return d.share(q) > doubtShare || d.closed > doubtClosed*now.Sub(d.began).Seconds()
}

// doubts notes a refusal and reports whether it is time to look for a slower rate.
// A stray one, a burst that met another, and an upstream that serves hardly anything
// are no reason to.
func (q *Queue) doubts(current bool, now time.Time) bool {
	d := q.doubt
	if d == nil || d.vain.IsZero() && now.Sub(d.last) > doubtGap || !d.vain.IsZero() && now.After(d.vain) {
		d = &doubt{began: now, served: q.served()}
		q.doubt = d
	}
	d.last = now
	d.refused++
	if current {
		d.events++
		d.closed += q.Gate.Reopens(now).Sub(now).Seconds()
	}
	if d.events < doubtEvents || !d.vain.IsZero() {
		return false
	}
	pace, took, served := q.Limits.Pace(now), now.Sub(d.began).Seconds(), q.served()-d.served
	worth := d.share(q) >= doubtShare || d.closed >= doubtClosed*(took+d.closed)
	return worth && served > 0 && pace > 0 && pace < rate.Inf && served >= doubtLeast*float64(pace)*max(0, took-d.closed)
}
