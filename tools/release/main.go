// Release builds the modules that users import as they will be once a version is tagged, before it is: each from the files
// of its own module, the others found by version through a proxy and not by a replace directive. Run it in tools:
//
//	GOWORK=off go run ./release v0.1.0         # the dry run; changes nothing
//	GOWORK=off go run ./release -write v0.1.0  # sets the versions that the modules require of each other
//
// The dry run works on a copy of the files that git tracks, as they are in the work tree. It makes a module proxy of plain
// files for the copy, builds each module over it and then a program that imports every package, and prints the tags to set.
// RELEASE.md says when to use which.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/zip"
)

// released are the directories of the modules that get tags; each one requires only those before it. untagged are those,
// and above those, that get none, because nobody imports them.
var (
	released = []string{".", "throttleredis", "throttleotel"}
	untagged = []string{"bench", "examples", "integration", "tools"}
)

func main() {
	log.SetFlags(0)
	write := flag.Bool("write", false, "set the versions in the go.mod files of the tree")
	flag.Parse()
	out, err := git(".", "rev-parse", "--show-toplevel")
	if err != nil {
		log.Fatal("FAILED: ", err)
	}
	tree := strings.TrimSpace(out)
	if err = check(tree, flag.Arg(0)); err == nil && *write {
		err = setVersions(tree, flag.Arg(0), false)
	} else if err == nil {
		err = dryRun(tree, flag.Arg(0))
	}
	if err != nil {
		log.Fatal("FAILED: ", err)
	}
}

// dryRun does what users of version v will do, with the tracked files of tree.
func dryRun(tree, v string) error {
	tmp, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	src := filepath.Join(tmp, "src")
	if err := copyTracked(src, tree); err != nil {
		return err
	}
	if err := setVersions(src, v, true); err != nil {
		return err
	}
	env, err := environment(tmp)
	if err != nil {
		return err
	}
	var paths, packages []string
	for _, dir := range released {
		m, err := publish(filepath.Join(tmp, "proxy"), src, dir, v)
		if err != nil {
			return err
		}
		paths = append(paths, m)
		list, err := goTool(env, filepath.Join(src, dir), "list", "-f", `{{if ne .Name "main"}}{{.ImportPath}}{{end}}`, "./...")
		if err != nil {
			return err
		}
		if _, err := goTool(env, filepath.Join(src, dir), "build", "./..."); err != nil {
			return err
		}
		packages = append(packages, strings.Fields(list)...)
		fmt.Printf("%s@%s builds\n", m, v)
	}
	packages = slices.DeleteFunc(packages, func(p string) bool { return strings.Contains(p, "/internal/") })
	if err := use(env, filepath.Join(tmp, "user"), v, paths, packages); err != nil {
		return err
	}
	fmt.Printf("a program that imports all %d packages builds\nTo release, on the commit that was checked:\n", len(packages))
	for _, dir := range released {
		tag := path.Join(dir, v)
		fmt.Printf("\tgit tag -a %s -m %s && git push origin %s\n", tag, tag, tag)
	}
	return nil
}

// check reports what no build would show: a malformed version, one without a section in CHANGELOG.md, and a module that
// stands in none of the two lists.
func check(tree, v string) error {
	if semver.Canonical(v) != v || v == "" {
		return fmt.Errorf("%q is not a version like v0.1.0", v)
	}
	text, err := os.ReadFile(filepath.Join(tree, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if heading := "\n## [" + v[1:] + "]"; !strings.Contains(string(text), heading) {
		return fmt.Errorf("CHANGELOG.md has no section %q", strings.TrimSpace(heading))
	}
	dirs, err := modules(tree)
	for _, dir := range dirs {
		if first, _, _ := strings.Cut(dir, "/"); !slices.Contains(released, dir) && !slices.Contains(untagged, first) {
			return fmt.Errorf("%s is in none of the lists of tools/release: does it get a tag?", dir)
		}
	}
	return err
}

// modules returns the directories in tree that have a go.mod, with slashes.
func modules(tree string) (dirs []string, err error) {
	err = filepath.WalkDir(tree, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git"):
			return fs.SkipDir
		case d.Name() == "go.mod":
			dir, err := filepath.Rel(tree, filepath.Dir(name))
			dirs = append(dirs, filepath.ToSlash(dir))
			return err
		}
		return nil
	})
	return dirs, err
}

