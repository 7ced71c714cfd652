package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	reverseProxy = "ReverseProxy"
	oauth2       = "x/oauth2"
	resty        = "resty"
)

// A suite is the tests of a module, or of a package of the Go tree.
type suite struct {
	name    string
	module  string // "": the Go tree
	pattern string // the packages

	// In file, new replaces old, so that requests that do not go through http.DefaultTransport
	// go through the Transport, too. file "": none do.
	file, old, new string

	skip   string // matches the tests that are left out; "": none
	shards int    // processes that share the tests of a package
	jobs   int    // processes at a time
}

var suites = []suite{
	{
		name: reverseProxy, pattern: "net/http/httputil",
		file:   "reverseproxy.go",
		old:    "\t\ttransport = http.DefaultTransport\n\t}\n",
		new:    "\t\ttransport = http.DefaultTransport\n\t}\n\ttransport = throttledOver(transport)\n",
		shards: 1, jobs: 6, // failed attempts are resent, by a client and a proxy: 30 s
	},
	{
		name: oauth2, module: "golang.org/x/oauth2", pattern: "golang.org/x/oauth2/...",
		shards: 1, jobs: 1,
	},
	{
		name: resty, module: "github.com/go-resty/resty/v2", pattern: "github.com/go-resty/resty/v2/...",
		file: "client.go",
		old:  "c.httpClient.Do(",
		new:  "throttledClient(c.httpClient).Do(",
		// The first ones measure resty's own pauses, and allow 5 or 10 ms more: they fail on a busy machine. GH917 sends 4,000
		// requests to an endpoint that answers nothing but 500, which closes the gate (Retry.Failures).
		skip:   "^Test(ClientRetryWait(Callback(TooShort|TooLong|SwitchToDefault)?)?|RequestGH917)$",
		shards: 4, jobs: 20, // the tests sleep for 80 s in all
	},
}

// hook is added to every package of a suite that has tests.
const hook = `package %s

import (
	"net/http"

	"github.com/go-throttle/throttle/integration/conformance/throttled"
)

var throttledOver, throttledClient = throttled.Over, throttled.Client

func init() { http.DefaultTransport = throttledOver(http.DefaultTransport) }
`

const (
	hookFile = "throttled_conformance.go"
	inTree   = "conformance/" // where in the Go tree the Transport is put, so that httputil may import it
)

// A pkg is a package that has tests, and the binary of them.
type pkg struct {
	ImportPath, Name, Dir     string
	GoFiles                   []string
	TestGoFiles, XTestGoFiles []string
	Standard                  bool

	binary string
}

// prepare builds the tests of s in dir: as they are or, if over, with the Transport under the code.
func (s *suite) prepare(dir string, over, race bool) ([]pkg, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	install := s.inTree
	if s.module != "" {
		install = s.inCopy
	}
	flags, err := install(dir, over)
	if err != nil {
		return nil, err
	}
	pkgs, err := tested(append(flags, s.pattern)...)
	if err != nil {
		return nil, err
	}
	if race {
		flags = append(flags, "-race")
	}
	for i := range pkgs {
		p := &pkgs[i]
		p.binary = filepath.Join(dir, strings.ReplaceAll(p.ImportPath, "/", "_")+".test")
		args := append([]string{"test", "-c", "-vet=off", "-o", p.binary}, flags...)
		if _, err := goTool(append(args, p.ImportPath)...); err != nil {
			return nil, err
		}
	}
	if len(pkgs) == 0 {
		return nil, fmt.Errorf("%w: no tests in %s", errSkip, s.pattern)
	}
	return pkgs, nil
}

// inCopy copies the module of s into dir, and returns the flags that build the copy.
func (s *suite) inCopy(dir string, over bool) ([]string, error) {
	out, err := goTool("mod", "download", "-json", s.module)
	if err != nil {
		return nil, err
	}
	var m struct{ Dir string }
	if err := json.Unmarshal(out, &m); err != nil {
		return nil, err
	}
	src, mod := filepath.Join(dir, "src"), filepath.Join(dir, "go.mod")
	if err := os.CopyFS(src, os.DirFS(m.Dir)); err != nil {
		return nil, err
	}
	for _, f := range []string{"go.mod", "go.sum"} {
		if err := copyFile(filepath.Join(dir, f), f); err != nil {
			return nil, err
		}
	}
	if _, err := goTool("mod", "edit", "-replace", s.module+"="+src, mod); err != nil {
		return nil, err
	}
	flags := []string{"-modfile=" + mod}
	if !over {
		return flags, nil
	}
	pkgs, err := tested(append(flags, s.pattern)...)
	if err != nil {
		return nil, err
	}
	for _, p := range pkgs {
		if err := os.WriteFile(filepath.Join(p.Dir, hookFile), fmt.Appendf(nil, hook, p.Name), 0o666); err != nil {
			return nil, err
		}
	}
	if s.file == "" {
		return flags, nil
	}
	file := filepath.Join(src, s.file)
	text, err := s.edited(file)
	if err != nil {
		return nil, err
	}
	return flags, os.WriteFile(file, []byte(text), 0o666)
}

