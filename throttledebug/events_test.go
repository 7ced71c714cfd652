package throttledebug_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttledebug"
)

// An event as a browser reads it.
type event struct {
	Time   int64
	Totals string
	Found  int
	Rows   [][]string
	Chosen *struct {
		Key, Why string
		Gone     bool
		Point    *struct{ Sent, Throttled uint64 }
	}
}

// A watch is an open stream in a bubble, and the connection that it is written to.
type watch struct {
	close context.CancelFunc
	ended atomic.Bool

	mu      sync.Mutex
	header  http.Header
	status  int
	flushed bool
	text    []byte
}

func (w *watch) Header() http.Header    { return w.header }
func (w *watch) WriteHeader(status int) { w.locked(func() { w.status = cmp.Or(w.status, status) }) }
func (w *watch) Flush()                 { w.locked(func() { w.flushed = true }) }
func (w *watch) Write(b []byte) (int, error) {
	w.locked(func() { w.status, w.text, w.flushed = cmp.Or(w.status, 200), append(w.text, b...), false })
	return len(b), nil
}

func (w *watch) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// code is the status that was sent; 0: none yet.
func (w *watch) code() (status int) {
	w.locked(func() { status = w.status })
	return status
}

// open opens a stream and waits until it sleeps or has ended.
func open(t *testing.T, h http.Handler, query string, header ...string) *watch {
	ctx, cancel := context.WithCancel(t.Context())
	req := httptest.NewRequest("GET", "/events?"+query, nil).WithContext(ctx)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := &watch{header: http.Header{}, close: cancel}
	go func() {
		defer w.ended.Store(true)
		h.ServeHTTP(w, req)
	}()
	synctest.Wait()
	return w
}

// news are the events since the last look, and how many bytes they have.
func (w *watch) news(t *testing.T) (events []event, size int) {
	t.Helper()
	synctest.Wait()
	var text string
	w.locked(func() {
		if text, w.text = string(w.text), nil; !w.flushed {
			t.Error("what was written is not flushed")
		}
	})
	for _, block := range strings.SplitAfter(text, "\n\n") {
		if block == "" {
			continue
		}
		var e event
		data, ok := strings.CutPrefix(strings.TrimSuffix(block, "\n\n"), "data: ")
		if err := json.Unmarshal([]byte(data), &e); err != nil || !ok || strings.ContainsAny(data, "\r\n") {
			t.Fatalf("%v in %q", err, block)
		}
		events = append(events, e)
	}
	return events, len(text)
}

// The first event comes at once, whatever was asked for, and the next ones at whole seconds. What has not changed is
// not sent again.
func TestEvents(t *testing.T) {
	for _, query := range []string{"", "name=api&key=api.test", "nonsense=%zz&sort=&from=x", "q=api"} {
		for _, accept := range []string{"", "text/event-stream", "text/html", "application/json;q=0"} {
			synctest.Test(t, func(t *testing.T) {
				tr := newTransport()
				call(t, tr, "api.test", 1)
				time.Sleep(300 * time.Millisecond)
				w := open(t, throttledebug.Handler(one(tr)), query, "Accept", accept)
				first, _ := w.news(t)
				if w.code() != 200 || w.Header().Get("Content-Type") != "text/event-stream" {
					t.Fatalf("%d %v", w.code(), w.Header())
				}
				if len(first) != 1 || first[0].Time != time.Now().UnixMilli() || first[0].Found != 1 || first[0].Rows[0][1] != "api.test" {
					t.Fatalf("%q: %+v", query, first)
				}
				time.Sleep(699 * time.Millisecond)
				if some, _ := w.news(t); len(some) != 0 {
					t.Errorf("an event before the second is full: %+v", some)
				}
				time.Sleep(2 * time.Millisecond)
				if some, size := w.news(t); len(some) != 1 || some[0].Rows != nil || size > 40 {
					t.Errorf("%d bytes, want the time alone: %+v", size, some)
				}
				call(t, tr, "api.test", 2)
				time.Sleep(time.Second)
				if some, _ := w.news(t); len(some) != 1 || some[0].Rows[0][5] != "3" || some[0].Time%1000 != 0 {
					t.Errorf("%+v, want 3 sent", some)
				}
				w.close()
				synctest.Wait()
				if !w.ended.Load() {
					t.Error("the stream outlives its reader")
				}
			})
		}
	}
}

// The ninth stream is refused, until one ends.
func TestNinth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := throttledebug.Handler(one(newTransport()))
		var all []*watch
		for range 8 {
			w := open(t, h, "")
			if w.code() != 200 || w.ended.Load() {
				t.Fatal(w.code())
			}
			all = append(all, w)
		}
		for range 2 {
			if ninth := open(t, h, ""); ninth.code() != http.StatusServiceUnavailable || !ninth.ended.Load() || ninth.Header().Get("Retry-After") == "" {
				t.Errorf("the ninth: %d", ninth.code())
			}
		}
		if other := open(t, throttledebug.Handler(nil), ""); other.code() != 200 {
			t.Errorf("another handler: %d", other.code())
		} else {
			other.close()
		}
		all[3].close()
		synctest.Wait()
		w := open(t, h, "")
		if w.code() != 200 {
			t.Errorf("after one has ended: %d", w.code())
		}
		w.close()
		for _, w := range all {
			w.close()
		}
	})
}

