// Package load reads how busy this process is: goroutines that wait for a core, what a quota of CPU time holds back, CPU
// time used, and tasks that wait for a CPU of the machine.
//
//	load.go    what Go's runtime says
//	cgroup.go  what Linux says, by files
//	cpu_*.go   CPU time, by getrusage(2)
//	source.go  what a function of the user's says
//
// Nothing runs in the background: who wants to know asks, and a Reader remembers what it read last.
package load

import (
	"math"
	"runtime/metrics"
	"time"
)

// A Reader reads. It is not safe for concurrent use, and allocates nothing once it is made. Each has its own memory of
// what it read last.
type Reader struct {
	runnable [2]metrics.Sample // goroutines, and GOMAXPROCS
	latency  [1]metrics.Sample
	before   []uint64 // the latencies' counts at the last Use

	files   files
	last    totals
	asked   time.Time // of the last Use
	unknown bool      // Go's runtime does not count runnable goroutines
}

// A Use is what has happened since the last one. NaN is what this system does not tell.
type Use struct {
	CPU       float64       // CPU time used, as a share of what this process may have: of its quota, or of all of its cores
	Periods   uint64        // of the quota, mostly 100 ms each, in which the process wanted to run; 0: it has no quota
	Throttled uint64        // those of them in which the quota was used up and everything stood still
	Pressure  float64       // the share of time in which a task waited for a CPU, of this cgroup or of the machine
	Latency   time.Duration // for how long goroutines waited for a core: the 90th percentile, since it was known last; -1: too few of them did
}

const (
	runnableName = "/sched/goroutines/runnable:goroutines" // since Go 1.26
	procsName    = "/sched/gomaxprocs:threads"
	latencyName  = "/sched/latencies:seconds"
)

// New returns a Reader that keeps up to three files of /proc and /sys open.
func New() *Reader { return open("/") }

// open is New on a tree of files.
func open(root string) *Reader {
	r := &Reader{files: openFiles(root)}
	r.runnable[0].Name, r.runnable[1].Name = runnableName, procsName
	r.latency[0].Name = latencyName
	metrics.Read(r.runnable[:])
	metrics.Read(r.latency[:])
	r.unknown = r.runnable[0].Value.Kind() == metrics.KindBad
	r.before = make([]uint64, len(r.latency[0].Value.Float64Histogram().Counts))
	r.Use(time.Now())
	return r
}

// Runnable is how many goroutines wait for a core now; NaN: Go's runtime does not say, as before Go 1.26. It is a
// moment's figure, and approximate: take means of several.
func (r *Reader) Runnable() float64 {
	metrics.Read(r.runnable[:])
	if r.unknown {
		return math.NaN()
	}
	return float64(r.runnable[0].Value.Uint64())
}

// Procs is GOMAXPROCS, as of the last call.
func (r *Reader) Procs() int { return int(r.runnable[1].Value.Uint64()) }

// Cores is how many cores this process may use on average, as of the last call of Use: its quota, or GOMAXPROCS if that is less.
func (r *Reader) Cores() float64 {
	if q := r.last.quota; q > 0 {
		return min(float64(r.Procs()), q)
	}
	return float64(r.Procs())
}

// Use says what has happened since it was called last, or since New.
func (r *Reader) Use(now time.Time) Use {
	metrics.Read(r.runnable[:])
	is := r.files.read()
	is.cpu = cpuTime()
	was, took := r.last, now.Sub(r.asked)
	r.last, r.asked = is, now
	return Use{
		CPU:       share(was.cpu, is.cpu, took) / r.Cores(),
		Periods:   since(is.periods, was.periods),
		Throttled: since(is.throttled, was.throttled),
		Pressure:  share(was.stalled, is.stalled, took),
		Latency:   r.waits(),
	}
}

// since is how far a counter has come. One that was reset, as that of a new cgroup is, begins anew.
func since(is, was uint64) uint64 {
	if is < was {
		return 0
	}
	return is - was
}

// share is how far a counter of time has come, as a share of a time; NaN: one of them is not known. A counter that is not known is -1.
func share(was, is, of time.Duration) float64 {
	if was == -1 || is < was || of <= 0 {
		return math.NaN()
	}
	return float64(is-was) / float64(of)
}

// fewWaits is how many goroutines must have waited for a percentile of them to mean something: the runtime times every
// eighth. While fewer have, they are counted together with those of the next Use.
const fewWaits = 10

// waits is the 90th percentile of the scheduling latencies since it was known last: the upper end of the bucket in which it
// lies, which is up to an eighth above it.
func (r *Reader) waits() time.Duration {
	metrics.Read(r.latency[:])
	h := r.latency[0].Value.Float64Histogram()
	var all uint64
	for i, n := range h.Counts {
		all += n - r.before[i]
	}
	if all < fewWaits {
		return -1
	}
	p90, left := time.Duration(-1), all-all*9/10
	for i := len(h.Counts) - 1; i >= 0; i-- {
		n := h.Counts[i] - r.before[i]
		r.before[i] = h.Counts[i]
		if p90 >= 0 {
			continue
		}
		if n < left {
			left -= n
			continue
		}
		p90 = seconds(h.Buckets[i+1])
		if math.IsInf(h.Buckets[i+1], 1) {
			p90 = seconds(h.Buckets[i])
		}
	}
	return p90
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