// setVersions makes every module in tree require version v of the released ones. If drop, it removes the replace directives
// that stand in for them. In the tree these stay: they do not count for users, who build other modules.
func setVersions(tree, v string, drop bool) error {
	files := map[string]*modfile.File{} // by name
	dirs, err := modules(tree)
	if err != nil {
		return err
	}
	ours := map[string]bool{} // by path
	for _, dir := range dirs {
		name := filepath.Join(tree, dir, "go.mod")
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if files[name], err = modfile.Parse(name, text, nil); err != nil {
			return err
		}
		if slices.Contains(released, dir) {
			ours[files[name].Module.Mod.Path] = true
		}
	}
	for name, f := range files {
		for _, r := range slices.Clone(f.Require) {
			if ours[r.Mod.Path] {
				err = errors.Join(err, f.AddRequire(r.Mod.Path, v))
			}
		}
		for _, r := range slices.Clone(f.Replace) {
			if drop && ours[r.Old.Path] {
				err = errors.Join(err, f.DropReplace(r.Old.Path, r.Old.Version))
			}
		}
		f.Cleanup()
		text, formatErr := f.Format()
		err = errors.Join(err, formatErr, os.WriteFile(name, text, 0o666))
	}
	return err
}

// publish puts version v of the module in dir into the proxy, and returns the module's path. A module without a LICENSE
// gets the one above it, as the go command does it.
func publish(proxy, src, dir, v string) (string, error) {
	from := filepath.Join(src, dir)
	text, err := os.ReadFile(filepath.Join(from, "go.mod"))
	if err != nil {
		return "", err
	}
	m := module.Version{Path: modfile.ModulePath(text), Version: v}
	license := filepath.Join(from, "LICENSE")
	if _, err := os.Stat(license); err != nil {
		if err := copyFile(license, filepath.Join(src, "LICENSE")); err != nil {
			return "", err
		}
	}
	var b bytes.Buffer
	if err := zip.CreateFromDir(&b, m, from); err != nil {
		return "", err
	}
	at := filepath.Join(proxy, filepath.FromSlash(m.Path), "@v")
	if err := os.MkdirAll(at, 0o777); err != nil {
		return "", err
	}
	for name, text := range map[string][]byte{
		"list": []byte(v + "\n"), v + ".info": fmt.Appendf(nil, `{"Version":%q}`, v), v + ".mod": text, v + ".zip": b.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(at, name), text, 0o666); err != nil {
			return "", err
		}
	}
	return m.Path, nil
}

// use builds a program in dir that requires the modules by version and imports the packages.
func use(env []string, dir, v string, modules, packages []string) error {
	mod := "module user\n\ngo 1.25.0\n"
	for _, m := range modules {
		mod += fmt.Sprintf("require %s %s\n", m, v)
	}
	main := "package main\n\nimport (\n"
	for _, p := range packages {
		main += fmt.Sprintf("\t_ %q\n", p)
	}
	main += ")\n\nfunc main() {}\n"
	if err := os.Mkdir(dir, 0o777); err != nil {
		return err
	}
	for name, text := range map[string]string{"go.mod": mod, "main.go": main} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			return err
		}
	}
	_, err := goTool(env, dir, "build", "-o", os.DevNull, ".")
	return err
}

// environment is that of a user who has never seen the modules: a module cache of its own, filled from the proxy of files
// for ours, and from the user's cache and proxy for all others.
func environment(tmp string) ([]string, error) {
	out, err := goTool(os.Environ(), tmp, "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return nil, err
	}
	lines := strings.Fields(out)
	if len(lines) != 2 {
		return nil, fmt.Errorf("go env says %q", lines)
	}
	proxy := "file://" + filepath.ToSlash(filepath.Join(tmp, "proxy")) + ",file://" + filepath.ToSlash(lines[0]) + "/cache/download," + lines[1]
	return append(os.Environ(), "GOWORK=off", "GOSUMDB=off", "GOPRIVATE=", "GONOPROXY=none", "GOPROXY="+proxy,
		"GOMODCACHE="+filepath.Join(tmp, "mod"), "GOFLAGS=-mod=mod -modcacherw -buildvcs=false"), nil
}

// goTool runs the go command in dir, and returns what it prints.
func goTool(env []string, dir string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Env = env
	return output(cmd, dir)
}

// git runs git in dir, whoever owns the files there, and returns what it prints.
func git(dir string, args ...string) (string, error) {
	return output(exec.Command("git", append([]string{"-c", "safe.directory=*"}, args...)...), dir)
}

func output(cmd *exec.Cmd, dir string) (string, error) {
	cmd.Dir = dir
	stderr := new(strings.Builder)
	cmd.Stderr = stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s in %s: %w\n%s", strings.Join(cmd.Args, " "), filepath.Base(dir), err, stderr)
	}
	return string(out), nil
}

// copyTracked copies the files of tree that git tracks to the directory to.
func copyTracked(to, tree string) error {
	out, err := git(tree, "ls-files", "-z")
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimRight(out, "\x00"), "\x00") {
		if err := copyFile(filepath.Join(to, name), filepath.Join(tree, name)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

func copyFile(to, from string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o666)
}
