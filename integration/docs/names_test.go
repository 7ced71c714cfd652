package docs

import (
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the root of the tree, from here.
const root = "../.."

// public are the packages that users import.
var public = []string{".", "fleet", "fleet/store", "hint", "inbound", "inbound/keys", "throttledebug", "throttlelog", "throttleotel", "throttleredis", "throttletest", "usage"}

// inGeneral are methods of interfaces that everybody knows: fmt, errors, encoding, net/http and flag say when they are called.
var inGeneral = []string{"String", "Error", "Unwrap", "Is", "MarshalText", "UnmarshalText", "RoundTrip", "ServeHTTP", "Timeout"}

// situation matches what a sentence that says when to use a name has in it: a condition, a purpose or an alternative.
var situation = regexp.MustCompile(`(?i)\b(use|uses|used|useful|for|if|when|whenever|unless|until|while|instead|before|after|so that|because|choose|call it)\b`)

// TestEveryNameSaysWhenToUseIt: each exported function, type, method, constant and variable has a comment that says more than
// its name does. Beyond that it stands in an example of its package or in examples/recipes, or the comment names a
// situation. Fields are not asked: they have units and zero values, which the tests of the root look for.
func TestEveryNameSaysWhenToUseIt(t *testing.T) {
	recipes := exampleCode(t, "examples/recipes", func(string) bool { return true })
	for _, dir := range public {
		pkg := load(t, dir)
		shown := append(exampleCode(t, dir, func(name string) bool { return strings.HasPrefix(name, "example") }), recipes...)
		n := 0
		for _, name := range names(pkg) {
			n++
			if why := lacks(name, shown); why != "" {
				t.Errorf("%s: %s.%s %s: %q", dir, pkg.Name, name.full(), why, name.doc)
			}
		}
		t.Logf("%s: %d names", dir, n)
		if n == 0 {
			t.Errorf("%s exports nothing", dir)
		}
	}
}

// A name is an exported name of a package.
type name struct {
	of   string // the type of a method; "": none
	name string
	doc  string
	own  bool // an example is named after it
}

func (n name) full() string { return strings.TrimPrefix(n.of+"."+n.name, ".") }

// lacks returns what n lacks, "" if nothing. shown are the bodies of examples.
func lacks(n name, shown []map[string]bool) string {
	if n.of != "" && slices.Contains(inGeneral, n.name) {
		return ""
	}
	if !saysMore(n) {
		return "has a comment that says no more than its name"
	}
	if n.own || situation.MatchString(n.doc) || slices.ContainsFunc(shown, n.in) {
		return ""
	}
	return "has no example, and does not say when to use it"
}

// saysMore reports whether the comment has five words that are not in the name.
func saysMore(n name) bool {
	more := map[string]bool{}
	for _, w := range strings.FieldsFunc(n.doc, func(r rune) bool { return !('a' <= r|0x20 && r|0x20 <= 'z') }) {
		if !strings.Contains(strings.ToLower(n.full()), strings.ToLower(w)) {
			more[w] = true
		}
	}
	return len(more) >= 5
}

// in reports whether an example has the name; if it is a method, together with its type or a function that makes one.
func (n name) in(idents map[string]bool) bool {
	if !idents[n.name] || n.of == "" {
		return idents[n.name]
	}
	for id := range idents {
		if strings.Contains(id, n.of) {
			return true
		}
	}
	return false
}

// load reads the package in dir with its tests, for the examples.
func load(t *testing.T, dir string) *doc.Package {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, path := range goFiles(t, dir) {
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	pkg, err := doc.NewFromFiles(fset, files, "github.com/go-throttle/throttle/"+dir)
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}

func goFiles(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: no Go files, %v", dir, err)
	}
	return paths
}

// names returns the exported names of pkg.
func names(pkg *doc.Package) (all []name) {
	values := func(of string, list []*doc.Value) {
		for _, v := range list {
			for _, id := range v.Names {
				if ast.IsExported(id) {
					all = append(all, name{name: id, doc: of + v.Doc + specDoc(v, id)})
				}
			}
		}
	}
	funcs := func(of string, list []*doc.Func) {
		for _, f := range list {
			if f.Level == 0 {
				all = append(all, name{of: of, name: f.Name, doc: f.Doc, own: len(f.Examples) > 0})
			}
		}
	}
	values("", pkg.Consts)
	values("", pkg.Vars)
	funcs("", pkg.Funcs)
	for _, t := range pkg.Types {
		all = append(all, name{name: t.Name, doc: t.Doc, own: len(t.Examples) > 0})
		values(t.Doc, t.Consts) // the comment on a type is about its constants too
		values(t.Doc, t.Vars)
		funcs("", t.Funcs)
		funcs(t.Name, t.Methods)
	}
	return all
}

// specDoc returns the comments on id in a group of constants or variables, and on the first of the lines right above it that
// has one.
func specDoc(v *doc.Value, id string) (text string) {
	for _, spec := range v.Decl.Specs {
		s := spec.(*ast.ValueSpec)
		if own := s.Doc.Text() + s.Comment.Text(); own != "" {
			text = own
		}
		if slices.ContainsFunc(s.Names, func(n *ast.Ident) bool { return n.Name == id }) {
			return text
		}
	}
	return text
}

// exampleCode returns the identifiers of each function in those files of dir whose name is wanted.
func exampleCode(t *testing.T, dir string, wanted func(name string) bool) (bodies []map[string]bool) {
	t.Helper()
	for _, path := range goFiles(t, dir) {
		if !wanted(filepath.Base(path)) {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			idents := map[string]bool{}
			ast.Inspect(d, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					idents[id.Name] = true
				}
				return true
			})
			bodies = append(bodies, idents)
		}
	}
	return bodies
}

