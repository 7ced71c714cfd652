package inbound

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
)

// fixed is an Adaptive that stays where it is: at n in flight.
func fixed(n int) *throttle.Adaptive {
	return &throttle.Adaptive{Load: func() float64 { return 1 }, Target: 1, Least: n, Most: n}
}

// A door is an Overload in front of requests that stay until they are let out, in a bubble.
type door struct {
	t    *testing.T
	o    *Overload
	h    http.Handler
	out  chan struct{}
	all  sync.WaitGroup
	mu   sync.Mutex
	in   []string // who came in, in order
	told []string // of OnRefusal
}

func newDoor(t *testing.T, o *Overload) *door {
	d := &door{t: t, o: o, out: make(chan struct{})}
	if o.source == nil {
		o.source = idle()
	}
	o.OnRefusal = func(r *http.Request, why string) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.told = append(d.told, byWho(r)+" "+why)
	}
	d.h = o.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		d.in = append(d.in, byWho(r))
		d.mu.Unlock()
		<-d.out
	})
	return d
}

// ask sends a request: "a", or "a 3" with a priority. It returns when nothing moves any more.
func (d *door) ask(who string, change ...func(*http.Request) *http.Request) {
	name, prio, _ := strings.Cut(who, " ")
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Who", name)
	r.Header.Set("Prio", prio)
	for _, f := range change {
		r = f(r)
	}
	d.all.Go(func() { d.h.ServeHTTP(httptest.NewRecorder(), r) })
	synctest.Wait()
}

// let lets n requests out, one after the other.
func (d *door) let(n int) {
	for range n {
		d.out <- struct{}{}
		synctest.Wait()
	}
}

// check ends all, and checks who came in, in order, and who was refused.
func (d *door) check(in, told string) {
	d.t.Helper()
	close(d.out)
	d.all.Wait()
	if got := strings.Join(d.in, " "); got != in {
		d.t.Errorf("let in: %s; want %s", got, in)
	}
	if got := strings.Join(d.told, ", "); got != told {
		d.t.Errorf("refused: %s; want %s", got, told)
	}
	if s := d.o.Stats(); s.InFlight != 0 || s.Waiting != 0 {
		d.t.Errorf("%+v", s)
	}
}

// TestOverloadOrder: who goes when a place becomes free.
func TestOverloadOrder(t *testing.T) {
	const wait = time.Hour
	for _, c := range []struct {
		name     string
		o        *Overload
		ask      string // one after the other; there is one place
		in, told string
	}{
		{"who came last", &Overload{Wait: wait}, "a b c d", "a d c b", ""},
		{"the more important one", &Overload{Wait: wait, Priority: byPrio}, "a b:1 c:5 d:1 e", "a c d b e", ""},
		{"keys in turn", &Overload{Wait: wait, Key: byWho}, "a a a a b b", "a b a b a a", ""},
		{"every eighth turn is the oldest's", &Overload{Wait: wait}, "a b c d e f g h i j k l", "a l k j i h g f b e d c", ""},
		{"and the unimportant one's", &Overload{Wait: wait, Priority: byPrio, Key: byWho}, "x z a:1 b:1 c:1 d:1 e:1 f:1 g:1 h:1 i:1", "x", ""},
		{"the line is full", &Overload{Wait: wait, MaxWaiting: 2}, "a b c d", "a d c", "b full"},
		{"the line is full of more important ones", &Overload{Wait: wait, MaxWaiting: 2, Priority: byPrio}, "a b:1 c:1 d:0", "a c b", "d full"},
		{"nobody waits", &Overload{Wait: -1}, "a b", "a", "b busy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.o.Adaptive = fixed(1)
				d := newDoor(t, c.o)
				for _, who := range strings.Fields(c.ask) {
					d.ask(strings.ReplaceAll(who, ":", " "))
				}
				if strings.HasPrefix(c.name, "and") {
					d.let(11)
					if d.in[8] != "z" {
						t.Errorf("%v, want z after seven others", d.in)
					}
					c.in = strings.Join(d.in, " ")
				} else {
					d.let(len(strings.Fields(c.in)))
				}
				d.check(c.in, c.told)
			})
		})
	}
}

// TestOverloadWaits: until the time is over, the client leaves, or its deadline comes too near.
func TestOverloadWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t, &Overload{Adaptive: fixed(1)})
		start := time.Now()
		d.ask("a")
		d.ask("b")
		time.Sleep(99 * time.Millisecond)
		synctest.Wait()
		if n := d.o.Stats().Refused; n > 0 {
			t.Errorf("%d refused after %v", n, time.Since(start))
		}
		time.Sleep(2 * time.Millisecond)
		ctx, leave := context.WithCancel(t.Context())
		d.ask("c", func(r *http.Request) *http.Request { return r.WithContext(ctx) })
		leave()
		synctest.Wait()
		d.ask("d", func(r *http.Request) *http.Request { return r.WithContext(ctx) }) // it has left already
		soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		d.ask("e", func(r *http.Request) *http.Request { return r.WithContext(soon) })
		time.Sleep(11 * time.Millisecond)
		synctest.Wait()
		if s := d.o.Stats(); s.Left < 2 || s.Refused+s.Left != 4 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
		d.let(1)
		d.ask("f")
		if n := d.o.Stats().InFlight; n != 1 {
			t.Errorf("%d in flight: those who left have taken something", n)
		}
		close(d.out)
		d.all.Wait()
	})
}

