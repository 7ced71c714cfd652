package throttle_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// These tests read the source: what it exports, whether that is documented, which way its
// references point, and how long it is.

var update = flag.Bool("update", false, "rewrite testdata/api.txt")

const apiFile = "testdata/api.txt"

const module = "github.com/go-throttle/throttle"

// layers are the packages from the highest to the lowest, and what each may import of the others. The
// compiler forbids circles; this keeps the picture of ARCHITECTURE.md.
var layers = []struct {
	dir string
	may []string
}{
	{".", []string{"internal/queue", "internal/gate", "internal/learn", "internal/account", "hint"}},
	{"internal/queue", []string{"internal/gate", "internal/learn", "internal/account", "internal/moment", "hint"}},
	{"internal/gate", []string{"internal/moment"}},
	{"internal/learn", []string{"internal/moment", "hint"}},
	{"internal/account", []string{"internal/moment"}},
	{"internal/moment", nil},
	{"hint", nil},
}

// knowHTTP are the files that may import net/http beside package hint: the transport in its three
// parts, what may be sent again, and the keys.
var knowHTTP = []string{"transport.go", "call.go", "resend.go", "retry.go", "keyed.go"}

// mayUse are the modules that a package may import from.
var mayUse = []string{"golang.org/x/time/rate", "github.com/cenkalti/backoff/v4", "golang.org/x/sync/errgroup"}

// Budgets, in lines. One that wants to be broken is a question about the design.
const (
	maxRoot      = 2500
	maxFile      = 350
	maxFunc      = 50
	maxRoundTrip = 40
)

