package scenario

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-throttle/throttle/bench/client"
)

// named returns a client of the comparison.
func named(t *testing.T, name string) client.Client {
	all := slices.Concat(client.All(), []client.Client{Oracle()}, client.Metered(), client.Adaptive())
	i := slices.IndexFunc(all, func(c client.Client) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no client %q", name)
	}
	return all[i]
}

const (
	plain = "http.Client"
	known = "throttle: limit configured"
	finds = "throttle: no limit configured"
)

// bounds are what a client must reach in a scenario, the least or the most by the metric's name. Where the
// load is short, they are looser than with all of it.
type bounds map[string]bound

type bound struct{ least, most float64 }

// Every scenario runs in virtual time, and what it says is right: of the library, of nothing, and of the
// oracle.
func TestVirtual(t *testing.T) {
	none, full := bound{0, 0}, bound{99.4, 100.01}
	most := func(x float64) bound { return bound{0, x} }
	onTime := bounds{"time": {0.99, 1.03}, "quota_used": {97, 101}, "throttled": none, "delivered": full, "attempts": {1, 1}}
	steady := bounds{"quota_used": full, "throttled": none, "spacing": {0, 0.01}, "fairness": {0.98, 1}}
	tests := map[string]map[string]bounds{
		"backfill-known-bucket":        {known: onTime, OracleName: onTime, plain: {"throttled": {90, 120}, "delivered": {1, 20}}},
		"backfill-known-fixed":         {known: {"throttled": none, "delivered": full, "time": {1, 2.8}}, OracleName: onTime, plain: {"throttled": {1, 20}}},
		"backfill-known-sliding":       {known: {"throttled": none, "delivered": full, "time": {1, 1.02}}, OracleName: onTime, plain: {"throttled": {1, 20}}},
		"backfill-unknown":             {finds: {"delivered": full, "time": {1, 2}, "throttled": {1, 32}}, plain: {"throttled": {90, 120}}},
		"backfill-unknown-retry-after": {finds: {"delivered": full, "time": {1, 4}, "throttled": {1, 32}}},
		"backfill-unknown-draft-8":     {finds: {"delivered": full, "throttled": most(10)}},
		"backfill-unknown-x-ratelimit": {finds: {"delivered": full, "throttled": most(10)}},
		"rate-200-burst1":              {known: steady, OracleName: steady},
		"rate-200-burst10":             {known: steady, OracleName: steady},
		"rate-200-even":                {known: steady, OracleName: steady},
		"exact-sliding":                {known: {"quota_used": {90, 101}, "throttled_share": most(1), "delivered": full}, OracleName: {"quota_used": {98, 101}, "throttled_share": none}},
		"exact-sliding-burst5":         {known: {"quota_used": {90, 101}, "throttled_share": most(1), "delivered": full}},
		"exact-gcra":                   {known: {"quota_used": {70, 101}, "throttled_share": most(1), "delivered": full}}, // 82 to 88
		"lower-sliding":                {known: {"quota_used": {90, 96}, "throttled_share": most(1), "delivered": full}},
		"twice-sliding":                {known: {"quota_used": {80, 101}, "throttled_share": most(1), "delivered": full}},
		"outage-known": {
			known:      {"attempts_in": {1, 1.25}, "peak": most(1.1), "throttled_after": none, "delivered": full, "backlog_ideal": {1, 1.2}},
			OracleName: {"attempts_in": {1, 1}, "attempts": {1, 1}, "throttled_after": none, "delivered": full, "backlog_ideal": {0.99, 1.01}},
			plain:      {"attempts_in": {1, 1}, "delivered": {50, 60}},
		},
		"outage-unknown":             {finds: {"attempts_in": {1, 1.35}, "peak": most(1.2), "delivered": full, "throttled_share": most(2)}},
		"outage-unknown-retry-after": {finds: {"attempts_in": {1, 1.35}, "peak": most(1.2), "delivered": full, "throttled_share": most(2)}},
		"outage-weaker":              {known: {"delivered": full}, OracleName: {"throttled_after": none, "delivered": full, "backlog_ideal": {0.99, 1.01}}},
		"steady-unknown":             {finds: {"quota_used": {90, 101}, "throttled_share": most(4)}, plain: {"throttled_share": {60, 90}}},
		"random-429":                 {finds: {"quota_used": {30, 100}, "throttled_share": most(2)}, plain: {"quota_used": {97, 100}}},
		"brown-out":                  {known: {"closings": most(1), "delivered": full, "attempts": {1.2, 1.5}}, plain: {"delivered": {60, 90}, "attempts": {1, 1}}},
		"fan-out":                    {known: {"spacing": most(0.01), "displaced": none, "quota_used": full, "throttled": none}},
		"waiters-cancel":             {known: {"quota_used": full, "throttled": none}},
		"priority":                   {known: {"wait": most(30), "wait_worst": most(60), "quota_used": full, "throttled": none}, OracleName: {"wait": most(20)}},
		"multi-limit":                {known: {"quota_used": {99, 101}, "throttled": none}, OracleName: {"quota_used": {99, 101}, "throttled": none}},
	}
	// In a short run some 480 calls are measured. They are the same each time, but their mean is not quite the true one.
	const bounded, average, meters = "x/time/rate: bound", "x/time/rate: average known", "throttle: meters"
	used := func(least, most float64) bounds { return bounds{"used": {least, most}, "throttled": none} }
	tests["meters-hold-30s"] = map[string]bounds{"openai-cookbook": used(10, 20), bounded: used(14, 25), meters: used(60, 115)}
	tests["meters-end-30s"] = map[string]bounds{meters: {"used": {60, 115}, "throttled": most(2)}}
	tests["meters-stream-30s"] = map[string]bounds{average: used(85, 115), meters: {"used": {60, 115}, "throttled": most(2)}}
	tests["meters-input-30s"] = map[string]bounds{"openai-cookbook": used(73, 77), bounded: used(96, 103), meters: used(96, 103)}
	const vegas, follows = "go-concurrency-limits: Vegas", "throttle: target 1.2 × p90"
	tests["adaptive-free-tail"] = map[string]bounds{vegas: {"kept": {1, 40}}}
	tests["adaptive-full-collapse"] = map[string]bounds{follows: {"kept": {70, 100}, "in_flight": {12, 30}}}
	tests["adaptive-random"] = map[string]bounds{follows: {"worst": {80, 101}}}
	for _, s := range All() {
		if !s.Virtual || (s.Metered || s.Adapts) && tests[s.Name] == nil {
			continue // of those of meters one for each law, and some of those of limits that adapt
		}
		t.Run(s.Name, func(t *testing.T) {
			for name, want := range tests[s.Name] {
				c := named(t, name)
				if s.Fits != nil && !s.Fits(c) {
					t.Errorf("%s does not fit", name)
				}
				r, err := InBubble(t, s, c, Options{Seed: 1, Short: true})
				if err != nil {
					t.Fatal(name, err)
				}
				for metric, b := range want {
					if v, ok := r.Values[metric]; !ok || v < b.least || v > b.most {
						t.Errorf("%s: %s is %v (%t), want %v to %v", name, metric, v, ok, b.least, b.most)
					}
				}
				for metric := range r.Values {
					if !slices.ContainsFunc(s.Metrics, func(m Metric) bool { return m.Name == metric }) {
						t.Errorf("%s: no Metric is called %s", name, metric)
					}
				}
				t.Logf("%-8s %v", name, r.Values)
			}
			if len(tests[s.Name]) == 0 {
				t.Error("no expectation")
			}
		})
	}
}