// TestOverloadDeadlines: who cannot be answered in time is turned away at once, but for one in a while, and let in again when
// requests have become quicker.
func TestOverloadDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes := 300 * time.Millisecond
		o := &Overload{source: idle(), Deadline: func(r *http.Request) time.Time {
			d, err := time.ParseDuration(r.Header.Get("Within"))
			if err != nil {
				return time.Time{}
			}
			return time.Now().Add(d)
		}}
		h := o.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(takes) })
		// send is 100 requests a second, for so many seconds; it returns how many were refused.
		send := func(secs int, within string) (refused int) {
			var all sync.WaitGroup
			before := o.Stats().Late
			for range 100 * secs {
				all.Go(func() {
					r := httptest.NewRequest(http.MethodGet, "/", nil)
					r.Header.Set("Within", within)
					h.ServeHTTP(httptest.NewRecorder(), r)
				})
				time.Sleep(10 * time.Millisecond)
			}
			all.Wait()
			return int(o.Stats().Late - before)
		}
		if n := send(2, "200ms"); n < 100 || n > 175 {
			t.Errorf("%d of 200 refused; want all once 20 have taken 300 ms, but ten a second", n)
		}
		if n := send(2, "400ms"); n != 0 {
			t.Errorf("%d refused that can be answered in time", n)
		}
		if n := send(2, ""); n != 0 {
			t.Errorf("%d refused without a deadline", n)
		}
		takes = 100 * time.Millisecond
		if n := send(3, "200ms"); n > 60 {
			t.Errorf("%d of 300 refused after requests have become quicker", n)
		}
		if n := send(1, "-1ms"); n != 100 {
			t.Errorf("%d of 100 refused whose deadline is over", n)
		}
	})
}

// TestOverloadApart: what does not count as in flight.
func TestOverloadApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t, &Overload{Adaptive: fixed(1), Wait: -1, Allow: func(r *http.Request) bool { return byWho(r) == "health" }})
		with := func(name, value string) func(*http.Request) *http.Request {
			return func(r *http.Request) *http.Request { r.Header.Set(name, value); return r }
		}
		d.ask("socket", with("Upgrade", "websocket"))
		time.Sleep(asStream)
		synctest.Wait()
		d.ask("events", with("Accept", "text/event-stream"))
		time.Sleep(asStream)
		synctest.Wait()
		d.ask("tunnel", func(r *http.Request) *http.Request { r.Method = http.MethodConnect; return r })
		time.Sleep(asStream)
		synctest.Wait()
		d.ask("a")
		d.ask("h2c", with("Upgrade", "h2c"))        // is a request as others are
		d.ask("late", with("Upgrade", "websocket")) // there is no place to begin in
		d.ask("health")
		if s := d.o.Stats(); s.Streams != 3 || s.Exempt != 1 || s.InFlight != 1 || s.Admitted != 4 || s.Allowed != 1 || s.Refused != 2 {
			t.Errorf("%+v", s)
		}
		d.let(5)
		d.check("socket events tunnel a health", "h2c busy, late busy")
	})
}

// TestOverloadShadow: all are let in, and those counted that would not be.
func TestOverloadShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t, &Overload{Adaptive: fixed(2), Shadow: true})
		for _, who := range []string{"a", "b", "c"} {
			d.ask(who)
		}
		if s := d.o.Stats(); s.Refused != 1 || s.Admitted != 3 || s.InFlight != 3 || s.Why == "" {
			t.Errorf("%+v", s)
		}
		d.check("a b c", "c busy")
	})
}

// TestOverloadAnswer: what a client sees that is turned away.
func TestOverloadAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			o    *Overload
			want int
		}{
			{&Overload{}, 503},
			{&Overload{Status: 529}, 529},
			{&Overload{Refused: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418) })}, 418},
		} {
			c.o.Deadline = func(*http.Request) time.Time { return time.Now().Add(-time.Second) }
			c.o.source = idle()
			w := httptest.NewRecorder()
			c.o.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was let in") }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			if w.Code != c.want || w.Header().Get("Retry-After") != "" {
				t.Errorf("%d %v, want %d", w.Code, w.Header(), c.want)
			}
			if c.o.Refused != nil {
				continue
			}
			var problem struct{ Status int }
			if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || problem.Status != c.want {
				t.Errorf("%s: %v", w.Body, err)
			}
		}
	})
}

