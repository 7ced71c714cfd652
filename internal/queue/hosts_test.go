package queue

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// A hostWorld is a client whose keys are channels of the host x, but for those whose names begin with "other". Calls
// of /429 and /global are throttled once for 5 s, all others succeed; each takes 20 ms.
type hostWorld struct {
	*client
	t     *testing.T
	start time.Time
	mu    sync.Mutex
	sent  map[string][]time.Duration // by key
	wg    sync.WaitGroup
}

func newHostWorld(t *testing.T, c Config) *hostWorld {
	w := &hostWorld{t: t, start: time.Now(), sent: map[string][]time.Duration{}}
	w.client = newClient(c, func(_ context.Context, key, path string, n int) Outcome {
		w.mu.Lock()
		w.sent[key] = append(w.sent[key], time.Since(w.start))
		w.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
		if path != "/" && n == 1 {
			return Throttled
		}
		return Success
	})
	w.after, w.attempts = 5*time.Second, 4
	w.host = func(key string) string {
		if strings.HasPrefix(key, "other") {
			return "y"
		}
		return []string{"x", "X", "x:443", "x."}[len(key)%4]
	}
	return w
}

// calls makes calls of a key at a moment. Each must end with that error; nil: served.
func (w *hostWorld) calls(at time.Duration, n int, key, path string, timeout time.Duration, want error) {
	for i := range n {
		w.wg.Go(func() {
			time.Sleep(at - time.Since(w.start))
			ctx := w.t.Context()
			if timeout > 0 {
				c, cancel := context.WithTimeout(ctx, timeout)
				defer cancel()
				ctx = c
			}
			o, err := w.call(ctx, key, path, &Want{Cost: 1}, true)
			if !errors.Is(err, want) || want == nil && (err != nil || o != Success) {
				w.t.Errorf("call %d of %s at %v ended at %v: %v, %v, want %v", i, key, at, time.Since(w.start), o, err, want)
			}
		})
	}
}

// between returns how many calls of a key went from from to to.
func (w *hostWorld) between(key string, from, to time.Duration) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range w.sent[key] {
		if from <= at && at < to {
			n++
		}
	}
	return n
}

// A refusal about the whole host holds the calls of all keys of that host, those that wait and those that come, new keys
// too; not those of other hosts. Any other refusal holds its key alone.
func TestClosingOfAHost(t *testing.T) {
	for _, path := range []string{"/global", "/429"} {
		synctest.Test(t, func(t *testing.T) {
			w := newHostWorld(t, testConfig(Options{}))
			w.own = func(string) *limit.Set { return setOf(bucket(10, 1)) }
			w.calls(0, 30, "b", "/", 0, nil)
			w.calls(0, 30, "other", "/", 0, nil)
			w.calls(time.Second, 1, "aa", path, 0, nil)
			w.calls(2*time.Second, 5, "ccc", "/", 0, nil)
			w.wg.Wait()
			const from, to = 1020 * time.Millisecond, 6020 * time.Millisecond
			if n := w.between("aa", from, to); n > 0 {
				t.Errorf("%s: %d calls of the key itself", path, n)
			}
			held := path == "/global"
			for _, key := range []string{"b", "ccc"} {
				if n := w.between(key, from, to); held != (n == 0) {
					t.Errorf("%s: %d calls of %s", path, n, key)
				}
			}
			if n := w.between("b", to, to+time.Second); held && n < 8 {
				t.Errorf("%s: %d calls of b in the second after it, at 10/s", path, n)
			}
			if n := w.between("other", 0, 3*time.Second); n != 30 {
				t.Errorf("%s: %d calls of another host", path, n)
			}
			w.calls(time.Minute, 1, "b", "/", 0, nil)
			w.wg.Wait()
			if w.table.common.hosts != nil {
				t.Errorf("%s: closings that are over are kept: %v", path, w.table.common.hosts)
			}
		})
	}
}

// Calls that may not wait for so long leave at once, whatever key they wait for.
func TestClosingOfAHostSendsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(Options{})
		c.MaxPause = 2 * time.Second
		w := newHostWorld(t, c)
		w.own = func(string) *limit.Set { return setOf(bucket(0.5, 1)) }
		w.calls(0, 1, "b", "/", 0, nil)
		w.calls(time.Millisecond, 3, "b", "/", 0, errPaused)
		w.calls(time.Second, 1, "other", "/", 0, nil)
		w.calls(2*time.Second, 1, "ccc", "/", 0, errPaused) // arrives later, and is refused at once
		w.attempts = 1
		w.wg.Go(func() { w.call(t.Context(), "aa", "/global", &Want{Cost: 1}, false) })
		w.wg.Wait()
		if d := time.Since(w.start); d > 2500*time.Millisecond {
			t.Errorf("the last of them left after %v", d)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newHostWorld(t, testConfig(Options{}))
		w.own = func(string) *limit.Set { return setOf(bucket(0.5, 1)) }
		w.calls(0, 1, "b", "/", 0, nil)
		w.calls(time.Millisecond, 1, "b", "/", 4*time.Second, errDeadline)
		w.calls(time.Millisecond, 1, "b", "/", time.Minute, nil)
		w.calls(0, 1, "aa", "/global", 0, nil)
		time.Sleep(time.Second)
		if n := w.table.Get("b").Stats().Waiting; n != 1 {
			t.Errorf("%d wait, want the one that can", n)
		}
		if s := w.table.Get("b").Stats(); s.Reason != "gate:retry-after" || s.ClosedFor < 4*time.Second || s.ClosedFor > 4300*time.Millisecond {
			t.Errorf("closed for %v, %q", s.ClosedFor, s.Reason)
		}
		w.wg.Wait()
	})
}

