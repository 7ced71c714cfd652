package recipes

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/race"
)

// web is 200 hosts that answer after 50 ms. The dead ones answer nobody: a connection is given up after three seconds.
type web struct {
	start time.Time

	mu       sync.Mutex
	inFlight int
	most     int
	calls    map[string][]time.Duration // starts, by host
}

func (w *web) RoundTrip(req *http.Request) (*http.Response, error) {
	w.count(req.URL.Host, 1)
	defer w.count(req.URL.Host, -1)
	if strings.HasPrefix(req.URL.Host, "dead") {
		time.Sleep(3 * time.Second)
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("i/o timeout")}
	}
	time.Sleep(50 * time.Millisecond)
	return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
}

func (w *web) count(host string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inFlight += n
	w.most = max(w.most, w.inFlight)
	if n > 0 {
		w.calls[host] = append(w.calls[host], time.Since(w.start))
	}
}

// forget lets the starts go, which would count as memory.
func (w *web) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for host := range w.calls {
		w.calls[host] = nil
	}
}

// TestCrawl: 200 hosts with five pages each; 20 of the hosts are dead. The others are done within 30 s, though each first
// call of a dead one holds one of five slots for three seconds; no host is called twice within two seconds, and
// never are more than five calls in flight.
func TestCrawl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{start: time.Now(), calls: make(map[string][]time.Duration)}
		var pages []*http.Request
		for page := range 5 {
			for i := range 200 {
				host := fmt.Sprintf("host-%d.test", i)
				if i%10 == 0 {
					host = fmt.Sprintf("dead-%d.test", i)
				}
				pages = append(pages, get(t, fmt.Sprintf("http://%s/%d", host, page)))
			}
		}
		var mu sync.Mutex
		var fetched, failed int
		var last time.Duration
		Crawl(t.Context(), w, pages, func(page *http.Request, resp *http.Response, err error) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				fetched++
				last = time.Since(w.start)
				resp.Body.Close()
			case strings.HasPrefix(page.URL.Host, "dead"):
				failed++
			default:
				t.Errorf("%s: %v", page.URL, err)
			}
		})
		t.Logf("fetched %d by %v, failed %d by %v", fetched, last, failed, time.Since(w.start))
		if fetched != 900 || failed != 100 || last > 30*time.Second {
			t.Errorf("%d fetched within %v and %d failed, want 900 within 30s and 100", fetched, last, failed)
		}
		if w.most > 5 {
			t.Errorf("%d calls in flight, want 5", w.most)
		}
		for host, starts := range w.calls {
			for i := range starts[1:] {
				if gap := starts[i+1] - starts[i]; gap < 2*time.Second {
					t.Errorf("%s is called twice within %v", host, gap)
				}
			}
		}
	})
}

// TestCrawlAll: 100,000 pages (20,000 under the race detector) of 200 hosts in random order; one page in twenty is of a dead host. There are never more goroutines than a
// thousand and a few, the memory does not grow with the list, and the hosts are kept busy: 500 pages of each take 1,000 s
// at least, and no more than 1,600.
func TestCrawlAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts, each := 200, 500
		if race.Enabled {
			each = 100
		}
		w := &web{start: time.Now(), calls: make(map[string][]time.Duration)}
		rng := rand.New(rand.NewPCG(1, 2))
		begun := 0
		pages := func(yield func(*http.Request) bool) {
			for ; begun < hosts*each; begun++ {
				host := fmt.Sprintf("host-%d.test", rng.IntN(hosts))
				if host == "host-7.test" || strings.HasSuffix(host, "3.test") && rng.IntN(2) == 0 {
					host = "dead-" + host
				}
				if !yield(get(t, fmt.Sprintf("http://%s/%d", host, begun))) {
					return
				}
			}
		}
		var mu sync.Mutex
		var done, fetched, goroutines int
		var least, most uint64 // heap and stacks
		CrawlAll(w, iter.Seq[*http.Request](pages), func(page *http.Request, resp *http.Response, err error) {
			mu.Lock()
			defer mu.Unlock()
			done++
			if err == nil {
				fetched++
				resp.Body.Close()
			} else if !strings.HasPrefix(page.URL.Host, "dead") {
				t.Errorf("%s: %v", page.URL, err)
			}
			if done%1000 == 0 {
				goroutines = max(goroutines, runtime.NumGoroutine())
			}
			if done%5000 == 2500 {
				w.forget()
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				used := m.HeapAlloc + m.StackInuse
				least, most = min(cmp.Or(least, used), used), max(most, used)
			}
		})
		took := time.Since(w.start)
		t.Logf("%d fetched of %d in %v; %d goroutines, %d to %d KB", fetched, done, took, goroutines, least>>10, most>>10)
		if done != hosts*each || fetched < done*9/10 {
			t.Errorf("%d pages done and %d fetched of %d", done, fetched, hosts*each)
		}
		if goroutines > 1100 || most-least > 4<<20 {
			t.Errorf("%d goroutines, and the memory grew from %d to %d KB", goroutines, least>>10, most>>10)
		}
		if took > time.Duration(each)*3200*time.Millisecond || w.most > 50 {
			t.Errorf("it took %v with %d in flight, want at most %v and 50", took, w.most, time.Duration(each)*3200*time.Millisecond)
		}
	})
}
