package throttledebug

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet"
)

// What the details of a key show at most, so that an event stays small whatever the upstream and the flows are called.
const (
	maxLearned = 12
	maxFlows   = 12
)

// details are what the page shows of the chosen key. They are found by going through all rows once a tick, because the
// chosen key may be none of those in view. All but the point is in words, for the page without script and for the
// script alike.
//
// A key that is not there is not an error. An example: somebody keeps the page of a key open over night. The key is
// dropped after an hour without calls, the page says so, and shows it again as soon as it is called again.
type details struct {
	// Name and Key as they are shown, so quoted; Gone if there is no such key.
	Name string `json:"name"`
	Key  string `json:"key"`
	Gone bool   `json:"gone,omitzero"`

	// Why is a sentence about the first call in line. TooHigh is one about the configured limit; "": it is not too high. Facts
	// are pairs of a label and a value.
	Why     string      `json:"why"`
	TooHigh string      `json:"too_high,omitzero"`
	Facts   [][2]string `json:"facts,omitzero"`

	// The lines of the small tables: what was learned, whose calls wait, and how full the limits are.
	Learned [][]string `json:"learned,omitzero"`
	Flows   [][]string `json:"flows,omitzero"`
	Limits  [][]string `json:"limits,omitzero"`

	// Fleet are facts of the Transport's Limiter, if several processes share it.
	Fleet [][2]string `json:"fleet,omitzero"`

	// Point is for the charts, nil if the key is gone.
	Point *point `json:"point,omitzero"`
}

// A point is what the charts show of one moment. The browser keeps the points of two minutes; here nothing is kept.
//
// Counts are since the key was made: the browser turns them into rates. An example: 4,180 were sent at 12:00:00 and
// 4,200 at 12:00:02, because one event was late. The chart shows 10 a second.
type point struct {
	Sent      uint64 `json:"sent"`
	Throttled uint64 `json:"throttled"`
	Refused   uint64 `json:"refused"`
	Waiting   int    `json:"waiting"`
	InFlight  int    `json:"in_flight"`

	// Closed is the gate: the charts are shaded.
	Closed bool `json:"closed"`

	// Units ready, and limits in units per second: the configured one, one that was found because the upstream
	// throttles, and the slowest pace of advertised quotas. null, where there is none, makes a gap in a line; 0 does not.
	Tokens     *float64 `json:"tokens"`
	Limit      *float64 `json:"limit"`
	Found      *float64 `json:"found"`
	Advertised *float64 `json:"advertised"`
}

// learnedHead and flowsHead are the headings of the small tables. They stand in the page, and are not sent again with
// each event.
var (
	learnedHead = []string{"Limit learned from", "Name", "Limit", "Remaining", "Window", "Ends in", "Pace"}
	flowsHead   = []string{"Flow", "Waiting"}
)

// detailsOf returns what is known of the chosen key, or nil if none is chosen.
func (s *sample) detailsOf(v view) *details {
	if !v.chosen() {
		return nil
	}
	r := v.find(s)
	if r == nil {
		return &details{Name: named(v.name), Key: named(v.key), Gone: true, Why: "No such key now: it was never called, or was dropped because nobody has used it for a while."}
	}
	d := &details{Name: quoted(r.name), Key: quoted(r.Key), Why: why(r, s.at), TooHigh: tooHigh(r), Facts: facts(r, s.at), Point: pointOf(r)}
	for _, l := range r.Learned[:min(maxLearned, len(r.Learned))] {
		d.Learned = append(d.Learned, learned(l))
	}
	d.Flows, d.Limits = flows(r.Flows), limits(r)
	if f, ok := s.fleets[r.name]; ok {
		d.Fleet = fleetFacts(f)
	}
	return d
}

// named is a name or key that a query names and nobody has: it may be anything, of any length. It is shown as that of a row
// would be, quoted, and cut above what a key of 256 bytes can take.
func named(s string) string { return cut(quoted(unquoted(s)), 1024) }

// why is a sentence about the first call in line, with the word of QueueStats.Reason for those who search for it:
//
//	The first call in line waits for the limit of its key (limit), for 0.4 s more, until 12:00:01 UTC.
func why(r *row, at time.Time) string {
	if r.Waiting == 0 {
		if r.closed() {
			return "Nobody waits. The gate is closed: " + gate(r) + "."
		}
		return "Nobody waits."
	}
	text := "The first call in line waits"
	if words := meaning(r.Reason); words != "" {
		text += " for " + words
	}
	if r.Reason != "" {
		text += " (" + short(r.Reason) + ")"
	}
	if left := r.Until.Sub(at); !r.Until.IsZero() && left > 0 {
		text += ", for " + span(left) + " more, until " + r.Until.UTC().Format("15:04:05 UTC")
	}
	return text + "."
}

