package load

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/go-throttle/throttle/internal/race"
)

// tree writes files below a new directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestFiles: what is read of cgroups of both versions, at their own place, around it, and from within a container.
func TestFiles(t *testing.T) {
	const stat = "usage_usec 5\nnr_periods 40\nnr_throttled 10\nthrottled_usec 7\n"
	const pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 total=1\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  totals
	}{
		{"nothing", nil, totals{stalled: -1}},
		{"v2", map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.stat": stat,
			"sys/fs/cgroup/a/b/cpu.max": "50000 100000\n", "sys/fs/cgroup/a/b/cpu.pressure": pressure,
		}, totals{stalled: 2500 * time.Millisecond, periods: 40, throttled: 10, quota: 0.5}},
		{"v2, the quota is around it", map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.stat": stat, "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
			"sys/fs/cgroup/a/cpu.stat": "nr_periods 3\nnr_throttled 2\n", "sys/fs/cgroup/a/cpu.max": "300000 100000\n", "proc/pressure/cpu": pressure,
		}, totals{stalled: 2500 * time.Millisecond, periods: 3, throttled: 2, quota: 3}},
		{"v2, no quota", map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.stat": stat, "sys/fs/cgroup/cpu.max": "max 100000\n",
		}, totals{stalled: -1}},
		{"v2, a container that sees the machine's path", map[string]string{
			"proc/self/cgroup": "0::/system/docker-1\n", "sys/fs/cgroup/cpu.stat": stat, "sys/fs/cgroup/cpu.max": "200000 100000\n",
		}, totals{stalled: -1, periods: 40, throttled: 10, quota: 2}},
		{"v1", map[string]string{
			"proc/self/cgroup":                   "9:name=systemd:/\n2:cpu,cpuacct:/docker/1\n0::/\n",
			"sys/fs/cgroup/cpu/cpu.stat":         "nr_periods 40\nnr_throttled 10\nthrottled_time 7\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "25000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "50000\n",
		}, totals{stalled: -1, periods: 40, throttled: 10, quota: 0.5}},
		{"v1, no quota", map[string]string{
			"proc/self/cgroup": "1:cpu:/\n", "sys/fs/cgroup/cpu/cpu.stat": stat,
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
		}, totals{stalled: -1}},
		{"something else", map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.stat": "\x00nr_periods x", "sys/fs/cgroup/cpu.max": "5", "proc/pressure/cpu": "total=",
		}, totals{stalled: -1}},
	} {
		f := openFiles(tree(t, c.files))
		if got := f.read(); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		f.close()
	}
}

// TestUse: differences of what the files say, and of CPU time.
func TestUse(t *testing.T) {
	root := tree(t, map[string]string{
		"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.stat": "nr_periods 40\nnr_throttled 10\n",
		"sys/fs/cgroup/cpu.max": "50000 100000\n", "sys/fs/cgroup/cpu.pressure": "some total=1000000\n",
	})
	r := open(root)
	defer r.files.close()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(root, "sys/fs/cgroup", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("cpu.stat", "nr_periods 50\nnr_throttled 13\n")
	write("cpu.pressure", "some total=1250000\n")
	r.last.cpu -= time.Second / 4 // as if that much had been used
	u := r.Use(r.asked.Add(time.Second))
	if u.Periods != 10 || u.Throttled != 3 || u.Pressure != 0.25 {
		t.Errorf("%+v", u)
	}
	if runtime.GOOS == "linux" && (u.CPU < 0.5 || u.CPU > 100) {
		t.Errorf("CPU %v, want at least 0.25 s in 1 s of half a core", u.CPU)
	}
	write("cpu.stat", "nr_periods 1\nnr_throttled 0\n")
	if u = r.Use(r.asked.Add(time.Second)); u.Periods != 0 || u.Throttled != 0 {
		t.Errorf("counters began anew: %+v", u)
	}
	if u = r.Use(r.asked); !math.IsNaN(u.Pressure) || !math.IsNaN(u.CPU) {
		t.Errorf("in no time: %+v", u)
	}
}

// TestUseUnknown: what is not known, or was not at the last Use, says nothing, and not 0.
func TestUseUnknown(t *testing.T) {
	r := open(tree(t, nil))
	if u := r.Use(r.asked.Add(time.Second)); !math.IsNaN(u.Pressure) {
		t.Errorf("a system without pressure files: %v", u.Pressure)
	}
	for _, c := range [][2]time.Duration{{-1, -1}, {-1, time.Hour}, {time.Hour, -1}} {
		if got := share(c[0], c[1], time.Second); !math.IsNaN(got) {
			t.Errorf("%v, then %v: %v of a second", c[0], c[1], got)
		}
	}
}

// TestRunnable: goroutines that want a core and do not get one are seen, by their number and by their waits.
func TestRunnable(t *testing.T) {
	r := New()
	defer r.files.close()
	if math.IsNaN(r.Runnable()) {
		t.Skip("Go's runtime does not count runnable goroutines")
	}
	stop, done := make(chan struct{}), make(chan struct{})
	n := 50 * r.Procs()
	for range n {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				select {
				case <-stop:
					return
				default:
					runtime.Gosched()
				}
			}
		}()
	}
	most := 0.0
	for range 100 {
		runtime.Gosched()
		most = max(most, r.Runnable())
	}
	close(stop)
	for range n {
		<-done
	}
	if most < 0.8*float64(n) {
		t.Errorf("%.1f runnable goroutines at most, want about %d", most, n)
	}
	if u := r.Use(time.Now()); u.Latency == 0 {
		t.Errorf("nobody is said to have waited: %+v", u)
	}
}

// TestWaits: the percentile is that of the difference, and few waits say nothing.
func TestWaits(t *testing.T) {
	r := New()
	defer r.files.close()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	r.waits()
	for i := range r.before {
		r.before[i] -= min(r.before[i], 1) // one more of each that there was
	}
	h := r.latency[0].Value.Float64Histogram()
	r.before[len(h.Counts)/2] -= 1000 // and a thousand in the middle
	if got, want := r.waits(), seconds(h.Buckets[len(h.Counts)/2+1]); got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if got := r.waits(); got >= 0 {
		t.Errorf("%v of nobody", got)
	}
}

func TestReadsAllocateNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	r := New()
	defer r.files.close()
	now := time.Now()
	if n := testing.AllocsPerRun(100, func() { r.Runnable(); now = now.Add(time.Second); r.Use(now) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkRunnable and BenchmarkUse are the cost of one look.
func BenchmarkRunnable(b *testing.B) {
	r := New()
	defer r.files.close()
	b.ReportAllocs()
	for b.Loop() {
		r.Runnable()
	}
}

func BenchmarkUse(b *testing.B) {
	r := New()
	defer r.files.close()
	b.ReportAllocs()
	now := time.Now()
	for b.Loop() {
		now = now.Add(time.Second)
		r.Use(now)
	}
}
