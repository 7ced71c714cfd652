package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yuin/goldmark/ast"
)

// TestPlumbingIsQuoted: each piece of Go in docs/plumbing.md stands in an example, line by line, and each file of examples is
// quoted there.
func TestPlumbingIsQuoted(t *testing.T) {
	files, err := filepath.Glob("plumbing/*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	code, quoted := map[string]string{}, map[string]int{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc Example") {
			code[name] = flat(string(text))
		}
	}
	for _, block := range goBlocks(pages(t)["docs/plumbing.md"]) {
		found := false
		for name, text := range code {
			if strings.Contains(text, flat(block)) {
				found = true
				quoted[name]++
			}
		}
		if !found {
			t.Errorf("no example has this:\n%s", block)
		}
	}
	for name := range code {
		if quoted[name] == 0 {
			t.Errorf("docs/plumbing.md has nothing of %s", name)
		}
	}
}

// flat returns the lines of text without their indentation, and a line break before and after each.
func flat(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return "\n" + strings.Join(lines, "\n") + "\n"
}

// goBlocks returns the blocks of Go on p.
func goBlocks(p *page) (blocks []string) {
	walk(p.doc, func(n ast.Node) {
		if b, ok := n.(*ast.FencedCodeBlock); ok && string(b.Language(p.source)) == "go" {
			blocks = append(blocks, string(b.Lines().Value(p.source)))
		}
	})
	return blocks
}
