package soak

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-throttle/throttle/internal/race"
)

var faults = []fault{
	{"a lost unit", "internal/queue", "Queue.undoLocked",
		`q.limits().GiveBack(at, now, int(w.cost))`, `if !PLANTED { RIGHT }`},
	{"an early wake", "internal/gate", "Gate.closed",
		`g.breaker != nil && g.cause != Open`, `RIGHT && !(PLANTED && !g.probing && now.After(g.until.Add(-time.Second)))`},
	{"a unit taken early", "internal/limit", "tokens.pay",
		`float64(n) > count`, `RIGHT && !(PLANTED && float64(n) <= count+0.1)`},
	{"a leaked slot", "internal/body", "until.Close",
		`defer b.ended()`, `defer func() { if !PLANTED { b.ended() } }()`},
	{"a slot leaked by a grant that is undone", "internal/queue", "Queue.undoLocked",
		`q.releaseLocked()`, `if !PLANTED { RIGHT }`},
	{"a double grant", "internal/queue", "line.advance",
		`l.leave(w, granted, nil)`, `RIGHT; if x := l.q.headLocked(now); PLANTED && x != nil { l.leave(x, granted, nil) }`},
	{"a forgotten epoch check", "internal/gate", "Gate.observe",
		`r.Epoch == g.epoch`, `RIGHT || PLANTED`},
	{"a cancelled call that stays in line", "internal/queue", "line.abandonLocked",
		`default: l.drop(w, now)`, `default: if PLANTED { l.goOn(now) } else { l.drop(w, now) }`},
	{"a request's body closed twice", ".", "call.end",
		`!c.sent && c.next.Body != nil`, `(!c.sent || PLANTED) && c.next.Body != nil`},
	{"a request's body left open", ".", "call.end",
		`c.next.Body.Close()`, `if !PLANTED { RIGHT }`},
	{"an answer left open", ".", "drop",
		`resp.Body.Close()`, `if !PLANTED { RIGHT }`},
	{"an answer not read to its end", ".", "call.keepResponse",
		`c.resp.Body = body.Keep(c.resp.Body, time.Since(c.answered))`, `if !PLANTED { RIGHT }`},
	{"a watch that does not end", "internal/queue", "line.close",
		`l.stop()`, `if !PLANTED { RIGHT }`},
	{"a line that forgets its timer", "internal/queue", "line.plan",
		`l.timer.Reset(wait)`, `if !PLANTED { RIGHT }`},
	{"nobody's turn after one has left", "internal/queue", "line.goOn",
		`l.q.advanceLocked(now)`, `if !PLANTED { RIGHT }`},
	{"the oldest never has a turn", "internal/queue", "ranks.oldestTurn",
		`r.served%fairEvery == fairEvery-1`, `!PLANTED && RIGHT`},
	{"a call counted for ever in its scope", "internal/quota", "Book.ended",
		`a.inFlight--`, `if !PLANTED { RIGHT }`},
	{"a call that rests for ever", "internal/queue", "Call.BackOff",
		`defer q.resting.Add(-1)`, `defer func() { if !PLANTED { q.resting.Add(-1) } }()`},
	{"a slot of all keys that is never given back", "internal/queue", "sharedLine.weigh",
		`s.inFlight += sign * int(q.slots)`, `if !PLANTED || sign > 0 { RIGHT }`},
	{"a flow that counts a call that has left", "internal/queue", "flow.gone",
		`f.count--`, `if !PLANTED { RIGHT }`},
	{"flows that are not charged", "internal/queue", "flow.charge",
		`f.start += f.share(cost) - paid`, `if !PLANTED { RIGHT }`},
	{"one flow that is not charged", "internal/queue", "flow.charge",
		`paid := min(f.credit, f.share(cost))`, `RIGHT; if PLANTED && f.id.name == "y" { paid = f.share(cost) }`},
	{"a call let in after Shutdown", "internal/queue", "common.staysLocked",
		`r.drain == nil`, `RIGHT || PLANTED`},
	{"a cost that corrects nothing", "internal/queue", "Holds.correct",
		`h.meters.each[i].Limits.Settle(h.taken, charged, n)`, `if !PLANTED { RIGHT }`},
	{"a failed attempt that keeps what it held", "internal/queue", "Holds.Fail",
		`h.correct(i, charged, 0)`, `if !PLANTED { RIGHT }`},
	{"an answer that says its cost in vain", "internal/body", "Tab.see",
		`t.watch.Write(p)`, `if !PLANTED { RIGHT }`},
	{"calls that wait on when Shutdown's time is over", "internal/queue", "common.endDrain",
		`q.dismissLocked(now)`, `if !PLANTED { RIGHT }`},
}

// TestSoakCatches plants each of faults into a copy of the sources, and expects TestSoak to fail;
// without a fault the copy must pass. The copy holds all of them, so that it is built once.
func TestSoakCatches(t *testing.T) {
	copied := faultyCopy(t) // each fault still has its place
	race.Long(t)
	gocmd, err := exec.LookPath("go")
	if err != nil {
		t.Skip("skipped: there is no go command:", err)
	}
	bin := filepath.Join(t.TempDir(), "soak.test")
	build := exec.Command(gocmd, "test", "-c", "-vet=off", "-tags", "throttle_invariants", "-overlay", copied, "-o", bin, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	soak := func(fault string, args ...string) (out string, passed bool) {
		cmd := exec.Command(bin, append([]string{"-test.run=^TestSoak$", "-test.failfast", "-test.timeout=3m"}, args...)...)
		cmd.Env = append(os.Environ(), "THROTTLE_FAULT="+fault)
		b, err := cmd.CombinedOutput()
		return string(b), err == nil
	}
	t.Run("no fault", func(t *testing.T) {
		t.Parallel()
		if out, passed := soak("", "-soak.seeds=4", "-soak.duration=20s"); !passed {
			t.Errorf("the sound copy fails:\n%s", out)
		}
	})
	for i, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			out, passed := soak(strconv.Itoa(i+1), "-soak.seeds=40", "-soak.duration=1m")
			if passed {
				t.Fatalf("%s in %s of %s is not caught:\n%s", f.name, f.fn, f.dir, out)
			}
			for line := range strings.Lines(out) {
				for _, says := range []string{": seed ", "invariant broken: "} {
					if _, what, ok := strings.Cut(line, says); ok {
						t.Logf("caught: %s%.150s", says, what)
						return
					}
				}
			}
			t.Errorf("it has failed, but said nothing of what is wrong:\n%s", out)
		})
	}
}

// faultyCopy writes the files that have faults, and returns an overlay that puts them in place of the
// true ones.
func faultyCopy(t *testing.T) (overlay string) {
	module, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	changed, err := plant(readSources(t, module), faults)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Collect(maps.Keys(changed)) {
		f, err := parser.ParseFile(token.NewFileSet(), name, changed[name], parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		changed[path.Join(path.Dir(name), "planted.go")] = "package " + f.Name.Name + `

import (
	"os"
	"strconv"
)

var plantedFault, _ = strconv.Atoi(os.Getenv("THROTTLE_FAULT"))

func planted(n int) bool { return n == plantedFault }
`
	}
	dir, replace := t.TempDir(), map[string]string{}
	for name, text := range changed {
		to := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(module, name)] = to
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}

// readSources reads the packages that have faults, without their tests.
func readSources(t *testing.T, module string) map[string]string {
	sources := map[string]string{}
	for _, f := range faults {
		names, err := filepath.Glob(filepath.Join(module, f.dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			sources[path.Join(f.dir, filepath.Base(name))] = string(b)
		}
	}
	return sources
}
