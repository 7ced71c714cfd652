package docs

import (
	"io/fs"
	"os"
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
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (slices.Contains(notForUsers, d.Name()) || strings.HasPrefix(d.Name(), ".")) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if dir = filepath.ToSlash(dir); !slices.Contains(found, dir) {
			found = append(found, dir)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
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

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
