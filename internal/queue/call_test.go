package queue

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/limit"
)

// A client makes calls through a table as a Transport does, without HTTP.
type client struct {
	table    *Table
	shared   *limit.Set                                                 // nil: none
	own      func(key string) *limit.Set                                // of a key; nil: none
	answer   func(ctx context.Context, key, path string, n int) Outcome // to the n-th attempt of a call
	after    time.Duration                                              // Retry-After of what is throttled; 0: none
	host     func(key string) string                                    // of a key's calls; nil: the key
	attempts int                                                        // at most, of a call; 0: 1
	backOff  time.Duration                                              // before a retry
	meters   func(key string) []Meter                                   // of a key; nil: none
	hold     func(ctx context.Context) []int                            // of each meter; nil: 1
	settle   func(ctx context.Context, h *Holds)                        // of a success; nil: as held
}

// newClient makes a table, too. An answer of nil is always a success.
func newClient(c Config, answer func(ctx context.Context, key, path string, n int) Outcome) *client {
	if answer == nil {
		answer = func(context.Context, string, string, int) Outcome { return Success }
	}
	cl := &client{shared: c.Shared, answer: answer}
	c.Limits = cl.limits
	cl.table = NewTable(c)
	return cl
}

// limits are those of a new key.
func (c *client) limits(key string) (Limits, error) {
	own, all := new(limit.Set), new(limit.Set)
	if c.own != nil {
		own = c.own(key)
		all.Merge(own)
	}
	if c.shared != nil {
		all.Merge(c.shared)
	}
	l := Limits{All: all, Own: own}
	if c.meters != nil {
		l.Meters = NewMeters(c.meters(key), nil, all, own)
	}
	return l, nil
}

// add makes the queue of a key.
func (t *Table) add(key string) {
	locked(&t.common, func() { t.makeLocked(key) })
}

// holds says what the next attempt of a call holds.
func (c *client) holds(ctx context.Context, turn *Call) func(*Meters) {
	return func(m *Meters) {
		for i := range m.each {
			if turn.Hold(i, 1, false); c.hold != nil {
				turn.Hold(i, c.hold(ctx)[i], false)
			}
		}
	}
}

// call makes one call, and returns what its last attempt has shown, or why it was not sent.
func (c *client) call(ctx context.Context, key, path string, w *Want, resend bool) (Outcome, error) {
	route := Route{Host: key, Path: path}
	if c.host != nil {
		route.Host = c.host(key)
	}
	var turn Call
	turn.Init(c.table, key, &url.URL{Host: route.Host, Path: path}, w, w.Cost, resend)
	defer turn.Done()
	for {
		if _, _, err := turn.Wait(ctx, c.holds(ctx, &turn)); err != nil {
			return 0, err
		}
		turn.Sending()
		r := Result{Outcome: c.answer(ctx, key, path, turn.Attempts()), Route: route, At: time.Now()}
		if r.Outcome == Throttled {
			r.Status = 429
			r.Hint = hint.Hint{Throttled: true, RetryAfter: c.after, Global: path == "/global"}
		}
		if r.Outcome == Success && turn.Quiet() {
			turn.End()
		} else {
			turn.Report(&r)
		}
		switch h := turn.Holds(); {
		case h == nil:
		case r.Outcome != Success:
			h.Fail()
		case c.settle != nil:
			turn.KeepHolds()
			c.settle(ctx, h)
		default:
			h.Keep()
		}
		if r.Outcome == Success || turn.Attempts() >= max(1, c.attempts) || ctx.Err() != nil {
			return r.Outcome, nil
		}
		if _, err := turn.Retry(ctx, Plan{Delay: c.backOff, Failed: r.Outcome != Throttled}); err != nil {
			return r.Outcome, nil
		}
		if err := turn.BackOff(ctx, func() {}); err != nil {
			return 0, err
		}
	}
}

// get is call of one unit and the priority 0.
func (c *client) get(ctx context.Context, key string) (Outcome, error) {
	return c.call(ctx, key, "/", &Want{Cost: 1}, true)
}

// keys lists those that the table holds of what it is asked for.
func (c *client) keys(of ...string) (held []string) {
	for _, key := range of {
		if c.table.Get(key) != nil {
			held = append(held, key)
		}
	}
	return held
}

