package fleet

import (
	"testing"
	"time"
)

const ms = time.Millisecond

// handOf is a hand of runs: from, until, every and how many, counted from start.
func handOf(start time.Time, runs ...[4]time.Duration) *hand {
	h := new(hand)
	for _, r := range runs {
		h.add(run{first: start.Add(r[0]), until: start.Add(r[1]), every: r[2], count: int(r[3])})
	}
	return h
}

// Units are ripe at their dates and not after their time.
func TestHandGivesUnitsAtTheirDates(t *testing.T) {
	start := time.Now()
	h := handOf(start, [4]time.Duration{10 * ms, 100 * ms, 50 * ms, 3}, [4]time.Duration{20 * ms, 120 * ms, 0, 1}) // 10, 60, 110 ms; until 100, 150, 200
	for _, c := range []struct {
		at, want   time.Duration
		n, missing int64
	}{
		{0, 10 * ms, 1, 0},
		{0, 20 * ms, 2, 0},
		{0, 0, 5, 1},
		{10 * ms, 10 * ms, 1, 0}, // taken
		{10 * ms, 20 * ms, 1, 0},
		{30 * ms, 60 * ms, 2, 0},
		{120 * ms, 120 * ms, 1, 0}, // that of 20 ms has expired; that of 60 ms goes
		{120 * ms, 120 * ms, 1, 0}, // and that of 110 ms
		{120 * ms, 120 * ms, 1, 1},
	} {
		now := start.Add(c.at)
		h.expire(now)
		at, missing := h.dateOf(now, c.n, true)
		if at.Sub(start) != c.want || missing != c.missing {
			t.Errorf("%v: %d units at %v, %d missing; want %v and %d", c.at, c.n, at.Sub(start), missing, c.want, c.missing)
		}
		if missing == 0 && c.n == 1 && !at.After(now) {
			h.take(now, 1)
		}
	}
	if h.held != 0 || h.debt != 0 || h.expired != 1 || len(h.runs) != 0 {
		t.Errorf("%+v", h)
	}
}

// Several units go at once only if the first has not expired when the last is ripe.
func TestHandGivesSeveralUnitsTogether(t *testing.T) {
	start := time.Now()
	h := handOf(start, [4]time.Duration{0, 40 * ms, 30 * ms, 3}) // 0, 30, 60 ms; until 40, 70, 100
	if at, missing := h.dateOf(start, 2, true); at.Sub(start) != 30*ms || missing != 0 {
		t.Errorf("two units at %v, %d missing", at.Sub(start), missing)
	}
	if _, missing := h.dateOf(start, 3, true); missing != 1 {
		t.Errorf("three units that never are there together: %d missing", missing)
	}
	if at, missing := h.dateOf(start, 3, false); at.Sub(start) != 60*ms || missing != 0 {
		t.Errorf("one behind two at %v, %d missing", at.Sub(start), missing)
	}
	h.add(run{first: start.Add(80 * ms), until: start.Add(180 * ms), count: 3}) // dated together
	if at, _ := h.dateOf(start, 3, true); at.Sub(start) != 80*ms {
		t.Errorf("three units at %v", at.Sub(start))
	}
}

// What was not there is paid by the next units.
func TestHandPaysItsDebt(t *testing.T) {
	start := time.Now()
	h := new(hand)
	h.take(start, 3)
	if _, missing := h.dateOf(start, 1, true); h.debt != 3 || missing != 4 {
		t.Errorf("%d owed, %d missing", h.debt, missing)
	}
	h.add(run{first: start, until: start.Add(time.Second), count: 5})
	if h.debt != 0 || h.held != 2 || h.ripeUnits(start) != 2 {
		t.Errorf("%+v", h)
	}
}

// Units of the latest take come back with their date, others are lost.
func TestHandTakesUnitsBack(t *testing.T) {
	start := time.Now()
	h := handOf(start, [4]time.Duration{0, 100 * ms, 0, 3})
	h.take(start, 2)
	if kept := h.giveBack(start, start, 2); kept != 2 || h.held != 3 {
		t.Errorf("%d are back, %d in hand", kept, h.held)
	}
	h.take(start, 1)
	later := start.Add(50 * ms)
	h.payOne(later)
	if kept := h.giveBack(start, later, 1); kept != 0 || h.held != 1 {
		t.Errorf("%d are back, %d in hand", kept, h.held)
	}
	if h.expire(start.Add(100 * ms)); h.held != 0 {
		t.Errorf("%d in hand after their time", h.held)
	}
}

// What is dated before the end of a pause is dropped, also if it comes later.
func TestHandDropsWhatAPauseHolds(t *testing.T) {
	start := time.Now()
	h := handOf(start, [4]time.Duration{0, time.Second, 100 * ms, 5})
	if n := h.pause(start.Add(250 * ms)); n != 3 {
		t.Errorf("%d units dropped, want those of 0, 100 and 200 ms", n)
	}
	h.add(run{first: start, until: start.Add(time.Second), every: 240 * ms, count: 3}) // of 0, 240 and 480 ms
	if h.held != 3 || h.payOne(start.Add(300*ms)) {
		t.Errorf("%d in hand, want those of 300, 400 and 480 ms; one went in a pause", h.held)
	}
}
