package throttle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/gate"
	"github.com/go-throttle/throttle/internal/queue"
)

// crowd sends calls one after the other, so that their order of arrival is known, and notes how they went.
type crowd struct {
	t  *testing.T
	tr *Transport
	up *upstream
	wg sync.WaitGroup

	mu   sync.Mutex
	gone []string // "path host" in the order of sending
	when []time.Duration
}

func newCrowd(t *testing.T, tr *Transport) *crowd {
	c := &crowd{t: t, tr: tr}
	c.up = newUpstream(0, func(_ int, req *http.Request) (*http.Response, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.gone, c.when = append(c.gone, strings.TrimPrefix(req.URL.Path, "/")), append(c.when, c.up.now())
		return reply(req, 200), nil
	})
	tr.Base = c.up
	return c
}

// send starts a call to host/name and returns when it waits or has gone.
func (c *crowd) send(ctx context.Context, host, name string) {
	c.wg.Go(func() {
		if code, err := status(c.tr, ctx, "http://"+host+"/"+name); code != 200 && !errors.Is(err, context.Canceled) {
			c.t.Error(host, name, code, err)
		}
	})
	synctest.Wait()
}

// check compares what has gone, and when in ms.
func (c *crowd) check(want ...string) {
	c.t.Helper()
	c.wg.Wait()
	got := make([]string, len(c.gone))
	for i, name := range c.gone {
		got[i] = fmt.Sprint(name, " ", c.when[i].Milliseconds())
		if i > 0 && c.when[i] == c.when[i-1] && got[i] < got[i-1] { // at one moment: in either order
			got[i], got[i-1] = got[i-1], got[i]
		}
	}
	if !slices.Equal(got, want) {
		c.t.Errorf("went %q\nwant %q", got, want)
	}
}

