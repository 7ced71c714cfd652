package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/go-throttle/throttle/integration/conformance/throttled"
)

// An outcome is how a test has ended.
type outcome struct {
	action string // "pass", "fail", "skip"; "run": it did not end
	output string
	top    string // the top-level test; "": not a test, but its process has failed
	pkg    *pkg
}

// outcomes are the outcomes of one run of a suite, by package and test.
type outcomes map[string]outcome

// A job is a process: a test binary, or a part of its tests.
type job struct {
	suite  *suite
	config *config
	pkg    *pkg
	tests  []string // top-level tests; nil: all
}

// all runs every test of pkgs.
func (s *suite) all(c *config, pkgs []pkg, slots chan struct{}) (outcomes, error) {
	var jobs []job
	for i := range pkgs {
		parts, err := pkgs[i].parts(s.shards)
		if err != nil {
			return nil, err
		}
		for _, tests := range parts {
			jobs = append(jobs, job{s, c, &pkgs[i], tests})
		}
	}
	outs, errs := make([]outcomes, len(jobs)), make([]error, len(jobs))
	var wg sync.WaitGroup
	for i, j := range jobs {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			outs[i], errs[i] = j.run()
		})
	}
	wg.Wait()
	joined := outcomes{}
	for _, out := range outs {
		for name, o := range out {
			joined[name] = o
		}
	}
	return joined, errors.Join(errs...)
}

// parts divides the tests of p among n processes.
func (p *pkg) parts(n int) ([][]string, error) {
	if n == 1 {
		return [][]string{nil}, nil
	}
	cmd := exec.Command(p.binary, "-test.list", ".")
	cmd.Dir = p.Dir
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s -test.list: %w", p.ImportPath, err)
	}
	parts := make([][]string, n)
	for i, name := range strings.Fields(string(out)) {
		parts[i%n] = append(parts[i%n], name)
	}
	return slices.DeleteFunc(parts, func(p []string) bool { return len(p) == 0 }), nil
}

// run runs the process in a copy of its package's directory, because some tests write there.
func (j job) run() (outcomes, error) {
	dir, err := os.MkdirTemp(filepath.Dir(j.pkg.binary), "run")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cwd, report := filepath.Join(dir, "src"), filepath.Join(dir, "report")
	if err := os.CopyFS(cwd, os.DirFS(j.pkg.Dir)); err != nil {
		return nil, err
	}
	args := []string{"tool", "test2json", j.pkg.binary, "-test.v=test2json", "-test.timeout=100s"}
	if j.tests != nil {
		quoted := make([]string, len(j.tests))
		for i, t := range j.tests {
			quoted[i] = regexp.QuoteMeta(t)
		}
		args = append(args, "-test.run=^("+strings.Join(quoted, "|")+")$")
	}
	if j.suite.skip != "" {
		args = append(args, "-test.skip="+j.suite.skip)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = cwd
	cmd.Env = append(os.Environ(), j.config.env...)
	if j.config.watch {
		cmd.Env = append(cmd.Env, throttled.EnvReport+"="+report)
	}
	stderr := new(strings.Builder)
	cmd.Stderr = stderr
	text, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	out, failed := j.read(text)
	if err != nil && !failed {
		out[j.pkg.ImportPath] = outcome{action: "fail", output: stderr.String() + err.Error(), pkg: j.pkg}
	}
	seen, err := os.ReadFile(report)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if len(seen) > 0 {
		out[j.pkg.ImportPath+bodies] = outcome{action: "fail", output: string(seen), pkg: j.pkg}
	}
	return out, nil
}

// read reads what test2json writes.
func (j job) read(text []byte) (out outcomes, failed bool) {
	out = outcomes{}
	for line := range bytes.Lines(text) {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(line, &e) != nil || e.Test == "" {
			continue
		}
		name := j.pkg.ImportPath + "." + e.Test
		o := out[name]
		o.pkg, o.output = j.pkg, o.output+e.Output
		o.top, _, _ = strings.Cut(e.Test, "/")
		switch e.Action {
		case "run", "pass", "fail", "skip":
			o.action = e.Action
		}
		out[name] = o
		failed = failed || e.Action == "fail"
	}
	return out, failed
}

// failures returns the names of what failed in out, or did not end.
func failures(out outcomes) []string {
	var names []string
	for name, o := range out {
		if o.action != "pass" && o.action != "skip" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// news returns the names of what failed or did not run in out and passed in base.
func news(base, out outcomes) []string {
	var names []string
	for name, o := range base {
		if a := out[name].action; o.action == "pass" && a != "pass" {
			names = append(names, name)
		}
	}
	for _, name := range failures(out) {
		if _, ok := base[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// steady reports whether the failure o counts: the test is run alone twice more, and a failure
// counts unless it passes both times. A failure that is not a test's always counts.
func (s *suite) steady(c *config, o outcome) (bool, error) {
	if o.top == "" {
		return true, nil
	}
	for range 2 {
		again, err := job{s, c, o.pkg, []string{o.top}}.run()
		if err != nil || len(again) == 0 || len(failures(again)) > 0 {
			return true, err
		}
	}
	return false, nil
}
