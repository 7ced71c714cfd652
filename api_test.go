package throttle_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
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

// A house member is a package of this module, and what it may import of the others.
type member struct {
	dir string
	may []string // "": the root
	own bool     // it imports the standard library alone beside them
}

// house is the module from the highest package to the lowest. The compiler forbids circles; this keeps
// the picture of ARCHITECTURE.md: each package knows the one below it, and those at the ground, which
// know none. A package that is not here has no place.
var house = []member{
	{dir: "soak", own: true},        // tests alone
	{dir: "integration", own: true}, // tests alone
	{dir: "internal/lab", may: []string{"throttletest", "internal/account"}, own: true},
	{dir: "internal/worlds", own: true}, // tests alone
	{dir: "inbound", may: []string{".", "inbound/keys", "internal/limit", "internal/line", "internal/load", "internal/outage", "internal/shed"}, own: true},
	{dir: "inbound/keys", may: []string{"fleet/store"}, own: true},
	{dir: "throttledebug", may: []string{".", "fleet"}, own: true},
	{dir: "throttlelog", may: []string{"."}, own: true},
	{dir: "fleet", may: []string{"fleet/store", "internal/limit", "internal/outage", "hint"}},
	{dir: ".", may: []string{"internal/queue", "internal/body", "internal/fault", "internal/limit", "internal/load", "internal/aimd", "hint", "usage"}},
	{dir: "internal/body", may: []string{"usage"}},
	{dir: "internal/queue", may: []string{"internal/upstream", "internal/limit", "internal/line", "internal/meter", "internal/aimd", "hint"}},
	{dir: "internal/upstream", may: []string{"internal/gate", "internal/quota", "internal/seek", "internal/step", "internal/limit", "hint"}},
	{dir: "internal/step"},
	{dir: "internal/gate", may: []string{"internal/limit"}},
	{dir: "internal/quota", may: []string{"internal/limit", "hint"}},
	{dir: "internal/seek", may: []string{"internal/limit"}},
	{dir: "internal/fault", own: true},
	{dir: "internal/aimd", own: true},
	{dir: "internal/line", own: true},
	{dir: "internal/load", own: true},
	{dir: "internal/meter", own: true},
	{dir: "internal/outage", own: true},
	{dir: "internal/shed", own: true},
	{dir: "internal/race", own: true},
	{dir: "fleet/store"},
	{dir: "internal/limit"},
	{dir: "hint", own: true},
	{dir: "usage", own: true},
	{dir: "throttletest", may: []string{"internal/account"}, own: true},
	{dir: "internal/account", own: true},
}

// knowHTTP are the files that may import net/http beside those packages that are about it: the transport
// in its three parts, what may be sent again, and the keys.
var (
	knowHTTP  = []string{"transport.go", "call.go", "resend.go", "retry.go", "keyed.go", "meter.go"}
	aboutHTTP = []string{"hint", "usage", "internal/fault", "internal/lab", "throttletest", "inbound", "throttledebug"}
)

// mayUse are the modules that a package may import from.
var mayUse = []string{"golang.org/x/time/rate", "github.com/cenkalti/backoff/v4", "golang.org/x/sync/errgroup"}

// Budgets, in lines. One that wants to be broken is a question about the design.
const (
	maxFile      = 350
	maxFunc      = 50
	maxRoundTrip = 40
)

// TestAPI makes every change of the exported names a visible line in a diff.
func TestAPI(t *testing.T) {
	var lines []string
	for _, dir := range []string{".", "fleet", "fleet/store", "hint", "inbound", "inbound/keys", "throttledebug", "throttlelog", "throttletest", "usage"} {
		lines = append(lines, parseSource(t, dir).api()...)
	}
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
	for _, r := range packages(t) {
		src := parseSource(t, r.dir)
		if !src.hasPackageDoc() {
			t.Errorf("package %s has no comment", src.name)
		}
		for _, n := range src.exported() {
			if inner := strings.HasPrefix(r.dir, "internal/"); inner && (strings.HasPrefix(n.text, "field ") || strings.HasPrefix(n.text, "method ")) {
				continue // a field's name is known from its type's comment, a method's from its interface's
			}
			if !n.documented {
				t.Errorf("%s: no comment on %s", src.fset.Position(n.pos), n.text)
			}
		}
	}
}

// packages returns the packages of house that there are, and fails for one that is not in house.
func packages(t *testing.T) (there []member) {
	t.Helper()
	dirs := sourceDirs(t)
	for _, r := range house {
		if slices.Contains(dirs, r.dir) {
			there = append(there, r)
		}
	}
	for _, dir := range dirs {
		if !slices.ContainsFunc(house, func(r member) bool { return r.dir == dir }) {
			t.Errorf("package %s has no place in the house", dir)
		}
	}
	return there
}

