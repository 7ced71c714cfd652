// Package scenario holds the situations that clients are put in. What a scenario measures, it takes from
// the upstream's ledger, not from the client's word.
package scenario

import (
	"context"
	"slices"
	"time"

	"github.com/go-throttle/throttle/bench/client"
)

// A Scenario is one situation.
type Scenario struct {
	Name    string // short, for -scenario: "outage-known"
	Title   string // one line for people
	About   string // two or three sentences: upstream, load, what is right
	Metrics []Metric
	Takes   time.Duration            // about how long one run is in real time, for the estimate
	Alone   bool                     // in real time it wants the machine for itself: it measures cost, or high rates
	Noisy   bool                     // quick, and differs much from run to run: by default it is run three times in real time too
	Fleet   bool                     // for clients of fleets, and only them. It needs a redis-server, so it runs only if it is asked for by name
	Metered bool                     // for clients of meters, and only them. It runs in virtual time alone: calls are long
	Adapts  bool                     // for clients whose limit follows response times, and only them. It runs in virtual time alone, and only if it is asked for by name
	Virtual bool                     // it can run in a testing/synctest bubble too
	Fits    func(client.Client) bool // nil: every client
	Run     func(context.Context, client.Client, Options) (Result, error)
}

// A Metric is one column of a scenario's table.
type Metric struct {
	Name   string `json:"name"`             // "quota_used"
	Title  string `json:"title"`            // "quota used"
	Unit   string `json:"unit,omitempty"`   // "%", "ns", "" ...
	Better int    `json:"better,omitempty"` // +1: more is better, -1: less is better, 0: neither
	Digits int    `json:"digits,omitempty"` // after the point, in tables
}

// Options of a run.
type Options struct {
	Seed    int64
	Short   bool // a tenth of the load, for tests
	Virtual bool // in a bubble: the upstream is reached in memory
}

// A Result is what one client did in one run of a scenario.
type Result struct {
	Values  map[string]float64 `json:"values"`            // by Metric.Name; a missing one was not measured
	Traffic *Traffic           `json:"traffic,omitempty"` // for charts; nil: none
	Course  *Course            `json:"course,omitempty"`  // for charts of another kind; nil: none
	Failed  string             `json:"failed,omitempty"`  // why the run says nothing
}

// Traffic is what came to the upstream, in bins of Bin.
type Traffic struct {
	Bin       time.Duration `json:"bin"`
	Accepted  []int         `json:"accepted"`
	Throttled []int         `json:"throttled"` // by the limit
	Failed    []int         `json:"failed"`    // 503, hang or reset while the upstream was down
	Limit     []float64     `json:"limit"`     // units per bin that the upstream admits then
}

// A Course is what became of the calls, in bins of Bin.
type Course struct {
	Bin      time.Duration `json:"bin"`
	Answers  []int         `json:"answers"`  // in each bin
	Possible []int         `json:"possible"` // without a limit, or with the best fixed one
}

// All are the scenarios, in the order of the tables.
func All() []Scenario {
	return slices.Concat(backfills(), rates(), matches(), outages(), learning(), shared(), meters(), adaptive())
}

// Find returns the scenario of a name.
func Find(name string) (Scenario, bool) {
	all := All()
	i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		return Scenario{}, false
	}
	return all[i], true
}
