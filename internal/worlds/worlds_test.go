package worlds

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
)

// properties are what the oracle judges; see docs of this package's README in the test below.
var properties = []string{"conserve", "priority", "starve", "flows", "isolate", "dead", "predict", "admit", "left"}

func number(t *testing.T, name string, or int) int {
	s := os.Getenv(name)
	if s == "" {
		return or
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestWorlds plays random worlds and judges them. THROTTLE_SEEDS is how many, THROTTLE_FIRST the first seed, and
// THROTTLE_PROPERTY the one property that counts.
func TestWorlds(t *testing.T) {
	n, first, only := number(t, "THROTTLE_SEEDS", 300), number(t, "THROTTLE_FIRST", 1), os.Getenv("THROTTLE_PROPERTY")
	failed, claims := map[string][]int{}, map[string]int{}
	for seed := first; seed < first+n; seed++ {
		w := draw(uint64(seed))
		findings, c := w.play(t, subjectOf(os.Getenv("THROTTLE_MODEL")))
		for p, n := range c {
			claims[p] += n
		}
		w.report(t, findings, only, failed)
	}
	for _, p := range properties {
		seeds := failed[p]
		t.Logf("%-9s judged %8d times, broken in %d of %d worlds: %v", p, claims[p], len(seeds), n, seeds[:min(len(seeds), 12)])
	}
}

func (w *world) play(t *testing.T, of func(*run) subject) (findings []finding, claims map[string]int) {
	r := &run{world: w}
	synctest.Test(t, func(t *testing.T) {
		r.sub = of(r)
		r.play()
	})
	o := newOracle(w, r.log)
	o.judge()
	for _, text := range r.wrong {
		o.found("left", "%s", text)
	}
	if os.Getenv("THROTTLE_LOG") != "" {
		r.dump()
	}
	return o.findings, o.claims
}

// report fails for the first finding of each property, with a description of the world.
func (w *world) report(t *testing.T, findings []finding, only string, failed map[string][]int) {
	byProperty := map[string][]finding{}
	for _, f := range findings {
		if only == "" || f.property == only {
			byProperty[f.property] = append(byProperty[f.property], f)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(byProperty)) {
		if failed[p] = append(failed[p], int(w.seed)); len(failed[p]) <= 5 {
			t.Errorf("%s (%d findings): %s\n   %v", p, len(byProperty[p]), byProperty[p][0].text, w)
		} else {
			t.Fail()
		}
	}
}

// dump prints the log.
func (r *run) dump() {
	kinds := []string{"arrives", "starts", "answer", "ends", "leaves", "foretold", "paused", "resumed", "rate", "predicted", "until"}
	for _, e := range r.log {
		c := ""
		if e.c != nil {
			c = fmt.Sprintf("call %d %s prio %d cost %d hold %d", e.c.id, e.c.flow, e.c.prio, e.c.cost, e.c.hold)
		}
		fmt.Printf("%12.6f %-9s key %d %s %d %v\n", float64(e.at)/1e9, kinds[e.kind], e.key, c, e.val, e.err)
	}
}

// subjectOf returns what makes the subject: the library, or with a name the model with that fault; "none": without.
func subjectOf(name string) func(*run) subject {
	if name == "" {
		return (*run).transport
	}
	return func(r *run) subject { return r.model(plant(name)) }
}
