package soak

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// A fault is a defect to be planted: in the function fn, the statement or expression right
// becomes wrong. Places are found by syntax: neither layout nor comments nor other code matter. In
// wrong, RIGHT stands for the source of what was there, and PLANTED is true in the run that has to
// find this fault.
type fault struct {
	name  string
	fn    string // "name", or "Type.name", of whatever package
	right string // a statement, an expression that is not a call, or a clause of a switch
	wrong string
}

// plant puts the faults into sources, which are files by their paths, and returns those that are
// changed. Each fault must have just one place.
func plant(sources map[string]string, faults []fault) (changed map[string]string, err error) {
	type edit struct {
		from, to int
		text     string
	}
	var errs []error
	edits := map[string][]edit{}
	fset, parsed := token.NewFileSet(), map[string]*ast.File{}
	for file, src := range sources {
		if parsed[file], err = parser.ParseFile(fset, file, src, parser.SkipObjectResolution); err != nil {
			return nil, err
		}
	}
	for i, f := range faults {
		want, err := parseSnippet(f.right)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w in %q", f.name, err, f.right))
			continue
		}
		places := 0
		for _, file := range slices.Sorted(maps.Keys(sources)) {
			for _, n := range find(parsed[file], f.fn, want) {
				places++
				from, to := fset.Position(n.Pos()).Offset, fset.Position(n.End()).Offset
				right, wrong := sources[file][from:to], f.wrong
				if _, ok := n.(ast.Expr); ok {
					right, wrong = "("+right+")", "("+wrong+")"
				}
				text := strings.NewReplacer("RIGHT", right, "PLANTED", fmt.Sprintf("planted(%d)", i+1)).Replace(wrong)
				edits[file] = append(edits[file], edit{from, to, text})
			}
		}
		if places != 1 {
			errs = append(errs, fmt.Errorf("%s: %q stands %d times in %s, not once: the fault needs another place", f.name, f.right, places, f.fn))
		}
	}
	changed = map[string]string{}
	for file, all := range edits {
		slices.SortFunc(all, func(a, b edit) int { return b.from - a.from }) // from the end on
		text, end := sources[file], len(sources[file])
		for _, e := range all {
			if e.to > end {
				errs = append(errs, fmt.Errorf("%s: two faults overlap before %q", file, e.text))
				break
			}
			text, end = text[:e.from]+e.text+text[e.to:], e.from
		}
		changed[file] = text
	}
	return changed, errors.Join(errs...)
}

// parseSnippet parses a statement, an expression or a clause of a switch.
func parseSnippet(src string) (ast.Node, error) {
	inner := src
	clause := strings.HasPrefix(src, "case ") || strings.HasPrefix(src, "default:")
	if clause {
		inner = "switch { " + src + " }"
	}
	f, err := parser.ParseFile(token.NewFileSet(), "", "package p; func _() { "+inner+" }", parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	list := f.Decls[0].(*ast.FuncDecl).Body.List
	if clause {
		list = list[0].(*ast.SwitchStmt).Body.List
	}
	if len(list) != 1 {
		return nil, fmt.Errorf("%d statements, not one", len(list))
	}
	if e, ok := list[0].(*ast.ExprStmt); ok {
		if _, call := e.X.(*ast.CallExpr); !call {
			return e.X, nil
		}
	}
	return list[0], nil
}

// find returns the nodes like want in the function of that name.
func find(f *ast.File, name string, want ast.Node) (found []ast.Node) {
	shape := shapeOf(want)
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || nameOf(fn) != name || fn.Body == nil {
			continue
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			if reflect.TypeOf(n) == reflect.TypeOf(want) && shapeOf(n) == shape {
				found = append(found, n)
			}
			return true
		})
	}
	return found
}

// nameOf is the name of a function, after that of its receiver's type.
func nameOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	typ := fn.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if generic, ok := typ.(*ast.IndexExpr); ok {
		typ = generic.X
	}
	if id, ok := typ.(*ast.Ident); ok {
		return id.Name + "." + fn.Name.Name
	}
	return "" // of several type parameters: not needed here
}

// shapeOf describes a node without saying where it stands.
func shapeOf(n ast.Node) string {
	var b strings.Builder
	pos := reflect.TypeFor[token.Pos]()
	if err := ast.Fprint(&b, nil, n, func(_ string, field reflect.Value) bool { return field.Type() != pos }); err != nil {
		panic(err)
	}
	return b.String()
}

func TestPlant(t *testing.T) {
	const src = `package p
func (b *box) add(n int) {
	b.sum += n // so
	if b.open &&
		n > 0 {
		b.log(n,
			"added")
	}
	b.tell()
	b.tell()
}
func tell() { b.tell() }
func (b *many[W]) add() { b.one() }
`
	for _, c := range []struct{ name, fn, right, wrong, want string }{
		{"a statement", "box.add", "b.sum+=n", "if !PLANTED { RIGHT }", "\tif !planted(1) { b.sum += n } // so\n"},
		{"on two lines", "box.add", `b.log(n, "added")`, "", "n > 0 {\n\t\t\n\t}"},
		{"an expression", "box.add", "b.open && n > 0", "RIGHT || PLANTED", "if ((b.open &&\n\t\tn > 0) || planted(1)) {\n"},
		{"a function", "tell", "b.tell()", "RIGHT; RIGHT", "func tell() { b.tell(); b.tell() }"},
		{"of a generic type", "many.add", "b.one()", "if !PLANTED { RIGHT }", "{ if !planted(1) { b.one() } }"},
		{"nowhere", "box.add", "b.sum -= n", "", `nowhere: "b.sum -= n" stands 0 times in box.add,`},
		{"in no such function", "box.sub", "b.sum += n", "", "in no such function: "},
		{"twice", "box.add", "b.tell()", "", `twice: "b.tell()" stands 2 times`},
		{"no Go", "box.add", "b.(", "", "no Go: "},
	} {
		changed, err := plant(map[string]string{"a.go": src}, []fault{{c.name, c.fn, c.right, c.wrong}})
		if got := changed["a.go"] + fmt.Sprint(err); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %s, want %q", c.name, got, c.want)
		}
	}
	if _, err := plant(map[string]string{"a.go": src}, []fault{{"a", "box.add", "b.open && n > 0", ""}, {"b", "box.add", "n > 0", ""}}); err == nil {
		t.Error("two faults at one place are not noticed")
	}
}