// TestTable logs every client in every scenario, with all the load: in virtual time with
// BENCH_VIRTUAL=outage- go test -v -run Table . , in real time with BENCH_REAL=outage- .
func TestTable(t *testing.T) {
	names, real := os.LookupEnv("BENCH_REAL")
	virtual := false
	if !real {
		if names, virtual = os.LookupEnv("BENCH_VIRTUAL"); !virtual {
			t.Skip("neither BENCH_REAL nor BENCH_VIRTUAL is set")
		}
	}
	for _, s := range All() {
		if !strings.HasPrefix(s.Name, names) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			for _, c := range append(client.All(), Oracle()) {
				if s.Fits != nil && !s.Fits(c) || virtual && !(c.Bubble && s.Virtual) {
					continue
				}
				t.Run(c.Name, func(t *testing.T) {
					if !s.Alone && real {
						t.Parallel()
					}
					var r Result
					var err error
					if real {
						r, err = s.Run(t.Context(), c, Options{Seed: 1})
					} else {
						r, err = Virtual(t.Context(), s, c, Options{Seed: 1})
					}
					line := fmt.Sprintf("%-40s", c.Name)
					for _, m := range s.Metrics {
						if v, ok := r.Values[m.Name]; ok {
							line += fmt.Sprintf(" %s %.*f", m.Name, m.Digits, v)
						}
					}
					t.Log(line, r.Failed, err)
				})
			}
		})
	}
}