// TestOverloadPanics: a handler that panics gives its place back, and so do functions of the user's.
func TestOverloadPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := func(r *http.Request) { panic(http.ErrAbortHandler) }
		o := &Overload{source: idle(), Adaptive: fixed(1), Wait: -1, Key: func(r *http.Request) string {
			if byWho(r) == "key" {
				bad(r)
			}
			return ""
		}}
		h := o.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if byWho(r) == "handler" {
				bad(r)
			}
		})
		for _, who := range []string{"handler", "key", "well", "well"} {
			func() {
				defer func() { _ = recover() }()
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.Header.Set("Who", who)
				h.ServeHTTP(httptest.NewRecorder(), r)
			}()
		}
		if s := o.Stats(); s.InFlight != 0 || s.Refused != 0 || s.Admitted != 3 {
			t.Errorf("%+v", s)
		}
	})
}

// TestOverloadShadowPanics: so does an OnRefusal that panics, of a request that is let in all the same.
func TestOverloadShadowPanics(t *testing.T) {
	o := &Overload{source: idle(), Shadow: true, Deadline: func(*http.Request) time.Time { return time.Now().Add(-time.Second) }}
	o.OnRefusal = func(*http.Request, string) { panic("no") }
	func() {
		defer func() { _ = recover() }()
		o.Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	}()
	if s := o.Stats(); s.InFlight != 0 || s.Refused != 1 {
		t.Errorf("%+v", s)
	}
}

// TestOverloadFields: what makes no sense is named.
func TestOverloadFields(t *testing.T) {
	for _, c := range []struct {
		o    *Overload
		want string
	}{
		{&Overload{MaxWaiting: -1}, "MaxWaiting"},
		{&Overload{Wait: -1, MaxWaiting: 5}, "MaxWaiting"},
		{&Overload{Status: 200}, "Status"},
		{&Overload{Adaptive: &throttle.Adaptive{}}, "Adaptive"},
	} {
		for range 2 { // the second time too
			func() {
				defer func() {
					if got := fmt.Sprint(recover()); !strings.HasPrefix(got, "throttle: inbound.Overload: ") || !strings.Contains(got, c.want) {
						t.Errorf("%q does not name %s", got, c.want)
					}
				}()
				c.o.Handler(http.NotFoundHandler())
			}()
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a nil handler does not panic")
		}
	}()
	new(Overload).Handler(nil)
}

// TestOverloadAfterIdle: what was seen before an hour without requests decides nothing, and looks are few.
func TestOverloadAfterIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &made{runnable: func() float64 { return 500 }}
		o := &Overload{source: from}
		h := o.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(50 * time.Millisecond) })
		var all sync.WaitGroup
		send := func() {
			all.Go(func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)) })
		}
		for range 2000 {
			send()
			time.Sleep(time.Millisecond)
		}
		if s := o.Stats(); s.Limit == 0 || s.Refused == 0 || !strings.Contains(s.Why, "goroutines wait for each core") {
			t.Errorf("overloaded: %+v", s)
		}
		if n := from.reads.Load(); n > 201 {
			t.Errorf("%d looks in 2 s", n)
		}
		all.Wait()
		before := o.Stats().Refused
		time.Sleep(time.Hour)
		for range 30 {
			send()
		}
		all.Wait()
		if s := o.Stats(); s.Refused != before {
			t.Errorf("after an hour: %+v", s)
		}
		s := o.Stats()
		if s.CPU != 0.9 || math.Abs(s.Throttled-0.4) > 1e-9 || s.Pressure != 0.3 {
			t.Errorf("%+v", s)
		}
	})
}

// TestOverloadWithoutCounts: before Go 1.26 the scheduling latency stands for the runnable goroutines.
func TestOverloadWithoutCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &made{runnable: math.NaN, latency: time.Millisecond}
		o := &Overload{source: from, Wait: -1}
		h := o.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(50 * time.Millisecond) })
		var all sync.WaitGroup
		send := func() {
			for range 1000 {
				all.Go(func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)) })
				time.Sleep(time.Millisecond)
			}
		}
		if send(); o.Stats().Refused > 0 {
			t.Errorf("%+v", o.Stats())
		}
		from.latency = 300 * time.Millisecond
		if send(); o.Stats().Refused == 0 || o.Stats().Limit == 0 {
			t.Errorf("%+v", o.Stats())
		}
		all.Wait()
	})
}

// TestOverloadServer: a real server, of which the limit is 3, and 40 clients that come at once over their own
// connections. Those who are let in all arrive before any leaves, so exactly three are.
func TestOverloadServer(t *testing.T) {
	in, out := make(chan struct{}, 40), make(chan struct{})
	o := &Overload{source: idle(), Adaptive: fixed(3), Wait: -1}
	s := httptest.NewServer(o.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		in <- struct{}{}
		<-out
		io.WriteString(w, "served")
	}))
	defer s.Close()
	codes := make(chan int, 40)
	for range 40 {
		go func() {
			resp, err := http.Get(s.URL)
			if err != nil {
				codes <- 0
				return
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			codes <- resp.StatusCode
		}()
	}
	got := map[int]int{}
	for range 37 {
		got[<-codes]++
	}
	close(out)
	for range 3 {
		got[<-codes]++
	}
	if got[503] != 37 || got[200] != 3 {
		t.Errorf("%v", got)
	}
}