// However a call ends, its key is left as if there had been none: nothing is in flight or rests, no slot
// is held, and a retry that was paid for and not sent is given back.
func TestCallLeavesNothingBehind(t *testing.T) {
	type step = func(t *testing.T, ctx context.Context, c *Call)
	route := Route{Host: "x"}
	wait := func(t *testing.T, ctx context.Context, c *Call) {
		if _, _, err := c.Wait(ctx, nil); err != nil {
			t.Fatal(err)
		}
		c.Sending()
	}
	report := func(o Outcome) step {
		return func(_ *testing.T, _ context.Context, c *Call) {
			c.Report(&Result{Outcome: o, Route: route, At: time.Now()})
		}
	}
	retry := func(t *testing.T, ctx context.Context, c *Call) {
		if _, err := c.Retry(ctx, Plan{Delay: sec, Failed: true}); err != nil {
			t.Fatal(err)
		}
	}
	backOff := func(_ *testing.T, ctx context.Context, c *Call) { c.BackOff(ctx, func() {}) }
	panics := func(*testing.T, context.Context, *Call) { panic("test") }
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"nothing", nil},
		{"a success", []step{wait, report(Success)}},
		{"a quiet success", []step{wait, func(_ *testing.T, _ context.Context, c *Call) {
			if !c.Quiet() {
				report(Success)(nil, nil, c)
				return
			}
			c.End()
		}}},
		{"a failure", []step{wait, report(Failure)}},
		{"throttled", []step{wait, report(Throttled)}},
		{"a panic of what sends", []step{wait, panics}},
		{"a panic after the answer", []step{wait, report(Neutral), panics}},
		{"a body that is closed later", []step{wait, report(Success), func(t *testing.T, _ context.Context, c *Call) {
			if c.Keeps() {
				free := c.KeepSlot()
				time.AfterFunc(sec, free)
			}
		}}},
		{"a planned retry", []step{wait, report(Neutral), retry}},
		{"a panic before the back-off", []step{wait, report(Neutral), retry, panics}},
		{"a panic in the back-off", []step{wait, report(Neutral), retry, func(_ *testing.T, ctx context.Context, c *Call) {
			c.BackOff(ctx, func() { panic("test") })
		}}},
		{"a ctx that ends in the back-off", []step{wait, report(Neutral), retry, func(_ *testing.T, ctx context.Context, c *Call) {
			ctx, cancel := context.WithTimeout(ctx, sec/2)
			defer cancel()
			if err := c.BackOff(ctx, func() {}); !errors.Is(err, context.DeadlineExceeded) {
				panic(err)
			}
		}}},
		{"a ctx that has ended after the back-off", []step{wait, report(Neutral), retry, backOff, func(_ *testing.T, ctx context.Context, c *Call) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			if _, _, err := c.Wait(ctx, nil); !errors.Is(err, context.Canceled) {
				panic(err)
			}
		}}},
		{"a retry", []step{wait, report(Throttled), retry, backOff, wait, report(Success)}},
	} {
		for variant := range 4 {
			slots, reopens := 2*(variant%2), variant > 1
			synctest.Test(t, func(t *testing.T) {
				cl := newClient(testConfig(Options{MaxInFlight: slots}), nil)
				if !reopens {
					cl.own = func(string) *limit.Set { return setOf(bucket(1000, 1000)) }
				}
				cl.table.add("x")
				q := cl.table.Get("x")
				if reopens { // one call in flight, and one more for each that has ended
					q.Pause(sec)
				}
				func() {
					defer func() { recover() }()
					var call Call
					call.Init(cl.table, "x", &url.URL{Host: "x"}, &Want{Cost: 1}, 1, false)
					defer call.Done()
					for _, step := range c.steps {
						step(t, t.Context(), &call)
					}
				}()
				time.Sleep(time.Hour)
				conserved(t, q)
				if e := cl.table.keys["x"]; e.balance.spent != 0 || !q.asNewLocked(time.Now()) {
					t.Errorf("%v spent of the budget, as new: %t", e.balance.spent, q.asNewLocked(time.Now()))
				}
				if t.Failed() {
					t.Errorf("that was: %s, %d slots, the gate reopens: %t", c.name, slots, reopens)
				}
			})
		}
	}
}

// A retry that is sent while the gate is open stays paid for, until calls have paid it back.
func TestRetriesAreTakenOutOfTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing := true
		cl := newClient(testConfig(Options{}), func(context.Context, string, string, int) Outcome {
			if failing {
				return Neutral
			}
			return Success
		})
		cl.attempts, cl.backOff = 3, sec
		spent := func(want float32) {
			t.Helper()
			if got := cl.table.keys["x"].balance.spent; got < want-1e-4 || got > want+1e-4 {
				t.Errorf("%v spent, want %v", got, want)
			}
		}
		cl.get(t.Context(), "x")
		spent(2)
		cl.get(t.Context(), "x")
		spent(4 - 0.2)
		failing = false
		for range 5 {
			cl.get(t.Context(), "x")
		}
		spent(4 - 6*0.2)
		for range 50 {
			cl.get(t.Context(), "x")
		}
		spent(0)
	})
}

// Wait is Arrive, and Sleep if that is due: it stands in line until the next attempt may be sent. It returns how long that was, and whether
// the call has had to wait at all.
func (c *Call) Wait(ctx context.Context, hold func(*Meters)) (waited time.Duration, stood bool, err error) {
	if stood, err = c.Arrive(ctx, hold); stood {
		waited, err = c.Sleep(ctx)
	}
	return waited, stood, err
}
