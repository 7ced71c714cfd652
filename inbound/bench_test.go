package inbound_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/go-throttle/throttle/inbound"
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
