package docs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// markdown reads pages as GitHub and pkg.go.dev do: with tables, and with bare addresses as links.
var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM))

// A page is a Markdown file of the tree.
type page struct {
	path   string // from the root, with slashes
	source []byte
	doc    ast.Node
}

// pages returns all pages of the tree, by their paths.
func pages(t *testing.T) map[string]*page {
	t.Helper()
	all := map[string]*page{}
	for _, path := range files(t, ".md") {
		if !strings.Contains(path, "/testdata/") {
			all[path] = read(path, []byte(readFile(t, path)))
		}
	}
	if all["README.md"] == nil {
		t.Fatal("no README.md")
	}
	return all
}

func read(path string, source []byte) *page {
	return &page{path, source, markdown.Parser().Parse(text.NewReader(source))}
}

// TestPages: every page renders as it is meant, and every relative link in it leads to a file of the tree, and to a heading
// that is there.
func TestPages(t *testing.T) {
	all := pages(t)
	links := 0
	for _, p := range all {
		for _, wrong := range p.wrong() {
			t.Errorf("%s: %s", p.path, wrong)
		}
		for _, to := range p.links() {
			links++
			if err := follow(all, p, to); err != nil {
				t.Errorf("%s: %v", p.path, err)
			}
		}
	}
	t.Logf("%d pages, %d links", len(all), links)
}

// tag matches one HTML tag, and allowed are the elements that GitHub and pkg.go.dev both show. Others they drop, or show as text.
var (
	tag     = regexp.MustCompile(`<(/?)([a-zA-Z][a-zA-Z0-9]*)[^<>]*?(/?)>`)
	remark  = regexp.MustCompile(`(?s)<!--.*?-->`)
	allowed = []string{"a", "b", "br", "code", "details", "em", "i", "img", "kbd", "p", "picture", "source", "strong", "sub", "summary", "sup"}
	void    = []string{"br", "img", "source"}
)

// leftover matches Markdown that a reader would see as it was typed: the border of a table, a link, emphasis, a fence.
var leftover = regexp.MustCompile("\\|[ :-]*--|\\]\\(|\\*\\*|```")

// wrong returns what is wrong with the HTML in p, and the Markdown that did not become HTML.
func (p *page) wrong() (found []string) {
	var html bytes.Buffer
	walk(p.doc, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.HTMLBlock:
			html.Write(n.Lines().Value(p.source))
			if n.HasClosure() {
				html.Write(n.ClosureLine.Value(p.source))
			}
		case *ast.RawHTML:
			html.Write(n.Segments.Value(p.source))
		case *ast.Text:
			if s := string(n.Segment.Value(p.source)); leftover.MatchString(s) {
				found = append(found, fmt.Sprintf("this is shown as it is typed: %q", s))
			}
		}
	})
	rest := remark.ReplaceAllString(html.String(), "")
	if strings.Contains(rest, "<!--") {
		found = append(found, "a comment does not end")
	}
	var open []string
	for _, m := range tag.FindAllStringSubmatch(rest, -1) {
		end, name, closed := m[1] != "", strings.ToLower(m[2]), m[3] != ""
		switch {
		case !slices.Contains(allowed, name):
			found = append(found, m[0]+" is not shown everywhere")
		case slices.Contains(void, name), closed:
		case !end:
			open = append(open, name)
		case len(open) == 0 || open[len(open)-1] != name:
			found = append(found, m[0]+" ends nothing")
		default:
			open = open[:len(open)-1]
		}
	}
	for _, name := range open {
		found = append(found, "<"+name+"> does not end")
	}
	return found
}

// source matches where an HTML tag leads.
var source = regexp.MustCompile(`(?:src|href|srcset)="([^"]*)"`)

