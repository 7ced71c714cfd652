package chart

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-throttle/throttle/bench/report"
)

const mark = "<!-- chart "

// Refresh draws the charts anew that a Markdown file asks for, each by a line
//
//	<!-- chart scenario mode path.svg: client; client; ... -->
//
// where the path is seen from the file. The clients become panels in that order; none named: all. Of a scenario with courses
// it draws those, and a heading may stand before the clients: a question, up to its question mark.
func Refresh(f *report.File, page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	for _, line := range strings.Split(string(text), "\n") {
		spec, ok := strings.CutPrefix(strings.TrimSpace(line), mark)
		if !ok {
			continue
		}
		if err := one(f, filepath.Dir(page), strings.TrimSuffix(spec, "-->")); err != nil {
			return fmt.Errorf("%s: chart %s: %w", page, spec, err)
		}
	}
	return nil
}

func one(f *report.File, dir, spec string) error {
	what, names, _ := strings.Cut(spec, ": ")
	words := strings.Fields(what)
	if len(words) != 3 {
		return fmt.Errorf("want a scenario, a mode and a path")
	}
	s, ok := f.Scenario(words[0])
	if !ok {
		return fmt.Errorf("there is no such scenario in the results")
	}
	var b bytes.Buffer
	if err := drawn(s, words[1], names, &b); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, filepath.FromSlash(words[2])), b.Bytes(), 0o644)
}

// drawn draws a scenario with these clients.
func drawn(s *report.Scenario, mode, clients string, w io.Writer) error {
	heading, rest, asks := strings.Cut(clients, "?")
	if asks {
		clients = rest
	}
	var names []string
	for _, name := range strings.Split(clients, ";") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	if courses, ok := NewCourses(s); ok {
		if asks {
			courses.Title = strings.TrimSpace(heading) + "?"
		}
		if len(names) > 0 {
			if err := courses.only(names); err != nil {
				return err
			}
		}
		return courses.SVG(w)
	}
	figure, _ := New(s, mode)
	if err := figure.only(names); err != nil {
		return err
	}
	return figure.SVG(w)
}

// only keeps the panels that are named, in that order; none named: all.
func (f *Figure) only(names []string) (err error) {
	if len(names) > 0 {
		f.Panels, err = named(f.Panels, names, func(p Panel) string { return p.Name })
	}
	return err
}

// named returns those of the clients that are named, in the order of the names.
func named[T any](all []T, names []string, nameOf func(T) string) (some []T, err error) {
	for _, name := range names {
		i := slices.IndexFunc(all, func(x T) bool { return nameOf(x) == name })
		if i < 0 {
			return all, fmt.Errorf("nothing of client %q", name)
		}
		some = append(some, all[i])
	}
	return some, nil
}
