package throttledebug

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
)

type always struct{}

func (always) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
}

// full returns a Transport with so many keys, each called once.
func full(t testing.TB, keys int) *throttle.Transport {
	tr := &throttle.Transport{Base: always{}, LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(10, 5) }}
	for i := range keys {
		req, err := http.NewRequest("GET", fmt.Sprintf("http://host-%05d.example.com/", i), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tr.RoundTrip(req); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

// Streams that wake at the same tick share a sample, a first event has its own, and the last stream to leave takes the
// sample along.
func TestShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(map[string]*throttle.Transport{"api": full(t, 3)})
		for range 2 {
			if !b.join() {
				t.Fatal("no place")
			}
		}
		one := b.tick()
		time.Sleep(5 * time.Millisecond) // the first took its time
		if two := b.tick(); two != one || len(one.rows) != 3 {
			t.Error("two streams of a tick read all keys twice")
		}
		if b.now() == one {
			t.Error("a first event is of the tick before")
		}
		time.Sleep(time.Second)
		if b.tick() == one {
			t.Error("the next tick shows the one before")
		}
		b.leave()
		if b.last == nil {
			t.Error("the sample went with the first stream")
		}
		b.leave()
		if b.last != nil {
			t.Error("the sample is kept for nobody")
		}
	})
}

// Who looks again sees how much of each bucket was used in between: of a key's own, and of one that all share by all keys. A key that has
// come since has used its own since then.
func TestUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{
			Base: always{}, Limiter: throttle.NewBucket(100, 100),
			LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(10, 50) },
		}
		b := newBoard(map[string]*throttle.Transport{"api": tr})
		b.join()
		used := func() (cells []string) {
			s := b.tick()
			v := view{sort: "used"}
			rows, _ := v.rows(s, 10)
			for _, r := range rows {
				lines := limits(r)
				cells = append(cells, r.Key+" "+lines[0][3]+" "+lines[1][3])
			}
			return cells
		}
		call := func(host string, n int) {
			for range n {
				req, _ := http.NewRequest("GET", "http://"+host+"/", nil)
				tr.RoundTrip(req)
			}
		}
		call("a", 3)
		if got, want := used(), []string{"a – –"}; !slices.Equal(got, want) {
			t.Errorf("at the first look %q, want %q", got, want)
		}
		for second := range 25 {
			call("a", 5)
			if second == 19 {
				call("b", 5)
			}
			time.Sleep(time.Second)
			if got, want := used(), []string{"a 50 % 5 %"}; second < 19 && !slices.Equal(got, want) {
				t.Errorf("after %d s %q, want %q", second+1, got, want)
			}
		}
		if got, want := used(), []string{"a 50 % 5 %", "b 3 % 5 %"}; !slices.Equal(got, want) {
			t.Errorf("at last %q, want %q", got, want)
		}
		if b.leave(); b.marks != (marks{}) {
			t.Error("the marks are kept for nobody")
		}
	})
}

// Whichever way the first rows are found, they are those of a full sort, of any column.
func TestFirstRows(t *testing.T) {
	b := newBoard(map[string]*throttle.Transport{"a": full(t, 700), "b": full(t, 800)})
	s := b.now()
	for i := range s.rows { // values that no traffic would make in a moment
		r := &s.rows[i]
		r.Sent, r.Waiting, r.Throttled = uint64(i*7919%1000), i*31%17, uint64(i%2)
		r.Tokens, r.ClosedFor = float64(i*13%29), time.Duration(i*17%5)*time.Second
		r.Reason = []string{"", "limit", "slot", "gate:paused"}[i%4]
	}
	for _, c := range columns {
		for _, reverse := range []bool{false, true} {
			v := view{sort: c.id, reverse: reverse}
			all, found := v.rows(s, len(s.rows)) // more than fewRows: sorted
			order := v.order(s.at)
			if found != 1500 || len(all) != 1500 || !slices.IsSortedFunc(all, order) {
				t.Fatalf("%s: %d of %d, or out of order", c.id, len(all), found)
			}
			for _, from := range []int{0, 1, 100, 899, 901, 1499, 1500} {
				some, _ := v.at(from).rows(s, 100)
				if want := all[from:min(from+100, 1500)]; !slices.Equal(some, want) {
					t.Errorf("%s, turned %v, from %d: not those of a full sort", c.id, reverse, from)
				}
			}
		}
	}
	if none, found := (view{sort: "key"}).rows(s, 0); len(none) != 0 || found != 1500 {
		t.Errorf("none: %d of %d", len(none), found)
	}
}

// quoted is read back by unquoted, so that a link finds its key.
func FuzzQuoted(f *testing.F) {
	for _, key := range []string{"", "api.test", `"\`, "\xff", "a\nb", "\u202e", "é", "<b>"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if q := quoted(key); unquoted(q) != key {
			t.Errorf("%q is shown as %s and read back as %q", key, q, unquoted(q))
		}
	})
}

// BenchmarkTick is what one stream costs a second: all keys read, the first hundred found and written. It reports the
// bytes of the event.
func BenchmarkTick(b *testing.B) {
	board := newBoard(map[string]*throttle.Transport{"api": full(b, 10000)})
	v := view{sort: newest, name: "api", key: "host-00007.example.com"}
	size := 0
	b.ReportAllocs()
	for b.Loop() {
		s := stream{view: v}
		size = len(s.text(board.now()))
	}
	b.ReportMetric(float64(size), "B/event")
}