// tooHigh says that the configured limit is above what the upstream accepts, as far as is known:
//
//	You configured 10/s; 9.6/s are accepted.
//
// Of 10/s and 9.98/s, which look the same, "almost 10/s" are accepted.
func tooHigh(r *row) string {
	for _, l := range r.Learned {
		if l.Configured > 0 {
			ours, accepted := pace(float64(l.Configured)), pace(float64(l.Rate))
			if accepted == ours {
				accepted = "almost " + accepted
			}
			return "You configured " + ours + "; " + accepted + " are accepted."
		}
	}
	return ""
}

// facts are the numbers of a key. They are those of its row, with the columns that a phone leaves out, so that the
// details say everything wherever they are read.
func facts(r *row, at time.Time) [][2]string {
	return [][2]string{
		{"Waiting", count(uint64(r.Waiting))},
		{"Oldest", span(r.waited(at))},
		{"In flight", inFlight(r)},
		{"Gate", gate(r)},
		{"Tokens", known(decimal, r.tokens)},
		{"Limit", known(pace, r.limit)},
		{"Used", known(percent, r.used)},
		{"Sent", count(r.Sent)},
		{"Throttled", count(r.Throttled)},
		{"Retried", count(r.Retried)},
		{"Refused", count(r.Refused)},
	}
}

// inFlight is how many calls are in flight, and how many may be: "12 of 26".
func inFlight(r *row) string {
	text := count(uint64(max(0, r.InFlight)))
	if r.MaxInFlight > 0 {
		text += " of " + count(uint64(r.MaxInFlight))
	}
	return text
}

// pointOf returns the charts' values of a row. They are numbers, because the browser computes with them; a value that JSON
// cannot hold is null.
func pointOf(r *row) *point {
	p := &point{
		Sent: r.Sent, Throttled: r.Throttled, Refused: r.Refused,
		Waiting: r.Waiting, InFlight: r.InFlight, Closed: r.closed(),
		Tokens: finite(r.tokens()), Limit: finite(r.limit()),
	}
	found, advertised := r.found(), r.advertised()
	p.Found, p.Advertised = finite(found, found > 0), finite(advertised, advertised > 0)
	return p
}

// learned is one line of what was learned, and which header said it. An example, of GitHub's hourly quota:
//
//	X-Ratelimit-Limit, core, 5,000 requests, 820 requests, 1 h, 29 min, 1.4/s
//
// is 820 calls left for 29 minutes; at most 1.4 of them start in a second.
func learned(l throttle.Learned) []string {
	units := func(n int64) string {
		if n < 0 {
			return none
		}
		return count(uint64(n)) + " " + cmp.Or(short(l.Unit), "units")
	}
	name, from := cmp.Or(short(l.Name), none), short(l.Source)
	if l.Source == "throttled" {
		from = "throttled attempts"
	}
	start := known(pace, func() (float64, bool) { return float64(l.Rate), l.Rate < math.MaxFloat64 })
	return []string{from, name, units(l.Limit), units(l.Remaining), span(l.Window), span(l.Reset), start}
}

// flows are the flows with the most waiting calls, and the rest together: of 100 tenants those that fill the line are
// shown. Calls without a name are a flow as well.
func flows(waiting map[string]int) (lines [][]string) {
	names := slices.SortedFunc(maps.Keys(waiting), func(a, b string) int {
		return cmp.Or(cmp.Compare(waiting[b], waiting[a]), cmp.Compare(a, b))
	})
	rest := 0
	for i, name := range names {
		if i >= maxFlows {
			rest += waiting[name]
			continue
		}
		lines = append(lines, []string{cmp.Or(short(name), "(unnamed)"), count(uint64(waiting[name]))})
	}
	if rest > 0 {
		lines = append(lines, []string{"all others", count(uint64(rest))})
	}
	return lines
}

// fleetFacts are the numbers of a limit that several processes share, as this process knows them: the store is not
// asked. Units that expired are what to look at: many of them say that this process is granted more than it uses, and
// takes them from the others.
func fleetFacts(f fleet.Stats) [][2]string {
	return [][2]string{
		{"Mode", f.Mode},
		{"Members", strconv.Itoa(f.Members)},
		{"Units in hand", count(uint64(max(0, f.Held)))},
		{"Debt", count(uint64(max(0, f.Debt)))},
		{"Paused", span(f.Paused)},
		{"Trips to the store", count(f.Trips)},
		{"Failed", count(f.Failed)},
		{"Round trip", f.RoundTrip.Round(10 * time.Microsecond).String()},
		{"Granted", count(f.Granted)},
		{"Used", count(f.Used)},
		{"Expired", count(f.Expired)},
		{"Used alone", count(f.Alone)},
	}
}