// TestAPI makes every change of the exported names a visible line in a diff.
func TestAPI(t *testing.T) {
	lines := append(parseSource(t, ".").api(), parseSource(t, "hint").api()...)
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile(apiFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	b, err := os.ReadFile(apiFile)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	for _, l := range lines {
		if !slices.Contains(want, l) {
			t.Errorf("not in %s: %s", apiFile, l)
		}
	}
	for _, l := range want {
		if !slices.Contains(lines, l) {
			t.Errorf("only in %s: %s", apiFile, l)
		}
	}
	if t.Failed() {
		t.Log("if the change is wanted: go test -run '^TestAPI$' . -update")
	}
}

func TestEveryExportedNameIsDocumented(t *testing.T) {
	for _, l := range layers {
		src := parseSource(t, l.dir)
		if !src.hasPackageDoc() {
			t.Errorf("package %s has no comment", src.name)
		}
		for _, n := range src.exported() {
			if inner := strings.HasPrefix(l.dir, "internal/"); inner && (strings.HasPrefix(n.text, "field ") || strings.HasPrefix(n.text, "method ")) {
				continue // a field's name is known from its type's comment, a method's from its interface's
			}
			if !n.documented {
				t.Errorf("%s: no comment on %s", src.fset.Position(n.pos), n.text)
			}
		}
	}
}

// TestLayers keeps the arrows pointing down.
func TestLayers(t *testing.T) {
	for _, l := range layers {
		for name, f := range parseSource(t, l.dir).files {
			for _, path := range imports(f) {
				first, _, _ := strings.Cut(path, "/")
				inner, ours := strings.CutPrefix(path, module+"/")
				switch {
				case path == "net/http" || strings.HasPrefix(path, "net/http/"):
					if l.dir != "hint" && (l.dir != "." || !slices.Contains(knowHTTP, name)) {
						t.Errorf("%s/%s imports %s; only hint and %v may", l.dir, name, path, knowHTTP)
					}
				case ours && !slices.Contains(l.may, inner):
					t.Errorf("%s/%s imports %s; only %v are below it", l.dir, name, path, l.may)
				case !ours && strings.Contains(first, ".") && (l.dir == "hint" || !slices.Contains(mayUse, path)):
					t.Errorf("%s/%s imports %s", l.dir, name, path)
				}
			}
		}
	}
}

func TestSizes(t *testing.T) {
	total := 0
	for _, l := range layers {
		dir, src := l.dir, parseSource(t, l.dir)
		for name, f := range src.files {
			n := src.fset.File(f.FileStart).LineCount()
			if dir == "." {
				total += n
			}
			if n > maxFile {
				t.Errorf("%s has %d lines; at most %d", filepath.Join(dir, name), n, maxFile)
			}
			for _, fn := range funcs(f) {
				n := src.fset.Position(fn.End()).Line - src.fset.Position(fn.Pos()).Line + 1
				limit := maxFunc
				if fn.Name.Name == "RoundTrip" {
					limit = maxRoundTrip
				}
				if n > limit {
					t.Errorf("%s: %s has %d lines; at most %d", src.fset.Position(fn.Pos()), fn.Name.Name, n, limit)
				}
			}
		}
	}
	if total > maxRoot {
		t.Errorf("the root has %d lines without its tests; at most %d", total, maxRoot)
	}
}

// source is a parsed package without its tests.
type source struct {
	name  string // of the package
	fset  *token.FileSet
	files map[string]*ast.File // by name without directory
}

func parseSource(t *testing.T, dir string) *source {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	s := &source{fset: token.NewFileSet(), files: map[string]*ast.File{}}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(s.fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		s.name = f.Name.Name
		s.files[filepath.Base(path)] = f
	}
	if len(s.files) == 0 {
		t.Fatalf("no source in %s", dir)
	}
	return s
}

func (s *source) hasPackageDoc() bool {
	for _, f := range s.files {
		if f.Doc != nil {
			return true
		}
	}
	return false
}

// exportedName is a line of the API list and where it comes from.
type exportedName struct {
	text       string
	pos        token.Pos
	documented bool
}

func (s *source) api() []string {
	var lines []string
	for _, n := range s.exported() {
		lines = append(lines, fmt.Sprintf("pkg %s, %s", s.name, n.text))
	}
	return lines
}

// exported returns the exported names of a package: those at its top level, and the fields and
// methods of its exported types, also those that an embedded unexported type of the same
// package brings along.
func (s *source) exported() []exportedName {
	var names []exportedName
	for _, f := range s.files {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.IsExported() {
					names = append(names, exportedName{"func " + d.Name.Name + s.signature(d.Type), d.Pos(), d.Doc != nil})
				}
			case *ast.GenDecl:
				names = append(names, s.declared(d)...)
			}
		}
	}
	return names
}

// declared returns the exported names of a const, var or type declaration.
func (s *source) declared(d *ast.GenDecl) []exportedName {
	var names []exportedName
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.ValueSpec:
			for _, id := range spec.Names {
				if id.IsExported() {
					documented := d.Doc != nil || spec.Doc != nil || spec.Comment != nil
					names = append(names, exportedName{d.Tok.String() + " " + id.Name, id.Pos(), documented})
				}
			}
		case *ast.TypeSpec:
			if spec.Name.IsExported() {
				documented := d.Doc != nil || spec.Doc != nil || spec.Comment != nil
				names = append(names, exportedName{"type " + spec.Name.Name + s.kind(spec), spec.Pos(), documented})
				names = append(names, s.members(spec.Name.Name, spec, map[string]bool{})...)
			}
		}
	}
	return names
}

// kind returns what a type is, without its members.
func (s *source) kind(spec *ast.TypeSpec) string {
	params := ""
	if spec.TypeParams != nil {
		params = "[...]"
	}
	if spec.Assign.IsValid() {
		params += " ="
	}
	switch spec.Type.(type) {
	case *ast.StructType:
		return params + " struct"
	case *ast.InterfaceType:
		return params + " interface"
	}
	return params + " " + s.text(spec.Type)
}

