package throttleotel

import (
	"maps"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/go-throttle/throttle"
)

// This file observes how full the limits are, and what meters have settled. A limit is known by the word that its waiting
// calls have as their reason, so the same throttle.reason leads from a wait to what it waits for.

// limitInstruments are those about limits and meters.
type limitInstruments struct {
	utilization, debt  metric.Float64ObservableGauge
	held               metric.Int64ObservableUpDownCounter
	estimated, settled metric.Int64ObservableCounter
}

// shared is the reason of the one limit that belongs to no key.
const shared = "limit:shared"

// register makes the instruments.
func (li *limitInstruments) register(i *instruments) {
	li.utilization = i.gauge("throttle.client.utilization", "1", "The share of a limit that is used; of a burst it may be more than 1.")
	li.debt = i.gauge("throttle.client.debt", "{unit}", "Units that a limit has given beyond what it had.")
	li.held = i.upDown("throttle.client.held_unit.count", "{unit}", "Units of a meter that attempts hold that are not settled.")
	li.estimated = i.observedCounter("throttle.client.estimated_units", "{unit}", "Units that the settled attempts had held.")
	li.settled = i.observedCounter("throttle.client.settled_units", "{unit}", "Units that the settled attempts have cost.")
}

// A limitView is what a collection sees of the limits of one reason, of all keys of a series.
type limitView struct {
	utilization, debt float64 // the largest
	seen              bool    // the utilization is known
	meter             bool
	held              int64
	estimate, settled uint64
}

// limit returns the view of a reason. Beyond maxWords reasons it is that of "_other".
func (v *view) limit(reason string) *limitView {
	if v.limits == nil {
		v.limits = map[string]*limitView{}
	}
	reason = strings.ToValidUTF8(reason, "\uFFFD")
	if v.limits[reason] == nil && len(v.limits) >= maxWords {
		reason = others
	}
	l := v.limits[reason]
	if l == nil {
		l = new(limitView)
		v.limits[reason] = l
	}
	return l
}

// takeLimits adds those of a key, as compared with an earlier look, and notes them; nil: there was none.
func (v *view) takeLimits(k *throttle.KeyStats, since, now *look) {
	for i := range k.Limits {
		one := &k.Limits[i]
		l, id := v.limit(one.Reason), limitID{k.Key, one.Reason}
		if one.Reason == shared {
			id.key = ""
		}
		now.taken[id], l.debt = one.Taken, max(l.debt, -one.Available)
		switch {
		case since != nil: // a key that was not there has begun since then
			l.utilization, l.seen = max(l.utilization, one.Utilization(since.taken[id], now.at.Sub(since.at))), true
		case one.Window > 0:
			l.utilization, l.seen = max(l.utilization, one.Utilization(0, 0)), true
		}
	}
	for i := range k.Meters {
		one := &k.Meters[i]
		l := v.limit("meter:" + one.Name)
		l.meter = true
		l.held += one.Held
		l.estimate += uint64(max(0, one.Estimate))
		l.settled += uint64(max(0, one.Settled))
	}
}

// A settlement follows what a meter of a key, or of all others, has settled. An estimate far below the last one is that of a key
// that was dropped and has come back; what it has cost is then counted from 0 too. Of the others together, whose
// keys come and go, it may miss a part, and never counts one twice.
type settlement struct{ estimated, settled tally }

// follow takes in what a collection sees. What was settled may be seen too high for a moment, while an attempt is
// being settled, so less than before is no news.
func (s *settlement) follow(l *limitView) {
	if l.estimate < s.estimated.last/2 {
		s.settled.last = 0
	}
	s.estimated.follow(l.estimate)
	if l.settled > s.settled.last {
		s.settled.total += l.settled - s.settled.last
		s.settled.last = l.settled
	}
}

// observeLimits observes what is true at this moment, and lets the settlements follow; v is nil if no key of the series is
// there.
func (c *client) observeLimits(o metric.Observer, s *series, v *view) {
	if v != nil {
		for reason, l := range v.limits {
			if reason == shared {
				continue
			}
			with := s.with(reasonAttr.String(reason))
			c.observeLimit(o, l, with)
			if l.meter {
				o.ObserveInt64(c.held, l.held, with)
				s.meter(reason).follow(l)
			}
		}
	}
	for reason, m := range s.meters {
		if v == nil { // the key was dropped
			m.estimated.last, m.settled.last = 0, 0
		}
		with := s.with(reasonAttr.String(reason))
		o.ObserveInt64(c.estimated, int64(m.estimated.total), with)
		o.ObserveInt64(c.settled, int64(m.settled.total), with)
	}
}

// observeLimit observes how full one limit is, and how much of it is used.
func (c *client) observeLimit(o metric.Observer, l *limitView, with metric.MeasurementOption) {
	if l.seen {
		o.ObserveFloat64(c.utilization, l.utilization, with)
	}
	o.ObserveFloat64(c.debt, l.debt, with)
}

// meter is the settlement of a meter, made at its first use.
func (s *series) meter(reason string) *settlement {
	if s.meters == nil {
		s.meters = map[string]*settlement{}
	}
	m := s.meters[reason]
	if m == nil {
		m = new(settlement)
		s.meters[reason] = m
	}
	return m
}

// observeShared observes the limit that all keys share, once, without a key.
func (c *client) observeShared(o metric.Observer, views map[*series]*view) {
	for v := range maps.Values(views) {
		if l := v.limits[shared]; l != nil {
			with := metric.WithAttributeSet(attribute.NewSet(policyAttr.String(c.series.policy), reasonAttr.String(shared)))
			c.observeLimit(o, l, with)
			return
		}
	}
}