func TestSharedLineOrder(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, c *crowd){
		"arrival": func(t *testing.T, c *crowd) {
			for i, host := range []string{"a", "b", "a", "c", "b", "a"} {
				c.send(t.Context(), host, fmt.Sprint(i))
			}
			c.check("0 0", "1 100", "2 200", "3 300", "4 400", "5 500")
		},
		"priority": func(t *testing.T, c *crowd) {
			for i, prio := range []int{0, 0, 1, -1, 2, 1, 0} {
				c.send(WithPriority(t.Context(), prio), string("aabcbca"[i]), fmt.Sprint(i))
			}
			c.check("0 0", "4 100", "2 200", "5 300", "1 400", "6 500", "3 600")
		},
		"the head leaves": func(t *testing.T, c *crowd) {
			ctx, cancel := context.WithCancel(WithPriority(t.Context(), 1))
			c.send(t.Context(), "a", "0")
			c.send(ctx, "a", "leaves")
			c.send(WithPriority(t.Context(), -1), "a", "last")
			c.send(t.Context(), "b", "b")
			time.Sleep(50 * time.Millisecond)
			cancel()
			c.check("0 0", "b 100", "last 200")
		},
		"one of a higher priority comes and goes": func(t *testing.T, c *crowd) {
			c.send(t.Context(), "a", "0")
			c.send(t.Context(), "a", "a")
			ctx, cancel := context.WithCancel(WithPriority(t.Context(), 1))
			c.send(ctx, "b", "leaves")
			time.Sleep(50 * time.Millisecond)
			cancel()
			c.check("0 0", "a 100")
		},
		"a gate closes": func(t *testing.T, c *crowd) {
			c.send(t.Context(), "a", "0")
			c.send(t.Context(), "a", "a1")
			c.send(t.Context(), "b", "b1")
			c.send(t.Context(), "a", "a2")
			c.send(t.Context(), "b", "b2")
			time.Sleep(50 * time.Millisecond)
			closeFor(c.tr, "a", 10*time.Second)
			c.check("0 0", "b1 100", "b2 200", "a1 10050", "a2 10150")
		},
		"a gate reopens": func(t *testing.T, c *crowd) {
			c.send(t.Context(), "a", "0")
			closeFor(c.tr, "a", 10*time.Second)
			c.send(t.Context(), "a", "a1")
			for i := range 5 {
				c.send(t.Context(), "b", fmt.Sprint("b", i))
			}
			time.Sleep(250 * time.Millisecond)
			c.tr.Resume("a") // a1 came first, so it goes next
			c.check("0 0", "b0 100", "b1 200", "a1 300", "b2 400", "b3 500", "b4 600")
		},
		"an own limiter is slower": func(t *testing.T, c *crowd) {
			c.tr.LimiterFor = func(key string) Limiter {
				if key == "slow" {
					return NewBucket(1/0.95, 1) // s1 enters the shared line at 950 ms
				}
				return nil
			}
			c.send(t.Context(), "slow", "s0")
			c.send(t.Context(), "slow", "s1")
			for i := range 12 {
				c.send(t.Context(), "b", fmt.Sprint(i))
			}
			c.check("s0 0", "0 100", "1 200", "2 300", "3 400", "4 500", "5 600", "6 700", "7 800", "8 900", "s1 1000", "9 1100", "10 1200", "11 1300")
		},
		"slots": func(t *testing.T, c *crowd) {
			c.tr.Queue.MaxInFlight = 1
			resp, err := c.tr.RoundTrip(request(t.Context(), "GET", "http://a/0"))
			if err != nil {
				t.Fatal(err)
			}
			c.send(t.Context(), "a", "a1")
			c.send(t.Context(), "b", "b1")
			c.send(t.Context(), "b", "b2")
			time.Sleep(350 * time.Millisecond)
			resp.Body.Close()
			c.check("0 0", "b1 100", "b2 200", "a1 350")
		},
		"cost": func(t *testing.T, c *crowd) {
			c.send(t.Context(), "a", "0")
			c.send(WithCost(t.Context(), 3), "b", "dear") // leaves a debt of 2
			c.send(t.Context(), "a", "1")
			c.send(WithCost(t.Context(), 0), "c", "free")
			c.check("0 0", "dear 100", "1 400", "free 400")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test(t, newCrowd(t, &Transport{Limiter: NewBucket(10, 1)}))
			})
		})
	}
}

// closeFor closes the gate of a key as an upstream would.
func closeFor(tr *Transport, key string, d time.Duration) {
	tr.table.Mu.Lock()
	defer tr.table.Mu.Unlock()
	k, now := tr.table.keys[key], time.Now()
	k.Gate.Epoch++
	k.Gate.Shut(gate.Told, now.Add(d), now)
	k.Expel(now)
	k.Advance(now)
}

// Both limiters are paid, and the shared one is not paid for a call that its own holds back.
func TestBothLimitersArePaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := NewBucket(10, 10)
		own := map[string]*Bucket{"a": NewBucket(1, 2), "b": NewBucket(5, 5)}
		tr := &Transport{Base: newUpstream(0, always(200)), Limiter: shared, LimiterFor: func(key string) Limiter { return own[key] }}
		for range 2 {
			status(tr, t.Context(), "http://a/")
			status(tr, WithCost(t.Context(), 2), "http://b/")
		}
		if s, a, b := shared.Tokens(), own["a"].Tokens(), own["b"].Tokens(); s != 4 || a != 0 || b != 1 {
			t.Errorf("tokens left: shared %v, a %v, b %v; want 4, 0, 1", s, a, b)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 999*time.Millisecond)
		defer cancel()
		if _, err := status(tr, ctx, "http://a/"); !errors.Is(err, ErrWaitTooLong) {
			t.Error(err)
		}
		if s := shared.Tokens(); s != 4 {
			t.Errorf("a call that its own limit holds back took %v of the shared one", 4-s)
		}
		s, _ := keyStats(tr, "a")
		if s.Limit != 1 || s.Tokens != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// The prediction counts those who wait for the shared limiter in other keys.
func TestPredictionOverKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, &Transport{Limiter: NewBucket(1, 1)})
		for i := range 10 {
			c.send(t.Context(), fmt.Sprint("h", i%3), "")
		}
		start := time.Now()
		for d, ok := range map[time.Duration]bool{9900 * time.Millisecond: false, 10100 * time.Millisecond: true} {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			if ok {
				c.send(ctx, "new", "")
				continue
			}
			_, err := status(c.tr, ctx, "http://new/")
			var e *Error
			if !errors.As(err, &e) || !errors.Is(err, context.DeadlineExceeded) || e.Wait < 10*time.Second || e.Wait > 11*time.Second || time.Since(start) != 0 {
				t.Errorf("%v", err)
			}
		}
		c.wg.Wait()
	})
}

// Nobody starves: of two keys with endless lines, the one whose calls have a low priority gets every
// eighth turn; and of equal ones, each gets half.
func TestSharedLineIsFair(t *testing.T) {
	for _, c := range []struct {
		low  int
		want int // of 800
	}{{0, 400}, {-1, 100}} {
		synctest.Test(t, func(t *testing.T) {
			sent := map[string]int{}
			var mu sync.Mutex
			up := newUpstream(0, func(_ int, req *http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				sent[req.URL.Host]++
				return reply(req, 200), nil
			})
			tr := &Transport{Base: up, Limiter: NewLeaky(10)}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(80*time.Second, cancel)
			for _, host := range []string{"low", "high"} {
				for range 50 {
					go func() {
						for ctx.Err() == nil {
							ctx := ctx
							if host == "low" {
								ctx = WithPriority(ctx, c.low)
							}
							status(tr, ctx, "http://"+host+"/")
						}
					}()
				}
			}
			<-ctx.Done()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if n := sent["low"]; n < c.want-51 || n > c.want+51 || sent["low"]+sent["high"] < 800 {
				t.Errorf("priority %d: %v of 800, want %d", c.low, sent, c.want)
			}
		})
	}
}

// A foreign shared limiter is asked by one head at a time, and nothing that it gave is lost.
type foreignBucket struct {
	*Bucket
	latency time.Duration
	mu      sync.Mutex
	asking  int
	most    int
	given   int
}