// A later refusal makes the closing longer for all keys. It is no new event to a key whose call was sent before.
func TestClosingOfAHostGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHostWorld(t, testConfig(Options{}))
		w.calls(0, 1, "aa", "/global", 0, nil)
		w.calls(time.Second, 3, "b", "/", 0, nil)
		w.calls(0, 1, "ccc", "/", 0, nil)
		time.Sleep(3 * time.Second)
		c := w.table.Get("ccc")
		w.after = 10 * time.Second
		var turn Call // was under way all the time
		turn.Init(w.table, "late", &url.URL{Host: "x"}, &Want{Cost: 1}, 1, false)
		w.table.add("late")
		locked(&w.table.common, func() { turn.entry = w.table.keys["late"]; turn.entry.queue.begun++; turn.stage = underway })
		r := Result{Outcome: Throttled, Status: 429, Route: Route{Host: "x"}, At: time.Now()}
		r.Hint.Throttled, r.Hint.Global, r.Hint.RetryAfter = true, true, 10*time.Second
		turn.Report(&r)
		turn.Done()
		w.calls(3*time.Second, 3, "ccc", "/", 0, nil)
		w.wg.Wait()
		for _, key := range []string{"b", "ccc"} {
			if n := w.between(key, 100*time.Millisecond, 13*time.Second); n > 0 {
				t.Errorf("%d calls of %s before the later end: %v", n, key, w.sent)
			}
		}
		if n := c.up.Epoch(); n != 1 {
			t.Errorf("%d epochs for one event", n)
		}
	})
}

// A refusal of a call that was sent before a host's first closing, and comes after it, says nothing of a pace: those who wait go on.
func TestLateRefusalSetsNoPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHostWorld(t, testConfig(Options{}))
		answer := w.answer
		w.answer = func(ctx context.Context, key, path string, n int) Outcome {
			if key == "slow" && n == 1 {
				time.Sleep(8 * time.Second)
			}
			return answer(ctx, key, path, n)
		}
		w.own = func(string) *limit.Set { return setOf(bucket(1, 1)) }
		w.calls(0, 1, "slow", "/global", 0, nil)
		w.calls(0, 1, "aa", "/global", 0, nil)
		w.calls(0, 30, "b", "/", 0, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(w.sent["b"]); n < 30 {
			t.Fatalf("%d of 30 calls were sent in a minute at 1/s, less 10 s", n)
		}
		w.wg.Wait()
	})
}

// Resume opens one key; the others of the host stay closed, and so does the key if more is advertised later.
func TestResumeOfAKeyOfAClosedHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHostWorld(t, testConfig(Options{}))
		w.calls(0, 1, "aa", "/global", 0, nil)
		w.calls(time.Second, 2, "b", "/", 0, nil)
		w.calls(time.Second, 2, "ccc", "/", 0, nil)
		time.Sleep(2 * time.Second)
		w.table.Get("b").Resume()
		w.calls(3*time.Second, 1, "b", "/", 0, nil)
		time.Sleep(time.Second / 2)
		w.calls(4*time.Second, 1, "ccc", "/global", 0, nil) // held until 5 s, then asked to wait once more
		w.calls(7*time.Second, 1, "b", "/", 0, nil)
		w.wg.Wait()
		if n := w.between("b", 2*time.Second, 4*time.Second); n != 3 {
			t.Errorf("%d calls of b after Resume: %v", n, w.sent)
		}
		if n := w.between("ccc", 0, 5*time.Second); n > 0 {
			t.Errorf("%d calls of c", n)
		}
		if n := w.between("b", 7*time.Second, 10*time.Second); n > 0 {
			t.Errorf("%d calls of b after a later refusal: %v", n, w.sent)
		}
	})
}

// When a host closes, all of its keys are held before one of them gives up its turn at what they share: none goes in its place.
func TestClosingOfAHostHoldsAllKeysAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(Options{})
		c.Shared = setOf(bucket(1, 10))
		w := newHostWorld(t, c)
		w.calls(0, 1, "aa", "/global", 0, nil) // answered at 20 ms
		w.calls(ms, 9, "other", "/", 0, nil)
		w.wg.Go(func() {
			time.Sleep(2 * ms)
			w.call(t.Context(), "b", "/", &Want{Cost: 5}, true)
		})
		w.calls(3*ms, 1, "ccc", "/", 0, nil)
		time.Sleep(10 * ms)
		w.shared.GiveBack(time.Now(), time.Now(), 2)
		w.wg.Wait()
		if n := w.between("ccc", 0, 5*sec); n > 0 {
			t.Errorf("%d calls of a key of the closed host", n)
		}
	})
}

