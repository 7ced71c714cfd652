package queue

import (
	"testing"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/limit"
)

// What a call is charged of an advertised quota is what it costs of the meter of that name or unit: at first what it holds, then what
// calls have cost.
func TestQuotasThatMirrorMeters(t *testing.T) {
	meters := func(names ...string) *Meters {
		var each []Meter
		for _, name := range names {
			each = append(each, Meter{Name: name, Limits: setOf(bucket(100, 1e6))})
		}
		each = append(each, Meter{Name: "free", Limits: setOf(bucket(rate.Inf, 1))})
		m := NewMeters(each, nil, new(limit.Set), new(limit.Set))
		for i := range each {
			m.usual[i] = 1000 + float64(i)
		}
		return m
	}
	one, two := meters("tokens"), meters("input-tokens", "output-tokens")
	for _, c := range []struct {
		m          *Meters
		name, unit string
		want       float64
	}{
		{one, "", "tokens", 1000},
		{one, "default", "tokens", 1000},
		{one, "tokens", "points", 1000},
		{one, "", "requests", 0},
		{one, "", "", 0},
		{one, "", "project-tokens", 0},
		{one, "", "free", 0}, // has no limit
		{two, "", "input-tokens", 1000},
		{two, "", "output-tokens", 1001},
		{two, "", "tokens", 1000},
		{two, "output-tokens", "tokens", 1001}, // the name says more than the unit
	} {
		if got := chargeOf(c.m, &hint.Quota{Name: c.name, Unit: c.unit}); got != c.want {
			t.Errorf("%q of %q: %v, want %v", c.name, c.unit, got, c.want)
		}
	}
	for range settledCalls {
		h := one.newHolds(1)
		h.Set(0, 1000, false)
		h.startLocked(h.taken)
		h.Settle(0, 600)
		h.Settle(1, 0)
	}
	for range settledCalls { // granted, but not sent
		h := one.newHolds(1)
		h.Set(0, 1000, false)
		h.startLocked(h.taken)
		h.undo()
	}
	if got := chargeOf(one, &hint.Quota{Unit: "tokens"}); got != 600 {
		t.Errorf("%v after calls of 600, want that", got)
	}
}

// chargeOf is what a call is charged of a quota; 0: it mirrors no meter.
func chargeOf(m *Meters, quota *hint.Quota) float64 {
	if c := m.counterOf(quota); c != nil {
		return c.Cost()
	}
	return 0
}
