package inbound_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/inbound"
)

// A visitor is a request whose client may leave, and when it was answered.
type visitor struct {
	w      *httptest.ResponseRecorder
	leave  context.CancelFunc
	served time.Duration
}

// send sends a request in a goroutine of its own, in a bubble.
func send(all *sync.WaitGroup, h http.Handler, addr string) *visitor {
	ctx, cancel := context.WithCancel(context.Background())
	v := &visitor{w: httptest.NewRecorder(), leave: cancel}
	r := request(addr).WithContext(ctx)
	start := time.Now()
	all.Go(func() {
		h.ServeHTTP(v.w, r)
		v.served = time.Since(start)
	})
	synctest.Wait()
	return v
}

// TestWait: requests that would be refused are held and served in order; whoever would wait too long is refused.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inbound.Limit{Limits: []string{"2/s burst 2"}, Wait: 3 * time.Second}
		h := l.Handler(ok)
		var all sync.WaitGroup
		var visitors []*visitor
		for range 12 {
			visitors = append(visitors, send(&all, h, alice))
		}
		other := send(&all, h, bob)
		if n := l.Stats().Waiting; n < 5 || n > 10 {
			t.Errorf("%d requests wait", n)
		}
		all.Wait()
		if other.served != 0 || other.w.Code != http.StatusNoContent {
			t.Errorf("another client was answered %d after %v", other.w.Code, other.served)
		}
		for i, v := range visitors[:8] {
			if want := time.Duration(max(0, i-1)) * 500 * time.Millisecond; v.w.Code != http.StatusNoContent || v.served != want {
				t.Errorf("request %d was answered %d after %v, want to be served after %v", i, v.w.Code, v.served, want)
			}
		}
		for i, v := range visitors[8:] {
			if v.w.Code != http.StatusTooManyRequests || v.w.Header().Get("Retry-After") == "" || v.served != 0 {
				t.Errorf("request %d was answered %d after %v, %v", 8+i, v.w.Code, v.served, v.w.Header())
			}
		}
		if s := l.Stats(); s != (inbound.Stats{Keys: 2, Admitted: 9, Refused: 4}) {
			t.Errorf("%+v, want 9 let in, 4 refused, nobody waiting", s)
		}
	})
}

// TestLeaving: a client that leaves takes nothing, and those behind it move up.
func TestLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inbound.Limit{Limits: []string{"1/s"}, Wait: 10 * time.Second}
		h := l.Handler(ok)
		var all sync.WaitGroup
		var visitors []*visitor
		for range 6 {
			visitors = append(visitors, send(&all, h, alice))
		}
		time.Sleep(500 * time.Millisecond)
		for _, v := range visitors[1:4] {
			v.leave()
		}
		synctest.Wait()
		if n := l.Stats().Waiting; n != 2 {
			t.Errorf("%d wait after three have left, want 2", n)
		}
		all.Wait()
		if visitors[4].served != time.Second || visitors[5].served != 2*time.Second {
			t.Errorf("the last two were served after %v and %v, want 1s and 2s", visitors[4].served, visitors[5].served)
		}
		for _, v := range visitors[1:4] {
			if v.w.Code != http.StatusTooManyRequests {
				t.Errorf("a request whose ctx has ended was answered %d", v.w.Code)
			}
		}
		if s := l.Stats(); s.Admitted != 3 || s.Refused != 3 || s.Waiting != 0 {
			t.Errorf("%+v, want 3 let in and 3 refused", s)
		}
	})
}

// TestNobodyOvertakes: a cheap request waits behind a dear one of its key, though its own units are there.
func TestNobodyOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cost := 4
		l := inbound.Limit{Limits: []string{"1/s burst 4"}, Wait: 10 * time.Second, Cost: func(*http.Request) int { return cost }}
		h := l.Handler(ok)
		var all sync.WaitGroup
		send(&all, h, alice)
		dear := send(&all, h, alice)
		time.Sleep(1500 * time.Millisecond)
		cost = 1
		cheap := send(&all, h, alice)
		all.Wait()
		if dear.served != 4*time.Second || cheap.served != 3500*time.Millisecond {
			t.Errorf("the dear one was served after %v, the cheap one after %v; want 4s, and 1s after that", dear.served, cheap.served)
		}
	})
}

// TestLinesGo: what waits for a moment leaves nothing behind.
func TestLinesGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inbound.Limit{Limits: []string{"1/s"}, Wait: time.Minute, MaxKeys: 100}
		h := l.Handler(ok)
		before := heap()
		for i := range 5000 {
			var all sync.WaitGroup
			addr := "10.0." + itoa(i/250) + "." + itoa(i%250) + ":80"
			send(&all, h, addr)
			send(&all, h, addr)
			all.Wait()
		}
		if grown := heap() - before; grown > 1<<20 {
			t.Errorf("%d bytes are left of 5000 lines", grown)
		}
		l.Stats()
	})
}

// A leaver is a shared limit whose clients leave in the moment of their grant.
type leaver struct {
	*throttle.Bucket
	leave atomic.Pointer[context.CancelFunc]
}

func (l *leaver) Take(ctx context.Context, n int) (time.Duration, error) {
	wait, err := l.Bucket.Take(ctx, n)
	if leave := l.leave.Load(); wait == 0 && leave != nil {
		(*leave)()
	}
	return wait, err
}

