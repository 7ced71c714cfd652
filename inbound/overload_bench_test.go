package inbound

import (
	"crypto/sha256"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-throttle/throttle/internal/load"
	"github.com/go-throttle/throttle/internal/race"
)

// idle is a source of a process that has nothing to do.
func idle() *made { return &made{runnable: func() float64 { return 0 }, latency: -1} }

type nowhere struct{ h http.Header }

func (n *nowhere) Header() http.Header         { return n.h }
func (n *nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n *nowhere) WriteHeader(int)             {}

// overloads are the ways of a request that does not wait.
func overloads() map[string]*Overload {
	who := func(*http.Request) string { return "who" }
	return map[string]*Overload{
		"plain":    {},
		"key":      {Key: who},
		"priority": {Priority: func(*http.Request) int { return 1 }},
		"deadline": {Deadline: func(*http.Request) time.Time { return time.Now().Add(time.Hour) }},
	}
}

// BenchmarkOverload is what the handler adds to a request, with the looks at the scheduler.
func BenchmarkOverload(b *testing.B) {
	for name, o := range overloads() {
		b.Run(name, func(b *testing.B) {
			h := o.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				r, w := httptest.NewRequest(http.MethodGet, "/", nil), &nowhere{http.Header{}}
				for pb.Next() {
					h.ServeHTTP(w, r)
				}
			})
		})
	}
}

func TestOverloadAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for name, o := range overloads() {
		h := o.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		r, w := httptest.NewRequest(http.MethodGet, "/", nil), &nowhere{http.Header{}}
		if n := testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// work is some 5 ms of one core.
func work(rounds int) {
	var sum [32]byte
	for range rounds {
		sum = sha256.Sum256(sum[:])
	}
	runtime.KeepAlive(sum)
}

// capacity is how many requests a second all cores can do at most, in 0.3 s.
func capacity(rounds int) float64 {
	var done atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for time.Since(start) < 300*time.Millisecond {
				work(rounds)
				done.Add(1)
			}
		})
	}
	all.Wait()
	return float64(done.Load()) / time.Since(start).Seconds()
}

// rounds is how many of work's take 5 ms.
func rounds() int {
	const some = 5000
	least := time.Duration(1 << 62)
	for range 20 {
		start := time.Now()
		work(some)
		least = min(least, time.Since(start))
	}
	return int(some * 5 * time.Millisecond / least)
}

// BenchmarkOverloadGoodput is a server on real cores at four times its capacity, without sockets: what it answers within 1 s, of what
// it can do, with and without Overload, and the 99th percentile of what it answers.
func BenchmarkOverloadGoodput(b *testing.B) {
	n := rounds()
	for _, c := range []struct {
		name string
		load float64
		of   source
		with bool
	}{
		{"load=0.8/with", 0.8, nil, true},
		{"load=4/without", 4, nil, false},
		{"load=4/with", 4, nil, true},
		{"load=4/with=latency", 4, &latencies{load.New()}, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				var h http.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					time.Sleep(20 * time.Millisecond)
					work(n)
				})
				o := &Overload{source: c.of}
				if c.with {
					h = o.Handler(h)
				}
				drive(b, h, o, c.load, n, 5*time.Second)
			}
		})
	}
}

// latencies is a source as it is before Go 1.26.
type latencies struct{ *load.Reader }

func (*latencies) Runnable() float64 { return math.NaN() }

// drive sends requests evenly for so long, and reports.
func drive(b *testing.B, h http.Handler, o *Overload, times float64, n int, length time.Duration) {
	can := capacity(n)
	every := time.Duration(float64(time.Second) / (times * can))
	var mu sync.Mutex
	var took []time.Duration
	var all sync.WaitGroup
	refused, sent, r, latency := 0, 0, 0.0, time.Duration(0)
	start := time.Now()
	for at := time.Duration(0); at < length; at += every {
		time.Sleep(at - time.Since(start))
		sent++
		all.Go(func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			mu.Lock()
			defer mu.Unlock()
			if w.Code != http.StatusOK {
				refused++
			} else if t := time.Since(start) - at; t < time.Second {
				took = append(took, t)
			}
		})
		if s := o.Stats(); o.core != nil {
			r, latency = max(r, s.Runnable), max(latency, s.Latency)
		}
	}
	s := o.Stats()
	all.Wait()
	can = (can + capacity(n)) / 2
	slices.Sort(took)
	b.ReportMetric(100*float64(len(took))/(can*length.Seconds()), "%goodput")
	b.ReportMetric(100*float64(refused)/float64(sent), "%refused")
	b.ReportMetric(float64(took[len(took)*99/100].Milliseconds()), "ms-p99")
	b.ReportMetric(r, "most-runnable/core")
	b.ReportMetric(s.Runnable, "runnable/core")
	b.ReportMetric(float64(latency.Microseconds())/1000, "ms-latency")
	b.ReportMetric(float64(s.Limit), "limit")
}
