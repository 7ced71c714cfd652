// Command pair runs the benchmarks of two test binaries in turns and prints the medians of each figure, and of its ratios
// pair by pair, so that a machine whose speed drifts slows both. Build them from two commits, with the same benchmarks:
//
//	go test -c -o before.test .
//	go test -c -o after.test .
//	go run ./bench/cmd/pair -bench 'RoundTrip/throttle$|QueueWait' ./before.test ./after.test
//
// On a busy machine a number of iterations is better (-cpu 1 -benchtime 2000000x, one benchmark): then the row "all" compares the
// processor time of the whole run.
package main

import (
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

var (
	pairs     = flag.Int("pairs", 20, "how often each binary runs")
	which     = flag.String("bench", ".", "the benchmarks, as of go test")
	benchtime = flag.String("benchtime", "100ms", "of each, as of go test")
	cpus      = flag.String("cpu", "1,2", "GOMAXPROCS, as of go test")
)

// A figure is one unit of one benchmark.
type figure struct{ benchmark, unit string }

func main() {
	log.SetFlags(0)
	flag.Parse()
	if flag.NArg() != 2 {
		log.Fatal("usage: pair [flags] before.test after.test")
	}
	seen := [2]map[figure][]float64{{}, {}}
	for n := range *pairs {
		for i := range 2 {
			which := (n + i) % 2 // each is first in every other pair
			for f, v := range run(flag.Arg(which)) {
				seen[which][f] = append(seen[which][f], v)
			}
		}
		fmt.Fprintf(os.Stderr, "\r%d of %d pairs", n+1, *pairs)
	}
	fmt.Fprintln(os.Stderr)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "benchmark\tunit\tbefore\tafter\tratio")
	for _, f := range slices.SortedFunc(maps.Keys(seen[0]), func(a, b figure) int {
		return strings.Compare(a.benchmark+" "+a.unit, b.benchmark+" "+b.unit)
	}) {
		before, after := seen[0][f], seen[1][f]
		if len(after) != len(before) {
			fmt.Fprintf(w, "%s\t%s\t%.4g\t-\t\n", f.benchmark, f.unit, median(before))
			continue
		}
		ratio := "-"
		if !slices.Contains(before, 0) {
			each := make([]float64, len(before))
			for i := range each {
				each[i] = after[i] / before[i]
			}
			ratio = fmt.Sprintf("%.3f", median(each))
		}
		fmt.Fprintf(w, "%s\t%s\t%.4g\t%.4g\t%s\n", f.benchmark, f.unit, median(before), median(after), ratio)
	}
	w.Flush()
}

// run returns the figures of one run of a test binary.
func run(binary string) map[figure]float64 {
	cmd := exec.Command(binary, "-test.run", "^$", "-test.bench", *which, "-test.benchtime", *benchtime, "-test.cpu", *cpus, "-test.benchmem")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		log.Fatalf("%s: %v\n%s", binary, err, out)
	}
	figures := map[figure]float64{{"all", "user-s"}: cmd.ProcessState.UserTime().Seconds()}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		for i := 2; i+1 < len(words); i += 2 {
			if v, err := strconv.ParseFloat(words[i], 64); err == nil {
				figures[figure{strings.TrimPrefix(words[0], "Benchmark"), words[i+1]}] = v
			}
		}
	}
	return figures
}

func median(of []float64) float64 {
	of = slices.Sorted(slices.Values(of))
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}
