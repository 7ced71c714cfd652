package main

import (
	"slices"
	"testing"
)

func TestNews(t *testing.T) {
	base := outcomes{
		"p.Good": {action: "pass"}, "p.Gone": {action: "pass"}, "p.Hangs": {action: "pass"}, "p.Skipped": {action: "pass"},
		"p.Bad": {action: "fail"}, "p.Off": {action: "skip"},
	}
	over := outcomes{
		"p.Good": {action: "pass"}, "p.Hangs": {action: "run"}, "p.Skipped": {action: "skip"},
		"p.Bad": {action: "fail"}, "p.Off": {action: "skip"},
		"p" + bodies: {action: "fail"}, "p.New": {action: "pass"},
	}
	want := []string{"p.Gone", "p.Hangs", "p.Skipped", "p" + bodies}
	if got := news(base, over); !slices.Equal(got, want) {
		t.Errorf("new failures: %q, want %q", got, want)
	}
	if got := news(base, base); len(got) > 0 {
		t.Errorf("new failures against itself: %q", got)
	}
}

func TestRead(t *testing.T) {
	out, failed := job{pkg: &pkg{ImportPath: "p"}}.read([]byte(`{"Action":"start"}
{"Action":"run","Test":"A"}
{"Action":"run","Test":"A/b"}
{"Action":"output","Test":"A/b","Output":"why\n"}
{"Action":"fail","Test":"A/b"}
{"Action":"fail","Test":"A"}
{"Action":"run","Test":"C"}
not JSON
{"Action":"pass"}
`))
	if got := failures(out); !failed || !slices.Equal(got, []string{"p.A", "p.A/b", "p.C"}) {
		t.Errorf("failures: %q, %v", got, failed)
	}
	if o := out["p.A/b"]; o.output != "why\n" || o.top != "A" {
		t.Errorf("A/b: %+v", o)
	}
}
