package throttle

import (
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// faults are defects to be planted: text that stands once in its file, and what takes its place.
// PLANTED is true in the run that has to find this fault.
var faults = []struct{ name, file, old, new string }{
	{"a lost unit", "internal/queue/undo.go", `	q.Limits.GiveBack(at, now, w.Cost)`, `	if !PLANTED { q.Limits.GiveBack(at, now, w.Cost) }`},
	{"an early wake", "internal/gate/gate.go", `if g.Probing || now.Before(g.Until) {`, `if g.Probing || now.Before(g.Until) && !(PLANTED && now.After(g.Until.Add(-time.Second))) {`},
	{"a unit taken early", "internal/account/tank.go", `float64(n) > tokens`, `float64(n) > tokens && !(PLANTED && float64(n) <= tokens+0.1)`},
	{"a leaked slot", "body.go", `defer b.ended()`, `defer func() { if !PLANTED { b.ended() } }()`},
	{"a slot leaked by a grant that is undone", "internal/queue/undo.go", `q.Slots--`, `if !PLANTED { q.Slots-- }`},
	{"a double grant", "internal/queue/line.go", `l.Leave(w, Granted, nil)`, `l.Leave(w, Granted, nil)
			if x := l.rule.Head(now); PLANTED && x != nil { l.Leave(x, Granted, nil) }`},
	{"a forgotten epoch check", "internal/gate/report.go", `current := r.Epoch == g.Epoch`, `current := r.Epoch == g.Epoch || PLANTED`},
	{"a cancelled call that stays in line", "internal/queue/line.go", "default:\n\t\tl.drop(w, now)", "default:\n\t\tif PLANTED { l.GoOn(now) } else { l.drop(w, now) }"},
	{"a request's body closed twice", "call.go", `if !c.sent && c.next.Body != nil {`, `if (!c.sent || PLANTED) && c.next.Body != nil {`},
	{"a request's body left open", "call.go", `c.next.Body.Close()`, `if !PLANTED { c.next.Body.Close() }`},
	{"an answer left open", "call.go", `		resp.Body.Close()
	}
}`, `		if !PLANTED { resp.Body.Close() }
	}
}`},
	{"an answer not read to its end", "resend.go", `keep(c.resp)`, `if !PLANTED { keep(c.resp) }`},
	{"a watch that does not end", "internal/queue/line.go", `	l.stop()`, `	if !PLANTED { l.stop() }`},
	{"a line that forgets its timer", "internal/queue/line.go", `l.Timer.Reset(wait)`, `if !PLANTED { l.Timer.Reset(wait) }`},
	{"nobody's turn after one has left", "internal/queue/line.go", `	l.rule.Advance(now)
}`, `	if !PLANTED { l.rule.Advance(now) }
}`},
	{"the oldest never has a turn", "internal/queue/ranks.go", `oldest := `, `oldest := !PLANTED && `},
	{"a call counted for ever in its lane", "internal/learn/learner.go", `a.Out--
	for _, q := range a.Quotas {
		q.landed(n)`, `if !PLANTED { a.Out-- }
	for _, q := range a.Quotas {
		q.landed(n)`},
	{"a call that rests for ever", "resend.go", `.Resting.Add(-1)`, `.Resting.Add(map[bool]int64{false: -1}[PLANTED])`},
}

// TestSoakCatches plants each of faults into a copy of the sources, and expects TestSoak to fail;
// without a fault the copy must pass. The copy holds all of them, so that it is built once.
func TestSoakCatches(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the package a second time")
	}
	gocmd, err := exec.LookPath("go")
	if err != nil {
		t.Skip("skipped: there is no go command:", err)
	}
	bin := filepath.Join(t.TempDir(), "soak.test")
	build := exec.Command(gocmd, "test", "-c", "-vet=off", "-overlay", faultyCopy(t), "-o", bin, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	soak := func(fault string, args ...string) (out string, passed bool) {
		cmd := exec.Command(bin, append([]string{"-test.run=^TestSoak$", "-test.failfast", "-test.timeout=1m"}, args...)...)
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
				t.Fatalf("%s in %s is not caught:\n%s", f.name, f.file, out)
			}
			for line := range strings.Lines(out) {
				if _, what, ok := strings.Cut(line, ": seed "); ok {
					t.Logf("caught by seed %.150s", what)
					return
				}
			}
			t.Errorf("it has failed, but said nothing of what is wrong:\n%s", out)
		})
	}
}

// faultyCopy writes the files that have faults, and returns an overlay that puts them in place of the
// true ones, and leaves the other tests out.
func faultyCopy(t *testing.T) (overlay string) {
	dir := t.TempDir()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	put := func(name, text string) {
		to := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(here, name)] = to
	}
	texts := map[string]string{}
	for i, f := range faults {
		if texts[f.file] == "" {
			b, err := os.ReadFile(f.file)
			if err != nil {
				t.Fatal(err)
			}
			texts[f.file] = string(b)
		}
		if n := strings.Count(texts[f.file], f.old); n != 1 {
			t.Fatalf("%s: %q stands %d times in %s, not once: the fault needs another place", f.name, f.old, n, f.file)
		}
		texts[f.file] = strings.Replace(texts[f.file], f.old, strings.ReplaceAll(f.new, "PLANTED", "planted("+strconv.Itoa(i+1)+")"), 1)
	}
	for name, text := range texts {
		put(name, text)
		pkg := path.Base(path.Dir(name))
		if pkg == "." {
			pkg = "throttle"
		}
		put(path.Join(path.Dir(name), "planted.go"), "package "+pkg+`

import (
	"os"
	"strconv"
)

var fault, _ = strconv.Atoi(os.Getenv("THROTTLE_FAULT"))

func planted(n int) bool { return n == fault }
`)
	}
	tests, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range tests {
		if !strings.HasPrefix(name, "soak_") || name == "soak_catches_test.go" {
			replace[filepath.Join(here, name)] = ""
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	put("overlay.json", string(b))
	return filepath.Join(dir, "overlay.json")
}
