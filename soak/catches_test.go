package soak

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"io/fs"
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
	{"a lost unit", "Queue.undoLocked",
		`q.limits().GiveBack(at, now, int(w.Cost))`, `if !PLANTED { RIGHT }`},
	{"an early wake", "Gate.closed",
		`g.breaker != nil && g.cause != Open`, `RIGHT && !(PLANTED && !g.probing && now.After(g.until.Add(-time.Second)))`},
	{"a unit taken early", "tokens.pay",
		`float64(n) > count`, `RIGHT && !(PLANTED && float64(n) <= count+0.1)`},
	{"a leaked slot", "until.Close",
		`defer b.ended()`, `defer func() { if !PLANTED { b.ended() } }()`},
	{"a slot leaked by a grant that is undone", "slotsOf.undo",
		`(*Queue)(q).slotsLocked(-1)`, `if !PLANTED { RIGHT }`},
	{"a double grant", "lineup.granted",
		`l.leave(w, granted, nil)`, `RIGHT; if PLANTED && l.Len() > 0 { l.leave(l.q.headLocked(time.Now()), granted, nil) }`},
	{"a forgotten epoch check", "Gate.observe",
		`r.Epoch == g.epoch`, `RIGHT || PLANTED`},
	{"a cancelled call that stays in line", "Queue.abandonLocked",
		`q.line.leave(w, refused, err)`, `if !PLANTED { RIGHT }`},
	{"a request's body closed twice", "call.end",
		`!c.sent && c.next.Body != nil`, `(!c.sent || PLANTED) && c.next.Body != nil`},
	{"a request's body left open", "call.end",
		`c.next.Body.Close()`, `if !PLANTED { RIGHT }`},
	{"an answer not read to its end", "call.keepResponse",
		`c.resp.Body = body.Keep(c.resp.Body, time.Since(c.answered))`, `if !PLANTED { RIGHT }`},
	{"a watch that does not end", "lineup.close",
		`l.stop()`, `if !PLANTED { RIGHT }`},
	{"a pool's watch that does not end", "pool.unused",
		`p.stop != nil`, `!PLANTED && RIGHT`},
	{"a line that forgets its timer", "plan",
		`(*timer).Reset(wait)`, `if !PLANTED { RIGHT }`},
	{"nobody's turn after one has left", "lineup.goOn",
		`l.q.advanceLocked(now)`, `if !PLANTED { RIGHT }`},
	{"a key that comes to a pool unnoticed", "lineup.enter",
		`p.joined()`, `if !PLANTED { RIGHT }`},
	{"a slot that comes back unnoticed", "Queue.releaseLocked",
		`q.common.stirPool(all)`, `if !PLANTED { RIGHT }`},
	{"the oldest never has a turn", "Line.oldestTurn",
		`l.served%fairEvery == fairEvery-1`, `!PLANTED && RIGHT`},
	{"the oldest of all keys never has a turn", "Pool.Next",
		`p.served%fairEvery == fairEvery-1`, `!PLANTED && RIGHT`},
	{"a call that is held by its own key and stays in a pool", "Queue.passLocked",
		`l.stepOut()`, `if !PLANTED { RIGHT }`},
	{"units that are saved for nobody", "lineup.unowe",
		`other.saved = nil`, `if !PLANTED { RIGHT }`},
	{"a line that does not know what it shares", "common.poolOf",
		`of.sole.take(s)`, `if !PLANTED { RIGHT }`},
	{"a call counted for ever in its scope", "Book.ended",
		`a.inFlight--`, `if !PLANTED { RIGHT }`},
	{"a call that rests for ever", "Call.BackOff",
		`defer resting.Add(-1)`, `defer func() { if !PLANTED { resting.Add(-1) } }()`},
	{"a slot of all keys that is never given back", "Queue.releaseLocked",
		`q.slotsLocked(-1)`, `if PLANTED { q.slots-- } else { RIGHT }`},
	{"slots of a dead key that count as those of a live one", "Queue.noteOutcomeLocked",
		`all.dead += int(q.slots)`, `if !PLANTED { RIGHT }`},
	{"a flow that counts a call that has left", "ticket.add",
		`t.flow.all.add(n, int(sign))`, `if !PLANTED || sign > 0 { RIGHT }`},
	{"flows that are not charged", "flow.charge",
		`f.start += share`, `if !PLANTED { RIGHT }`},
	{"one flow that is not charged", "flow.share",
		`float64(max(1, cost)) / f.weight`, `func() float64 { if PLANTED && f.id.Name == "y" { return 0 }; return RIGHT }()`},
	{"what other limiters gave, kept when nobody waits", "asker.close",
		`go a.giveBack(hand, unlook)`, `if !PLANTED { RIGHT }`},
	{"a call let in after Shutdown", "common.staysLocked",
		`r.drain == nil`, `RIGHT || PLANTED`},
	{"a cost that corrects nothing", "Holds.correct",
		`h.meters.each[i].Limits.Settle(h.taken, charged, n)`, `if !PLANTED { RIGHT }`},
	{"a failed attempt that keeps what it held", "Holds.Fail",
		`h.correct(i, charged, 0)`, `if !PLANTED { RIGHT }`},
	{"an answer that says its cost in vain", "Tab.see",
		`t.watch.Write(p)`, `if !PLANTED { RIGHT }`},
	{"calls that wait on when Shutdown's time is over", "common.endDrain",
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
				t.Fatalf("%s in %s is not caught:\n%s", f.name, f.fn, out)
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

// readSources reads the module, without its tests and what is not part of it.
func readSources(t *testing.T, module string) map[string]string {
	sources := map[string]string{}
	err := filepath.WalkDir(module, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(module, at)
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, nested := os.Stat(filepath.Join(at, "go.mod"))
			if name != "." && (nested == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			b, err := os.ReadFile(at)
			sources[filepath.ToSlash(name)] = string(b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sources
}
