package throttledebug

import (
	"bufio"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet"
)

// This file is the page for programs. Its fields are those of throttle.KeyStats, times in seconds; what is unset or
// unknown is left out, and so are counts of 0, except for waiting and sent.

// keyState is one key. Pointers tell 0 from unknown: a bucket that is used up has "tokens": 0, and a key without a
// limiter has none.
type keyState struct {
	// The key is not quoted here, because JSON can hold nearly all: what is not UTF-8 is replaced by U+FFFD.
	Key string `json:"key"`

	// The line: how many wait, since when the oldest, for what the first, until when it does, and their flows. If nobody waits
	// reason is the closed gate's.
	Waiting int            `json:"waiting"`
	Oldest  time.Time      `json:"oldest,omitzero"`
	Reason  string         `json:"reason,omitzero"`
	Until   time.Time      `json:"until,omitzero"`
	Flows   map[string]int `json:"flows,omitempty"`

	// The counts since the key was made, and the attempts under way.
	Sent      uint64 `json:"sent"`
	Throttled uint64 `json:"throttled,omitzero"`
	Retried   uint64 `json:"retried,omitzero"`
	Refused   uint64 `json:"refused,omitzero"`
	InFlight  int    `json:"in_flight,omitzero"`

	// How many attempts may be under way, and the load that this follows.
	MaxInFlight int     `json:"max_in_flight,omitzero"`
	Load        float64 `json:"load,omitzero"`

	// The configured limit in units per second, and the units ready now. Absent: no limiter of this module sets one.
	Limit  *float64 `json:"limit,omitzero"`
	Tokens *float64 `json:"tokens,omitzero"`

	// For how many seconds more the gate is closed; reason says why.
	ClosedFor float64 `json:"closed_for,omitzero"`

	Learned []learnedState `json:"learned,omitzero"`

	// How full each limit of this module is that holds the key's calls, and what meters have settled.
	Limits []limitState `json:"limits,omitzero"`
	Meters []meterState `json:"meters,omitzero"`
}

// learnedState is one limit that was learned. "remaining": 0 is something else than nothing said of what remains.
type learnedState struct {
	Source string `json:"source,omitzero"`
	Name   string `json:"name,omitzero"`
	Unit   string `json:"unit,omitzero"`

	// Units in a window, and units left in it.
	Limit     *int64 `json:"limit,omitzero"`
	Remaining *int64 `json:"remaining,omitzero"`

	// The length of the window, and how much of it is left, in seconds.
	Window float64  `json:"window,omitzero"`
	Reset  *float64 `json:"reset,omitzero"`

	// At which calls start because of it, in units per second. Absent: they are not spaced.
	Rate *float64 `json:"rate,omitzero"`

	// The configured limit that is too high, in units per second: only rate is accepted. Absent: none is.
	Configured float64 `json:"configured,omitzero"`
}

// transportState is one Transport. It has an error or keys, in the order of the query; [] if there are none. What it says
// of a fleet is fleet.Stats as it is, with times in nanoseconds.
type transportState struct {
	Name  string       `json:"name"`
	Error string       `json:"error,omitzero"`
	Fleet *fleet.Stats `json:"fleet,omitzero"`
	Total *totalState  `json:"total,omitzero"`
	Keys  []keyState   `json:"keys"`
}

// state serves /state.json. It writes one Transport after the other, because 10,000 keys take some megabytes. Keys are
// in the order of the query, which limit cuts short over all Transports together: with sort=throttled&limit=5 a program
// gets the five worst keys, each below its Transport, and the other Transports with no keys.
//
// Each Transport has a deadline of its own, as events have, because a server's WriteTimeout counts from the beginning of
// the request. An example: 10,000 keys are 4 MB. A reader that takes them in 8 s gets all; one that stops reading is
// left after 10 s, and what was not written is lost: its JSON has no end.
func (p *page) state(w http.ResponseWriter, r *http.Request) {
	s, v := p.board.now(), parseView(r.URL.Query())
	most := len(s.rows)
	if n, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil && n >= 0 {
		most = min(n, most)
	}
	rows, _ := v.rows(s, most)
	by := map[string][]keyState{}
	for _, r := range rows {
		by[r.name] = append(by[r.name], keyStateOf(r))
	}
	w.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriter(w)
	deadline := http.NewResponseController(w)
	defer out.Flush()
	out.WriteString(`{"time":"` + s.at.UTC().Format(time.RFC3339Nano) + `","transports":[`)
	for i, name := range s.names {
		if i > 0 {
			out.WriteByte(',')
		}
		t := transportState{Name: name, Total: totalsOf(p.board.transports[name]), Keys: by[name]}
		if t.Keys == nil {
			t.Keys = []keyState{}
		}
		if p.board.transports[name] == nil {
			t.Error = "the Transport is nil"
		}
		if f, ok := s.fleets[name]; ok {
			t.Fleet = &f
		}
		out.WriteByte('\n')
		text := encode(t)
		deadline.SetWriteDeadline(time.Now().Add(patience))
		if _, err := out.Write(text); err != nil {
			return
		}
	}
	out.WriteString("\n]}\n")
}

// keyStateOf is one row. A value that JSON cannot hold, such as an infinite limit, is left out as if it were not set.
func keyStateOf(r *row) keyState {
	k := keyState{
		Key: r.Key, Waiting: r.Waiting, Oldest: r.Oldest, Flows: r.Flows, InFlight: r.InFlight, MaxInFlight: r.MaxInFlight, Load: r.Load,
		ClosedFor: r.ClosedFor.Seconds(),
		Sent:      r.Sent, Throttled: r.Throttled, Retried: r.Retried, Refused: r.Refused,
		Reason: r.Reason, Until: r.Until, Tokens: finite(r.tokens()), Limit: finite(r.limit()),
	}
	for _, l := range r.Learned {
		k.Learned = append(k.Learned, learnedStateOf(l))
	}
	k.addLimits(r)
	return k
}

// learnedStateOf is one limit. What is unknown is left out, and so is a rate that spaces nothing.
func learnedStateOf(l throttle.Learned) learnedState {
	s := learnedState{Source: l.Source, Name: l.Name, Unit: l.Unit, Window: l.Window.Seconds(), Configured: float64(l.Configured)}
	if l.Limit >= 0 {
		s.Limit = &l.Limit
	}
	if l.Remaining >= 0 {
		s.Remaining = &l.Remaining
	}
	if l.Reset >= 0 {
		reset := l.Reset.Seconds()
		s.Reset = &reset
	}
	s.Rate = finite(float64(l.Rate), l.Rate < math.MaxFloat64)
	return s
}

// finite is a value that JSON can hold, or nil.
func finite(x float64, ok bool) *float64 {
	if !ok || math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}
