package throttletest_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/lab"
	"github.com/go-throttle/throttle/throttletest"
	"github.com/go-throttle/throttle/usage"
)

// units returns a function that finds every request to cost n.
func units(n int) func(*http.Request) int { return func(*http.Request) int { return n } }

// Calls that come each second, of work that takes 10 s, and a limit of 1,000 units a minute. With a Bucket 16.7 units come
// back in a second. Those that are admitted, and what they have been charged after 5 s and at the end.
func TestCostsKnownAfterwards(t *testing.T) {
	kind := func(l throttletest.Limit, k throttletest.Kind) throttletest.Limit {
		l.Kind = k
		return l
	}
	held := throttletest.Limit{N: 1000, Per: time.Minute, Cost: units(500), Settle: units(200)}
	ended := throttletest.Limit{N: 1000, Per: time.Minute, Cost: units(0), Settle: units(900)}
	streamed := throttletest.Limit{N: 1000, Per: time.Minute, Cost: units(0), Settle: units(900), Streams: true}
	for name, c := range map[string]struct {
		limit throttletest.Limit
		after []int // units charged at 5 s, of the first three
		end   []int
		times []int // s, of those that were admitted
	}{
		// 0 and 1 s hold all. Their 300 come back at 10 and 11 s; by then 167 more have come back.
		"held":          {held, []int{500, 500, 0}, []int{200, 200, 0}, []int{0, 1, 11, 21}},
		"held, window":  {kind(held, throttletest.Fixed), []int{500, 500, 0}, []int{200, 200, 0}, []int{0, 1, 11}},
		"held, sliding": {kind(held, throttletest.Sliding), []int{500, 500, 0}, []int{200, 200, 0}, []int{0, 1, 11}},
		"held, counter": {kind(held, throttletest.SlidingCounter), []int{500, 500, 0}, []int{200, 200, 0}, []int{0, 1, 11}},
		// The first is charged at 10 s, which leaves 100 for the one that comes then, and the second at 11 s.
		"ended": {ended, []int{0, 0, 0}, []int{900, 900, 900}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
		// 90 a second of each: 1,000 are gone after 4 s, when 90 × (1 + 2 + 3 + 4) - 4 × 16.7 of them are.
		"streamed": {streamed, []int{450, 360, 270}, []int{900, 900, 900}, []int{0, 1, 2, 3, 4}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := throttletest.NewServer(c.limit)
			s.Work = throttletest.Span{Min: 10 * time.Second}
			var calls sync.WaitGroup
			var times, after []int
			for i := range 30 {
				if i == 5 {
					synctest.Wait()
					for _, a := range s.Ledger()[:3] {
						after = append(after, a.Units[0])
					}
				}
				calls.Go(func() { get(t, s, s.URL()) })
				time.Sleep(time.Second)
			}
			calls.Wait()
			l := s.Ledger()
			for _, a := range l.Only(throttletest.Admitted) {
				times = append(times, int(a.At/time.Second))
				if a.Done != a.At+10*time.Second {
					t.Errorf("%s: at work from %v to %v", name, a.At, a.Done)
				}
			}
			var end []int
			for _, a := range l[:3] {
				end = append(end, a.Units[0])
			}
			want(t, name, times, c.times)
			want(t, name+": charged at 5 s", after, c.after)
			want(t, name+": charged at the end", end, c.end)
			if got, want := lab.Charged(l, 0, 0, time.Hour), len(c.times)*slices.Max(c.end); got != want {
				t.Errorf("%s: charged %d in all, want %d", name, got, want)
			}
		})
	}
}

// A stream's header is there at once, and its parts come evenly, however late they are read. What does not stream comes
// as a whole, after the work.
func TestStream(t *testing.T) {
	const stream, whole = `{"stream":true,"stream_options":{"include_usage":true}}`, `{}`
	for name, c := range map[string]struct {
		path, body string
		times      []time.Duration // of the header, and of each read
	}{
		"stream":    {"/v1/chat/completions", stream, []time.Duration{20 * ms, 1020 * ms, 2020 * ms, 3020 * ms, 3020 * ms}},
		"anthropic": {"/v1/messages", stream, []time.Duration{20 * ms, 1020 * ms, 2020 * ms, 3020 * ms, 3020 * ms}},
		"whole":     {"/v1/chat/completions", whole, []time.Duration{3020 * ms, 3020 * ms, 3020 * ms}},
	} {
		synctest.Test(t, func(t *testing.T) {
			model := &lab.Model{Parts: 2}
			s := throttletest.NewServer(model.CountsOutput(1000))
			s.Handler, s.Stream = model, true
			s.Latency, s.Work = throttletest.Span{Min: 10 * ms}, throttletest.Span{Min: 3 * time.Second}
			start := time.Now()
			req, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL()+c.path, strings.NewReader(c.body))
			resp, err := s.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			times := []time.Duration{time.Since(start)}
			text, buf := []byte(nil), make([]byte, 1<<20)
			for err == nil {
				var n int
				n, err = resp.Body.Read(buf)
				times, text = append(times, time.Since(start)), append(text, buf[:n]...)
			}
			want(t, name, times, c.times)
			used, known := usage.Parse(resp.Header.Get("Content-Type"), text)
			if a := s.Ledger()[0]; err != io.EOF || !known || !used.Final || used.Output != int64(a.Units[0]) || used.Input != int64(len(c.body)+3)/4 ||
				strings.Count(string(text), "word") != a.Units[0] {
				t.Errorf("%s: %+v, %v of %+v in %s", name, used, err, a, text)
			}
		})
	}
}

// A stream ends with its context and with Close, and over a socket it is the same.
func TestStreamEnds(t *testing.T) {
	newServer := func(work time.Duration) *throttletest.Server {
		s := throttletest.NewServer()
		s.Handler, s.Stream, s.Work = &lab.Model{}, true, throttletest.Span{Min: work}
		return s
	}
	synctest.Test(t, func(t *testing.T) {
		s := newServer(time.Hour)
		req, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL(), strings.NewReader(`{"stream":true}`))
		resp, err := s.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { resp.Body.Close(); resp.Body.Close() })
		if _, err := io.ReadAll(resp.Body); err != http.ErrBodyReadAfterClose {
			t.Error(err)
		}
	})
	s := newServer(10 * ms)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, body := range []string{`{"stream":true}`, `{}`} {
		resp, err := http.Post(s.URL(), "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if sse := strings.HasPrefix(string(text), "data: "); err != nil || !strings.Contains(string(text), "word") || sse != (body != "{}") {
			t.Errorf("%s: %.100q, %v", body, text, err)
		}
	}
}
