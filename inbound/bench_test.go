package inbound_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/go-throttle/throttle/inbound"
	"github.com/go-throttle/throttle/internal/race"
)

// nobody is a ResponseWriter that costs nothing.
type nobody struct{ h http.Header }

func (n *nobody) Header() http.Header         { return n.h }
func (n *nobody) Write(p []byte) (int, error) { return len(p), nil }
func (n *nobody) WriteHeader(int)             {}

// served is a handler that does nothing.
var served = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// requests are those of n IPv4 clients.
func requests(n int) []*http.Request {
	all := make([]*http.Request, n)
	for i := range all {
		all[i] = httptest.NewRequest(http.MethodGet, "/", nil)
		all[i].RemoteAddr = "192.0." + strconv.Itoa(i/250) + "." + strconv.Itoa(i%250) + ":4711"
	}
	return all
}

// BenchmarkHandler is what the middleware adds to a request.
func BenchmarkHandler(b *testing.B) {
	for name, l := range map[string]*inbound.Limit{
		"plain":       {Limits: []string{"1000000/s burst 1000000"}, NoFields: true},
		"fields":      {Limits: []string{"60000000/m burst 10000000"}},
		"threeFields": {Limits: []string{"60000000/m burst 10000000", "1000000000/h window", "1000000000/d sliding"}},
		"unlimited":   {NoFields: true},
	} {
		b.Run(name, func(b *testing.B) {
			h, all := l.Handler(served), requests(1000)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				w := &nobody{http.Header{}}
				for i := 0; pb.Next(); i++ {
					clear(w.h)
					h.ServeHTTP(w, all[i%len(all)])
				}
			})
		})
	}
	b.Run("none", func(b *testing.B) {
		all, h := requests(1000), http.Handler(served)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			w := &nobody{http.Header{}}
			for i := 0; pb.Next(); i++ {
				clear(w.h)
				h.ServeHTTP(w, all[i%len(all)])
			}
		})
	})
}

// BenchmarkKeyed is one call of a Keyed, of a thousand keys.
func BenchmarkKeyed(b *testing.B) {
	k := inbound.NewKeyed[int](0, "1000000/s burst 1000000")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			k.Allow(i%1000, 1)
		}
	})
}

// BenchmarkFlood is one call of a key that never came before, in a full table.
func BenchmarkFlood(b *testing.B) {
	for _, limit := range []string{"100/1h window", "6/1h sliding", "20/1h sliding", "21/1h sliding"} {
		b.Run(strings.ReplaceAll(limit, "/", " per "), func(b *testing.B) {
			k := inbound.NewKeyed[int](0, limit)
			for i := range 1 << 18 {
				k.Allow(-i, 1)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				k.Allow(i, 1)
			}
		})
	}
}

// TestHandlerAllocatesLittle: nothing without fields, and the line and its slice with them. A Keyed allocates nothing.
func TestHandlerAllocatesLittle(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	r, w := requests(1)[0], &nobody{http.Header{}}
	for _, c := range []struct {
		name string
		l    *inbound.Limit
		most float64
	}{
		{"plain", &inbound.Limit{Limits: []string{"1000000/s burst 1000000", "1000000/h window"}, NoFields: true}, 0},
		{"fields", &inbound.Limit{Limits: []string{"1000000/m burst 1000000", "1000000/h window", "1000000/d sliding"}}, 2},
		{"two keys", &inbound.Limit{Limits: []string{"1000000/h window"}, And: []*inbound.Limit{{Limits: []string{"1000000/h window"}}}}, 4},
	} {
		h := c.l.Handler(served)
		if n := testing.AllocsPerRun(1000, func() { clear(w.h); h.ServeHTTP(w, r) }); n > c.most {
			t.Errorf("%s: %v allocations, want at most %v", c.name, n, c.most)
		}
	}
	k := inbound.NewKeyed[[2]int](0, "1000000/s burst 1000000")
	if n := testing.AllocsPerRun(1000, func() { k.Allow([2]int{1, 2}, 1) }); n > 0 {
		t.Errorf("Keyed: %v allocations", n)
	}
}