// members returns the exported fields and methods of type name that spec declares. seen are the
// embedded types already looked at.
func (s *source) members(name string, spec *ast.TypeSpec, seen map[string]bool) []exportedName {
	if seen[spec.Name.Name] {
		return nil
	}
	seen[spec.Name.Name] = true
	var names []exportedName
	switch typ := spec.Type.(type) {
	case *ast.StructType:
		names = s.fields("field", name, typ.Fields, seen)
	case *ast.InterfaceType:
		names = s.fields("method", name, typ.Methods, seen)
	}
	for _, f := range s.files {
		for _, fn := range funcs(f) {
			if fn.Recv == nil || !fn.Name.IsExported() || receiver(fn) != spec.Name.Name {
				continue
			}
			star := ""
			if _, ok := fn.Recv.List[0].Type.(*ast.StarExpr); ok {
				star = "*"
			}
			text := fmt.Sprintf("method (%s%s) %s%s", star, name, fn.Name.Name, s.signature(fn.Type))
			names = append(names, exportedName{text, fn.Pos(), fn.Doc != nil})
		}
	}
	return names
}

// fields returns the exported fields of a struct, or methods of an interface. A comment counts
// for the lines right below it that it names, too.
func (s *source) fields(kind, name string, list *ast.FieldList, seen map[string]bool) []exportedName {
	var names []exportedName
	var group string // the comment above the lines up to here
	last := 0
	for _, f := range list.List {
		line := s.fset.Position(f.Pos()).Line
		switch {
		case f.Doc != nil:
			group = f.Doc.Text()
		case line != last+1:
			group = ""
		}
		last = s.fset.Position(f.End()).Line
		ids := f.Names
		if ids == nil { // embedded
			id := baseName(f.Type)
			if embedded := s.typeSpec(id); embedded != nil && !id.IsExported() {
				names = append(names, s.members(name, embedded, seen)...)
			}
			ids = []*ast.Ident{id}
		}
		for _, id := range ids {
			if !id.IsExported() {
				continue
			}
			documented := f.Doc != nil || f.Comment != nil || slices.Contains(words(group), id.Name) ||
				kind == "method" && list.NumFields() == 1 // the comment on the interface is about it
			text := fmt.Sprintf("%s %s.%s %s", kind, name, id.Name, s.text(f.Type))
			if typ, ok := f.Type.(*ast.FuncType); ok && kind == "method" {
				text = fmt.Sprintf("method %s.%s%s", name, id.Name, s.signature(typ))
			}
			names = append(names, exportedName{text, id.Pos(), documented})
		}
	}
	return names
}

// typeSpec returns the declaration of the type id in this package, or nil.
func (s *source) typeSpec(id *ast.Ident) *ast.TypeSpec {
	for _, f := range s.files {
		for _, d := range f.Decls {
			if d, ok := d.(*ast.GenDecl); ok {
				for _, spec := range d.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok && spec.Name.Name == id.Name {
						return spec
					}
				}
			}
		}
	}
	return nil
}

// text prints a type on one line.
func (s *source) text(node ast.Node) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, s.fset, node); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// signature prints the type of a function without the word func.
func (s *source) signature(typ *ast.FuncType) string {
	return strings.TrimPrefix(s.text(typ), "func")
}

func funcs(f *ast.File) []*ast.FuncDecl {
	var fns []*ast.FuncDecl
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			fns = append(fns, fn)
		}
	}
	return fns
}

// receiver returns the name of the type that fn is a method of.
func receiver(fn *ast.FuncDecl) string { return baseName(fn.Recv.List[0].Type).Name }

// baseName returns the name of a type without pointer, package and type arguments.
func baseName(expr ast.Expr) *ast.Ident {
	for {
		switch e := expr.(type) {
		case *ast.Ident:
			return e
		case *ast.StarExpr:
			expr = e.X
		case *ast.SelectorExpr:
			return e.Sel
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		default:
			return ast.NewIdent("_")
		}
	}
}

func imports(f *ast.File) []string {
	var paths []string
	for _, spec := range f.Imports {
		if path, err := strconv.Unquote(spec.Path.Value); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// words splits a comment into words without their punctuation.
func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \n\t.,;:()[]", r) })
}