// The chosen key is in every event, also when the rows do not show it, and when it is not there.
func TestChosen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport()
		call(t, tr, "api.test", 2)
		call(t, tr, "other.test", 1)
		h := throttledebug.Handler(one(tr))
		w := open(t, h, "q=other&name=api&key=api.test")
		some, _ := w.news(t)
		if len(some) != 1 || len(some[0].Rows) != 1 || some[0].Chosen.Key != "api.test" || some[0].Chosen.Point.Sent != 2 {
			t.Fatalf("%+v", some)
		}
		w.close()
		w = open(t, h, "name=api&key=gone.test")
		some, _ = w.news(t)
		if len(some) != 1 || !some[0].Chosen.Gone || some[0].Chosen.Point != nil || some[0].Chosen.Why == "" {
			t.Fatalf("%+v", some)
		}
		call(t, tr, "gone.test", 1)
		time.Sleep(time.Second)
		if some, _ = w.news(t); len(some) != 1 || some[0].Chosen.Gone {
			t.Fatalf("%+v", some)
		}
		w.close()
	})
}

// An event has at most 32 KiB: of 10,000 ordinary keys a hundred rows, of hostile ones as many as fit beside the details.
func TestEventSize(t *testing.T) {
	measure := func(t *testing.T, tr *throttle.Transport, query string, rows, most int) {
		w := open(t, throttledebug.Handler(one(tr)), query)
		some, size := w.news(t)
		if size > most || len(some) != 1 || len(some[0].Rows) < rows || some[0].Chosen == nil || some[0].Chosen.Gone {
			t.Errorf("%d bytes, want at most %d: %+v", size, most, some)
		}
		t.Logf("%d rows of %s in %d bytes", len(some[0].Rows), some[0].Totals, size)
		w.close()
	}
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport()
		many(t, tr, 10000)
		measure(t, tr, "name=api&key=host-00007.example.com", 100, 12<<10)
		measure(t, tr, "name=api&key=host-00007.example.com&from=9900", 100, 12<<10)
	})
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport()
		up := tr.Base.(*upstream)
		var limits, policies []string
		for i := range 20 {
			name := strings.Repeat("<", 100) + strconv.Itoa(i)
			limits, policies = append(limits, `"`+name+`";r=900;t=60`), append(policies, `"`+name+`";q=1000;w=60;qu="`+strings.Repeat("u", 200)+`"`)
		}
		up.set(200, http.Header{"Ratelimit": limits, "Ratelimit-Policy": policies})
		begin := strings.Repeat("\x01", 250)
		for i := range 300 {
			call(t, tr, begin+strconv.Itoa(i), 1)
		}
		tr.Pause("", time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 150 {
			go try(throttle.WithFlow(ctx, strings.Repeat("\u2028", 80)+strconv.Itoa(i)), tr, begin+"7")
		}
		synctest.Wait()
		measure(t, tr, "name=api&key="+strings.Repeat(`%5cx01`, 250)+"7", 10, 32<<10)
		cancel()
	})
}

// stuck is a connection whose reader reads one event and no more: the next write ends at its deadline.
type stuck struct {
	httptest.ResponseRecorder
	deadline time.Time
	writes   int
}

func (s *stuck) SetWriteDeadline(t time.Time) error { s.deadline = t; return nil }
func (s *stuck) Write(b []byte) (int, error) {
	if s.writes++; s.writes == 1 {
		return s.ResponseRecorder.Write(b)
	}
	time.Sleep(time.Until(s.deadline))
	return 0, errors.New("i/o timeout")
}

// A reader that does not read loses its stream after ten seconds, and others lose nothing.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport()
		h := throttledebug.Handler(one(tr))
		other := open(t, h, "")
		s := &stuck{ResponseRecorder: *httptest.NewRecorder()}
		start, ended := time.Now(), make(chan time.Time, 1)
		go func() {
			h.ServeHTTP(s, httptest.NewRequest("GET", "/events", nil))
			ended <- time.Now()
		}()
		if end := <-ended; end.Sub(start) != 11*time.Second {
			t.Errorf("it ended after %v, want the next tick and 10 s", end.Sub(start))
		}
		if some, _ := other.news(t); len(some) != 12 {
			t.Errorf("the other stream had %d events, want 12", len(some))
		}
		other.close()
	})
}

// A server's WriteTimeout is about ordinary answers, and does not cut a stream; nor does ReadTimeout.
func TestServerTimeouts(t *testing.T) {
	s := httptest.NewUnstartedServer(throttledebug.Handler(one(newTransport())))
	s.Config.WriteTimeout, s.Config.ReadTimeout = 4*time.Second, 4*time.Second
	s.Start()
	defer s.Close()
	defer s.CloseClientConnections()
	resp, err := http.Get(s.URL + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	events := 0
	for events < 7 && lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			events++
		}
	}
	if events != 7 {
		t.Errorf("cut after %d events: %v", events, lines.Err())
	}
}