// TestLeavingWithTheGrant: units that come to a client which has just left go back, those of all limits.
func TestLeavingWithTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &leaver{Bucket: throttle.NewBucket(1, 10)}
		l := inbound.Limit{Limits: []string{"5/10s window"}, Wait: time.Minute, Shared: []throttle.Limiter{shared}}
		h := l.Handler(ok)
		statuses(t, h, alice, 5)
		var all sync.WaitGroup
		v := send(&all, h, alice)
		shared.leave.Store(&v.leave)
		all.Wait()
		shared.leave.Store(nil)
		if v.w.Code != http.StatusTooManyRequests || v.served != 10*time.Second {
			t.Errorf("%d after %v", v.w.Code, v.served)
		}
		if left := shared.Tokens(); left != 10 {
			t.Errorf("%v are left of the shared limit, want 10", left)
		}
		if w := get(h, alice); w.Code != http.StatusNoContent || !contains(w.Header()["Ratelimit"], ";r=4") {
			t.Errorf("afterwards: %d %v, want 4 left", w.Code, w.Header())
		}
	})
}

// TestMaxWaiting bounds those who are held over all keys.
func TestMaxWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inbound.Limit{Limits: []string{"1/s"}, Wait: time.Minute, MaxWaiting: 3}
		h := l.Handler(ok)
		var all sync.WaitGroup
		var last *visitor
		for _, addr := range []string{alice, alice, alice, bob, bob, bob} {
			last = send(&all, h, addr)
		}
		if last.w.Code != http.StatusTooManyRequests || l.Stats().Waiting != 3 {
			t.Errorf("the fourth to wait was answered %d; %d wait", last.w.Code, l.Stats().Waiting)
		}
		all.Wait()
	})
}

// TestWaitIsCancelledAtAnyMoment: requests leave at random moments, also at that of their grant. Every unit is used or
// still there.
func TestWaitIsCancelledAtAnyMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inbound.Limit{Limits: []string{"100/s burst 1", "1000000/24h window"}, Wait: time.Second}
		entered := 0
		var mu sync.Mutex
		h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			entered++
		}))
		var all sync.WaitGroup
		for i := range 500 {
			v := send(&all, h, alice)
			time.AfterFunc(time.Duration(i%50)*10*time.Millisecond, v.leave)
			time.Sleep(5 * time.Millisecond)
		}
		all.Wait()
		s := l.Stats()
		if s.Waiting != 0 || s.Admitted != uint64(entered) || s.Admitted+s.Refused != 500 {
			t.Errorf("%+v, and %d were served", s, entered)
		}
		w := get(h, alice)
		t.Log(entered, w.Header())
		if want := 1_000_000 - entered; !contains(w.Header().Values("RateLimit"), `"d";r=`+itoa(want)) {
			t.Errorf("%d were served, and the fields say %v", entered, w.Header())
		}
	})
}

// TestOrderOfOutgoingCalls: priorities, costs and flows that a middleware sets for the calls of its handlers do not
// change the line of the requests.
func TestOrderOfOutgoingCalls(t *testing.T) {
	for name, with := range map[string]func(context.Context, int) context.Context{
		"priority": throttle.WithPriority,
		"cost":     func(ctx context.Context, i int) context.Context { return throttle.WithCost(ctx, i-3) },
		"flow":     func(ctx context.Context, i int) context.Context { return throttle.WithFlow(ctx, "ab"[i/3:i/3+1]) },
	} {
		synctest.Test(t, func(t *testing.T) {
			l := inbound.Limit{Limits: []string{"1/s"}, Wait: 10 * time.Second}
			i := 0
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				l.Handler(ok).ServeHTTP(w, r.WithContext(with(r.Context(), i)))
			})
			var all sync.WaitGroup
			var visitors []*visitor
			for i = range 6 {
				visitors = append(visitors, send(&all, h, alice))
			}
			all.Wait()
			for i, v := range visitors {
				if want := time.Duration(i) * time.Second; v.w.Code != http.StatusNoContent || v.served != want {
					t.Errorf("%s: request %d was answered %d after %v, want to be served after %v", name, i, v.w.Code, v.served, want)
				}
			}
		})
	}
}

// TestFreeRequestsDoNotWait: a request that costs nothing is let in at once, however many of its key wait.
func TestFreeRequestsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cost := 1
		l := inbound.Limit{Limits: []string{"1/s"}, Wait: 10 * time.Second, MaxWaiting: 2, Cost: func(*http.Request) int { return cost }}
		h := l.Handler(ok)
		var all sync.WaitGroup
		send(&all, h, alice)
		for waiting := range 3 {
			cost = 0
			if v := send(&all, h, alice); v.w.Code != http.StatusNoContent || v.served != 0 {
				t.Errorf("with %d waiting it is answered %d after %v", waiting, v.w.Code, v.served)
			}
			cost = 1
			send(&all, h, alice)
		}
		all.Wait()
	})
}

// TestNewcomersAreCountedOnce: a request that shares one limit with others counts once, also if it is asked for again while
// it waits.
func TestNewcomersAreCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inbound.Limit{Limits: []string{"1/m burst 1"}, MaxKeys: 1, Wait: 10 * time.Minute}
		h := l.Handler(ok)
		var all sync.WaitGroup
		for range 3 {
			send(&all, h, alice)
			send(&all, h, bob)
		}
		all.Wait()
		if s := l.Stats(); s != (inbound.Stats{Keys: 1, Admitted: 6, Newcomers: 3}) {
			t.Errorf("%+v, want 6 let in, 3 of them newcomers", s)
		}
	})
}