// A call that is refused at once, of a key whose host has closed, has the key's others leave their turns at what they share.
func TestRefusedCallMeetsAClosedHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(Options{})
		c.Shared = setOf(bucket(1, 10))
		w := newHostWorld(t, c)
		w.calls(0, 1, "aa", "/global", 0, nil) // x is closed from 20 ms on
		w.calls(0, 9, "other", "/", 0, nil)    // of y
		w.calls(10*ms, 3, "other2", "/", 0, nil)
		time.Sleep(100 * ms)
		q := w.table.Get("other2")
		var turn Call
		turn.Init(w.table, "other2", &url.URL{Host: "x"}, &Want{Cost: 100_000}, 100_000, true)
		if _, err := turn.Arrive(t.Context(), nil); err == nil {
			t.Error("a call that would wait for a day is let in")
		}
		turn.Done()
		q.common.mu.Lock()
		stirred, in := len(q.common.stirred), q.line.StationOf(q.line.Oldest()).In()
		q.common.mu.Unlock()
		if stirred > 0 {
			t.Errorf("%d lines are still to be looked at", stirred)
		}
		if in != nil {
			t.Error("a key that is held stands in a pool")
		}
		w.wg.Wait()
	})
}

// Keys that share a limiter do not wait for those of a closed host.
func TestClosedHostLeavesTheSharedLimiterToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(Options{})
		c.Shared = setOf(bucket(10, 1))
		w := newHostWorld(t, c)
		w.calls(0, 1, "aa", "/global", 0, nil)
		w.calls(time.Millisecond, 20, "b", "/", 0, nil)
		w.calls(time.Millisecond, 60, "other", "/", 0, nil)
		w.wg.Wait()
		if n := w.between("other", time.Second, 5*time.Second); n < 39 {
			t.Errorf("%d calls of the other host in 4 s, at 10/s shared", n)
		}
		if n := w.between("b", 500*time.Millisecond, 5*time.Second); n > 0 {
			t.Errorf("%d calls of the closed host", n)
		}
	})
}

// Hosts that lie cannot fill the memory.
func TestClosingsOfHostsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHostWorld(t, testConfig(Options{}))
		now := time.Now()
		locked(&w.table.common, func() {
			for i := range 3 * maxHosts {
				w.table.closeHostLocked(fmt.Sprint(i), now, now.Add(time.Hour), 429, now)
			}
		})
		if n := len(w.table.common.hosts); n != maxHosts {
			t.Errorf("%d closings of hosts", n)
		}
		time.Sleep(time.Hour + paceHeld + 1)
		w.calls(0, 1, "0", "/", 0, nil)
		w.wg.Wait()
		locked(&w.table.common, func() { w.table.closeHostLocked("x", time.Now(), time.Now().Add(time.Hour), 429, time.Now()) })
		if n := len(w.table.common.hosts); n != 1 {
			t.Errorf("%d closings of hosts are kept", n)
		}
	})
}

// From the second closing of a host on, the calls of all keys start as far apart as the host has shown to bear: 50 were
// accepted in the second for which it was open, or in the two with the closing after it. A call says so while it waits.
func TestPaceOfAHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHostWorld(t, testConfig(Options{}))
		closes := func() {
			now := time.Now()
			locked(&w.table.common, func() { w.table.closeHostLocked("x", now, now.Add(sec), 429, now) })
		}
		closes()
		for i := range 51 { // the last is throttled
			w.calls(1100*ms+time.Duration(i)*ms, 1, fmt.Sprintf("a%04d", i), "/", 0, nil)
		}
		time.Sleep(2 * sec)
		closes()
		const calls, gap = 20, 28284 * time.Microsecond // sqrt(1 s * 2 s) / 50
		for i := range calls {
			w.calls(2100*ms, 1, fmt.Sprintf("b%04d", i), "/", 0, nil)
		}
		time.Sleep(3100*ms - time.Since(w.start))
		var starts []time.Duration
		held, q := 0, w.table.Get("b0000")
		for i := range calls {
			if w.table.Get(fmt.Sprintf("b%04d", i)).Stats().Reason == "gate:reopening" {
				held++
			}
		}
		wait, _ := q.Predict(1) // a slow start makes it unsure
		w.wg.Wait()
		for key, sent := range w.sent {
			if key[0] == 'b' {
				starts = append(starts, sent...)
			}
		}
		slices.Sort(starts)
		for i, at := range starts[1:] {
			if d := at - starts[i]; d < gap || d > gap+ms {
				t.Errorf("call %d starts %v after the one before it, want %v", i+1, d, gap)
			}
		}
		if len(starts) != calls || held < calls/2 {
			t.Errorf("%d calls went; %d were held by the reopening", len(starts), held)
		}
		if last := starts[calls-1] + gap - 3100*ms; wait < last-gap || wait > last+gap {
			t.Errorf("one more call is foretold in %v, want %v", wait, last)
		}
	})
}