func (f *foreignBucket) Take(ctx context.Context, n int) (time.Duration, error) {
	f.mu.Lock()
	f.asking++
	f.most = max(f.most, f.asking)
	f.mu.Unlock()
	select {
	case <-time.After(f.latency):
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asking--
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	wait, err := f.Bucket.Take(ctx, n)
	if err == nil && wait == 0 {
		f.given += n
	}
	return wait, err
}

func (f *foreignBucket) Adjust(n int) {
	f.Bucket.Adjust(n)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.given += n
}

func TestForeignSharedLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &foreignBucket{Bucket: NewBucket(100, 1), latency: time.Millisecond}
		up := newUpstream(0, always(200))
		tr := &Transport{Base: up, Limiter: f, LimiterFor: func(string) Limiter { return NewBucket(50, 5) }}
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(1500*time.Millisecond, cancel)
		for i := range 300 {
			c := t.Context()
			if i%3 == 0 {
				c = ctx
			}
			wg.Go(func() {
				if _, err := status(tr, c, fmt.Sprint("http://h", i%4)); err != nil && (c != ctx || !errors.Is(err, context.Canceled)) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		sent := len(up.times())
		if f.given != sent {
			t.Errorf("%d units given, %d calls sent", f.given, sent)
		}
		if f.most != 1 {
			t.Errorf("%d asked at once, want 1", f.most)
		}
		if d := up.now(); d > time.Duration(sent)*12*time.Millisecond {
			t.Errorf("%d calls in %v", sent, d)
		}
		synctest.Wait()
		if left := leftBehind(); left != "" {
			t.Error(left)
		}
	})
}

// Under random traffic of several keys with leaving, refusals and closings, the shared limiter is never
// idle while somebody could go: each start comes as soon as the limiters and the gates allow.
func TestSharedLimiterIsNeverIdle(t *testing.T) {
	for seed := range uint64(25) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex
			roll := func(n int) int { mu.Lock(); defer mu.Unlock(); return r.IntN(n) }
			shared := NewBucket(100, 1)
			slots := roll(2) * 2
			up := newUpstream(0, func(_ int, req *http.Request) (*http.Response, error) {
				time.Sleep(time.Duration(roll(30)) * time.Millisecond)
				switch roll(20) {
				case 0:
					return reply(req, 429), nil
				case 1:
					return reply(req, 429, "Retry-After", "1"), nil
				case 2:
					return nil, io.ErrUnexpectedEOF
				}
				return reply(req, 200), nil
			})
			tr := &Transport{Base: up, Limiter: shared, Queue: QueueOptions{MaxInFlight: slots}, LimiterFor: func(key string) Limiter {
				if key == "h0" {
					return nil
				}
				return NewBucket(40, 3)
			}}
			tr.once.Do(tr.setup)
			done := make(chan struct{})
			go func() { // in every quiet moment: could somebody go who does not?
				for {
					select {
					case <-done:
						return
					case <-time.After(3777 * time.Microsecond):
					}
					synctest.Wait()
					idle(t, seed, tr, shared)
				}
			}()
			var wg sync.WaitGroup
			for range 300 {
				ctx, cancel := WithPriority(t.Context(), roll(3)), context.CancelFunc(func() {})
				if roll(3) == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(roll(3000))*time.Millisecond)
				} else if roll(3) == 0 {
					ctx, cancel = context.WithCancel(ctx)
					time.AfterFunc(time.Duration(roll(2000))*time.Millisecond, cancel)
				}
				ctx = WithCost(ctx, 1+roll(8)/7)
				host := fmt.Sprint("http://h", roll(4))
				wg.Go(func() {
					defer cancel()
					status(tr, ctx, host)
				})
				if roll(3) == 0 {
					time.Sleep(time.Duration(roll(25)) * time.Millisecond)
				}
			}
			wg.Wait()
			close(done)
		})
		if t.Failed() {
			return
		}
	}
}

// idle reports a head whose own slot, gate and limiter would let it go while the shared limiter has a unit.
func idle(t *testing.T, seed uint64, tr *Transport, shared *Bucket) {
	tr.table.Mu.Lock()
	defer tr.table.Mu.Unlock()
	now := time.Now()
	free := shared.Tokens()
	for _, k := range tr.table.keys {
		if k.Line == nil || k.Line.Asking != nil {
			continue
		}
		w := k.Head(now)
		if w == nil || float64(min(w.Cost, 1)) > free+1e-9 {
			continue
		}
		if _, d := k.Ready(w, now, now); d.Verdict != queue.Grant {
			continue
		}
		if m, err := k.Own.Ready(now, w.Cost); err != nil || m.After(now) {
			continue
		}
		t.Errorf("seed %d, %v: %s waits although everything would let it go", seed, now.Sub(tr.table.Base), k.Key)
	}
}

// Units that a call of one key was granted and cannot use go to another key's head at once.
func TestUnitsGivenBackReachOtherKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, &Transport{Limiter: NewBucket(0.1, 1)})
		c.send(t.Context(), "a", "0")
		ctx, cancel := context.WithCancel(t.Context())
		c.send(ctx, "a", "leaves")
		c.send(t.Context(), "b", "b")
		time.Sleep(9 * time.Second)
		func() { // the grant and the end of its ctx meet
			c.tr.table.Mu.Lock()
			defer c.tr.table.Mu.Unlock()
			cancel()
			c.tr.table.limits.GiveBack(time.Now(), time.Now(), 1) // tells nobody
			c.tr.table.keys["a"].Advance(time.Now())
		}()
		c.wg.Wait()
		if c.when[1] != 9*time.Second {
			t.Errorf("b's call went at %v, want 9s", c.when[1])
		}
	})
}

