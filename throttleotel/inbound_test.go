package throttleotel_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/inbound"
	"github.com/go-throttle/throttle/throttleotel"
)

// What a server's limits let in and refuse is shown by limit, and a request that is held is neither.
func TestInstrumentInbound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := reader()
		l := &inbound.Limit{
			Limits: []string{"3/1m window", "1000/1d window"}, Wait: time.Minute, MaxWaiting: 2,
			And: []*inbound.Limit{{Limits: []string{"1/1h burst 1"}, Name: "new", Shadow: true}},
		}
		o := throttleotel.Options{MeterProvider: p}
		stop, err := throttleotel.InstrumentInbound("x", l, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := throttleotel.InstrumentInbound("x", l, o); err == nil {
			t.Error("the same name twice is no error")
		}
		if _, err := throttleotel.InstrumentInbound("y", nil, o); err == nil {
			t.Error("nil is no error")
		}
		h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		send := func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)) }
		for range 3 {
			send()
		}
		for range 5 {
			go send()
			synctest.Wait()
		}
		check := func(admitted, refused, held, minute, would float64) {
			t.Helper()
			m := gather(t, r)
			got := [5]float64{
				m.sum("throttle.server.requests", "throttle.outcome", "admitted"), m.sum("throttle.server.requests", "throttle.outcome", "refused"),
				m.sum("throttle.server.queued_request.count", "", ""), m.sum("throttle.server.refusals", "throttle.limit", "m"),
				m.sum("throttle.server.refusals", "throttle.limit", "new-h"),
			}
			if want := [5]float64{admitted, refused, held, minute, would}; got != want {
				t.Errorf("%v, want %v", got, want)
			}
		}
		check(3, 3, 2, 3, 2)
		time.Sleep(time.Minute)
		synctest.Wait()
		check(5, 3, 0, 3, 4)
		m := gather(t, r)
		if got, want := m.seen(), documented(t, "inbound.go"); !slices.Equal(got, want) {
			t.Errorf("there is\n%s\nand documented is\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		k := inbound.NewKeyed[int](0, "1/1h window")
		k.Allow(1, 1)
		k.Allow(1, 1)
		if _, err := throttleotel.InstrumentInbound("keyed", k, o); err != nil {
			t.Fatal(err)
		}
		if got := gather(t, r).sum("throttle.server.requests", "throttle.policy", "keyed"); got != 2 {
			t.Errorf("%v calls of a Keyed, want 2", got)
		}
		stop()
		if got := gather(t, r).sum("throttle.server.requests", "throttle.policy", "x"); got != 0 {
			t.Error("something is measured after stop")
		}
	})
}