// inTree returns the flags that build the package of the Go tree; if over, with an overlay. A package
// of the tree can import only packages of the tree. So the overlay puts the Transport and the modules
// that it needs into the tree, under other import paths.
func (s *suite) inTree(dir string, over bool) ([]string, error) {
	if !over {
		return nil, nil
	}
	pkgs, err := list("-deps", s.pattern, "./throttled")
	if err != nil {
		return nil, err
	}
	to := pkgs[slices.IndexFunc(pkgs, func(p pkg) bool { return p.ImportPath == s.pattern })]
	tree := strings.TrimSuffix(to.Dir, filepath.FromSlash(s.pattern))
	if err := overlayable(tree); err != nil {
		return nil, err
	}
	pkgs = slices.DeleteFunc(pkgs, func(p pkg) bool { return p.Standard })
	var paths []string // pairs for strings.NewReplacer
	for _, p := range pkgs {
		paths = append(paths, `"`+p.ImportPath+`"`, `"`+inTree+p.ImportPath+`"`)
	}
	move := strings.NewReplacer(paths...)
	replace := map[string]string{}
	add := func(path, text string) error {
		replace[path] = filepath.Join(dir, fmt.Sprint(len(replace), ".go"))
		return os.WriteFile(replace[path], []byte(text), 0o666)
	}
	for _, p := range pkgs {
		for _, f := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, f))
			if err != nil {
				return nil, err
			}
			if err := add(filepath.Join(tree, inTree, p.ImportPath, f), move.Replace(string(text))); err != nil {
				return nil, err
			}
		}
	}
	file := filepath.Join(to.Dir, s.file)
	text, err := s.edited(file)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(add(file, text), add(filepath.Join(to.Dir, hookFile), move.Replace(fmt.Sprintf(hook, to.Name)))); err != nil {
		return nil, err
	}
	overlay := filepath.Join(dir, "overlay.json")
	b, err := json.Marshal(map[string]any{"Replace": replace})
	return []string{"-overlay=" + overlay}, errors.Join(err, os.WriteFile(overlay, b, 0o666))
}

// overlayable returns an error if tree is in the module cache, where the go command puts the versions of Go that it downloads.
func overlayable(tree string) error {
	cache, err := goTool("env", "GOMODCACHE")
	if err == nil && strings.HasPrefix(tree, strings.TrimSpace(string(cache))) {
		err = fmt.Errorf("%w: nothing may be laid over a Go that was downloaded into the module cache; use an installed one", errSkip)
	}
	return err
}

// edited returns the text of the file at path with new in place of old.
func (s *suite) edited(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), s.old); n != 1 {
		return "", fmt.Errorf("%s has %q %d times, not once: bring suite.go up to date", path, s.old, n)
	}
	return strings.Replace(string(text), s.old, s.new, 1), nil
}

func copyFile(to, from string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o666)
}

// tested is list without the packages that have no tests.
func tested(args ...string) ([]pkg, error) {
	pkgs, err := list(args...)
	return slices.DeleteFunc(pkgs, func(p pkg) bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 }), err
}

// list returns what go list says of packages.
func list(args ...string) ([]pkg, error) {
	out, err := goTool(append([]string{"list", "-json=ImportPath,Name,Dir,GoFiles,TestGoFiles,XTestGoFiles,Standard"}, args...)...)
	if err != nil {
		return nil, err
	}
	var pkgs []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p pkg
		if err := d.Decode(&p); err != nil {
			return nil, err
		}
		pkgs = append(pkgs, p)
	}
	return pkgs, nil
}

// goTool runs the go command. Its error matches errSkip if there is no network.
func goTool(args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	stderr := new(strings.Builder)
	cmd.Stderr = stderr
	out, err := cmd.Output()
	if err == nil {
		return out, nil
	}
	said := stderr.String() + string(out) // mod download -json says on stdout what is wrong
	if offline.MatchString(said) {
		err = errSkip
	}
	return nil, fmt.Errorf("%w: go %s: %s", err, strings.Join(args, " "), strings.Join(strings.Fields(said), " "))
}
