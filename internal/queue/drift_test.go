package queue

import (
	"math"
	"testing"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/limit"
)

func watchedMeter(one Meter) *Meters {
	one.Name, one.Limits = "tokens", setOf(bucket(1e6, 1e6))
	m := NewMeters([]Meter{one}, nil, new(limit.Set), new(limit.Set))
	m.Watch(true)
	return m
}

// However many calls start in a second, what the slowest answers need is remembered after a while, in as much memory.
func TestLedgerReachesBackToTheSlowestCall(t *testing.T) {
	const slowest = 30 * time.Second
	m := watchedMeter(Meter{})
	w, now := &m.watches[0], m.base
	w.quotas = make([]compared, 1)
	for range 200_000 {
		now = now.Add(time.Millisecond)
		m.startLocked([]int{1, 10}, now)
		w.asOf(m.since(now.Add(-slowest)))
	}
	e := w.asOf(m.since(now.Add(-slowest)))
	if e == nil || cap(w.ledger) >= 2*ledgerSize {
		t.Fatalf("%v of %d entries, %v apart", e, len(w.ledger), w.gap)
	}
	if age := m.since(now) - e.at; age < slowest.Seconds() || age > slowest.Seconds()+1 {
		t.Errorf("the entry for %v ago is of %v s ago", slowest, age)
	}
	if before := math.Round((e.at)*1000) - 1; e.begun != before || e.held != 10*before {
		t.Errorf("%+v, want what was counted before the attempt", e)
	}
}

// Looking for drifts allocates nothing for a call.
func TestDriftsAllocateNothing(t *testing.T) {
	m, now, amounts := watchedMeter(Meter{}), time.Now(), []int{1, 10}
	quotas := []hint.Quota{{Name: "tokens", Unit: "tokens", Limit: 1000, Remaining: 500, Reset: 30 * time.Second}}
	call := func() {
		now = now.Add(time.Second)
		m.startLocked(amounts, now)
		m.driftLocked(quotas, now, now.Add(time.Millisecond))
		m.keep(amounts[1:])
	}
	if call(); len(m.watches[0].quotas) != 1 {
		t.Fatalf("%+v", m.watches[0].quotas)
	}
	if n := testing.AllocsPerRun(1000, call); n != 0 {
		t.Errorf("%v allocations for a call", n)
	}
}

// What a call may have been counted as is within the bounds, whether it was settled long ago or lately, is open, or began after the
// attempt. Calls hold 100 each. One has cost 150 long ago, two have cost 30 and 150 just before the attempt, and one is open.
func TestEndsAllowForWhatIsNotCertain(t *testing.T) {
	for name, c := range map[string]struct {
		streams bool
		want    bounds
	}{
		"holds":   {false, bounds{150, 150 + 150 + 4*100}},
		"streams": {true, bounds{150, 150 + 5*200}},
	} {
		m := watchedMeter(Meter{Learn: c.streams, Streams: c.streams})
		now := m.base
		start := func() *Holds {
			now = now.Add(time.Second / 2)
			h := m.newHolds(1)
			h.Set(0, 100, true)
			h.startLocked(now)
			return h
		}
		start().Settle(0, 150) // long ago
		now = now.Add(10 * time.Second)
		start() // an entry of the ledger
		now = now.Add(10 * time.Second)
		lately, also := start(), start()
		lately.Settle(0, 30)
		also.Settle(0, 150)
		sent := now.Add(time.Second / 2)
		start() // the attempt itself
		start() // after it
		e, ok := m.endLocked(0, sent, now.Add(time.Second))
		if !ok || e.own != c.want || e.begun != 6 {
			t.Errorf("%s: %+v, want %v", name, e, c.want)
		}
	}
}