// A shared limit that changes is felt by the head, wherever it waits.
// The moment that the shared limiter told to one key is no measure for a key that gets its slot
// later: its take is not late.
func TestToldMomentIsUsedOnce(t *testing.T) {
	for _, early := range []bool{false, true} { // the one who was told goes before
		synctest.Test(t, func(t *testing.T) {
			own, shared := NewBucket(2000, 10), NewBucket(1000, 2)
			tr := &Transport{Limiter: shared, Queue: QueueOptions{MaxInFlight: 1}, LimiterFor: func(key string) Limiter {
				if key == "b" {
					return own
				}
				return nil
			}, Base: baseFunc(func(req *http.Request) (*http.Response, error) {
				if req.URL.Path == "/slow" {
					time.Sleep(5 * time.Millisecond)
				}
				return reply(req, 200), nil
			})}
			call := func(url string) { status(tr, t.Context(), url) }
			go call("http://b/slow")
			go call("http://a/")
			synctest.Wait()
			go call("http://c/") // goes in 1 ms
			synctest.Wait()
			if early {
				shared.Adjust(-1)
			}
			call("http://b/") // in 5 ms
			if left := own.Tokens(); left != 9 {
				t.Errorf("early %v: %v units are left of 10 after one was taken", early, left)
			}
		})
	}
}

func TestSharedLimitChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := NewBucket(0.01, 1)
		c := newCrowd(t, &Transport{Limiter: lim})
		c.send(t.Context(), "a", "0")
		c.send(t.Context(), "b", "1")
		c.send(t.Context(), "a", "2")
		time.Sleep(time.Second)
		lim.SetLimit(10)
		c.check("0 0", "1 1099", "2 1199") // 0.01 tokens were earned in the first second
	})
}

// One limiter for several keys is never exceeded, and one that is both is paid once.
func TestOneLimiterForSeveralKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := NewBucket(10, 1)
		for _, tr := range []*Transport{
			{LimiterFor: func(string) Limiter { return lim }},
			{Limiter: lim, LimiterFor: func(string) Limiter { return lim }},
		} {
			c := newCrowd(t, tr)
			time.Sleep(time.Second)
			start := time.Now()
			for i := range 30 {
				c.send(t.Context(), fmt.Sprint("h", i%3), "")
			}
			c.wg.Wait()
			if d := time.Since(start); d < 2900*time.Millisecond || d > 3100*time.Millisecond {
				t.Errorf("30 calls at 10/s took %v", d)
			}
			for i := range c.when {
				c.when[i] -= start.Sub(c.up.start)
			}
			checkRate(t, "all", c.when, 10, 1)
		}
	})
}

// A call that has waited for a slot is not late: it is not reckoned as of a moment before it went, though
// the limiter had told the call before it one.
func TestSharedLimitExactAfterWaitForSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var at []time.Duration
		start := time.Now()
		rng := rand.New(rand.NewPCG(1, 1))
		tr := &Transport{
			Limiter: NewSlidingWindow(10, time.Second), Queue: QueueOptions{MaxInFlight: 5},
			Base: baseFunc(func(req *http.Request) (*http.Response, error) {
				mu.Lock()
				at = append(at, time.Since(start))
				d := 300*time.Millisecond + time.Duration(rng.Int64N(int64(400*time.Millisecond)))
				mu.Unlock()
				time.Sleep(d)
				return reply(req, 200), nil
			}),
		}
		var wg sync.WaitGroup
		for range 300 {
			wg.Go(func() {
				if code, err := status(tr, t.Context(), "http://x/"); code != 200 {
					t.Error(code, err)
				}
			})
		}
		wg.Wait()
		for i := 10; i < len(at); i++ {
			if gap := at[i] - at[i-10]; gap < time.Second {
				t.Fatalf("start %d came %v after the tenth before it", i, gap)
			}
		}
	})
}
