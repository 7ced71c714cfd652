package bench

import (
	"testing"

	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/bench/micro"
	"github.com/go-throttle/throttle/bench/scenario"
)

// What package micro measures, as benchmarks, so that benchstat can compare two versions of the library.
// What is reported are the metrics of the scenario; ns/op is how long a run of it takes.

func BenchmarkRoundTrip(b *testing.B) { benchmark(b, "overhead") }
func BenchmarkLimiter(b *testing.B)   { benchmark(b, "limiter") }
func BenchmarkWaiters(b *testing.B)   { benchmark(b, "waiters") }
func BenchmarkKeys(b *testing.B)      { benchmark(b, "keys") }

func benchmark(b *testing.B, name string) {
	for _, s := range micro.All() {
		if s.Name != name {
			continue
		}
		for _, c := range client.All() {
			if s.Fits == nil || s.Fits(c) {
				b.Run(c.Name, func(b *testing.B) { run(b, s, c) })
			}
		}
	}
}

func run(b *testing.B, s scenario.Scenario, c client.Client) {
	sums, n := map[string]float64{}, 0.0
	for b.Loop() {
		r, err := s.Run(b.Context(), c, scenario.Options{Seed: int64(n)})
		if err != nil {
			b.Fatal(err)
		}
		for name, v := range r.Values {
			sums[name] += v
		}
		n++
	}
	for _, m := range s.Metrics {
		if sum, ok := sums[m.Name]; ok {
			b.ReportMetric(sum/n, m.Name)
		}
	}
}
