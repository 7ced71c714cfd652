package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// A report is what becomes of a suite.
type report struct {
	suite  *suite
	asItIs []pkg
	over   []pkg // over the Transport
	rows   []string
	notes  strings.Builder
	ok     bool  // nothing was found
	err    error // why it did not run
}

func (r *report) note(format string, args ...any) { fmt.Fprintf(&r.notes, format+"\n", args...) }

// prepare builds the suite.
func (r *report) prepare(work string, race bool) {
	dir := filepath.Join(work, strings.ReplaceAll(r.suite.name, "/", "_"))
	if r.asItIs, r.err = r.suite.prepare(filepath.Join(dir, "asitis"), false, race); r.err == nil {
		r.over, r.err = r.suite.prepare(filepath.Join(dir, "over"), true, race)
	}
}

// run runs the suite in every configuration.
func (r *report) run() {
	if r.err != nil {
		return
	}
	var mine []*config
	for i := range configs {
		if c := &configs[i]; c.plant == nil || c.plant[r.suite.name] != "" {
			mine = append(mine, c)
		}
	}
	outs, errs := make([]outcomes, len(mine)), make([]error, len(mine))
	slots := make(chan struct{}, r.suite.jobs)
	var wg sync.WaitGroup
	for i, c := range mine {
		pkgs := r.over
		if i == 0 {
			pkgs = r.asItIs
		}
		wg.Go(func() { outs[i], errs[i] = r.suite.all(c, pkgs, slots) })
	}
	wg.Wait()
	if r.err = errors.Join(errs...); r.err != nil {
		return
	}
	r.ok = true
	for i, c := range mine {
		r.judge(c, outs[0], outs[i])
	}
}

// judge compares how the suite fares under c with how it fares as it is, and adds a row.
func (r *report) judge(c *config, base, out outcomes) {
	name, found := r.suite.name, news(base, out)
	var cell string
	switch plant := c.plant[name]; {
	case c == &configs[0]:
		r.count(c, out, failures(out))
		cell = "-"
	case plant == "":
		n := r.count(c, out, found)
		r.ok = r.ok && n == 0
		cell = fmt.Sprint(n)
	case slices.ContainsFunc(found, func(test string) bool { return strings.HasSuffix(test, plant) }):
		r.note("caught: %s, %s: %s", name, c.name, strings.Join(found, ", "))
		cell = fmt.Sprintf("%d (caught)", len(found))
	default:
		r.note("not caught: %s, %s: no failure of a test whose name ends with %q", name, c.name, plant)
		r.ok = false
		cell = fmt.Sprintf("%d (NOT CAUGHT)", len(found))
	}
	r.rows = append(r.rows, fmt.Sprintf("%s\t%s\t%d\t%d\t%s\t", name, c.name, len(out), len(failures(base)), cell))
}

// count notes the failures called names, and returns how many of them are steady. It turns the others
// into passes. A test that did not run is not run again.
func (r *report) count(c *config, out outcomes, names []string) (n int) {
	steady := map[string]bool{}
	for _, name := range names {
		o, ran := out[name]
		if !ran {
			n++
			r.note("failed: %s, %s: %s did not run", r.suite.name, c.name, name)
			continue
		}
		top := o.pkg.ImportPath + "." + o.top
		is, known := steady[top]
		if !known {
			var err error
			if is, err = r.suite.steady(c, o); err != nil {
				r.note("%s: %v", name, err)
			}
			steady[top] = is
		}
		if is {
			n++
			r.note("failed: %s, %s: %s\n%s", r.suite.name, c.name, name, o.output)
			continue
		}
		r.note("unsteady: %s, %s: %s failed, and passed twice when it ran alone", r.suite.name, c.name, name)
		o.action = "pass"
		out[name] = o
	}
	return n
}
