package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tree is a repository of a library, a module beside it, and examples without tags.
var tree = map[string]string{
	"LICENSE":      "free",
	"CHANGELOG.md": "# Changelog\n\n## [1.2.3] - unreleased\n",
	"go.mod":       "module example.test/lib\n\ngo 1.25.0\n",
	"lib.go":       "package lib\n\nconst Lib = 1\n",
	"more/go.mod": "module example.test/lib/more\n\ngo 1.25.0\n\nrequire example.test/lib v0.0.0\n\n" +
		"replace example.test/lib => ../\n",
	"more/more.go": "package more\n\nimport \"example.test/lib\"\n\nconst More = lib.Lib\n",
	"examples/go.mod": "module example.test/lib/examples\n\ngo 1.25.0\n\nrequire (\n\texample.test/lib v0.0.0\n\texample.test/lib/more v0.0.0\n)\n\n" +
		"replace example.test/lib => ../\n\nreplace example.test/lib/more => ../more\n",
	"examples/e.go": "package examples\n\nimport \"example.test/lib/more\"\n\nconst E = more.More\n",
}

// repository makes tree with changes a repository, whose released modules are the library and more.
func repository(t *testing.T, changes map[string]string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	t.Setenv("GOPROXY", "off") // nobody has these modules
	was, wasNot := released, untagged
	t.Cleanup(func() { released, untagged = was, wasNot })
	released, untagged = []string{".", "more"}, []string{"examples"}
	dir := t.TempDir()
	for _, files := range []map[string]string{tree, changes} {
		for name, text := range files {
			name = filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}} {
		if _, err := git(dir, args...); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// What builds in the tree but not for users is found before there is a tag.
func TestDryRun(t *testing.T) {
	for name, tt := range map[string]struct {
		changes map[string]string
		want    string // in the error; "": none
	}{
		"as it is": {},
		"a package of a module without a tag": {map[string]string{
			"more/go.mod": tree["more/go.mod"] + "replace example.test/lib/examples => ../examples\n\nrequire example.test/lib/examples v0.0.0\n",
			"more/m.go":   "package more\n\nimport _ \"example.test/lib/examples\"\n",
		}, "example.test/lib"},
		"a file that git does not track": {map[string]string{
			".gitignore": "*_gen.go\n",
			"x_gen.go":   "package lib\n\nconst Gen = 1\n",
			"more/m.go":  "package more\n\nimport \"example.test/lib\"\n\nconst M = lib.Gen\n",
		}, "undefined: lib.Gen"},
	} {
		t.Run(name, func(t *testing.T) {
			err := dryRun(repository(t, tt.changes), "v1.2.3")
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		version string
		changes map[string]string
		want    string
	}{
		{"v1.2.3", nil, ""},
		{"1.2.3", nil, "not a version"},
		{"v1.2", nil, "not a version"},
		{"", nil, "not a version"},
		{"v1.2.4", nil, "no section"},
		{"v1.2.3", map[string]string{"new/go.mod": "module example.test/lib/new\n"}, "new is in none of the lists"},
	} {
		err := check(repository(t, tt.changes), tt.version)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%q: %v, want %q", tt.version, err, tt.want)
		}
	}
}

// After the versions are set, every module of the tree still builds by itself.
func TestSetVersions(t *testing.T) {
	dir := repository(t, nil)
	if err := setVersions(dir, "v1.2.3", false); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "more", "go.mod"))
	if want := "require example.test/lib v1.2.3\n\nreplace example.test/lib => ../\n"; err != nil || !strings.HasSuffix(string(text), want) {
		t.Errorf("%v\n%s\nwant at the end\n%s", err, text, want)
	}
	for _, m := range []string{".", "more", "examples"} {
		if _, err := goTool(append(os.Environ(), "GOWORK=off"), filepath.Join(dir, m), "build", "./..."); err != nil {
			t.Error(err)
		}
	}
}