// sourceDirs returns the directories of this module that hold Go files beside tests.
func sourceDirs(t *testing.T) (dirs []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != ".":
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil || name == "testdata" || strings.ContainsAny(name[:1], "._") {
				return fs.SkipDir
			}
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			if dir := filepath.ToSlash(filepath.Dir(path)); !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// TestLayers keeps the arrows pointing down, and each of them to a neighbour or the ground.
func TestLayers(t *testing.T) {
	for _, r := range packages(t) {
		for name, f := range parseSource(t, r.dir).files {
			for _, path := range imports(f) {
				first, _, _ := strings.Cut(path, "/")
				inner, ours := strings.CutPrefix(path, module+"/")
				if path == module {
					inner, ours = ".", true
				}
				switch {
				case path == "net/http" || strings.HasPrefix(path, "net/http/"):
					if !slices.Contains(aboutHTTP, r.dir) && (r.dir != "." || !slices.Contains(knowHTTP, name)) {
						t.Errorf("%s/%s imports %s; only %v and %v may", r.dir, name, path, aboutHTTP, knowHTTP)
					}
				case ours && !slices.Contains(r.may, inner):
					t.Errorf("%s/%s imports %s; only %v are below it", r.dir, name, path, r.may)
				case !ours && strings.Contains(first, ".") && (r.own || !slices.Contains(mayUse, path)):
					t.Errorf("%s/%s imports %s", r.dir, name, path)
				}
			}
		}
	}
}

// TestClosedPackages keeps the state of internal packages to themselves: an exported struct is either a
// value, with fields and no methods, or something that is asked to do things; and no variable can be set.
func TestClosedPackages(t *testing.T) {
	for _, r := range packages(t) {
		if !strings.HasPrefix(r.dir, "internal/") || r.dir == "internal/lab" { // which is no part of the library
			continue
		}
		src := parseSource(t, r.dir)
		fields, methods := map[string][]string{}, map[string][]string{}
		for _, n := range src.exported() {
			kind, rest, _ := strings.Cut(n.text, " ")
			switch kind {
			case "field": // "Type.Name type"
				name, field, _ := strings.Cut(rest, ".")
				fields[name] = append(fields[name], field)
			case "method": // "(*Type) Name(...)" or, of an interface, "Interface.Name(...)"
				name, method, _ := strings.Cut(strings.TrimLeft(rest, "(*"), ")")
				methods[name] = append(methods[name], strings.TrimSpace(method))
			case "var":
				if !strings.HasPrefix(rest, "Err") {
					t.Errorf("%s: variable %s can be set from outside", src.fset.Position(n.pos), rest)
				}
			}
		}
		for name, of := range fields {
			if len(methods[name]) > 0 || src.hides(name) {
				t.Errorf("%s.%s has exported fields (%s) beside methods or unexported fields", r.dir, name, strings.Join(of, "; "))
			}
		}
	}
}

// hides reports whether the struct of that name has unexported fields that are not embedded.
func (s *source) hides(name string) bool {
	spec := s.typeSpec(ast.NewIdent(name))
	if spec == nil {
		return false
	}
	typ, ok := spec.Type.(*ast.StructType)
	return ok && slices.ContainsFunc(typ.Fields.List, func(f *ast.Field) bool {
		return slices.ContainsFunc(f.Names, func(id *ast.Ident) bool { return !id.IsExported() })
	})
}

// TestRootAsksForOperations: no name of a state of the packages below stands in the root.
func TestRootAsksForOperations(t *testing.T) {
	state := regexp.MustCompile(`\.(Mu|Gate|Learned|Counters|Begun|Ended|Resting|Line|Slots|Wants|Epoch)\b`)
	for name := range parseSource(t, ".").files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			for _, own := range ownNames {
				line = strings.ReplaceAll(line, own, "")
			}
			if found := state.FindString(line); found != "" {
				t.Errorf("%s:%d: %s", name, i+1, found)
			}
		}
	}
}

// ownNames are of the root's own API, or of a value that a package below takes.
var ownNames = []string{"Hooks.Learned", "h.Learned", "other.Learned", "[KeyStats].Learned", "q.Learned()", "r.Ended"}

// TestRootTests: the root's tests see what a user sees, and each file of them is named after what it tests.
func TestRootTests(t *testing.T) {
	about := []string{"example", "api", "bench", "body", "contract", "hostile", "foreign", "keys", "pools", "adaptive_queue", "bench_keys", "bench_cpu_unix", "bench_cpu_other"}
	for name := range parseSource(t, ".").files {
		about = append(about, strings.TrimSuffix(name, ".go"))
	}
	all, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		name, test := strings.CutSuffix(path, "_test.go")
		if !test {
			continue
		}
		if first, _, _ := strings.Cut(name, "_"); !slices.Contains(about, name) && first != "example" {
			t.Errorf("%s is named after no file and none of %v", path, about[:9])
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		if f.Name.Name != "throttle_test" {
			t.Errorf("%s is part of package %s, want throttle_test", path, f.Name.Name)
		}
		for _, path := range imports(f) {
			if strings.HasPrefix(path, module+"/internal/") && path != module+"/internal/race" { // which says nothing of the library
				t.Errorf("%s_test.go imports %s", name, path)
			}
		}
	}
}

func TestSizes(t *testing.T) {
	for _, r := range packages(t) {
		dir, src := r.dir, parseSource(t, r.dir)
		for name, f := range src.files {
			n := src.fset.File(f.FileStart).LineCount()
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