// links returns where p leads by links and images.
func (p *page) links() (to []string) {
	walk(p.doc, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.Link:
			to = append(to, string(n.Destination))
		case *ast.Image:
			to = append(to, string(n.Destination))
		case *ast.HTMLBlock:
			for _, m := range source.FindAllSubmatch(remark.ReplaceAll(n.Lines().Value(p.source), nil), -1) {
				to = append(to, string(m[1]))
			}
		case *ast.RawHTML:
			for _, m := range source.FindAllSubmatch(n.Segments.Value(p.source), -1) {
				to = append(to, string(m[1]))
			}
		}
	})
	return to
}

// follow reports whether the link on p is an absolute address, or leads to something in the tree.
func follow(all map[string]*page, p *page, link string) error {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return nil
	}
	file, anchor, hasAnchor := strings.Cut(link, "#")
	path := p.path
	if file != "" {
		path = filepath.ToSlash(filepath.Join(filepath.Dir(p.path), file))
	}
	if strings.HasPrefix(file, "/") || strings.HasPrefix(path, "../") {
		return fmt.Errorf("%s leads out of the tree", link)
	}
	if _, err := os.Stat(filepath.Join(root, path)); err != nil && all[path] == nil {
		return fmt.Errorf("%s: %w", link, err)
	}
	if to := all[path]; hasAnchor && to != nil && !slices.Contains(to.anchors(), anchor) {
		return fmt.Errorf("%s: %s has no heading of that name, but %q", link, path, to.anchors())
	}
	return nil
}

// anchors returns the names of the headings of p as GitHub makes them: lower case, hyphens for spaces, nothing else but
// letters, digits and underscores. The second heading of a name gets -1.
func (p *page) anchors() (names []string) {
	seen := map[string]int{}
	walk(p.doc, func(n ast.Node) {
		if n.Kind() != ast.KindHeading {
			return
		}
		var b strings.Builder
		walk(n, func(n ast.Node) {
			if t, ok := n.(*ast.Text); ok {
				b.Write(t.Segment.Value(p.source))
			}
		})
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, b.String())
		if seen[name]++; seen[name] > 1 {
			name = fmt.Sprintf("%s-%d", name, seen[name]-1)
		}
		names = append(names, name)
	})
	return names
}

// walk visits all nodes under n in order.
func walk(n ast.Node, visit func(ast.Node)) {
	err := ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			visit(n)
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		panic(err) // visit returns none
	}
}

// TestPagesCanFail: what the other tests look for is found.
func TestPagesCanFail(t *testing.T) {
	all := pages(t)
	for _, tt := range []struct {
		source string
		wrong  int // things wrong on the page
		links  int // that lead nowhere
	}{
		{"# A b\n\n[here](#a-b) <!-- x --> and `<Name>`\n\n| a |\n|---|\n| b |\n", 0, 0},
		{"## Tests\n\n## Tests\n\n[one](#tests) [two](#tests-1) [none](#tests-2)\n", 0, 1},
		{"## `Retry.Check`, and more: 2_x\n\n[one](#retrycheck-and-more-2_x)\n", 0, 0},
		{"[gone](gone.md) [root](/README.md) [out](../x.md) [ok](README.md#stability)\n", 0, 3},
		{"text with a <key> in it\n", 1, 0},
		{"<details>\n\ntext\n", 1, 0},
		{"text</sub>\n", 1, 0},
		{"<!-- a comment\n\n# that swallows the rest\n", 1, 0},
		{"| a | b |\n|---|\n| c | d |\n", 1, 0},
		{"**bold text\n", 1, 0},
		{"[text] (README.md) and [more](a b)\n", 1, 0},
		{"<img src=\"gone.svg\">\n", 0, 1},
		{"![chart](gone.svg)\n", 0, 1},
	} {
		p := read("TEST.md", []byte(tt.source))
		all[p.path] = p
		if got := p.wrong(); len(got) != tt.wrong {
			t.Errorf("%q: %q, want %d things", tt.source, got, tt.wrong)
		}
		n := 0
		for _, to := range p.links() {
			if follow(all, p, to) != nil {
				n++
			}
		}
		if n != tt.links {
			t.Errorf("%q: %d links lead nowhere, want %d", tt.source, n, tt.links)
		}
	}
}
