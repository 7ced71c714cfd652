package throttledebug

import (
	"cmp"
	"math"
	"strings"

	"github.com/go-throttle/throttle"
)

// This file shows how full the limits of a key are, and how much of them is used. Both are needed: calls that are spaced
// find a bucket of one unit empty or full by chance, and a window of an hour may be half full and hardly used of late.

// maxLimits is how many limits of a key the details show. A key with 64 meters has more.
const maxLimits = 12

// limitsHead are the headings of the table of limits.
var limitsHead = []string{"Limit", "Allows", "Ready", "Used", "Held", "Cost of holds"}

// limits are the lines of that table, in the order of KeyStats.Limits. An example, of a key with a burst of 20 and a meter:
//
//	limit, "10/s, 20 at once", "12.4 of 20", 41 %, –, –
//	meter:tokens, "100,000 in 1 min", "−312 of 100,000", 108 %, "2,000", 35 %
//
// The meter has a debt; its calls have cost about a third of what was held for them.
func limits(r *row) (lines [][]string) {
	for i := range r.Limits[:min(maxLimits, len(r.Limits))] {
		l := &r.Limits[i]
		held, cost := none, none
		if m := meterOf(r, l.Reason); m != nil {
			held = decimal(float64(m.Held))
			if m.Estimate > 0 {
				cost = percent(float64(m.Settled) / float64(m.Estimate))
			}
		}
		lines = append(lines, []string{short(l.Reason), allows(l), decimal(l.Available) + " of " + decimal(l.Size), known(percent, func() (float64, bool) { return r.utilization(l) }), held, cost})
	}
	return lines
}

// meterOf is the meter whose limit holds calls for that reason, or nil.
func meterOf(r *row, reason string) *throttle.MeterStats {
	name, ok := strings.CutPrefix(reason, "meter:")
	for i := range r.Meters {
		if ok && r.Meters[i].Name == name {
			return &r.Meters[i]
		}
	}
	return nil
}

// allows says what a limit is: "10/s, 20 at once" is a bucket, "10/s" one without a burst, "100 in 1 min" a window.
func allows(l *throttle.LimitStats) string {
	switch {
	case l.Window > 0:
		return decimal(l.Size) + " in " + span(l.Window)
	case l.Size > 1:
		return pace(float64(l.Limit)) + ", " + decimal(l.Size) + " at once"
	}
	return pace(float64(l.Limit))
}

// percent is a share: 0.412 is 41 %, and 0.002 is 0.2 %, so that a limit that is hardly used is not taken for an unused one.
func percent(share float64) string {
	if x := math.Abs(share * 100); x >= 0.95 {
		return decimal(math.Round(share*100)) + " %"
	}
	return decimal(share*100) + " %"
}

// compareUsed puts the row first whose limits are used most, and last one of which that is not known.
func compareUsed(a, b *row) int {
	most := func(r *row) float64 {
		if used, ok := r.used(); ok {
			return used
		}
		return -1
	}
	return cmp.Compare(most(b), most(a))
}

// limitState is one limit in state.json. All of it is there, 0 or not, but window: a bucket has none.
type limitState struct {
	Reason string `json:"reason"`

	// Units per second, units that it has if none is used, and the length of a window in seconds.
	Limit  *float64 `json:"limit"`
	Size   float64  `json:"size"`
	Window float64  `json:"window,omitzero"`

	// Units ready now, and those that calls have taken since the key was made.
	Available *float64 `json:"available"`
	Taken     int64    `json:"taken"`
}

// meterState is what state.json says of a meter beside its limits: units of throttle.MeterStats.
type meterState struct {
	Name     string `json:"name"`
	Held     int64  `json:"held"`
	Estimate int64  `json:"estimate"`
	Settled  int64  `json:"settled"`
}

// addLimits fills in what state.json says of the limits of a row.
func (k *keyState) addLimits(r *row) {
	for _, l := range r.Limits {
		k.Limits = append(k.Limits, limitState{
			Reason: l.Reason, Limit: finite(float64(l.Limit), true), Size: l.Size, Window: l.Window.Seconds(),
			Available: finite(l.Available, true), Taken: l.Taken,
		})
	}
	for _, m := range r.Meters {
		k.Meters = append(k.Meters, meterState{m.Name, m.Held, m.Estimate, m.Settled})
	}
}

// totalState is the sum over all keys of a Transport, those included that were dropped.
type totalState struct {
	Sent      uint64 `json:"sent"`
	Throttled uint64 `json:"throttled"`
	Retried   uint64 `json:"retried"`
	Refused   uint64 `json:"refused"`
}

// totalsOf asks a Transport for them. Nil has none.
func totalsOf(t *throttle.Transport) *totalState {
	if t == nil {
		return nil
	}
	s := t.Totals()
	return &totalState{s.Sent, s.Throttled, s.Retried, s.Refused}
}