// brackets matches a doc link, or what should be one: [Name] or [Type.Name] that begins with a capital.
var brackets = regexp.MustCompile(`\[\*?[A-Z]\w*(\.[A-Z]\w*)?\]`)

// TestDocLinksResolve: no comment of an exported name has a [Name] that go doc prints with its brackets, because there is no
// such name.
func TestDocLinksResolve(t *testing.T) {
	for _, dir := range public {
		pkg := load(t, dir)
		known := names(pkg)
		for _, n := range append(known, name{name: "package", doc: pkg.Doc}) {
			for _, block := range pkg.Parser().Parse(n.doc).Content {
				for _, text := range plain(block) {
					if link := brackets.FindString(text); link != "" {
						t.Errorf("%s: the comment on %s links to %s, which is not there", dir, n.full(), link)
					}
				}
			}
		}
	}
}

// plain returns the text in block that is no link and no code.
func plain(block comment.Block) (texts []string) {
	var lines []comment.Text
	switch b := block.(type) {
	case *comment.Paragraph:
		lines = b.Text
	case *comment.Heading:
		lines = b.Text
	case *comment.List:
		for _, item := range b.Items {
			for _, b := range item.Content {
				texts = append(texts, plain(b)...)
			}
		}
	}
	for _, t := range lines {
		if p, ok := t.(comment.Plain); ok {
			texts = append(texts, string(p))
		}
	}
	return texts
}

// ours matches a link into the repository.
var ours = regexp.MustCompile(`https://github\.com/go-throttle/throttle/(?:tree|blob)/main/([^\s)"'>#]+)`)

// TestLinksInComments: what comments and pages link to in the repository is there, in the tree.
func TestLinksInComments(t *testing.T) {
	n := 0
	for _, name := range files(t, ".go", ".md", ".yml") {
		for _, m := range ours.FindAllStringSubmatch(readFile(t, name), -1) {
			n++
			if _, err := os.Stat(filepath.Join(root, strings.TrimRight(m[1], ".,"))); err != nil {
				t.Errorf("%s: %s: %v", name, m[0], err)
			}
		}
	}
	if n == 0 {
		t.Error("no links")
	}
}
