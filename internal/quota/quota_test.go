package quota

import (
	"math"
	"testing"
	"time"

	"github.com/go-throttle/throttle/hint"
)

var zero = time.Unix(1e9, 0)

// span is so many seconds.
func span(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

// at is the moment so many seconds after zero.
func at(s float64) time.Time { return zero.Add(span(s)) }

// A wrong clock shows by a reset that is past, or further away than the window is long, and is right again when a reset agrees with what was
// seen. Until then a window ends one window after its first answer at the latest.
func TestClockOfAWindowIsDoubted(t *testing.T) {
	for name, c := range map[string]struct {
		resets []float64 // of answers 100 s apart
		ends   float64   // when the window of an hour is taken to end
	}{
		"right":              {[]float64{3000, 2900}, 3000},
		"rounded up":         {[]float64{3601, 3501}, 3601},
		"three hours ahead":  {[]float64{13800, 13700}, 3600},
		"half an hour ahead": {[]float64{5000, 4900}, 3600},
		"behind":             {[]float64{0, 0}, 3600},
		"never said":         {[]float64{-1e-9, -1e-9}, 3600},
		"said once":          {[]float64{3000, -1e-9}, 3000},
		"said later":         {[]float64{-1e-9, 2900}, 3000},
		"wrong, then right":  {[]float64{9000, 3500, 3300}, 3500},
	} {
		q := &quota{Quota: hint.Quota{Limit: -1}, named: time.Hour, factor: 4, perUnit: 1}
		for i, r := range c.resets {
			now := at(100 * float64(i))
			q.observe(hint.Quota{Limit: 1000, Remaining: 900 - int64(i), Window: time.Hour, Reset: span(r)}, &Answer{Served: true, All: 1, Sent: now}, now)
		}
		if ends := q.until.Sub(zero).Seconds(); ends < c.ends-20 || ends > c.ends+20 {
			t.Errorf("%s: the window ends after %v s, want %v", name, ends, c.ends)
		}
	}
}

// Where nothing remains, the next call is planned for half of the time at the latest, however many units each one takes.
func TestStepsOfCostlyCalls(t *testing.T) {
	for _, perUnit := range []float64{1, 100} {
		for name, q := range map[string]*quota{
			"a bucket":      {Quota: hint.Quota{Unit: "points", Rate: 100}, window: span(20), rolling: true, shared: at(60)},
			"a long window": {Quota: hint.Quota{Unit: "tokens", Window: span(60)}, window: span(60), until: at(20), factor: 4},
		} {
			q.size, q.perUnit, q.leftAt = 2000, perUnit, zero
			if step := seconds(q.charge(1) / q.pace(zero)); step > span(10) {
				t.Errorf("%s: calls of %v units would be %v apart, want 10s at most", name, perUnit, step)
			}
		}
	}
}

// A prediction does not take the pace of a moment at which little remains for that of a minute: of a bucket of 60,000 a minute 45
// calls of 930 need 42 s. Calls that could have been made in time were refused, with 22 minutes predicted.
func TestPredictionWhereLittleRemains(t *testing.T) {
	q := &quota{Quota: hint.Quota{Unit: "tokens"}, size: 60_000, window: span(60), rolling: true, shared: at(60), left: 1000, leftAt: zero, perUnit: 930}
	if wait := q.after(zero, 44, 1).Sub(zero); wait < span(40) || wait > span(90) {
		t.Errorf("the last of 45 calls is to start after %v, want about 42 s to twice that", wait)
	}
}

// A quota explains what it has less left for than a call needs: one of a meter that holds 500, one whose calls have cost 240
// each, and one of requests.
func TestQuotaExplainsWhatItIsTooSmallFor(t *testing.T) {
	for name, c := range map[string]struct {
		unit  string
		meter Counter
		need  int64
	}{
		"a meter's":  {"tokens", heldMeter{}, 500},
		"unmirrored": {"tokens", nil, 240},
		"requests":   {"requests", nil, 1},
	} {
		for _, left := range []int64{c.need - 1, c.need} {
			b, advertised := New(), hint.Quota{Name: "q", Unit: c.unit, Limit: 9000, Remaining: 900, Reset: span(40), Window: span(60), Source: "X"}
			h := hint.Hint{Quotas: []hint.Quota{advertised}}
			answer := Answer{Quotas: h.Quotas, Served: true, Cost: 1, Host: "a", Path: "/x", Counter: func(*hint.Quota) Counter { return c.meter }}
			b.Observe(&answer, at(0.05))
			b.scopes[1].quotas[0].perUnit = float64(c.need)
			answer.Served, answer.Throttled, answer.RetryAfter, h.RetryAfter, h.Quotas[0].Remaining = false, true, span(39), span(39), left
			answer.Sent = at(1)
			id, _, _ := b.Observe(&answer, at(1.05))
			b.CloseQuotas(id, &h, at(1.05))
			if got := b.Explains(1, 1, at(1.05)); got != (left < c.need) {
				t.Errorf("%s: %d left explain it: %v", name, left, got)
			}
		}
	}
}

// A heldMeter is one whose calls hold 500 and cost 300, at the upstream as well.
type heldMeter struct{}

func (heldMeter) Cost() float64                   { return 300 }
func (heldMeter) Hold() float64                   { return 500 }
func (heldMeter) Units() (held, returned float64) { return 0, 0 }
func (heldMeter) Holds() bool                     { return true }
func (heldMeter) Turn(time.Time)                  {}

// A start that was not used is not in flight.
func TestUndo(t *testing.T) {
	b := New()
	advertised := []hint.Quota{{Limit: 100, Remaining: 90, Reset: span(10), Window: span(10)}}
	id, _, _ := b.Observe(&Answer{Quotas: advertised, Served: true, Cost: 1, Sent: zero, Host: "a", Path: "/x"}, zero)
	if b.Take(id, 1, at(1)); b.scope(id).inFlight != 1 || b.scope(id).quotas[0].units != 1 {
		t.Errorf("%d in flight", b.scope(id).inFlight)
	}
	if b.Undo(id, 1, at(1)); b.scope(id).inFlight != 0 || b.scope(id).quotas[0].units != 0 {
		t.Errorf("%d in flight after the undo", b.scope(id).inFlight)
	}
}
