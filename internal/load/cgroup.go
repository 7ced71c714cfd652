package load

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Linux says by files what a cgroup may use, how often it has used that up, and how long tasks waited for a CPU. Of a group and those around
// it the innermost that has a quota counts: containers have theirs, or their pod has.
//
//	cgroup v2    cpu.stat: nr_periods, nr_throttled    cpu.max: "50000 100000", or "max 100000"
//	cgroup v1    cpu.stat: nr_periods, nr_throttled    cpu.cfs_quota_us: 50000, or -1; cpu.cfs_period_us: 100000
//	pressure     cpu.pressure of the group, or /proc/pressure/cpu: "some avg10=... total=16875600881", in µs
//
// A file that is missing, or does not read so, tells nothing.

// files are those that are read. They stay open, which saves the walk to each.
type files struct {
	stat, quota, pressure *os.File // nil: there is none
	period                float64  // of v1's quota, µs; 0: the quota's file is cpu.max
	buf                   [1024]byte
}

// totals are what the files, and getrusage, say: since the start, and the quota now.
type totals struct {
	cpu                time.Duration // -1: not known
	stalled            time.Duration // -1: not known
	periods, throttled uint64
	quota              float64 // cores; 0: there is none
}

// openFiles finds the files of this process's group.
func openFiles(root string) (f files) {
	text, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for _, line := range strings.Split(string(text), "\n") {
		id, rest, _ := strings.Cut(line, ":")
		controllers, path, _ := strings.Cut(rest, ":")
		switch {
		case id == "0" && controllers == "":
			f.find(filepath.Join(root, "sys/fs/cgroup"), path, false)
		case strings.Contains(","+controllers+",", ",cpu,"):
			f.find(filepath.Join(root, "sys/fs/cgroup/cpu"), path, true)
		}
	}
	if f.pressure == nil {
		f.pressure, _ = os.Open(filepath.Join(root, "proc/pressure/cpu"))
	}
	return f
}

// find opens the files of the innermost group that has a quota. In a container the path may be that of the machine's tree, of which
// only the container's own group can be seen, at the top.
func (f *files) find(top, path string, v1 bool) {
	for path = filepath.Clean("/" + path); ; path = filepath.Dir(path) {
		one := files{}
		dir := filepath.Join(top, path)
		one.stat, _ = os.Open(filepath.Join(dir, "cpu.stat"))
		if one.quota, _ = os.Open(filepath.Join(dir, "cpu.max")); v1 {
			one.quota, _ = os.Open(filepath.Join(dir, "cpu.cfs_quota_us"))
			text, _ := os.ReadFile(filepath.Join(dir, "cpu.cfs_period_us"))
			one.period, _ = strconv.ParseFloat(string(bytes.TrimSpace(text)), 64)
		}
		one.pressure, _ = os.Open(filepath.Join(dir, "cpu.pressure"))
		if one.stat != nil && one.quota != nil && (!v1 || one.period > 0) && one.read().quota > 0 {
			f.close()
			*f = one
			return
		}
		one.close()
		if path == "/" {
			return
		}
	}
}

// close closes what is open, which nobody reads then.
func (f *files) close() {
	for _, file := range []*os.File{f.stat, f.quota, f.pressure} {
		if file != nil {
			file.Close()
		}
	}
	*f = files{}
}

// read reads them all.
func (f *files) read() (t totals) {
	t.stalled = -1
	if b := f.text(f.stat); b != nil {
		t.periods, _ = after(b, "nr_periods ")
		t.throttled, _ = after(b, "nr_throttled ")
	}
	if b := f.text(f.quota); b != nil {
		if most, ok := number(b); ok {
			period := f.period
			if period == 0 {
				n, _ := after(b, " ")
				period = float64(n)
			}
			if period > 0 {
				t.quota = float64(most) / period
			}
		}
	}
	if b := f.text(f.pressure); b != nil {
		if us, ok := after(b, "total="); ok {
			t.stalled = time.Duration(us) * time.Microsecond
		}
	}
	return t
}

// text is what a file says now; nil: nothing.
func (f *files) text(file *os.File) []byte {
	if file == nil {
		return nil
	}
	n, _ := file.ReadAt(f.buf[:], 0)
	return f.buf[:n]
}

// after is the number behind the first appearance of a name, and number the one at the start of a text.
func after(b []byte, name string) (uint64, bool) {
	i := bytes.Index(b, []byte(name))
	if i < 0 {
		return 0, false
	}
	return number(b[i+len(name):])
}

func number(b []byte) (n uint64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			break
		}
		n, ok = n*10+uint64(c-'0'), true
	}
	return n, ok
}
