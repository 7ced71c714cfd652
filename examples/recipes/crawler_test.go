package recipes

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
