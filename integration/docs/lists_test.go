package docs

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPublicIsComplete: a new package that users may import is in the list of those whose names are looked at, and on the page
// that says what is stable.
func TestPublicIsComplete(t *testing.T) {
	notForUsers := []string{"bench", "examples", "integration", "internal", "soak", "testdata", "tools"}
	var found []string
	for _, name := range files(t, ".go") {
		dir := path.Dir(name)
		hidden := func(part string) bool {
			return slices.Contains(notForUsers, part) || part != "." && strings.HasPrefix(part, ".")
		}
		if !strings.HasSuffix(name, "_test.go") && !slices.Contains(found, dir) && !slices.ContainsFunc(strings.Split(dir, "/"), hidden) {
			found = append(found, dir)
		}
	}
	slices.Sort(found)
	if !slices.Equal(found, public) {
		t.Errorf("packages that users may import: %q; the list has %q", found, public)
	}
	stable := readFile(t, "docs/stability.md")
	for _, dir := range public[1:] {
		if !strings.Contains(stable, "`"+dir+"`") && !strings.Contains(stable, "/"+dir+"`") {
			t.Errorf("docs/stability.md does not name %s", dir)
		}
	}
}

// TestWorkflow: the oldest Go that go.mod admits is the one that the workflow builds with, and CI tests two later ones.
func TestWorkflow(t *testing.T) {
	version := regexp.MustCompile(`(?m)^go (1\.\d+)`).FindStringSubmatch(readFile(t, "go.mod"))
	workflow := readFile(t, ".github/workflows/ci.yml")
	if image := "container: golang:" + version[1] + "-"; !strings.Contains(workflow, image) {
		t.Errorf("the workflow does not have %q", image)
	}
	if !regexp.MustCompile(`go: \["1\.\d+", "1\.\d+"\]`).MatchString(workflow) || !strings.Contains(workflow, "run: .ci/run\n") {
		t.Error("the workflow does not call .ci/run with two versions of Go")
	}
}

// files returns the files of the tree with one of the extensions, from the root and with slashes. What goes away meanwhile is
// passed over, because other packages' tests may run.
func files(t *testing.T, extensions ...string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && name != root:
			return nil
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "node_modules", "compare-out"}, d.Name()):
			return fs.SkipDir
		case d.IsDir() || !slices.Contains(extensions, filepath.Ext(name)):
			return nil
		}
		path, err := filepath.Rel(root, name)
		paths = append(paths, filepath.ToSlash(path))
		return err
	})
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d files, %v", len(paths), err)
	}
	return paths
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
