package report

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// A Machine is what the results depend on beside the code.
type Machine struct {
	CPU     string            `json:"cpu"`
	Cores   int               `json:"cores"` // that the process may use
	System  string            `json:"system"`
	Go      string            `json:"go"`
	Load    float64           `json:"load,omitempty"` // what else ran before: the load average of a minute
	Modules map[string]string `json:"modules"`        // versions of all that is built in
}

// Peers are the modules that are compared. Others serve them, or this program.
var Peers = []string{
	"golang.org/x/time",
	"go.uber.org/ratelimit",
	"github.com/hashicorp/go-retryablehttp",
	"github.com/failsafe-go/failsafe-go",
	"github.com/PuerkitoBio/rehttp",
	"resty.dev/v3",
	"github.com/gofri/go-github-ratelimit/v2",
	"github.com/aws/aws-sdk-go-v2",
	"github.com/go-redis/redis_rate/v10",
	"github.com/throttled/throttled",
	"github.com/ulule/limiter/v3",
	"github.com/didip/tollbooth/v8",
	"github.com/go-chi/httprate",
	"github.com/sethvargo/go-limiter",
	"github.com/platinummonkey/go-concurrency-limits",
}

// Here is the machine that the program runs on.
func Here() Machine {
	m := Machine{
		CPU: cpu("/proc/cpuinfo"), Cores: runtime.GOMAXPROCS(0),
		System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Load: load("/proc/loadavg"), Modules: map[string]string{},
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return m
	}
	for _, dep := range info.Deps {
		m.Modules[dep.Path] = dep.Version
	}
	return m
}

// cpu is the processor's name where Linux tells it.
func cpu(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "unknown CPU"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return "unknown CPU"
}

// load is the load average where Linux tells it.
func load(path string) float64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	v, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return v
}

// String is one line for the head of a report.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, %s, %s", m.CPU, m.Cores, m.System, m.Go)
}

// Warning is a sentence for whoever reads figures of a busy machine; "" for others.
func (m Machine) Warning() string {
	if !m.Busy() {
		return ""
	}
	return fmt.Sprintf("The machine was busy with other things (load %.1f before the run): figures in real time say little.", m.Load)
}

// Busy tells whether so much else ran that figures in real time say little.
func (m Machine) Busy() bool { return m.Load > float64(m.Cores)/2 }

// Versions are the peers that are built in, as "path version".
func (m Machine) Versions() []string {
	var out []string
	for _, path := range Peers {
		if v, ok := m.Modules[path]; ok {
			out = append(out, path+" "+v)
		}
	}
	slices.Sort(out)
	return out
}
