package servers

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-throttle/throttle/bench/micro"
)

// keys is how many keys ours and throttled may have. The others have no such bound.
const keys = 1 << 16

// A Row is what was measured of a Peer.
type Row struct {
	Name    string
	Ns, Ns2 float64 // processor time of a request; with two goroutines
	Allocs  int64
	Bytes   float64 // of heap for each of 50,000 keys
	Said    string  // Retry-After
	True    time.Duration
	Flood   float64 // bytes for each key of a flood of a million
	Entered int     // requests of it that were let in
	Own     string  // of an established client: served of what it may have after the flood
	Spoofed string  // requests of one client let in that may have 100, when it invents a header each time
	Behind  string  // the same behind a proxy that is trusted
}

// Options make a run shorter, for tests.
type Options struct {
	Flood    int // keys; 0: a million
	Requests int // of a turn; 0: 200,000
}

// text is n/per and the words after it, with the burst if they end in a space.
func text(n int, per time.Duration, words string) string {
	if words == " burst " {
		words += strconv.Itoa(n)
	}
	return fmt.Sprintf("%d/%v%s", n, per, words)
}

// nothing is the handler that is protected.
var nothing = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// A sink is a ResponseWriter that costs nothing.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }
func (s *sink) WriteHeader(status int)      { s.status = status }

// call sends a request and returns the status.
func (s *sink) call(h http.Handler, r *http.Request) int {
	clear(s.header)
	s.status = http.StatusOK
	h.ServeHTTP(s, r)
	return s.status
}

// address is that of the i-th client.
func address(i int) string {
	return fmt.Sprintf("%d.%d.%d.%d:4711", 20+i>>24, i>>16&255, i>>8&255, i&255)
}

// requests are those of n clients.
func requests(n int) []*http.Request {
	all := make([]*http.Request, n)
	for i := range all {
		all[i] = httptest.NewRequest(http.MethodGet, "/", nil)
		all[i].RemoteAddr = address(i)
	}
	return all
}

// Measure fills in a row, but for Retry-After, which takes real time.
func Measure(p Peer, o Options) (r Row) {
	r.Name = p.Name
	if o.Flood == 0 {
		o.Flood = 1_000_000
	}
	o.Requests = cmp.Or(o.Requests, 200_000)
	r.speed(p, o)
	r.Bytes = bytesOf(p, 50_000)
	r.flood(p, o.Flood)
	r.Spoofed = spoof(p.New, "192.0.2.1:80")
	r.Behind = "-"
	if p.Proxied != nil {
		r.Behind = spoof(p.Proxied, "10.0.0.1:80")
	}
	return r
}

// speed measures requests of a thousand clients within a limit that is never reached: the median of nine turns. It
// counts processor time, so that it means something on a machine that does other things too.
func (r *Row) speed(p Peer, o Options) {
	h, all := p.New(100_000_000, time.Minute, nothing), requests(1000)
	r.Ns = cpu(1, o.Requests, h, all)
	r.Ns2 = cpu(2, o.Requests, h, all)
	w, i := &sink{header: http.Header{}}, 0
	r.Allocs = int64(testing.AllocsPerRun(1000, func() { i++; w.call(h, all[i%len(all)]) }))
}

// cpu is the processor time of a request, in ns, if so many goroutines send n each.
func cpu(procs, n int, h http.Handler, all []*http.Request) float64 {
	var times []float64
	for range 9 {
		runtime.GC()
		start := micro.CPUTime()
		var done sync.WaitGroup
		for range procs {
			done.Go(func() {
				w := &sink{header: http.Header{}}
				for i := range n {
					w.call(h, all[i%len(all)])
				}
			})
		}
		done.Wait()
		times = append(times, float64(micro.CPUTime()-start)/float64(n*procs))
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// heap is the memory in use.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// bytesOf is what a middleware with n keys takes for each of them.
func bytesOf(p Peer, n int) float64 {
	before := heap()
	h := p.New(100, time.Hour, nothing)
	fill(h, 0, n)
	defer runtime.KeepAlive(h)
	return (heap() - before) / float64(n)
}

// fill sends one request of each of n clients, and returns how many were let in.
func fill(h http.Handler, from, n int) (entered int) {
	r, w := httptest.NewRequest(http.MethodGet, "/", nil), &sink{header: http.Header{}}
	for i := range n {
		if r.RemoteAddr = address(from + i); w.call(h, r) == http.StatusOK {
			entered++
		}
	}
	return entered
}

// flood sends one request of each of very many clients, while one that was there before has used half of its 100.
func (r *Row) flood(p Peer, n int) {
	before := heap()
	h := p.New(100, time.Hour, nothing)
	own, w := httptest.NewRequest(http.MethodGet, "/", nil), &sink{header: http.Header{}}
	own.RemoteAddr = "192.0.2.1:80"
	for range 50 {
		w.call(h, own)
	}
	r.Entered = fill(h, 0, n)
	served := 0
	for range 100 {
		if w.call(h, own) == http.StatusOK {
			served++
		}
	}
	r.Own = fmt.Sprintf("%d of 50", served)
	r.Flood = (heap() - before) / float64(n)
	runtime.KeepAlive(h)
}

// spoof sends 1,000 requests of one client that may have 100. It invents an address before the one that a proxy has
// appended; if there is no proxy, it invents both.
func spoof(make func(int, time.Duration, http.Handler) http.Handler, peer string) string {
	h, w := make(100, time.Hour, nothing), &sink{header: http.Header{}}
	served := 0
	for i := range 1000 {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = peer
		r.Header.Set("X-Forwarded-For", fmt.Sprintf("1.2.%d.%d, 203.0.113.9", i/250, i%250))
		if w.call(h, r) == http.StatusOK {
			served++
		}
	}
	return strconv.Itoa(served)
}

// RetryAfter uses a limit of n per time up, and compares what the answer says with how long it then takes until a
// request is let in.
func (r *Row) RetryAfter(p Peer, n int, per time.Duration) {
	h, w := p.New(n, per, nothing), &sink{header: http.Header{}}
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	req.RemoteAddr = "192.0.2.1:80"
	for range 2 * n {
		if w.call(h, req) != http.StatusOK {
			break
		}
	}
	r.Said = "-"
	if v := w.header.Get("Retry-After"); v != "" {
		r.Said = v
	}
	start := time.Now()
	for w.call(h, req) != http.StatusOK && time.Since(start) < 3*per {
		time.Sleep(20 * time.Millisecond)
	}
	r.True = time.Since(start)
}
