package seek

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// The search for a limit that is not advertised has to stay a law that one engineer can hold in the head: three files, and few
// numbers that were chosen. Whoever adds one takes another out.
const (
	searchLines     = 600
	searchConstants = 30
)

var searchFiles = []string{"finder.go", "check.go", "begin.go"}

// plainNumbers say nothing that was chosen: none, one, two, a half, the third of a series, the nanoseconds in a second, and what only
// keeps a divisor from being zero or a comparison from failing by a rounding error.
var plainNumbers = []string{"0", "1", "2", "3", "0.5", "1e9", "1e-9", "1e-6", "1e-3"}

// A searchNumber is a number in the code of the search.
type searchNumber struct {
	at, what string
	said     bool // a comment says what it means
}

func TestSearchIsSmall(t *testing.T) {
	lines := 0
	var constants, literals []searchNumber
	for _, name := range searchFiles {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines += bytes.Count(src, []byte("\n"))
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, src, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
				constants = append(constants, constantsOf(fset, g)...)
			} else {
				literals = append(literals, literalsOf(fset, d)...)
			}
		}
	}
	t.Logf("%d lines, %d constants, %d numbers in functions", lines, len(constants), len(literals))
	if lines > searchLines {
		t.Errorf("%v have %d lines, want at most %d", searchFiles, lines, searchLines)
	}
	if n := len(constants) + len(literals); n > searchConstants {
		t.Errorf("%d constants and %d numbers in functions, want at most %d together", len(constants), len(literals), searchConstants)
	}
	for _, l := range literals {
		t.Logf("%s: %s", l.at, l.what)
	}
	for _, c := range constants {
		if !c.said {
			t.Errorf("%s: no comment says what %s means, or its unit", c.at, c.what)
		}
	}
}

// constantsOf returns the numbers that a const block declares. Those of an iota are names, not numbers. A comment at the end of the
// line says what one means, or one above it or above the group that it stands in, down to the next empty line.
func constantsOf(fset *token.FileSet, g *ast.GenDecl) (all []searchNumber) {
	if usesIota(g) {
		return nil
	}
	said, last := g.Doc != nil, 0
	for _, s := range g.Specs {
		v := s.(*ast.ValueSpec)
		first := fset.Position(v.Pos()).Line
		if v.Doc != nil {
			first = fset.Position(v.Doc.Pos()).Line
		}
		if last > 0 && first > last+1 { // an empty line before it
			said = false
		}
		said = said || isText(v.Doc)
		last = fset.Position(v.End()).Line
		for _, name := range v.Names {
			all = append(all, searchNumber{fset.Position(name.Pos()).String(), name.Name, said || isText(v.Comment)})
		}
	}
	return all
}

// isText reports whether a comment says something: "Times." alone does not say of what.
func isText(c *ast.CommentGroup) bool {
	return c != nil && len(strings.Fields(c.Text())) > 1
}

func usesIota(g *ast.GenDecl) (uses bool) {
	ast.Inspect(g, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		uses = uses || ok && id.Name == "iota"
		return true
	})
	return uses
}

// literalsOf returns the numbers in a declaration that are none of plainNumbers.
func literalsOf(fset *token.FileSet, d ast.Decl) (all []searchNumber) {
	ast.Inspect(d, func(n ast.Node) bool {
		l, ok := n.(*ast.BasicLit)
		if ok && (l.Kind == token.INT || l.Kind == token.FLOAT) && !slices.Contains(plainNumbers, l.Value) {
			all = append(all, searchNumber{fset.Position(l.Pos()).String(), l.Value, false})
		}
		return true
	})
	return all
}
