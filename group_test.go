package throttle_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
)

// A runs notes in which order tasks ran.
type runs struct {
	mu  sync.Mutex
	ids []int
	at  []time.Time
}

func (r *runs) task(id int, err error) func(context.Context) error {
	return func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ids, r.at = append(r.ids, id), append(r.at, time.Now())
		return err
	}
}

// TestGroupManyTasks: 100,000 tasks wait without a goroutine each, and go in order at the rate.
func TestGroupManyTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := race.Pick(5000, 100_000)
		q := throttle.NewQueue(throttle.NewLeaky(10_000), throttle.QueueOptions{})
		g, ctx := throttle.NewGroup(t.Context(), q)
		start := time.Now()
		var r runs
		before, most := runtime.NumGoroutine(), 0
		for i := range n {
			g.Go(ctx, func(ctx context.Context) error {
				if i%1000 == 0 {
					most = max(most, runtime.NumGoroutine())
				}
				return r.task(i, nil)(ctx)
			})
		}
		if s := q.Stats(); s.Waiting < n-2 || runtime.NumGoroutine() > before+5 {
			t.Errorf("%d wait, %d goroutines, %d before", s.Waiting, runtime.NumGoroutine(), before)
		}
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		if most > before+20 {
			t.Errorf("%d goroutines, %d before", most, before)
		}
		if len(r.ids) != n || !slices.IsSorted(r.ids) {
			t.Errorf("%d ran, in order %t", len(r.ids), slices.IsSorted(r.ids))
		}
		for i, at := range r.at {
			if want := time.Duration(i) * 100 * time.Microsecond; at.Sub(start) != want {
				t.Fatalf("task %d after %v, want %v", i, at.Sub(start), want)
			}
		}
		if ctx.Err() == nil {
			t.Error("the group's context outlives Wait")
		}
		conserved(t, q)
	})
}

// TestGroupPriorities: as in any line.
func TestGroupPriorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.NewLeaky(1), throttle.QueueOptions{})
		g, ctx := throttle.NewGroup(t.Context(), q)
		var r runs
		q.Wait(ctx)
		for i, prio := range []int{0, 0, 0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 9, 9, -1} {
			g.Go(throttle.WithPriority(ctx, prio), r.task(i, nil))
		}
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		if want := []int{13, 14, 3, 4, 5, 6, 7, 0, 8, 9, 10, 11, 12, 1, 2, 15}; !slices.Equal(r.ids, want) {
			t.Errorf("order %v, want %v", r.ids, want)
		}
		conserved(t, q)
	})
}

// TestGroupCosts: cost comes from Go's ctx.
func TestGroupCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := throttle.NewBucket(1, 5)
		q := throttle.NewQueue(b, throttle.QueueOptions{})
		g, ctx := throttle.NewGroup(t.Context(), q)
		start := time.Now()
		var r runs
		for i, n := range []int{3, 3, 0, 2} {
			g.Go(throttle.WithCost(ctx, n), r.task(i, nil))
		}
		g.Wait()
		want := []time.Duration{0, sec, sec, 3 * sec}
		if got := offsets(start, r.at); !slices.Equal(got, want) || b.Tokens() != 0 {
			t.Errorf("ran at %v, want %v; %v tokens", got, want, b.Tokens())
		}
		conserved(t, q)
	})
}

// TestGroupFirstError cancels the rest: those who wait leave unrun and take nothing, those who run
// see their ctx end.
func TestGroupFirstError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom, later := errors.New("boom"), errors.New("later")
		b := throttle.NewBucket(10, 1)
		q := throttle.NewQueue(b, throttle.QueueOptions{})
		g, ctx := throttle.NewGroup(t.Context(), q)
		start := time.Now()
		var noted atomic.Bool
		ran := 0
		g.Go(t.Context(), func(ctx context.Context) error { // whose ctx is not the group's
			<-ctx.Done()
			noted.Store(errors.Is(context.Cause(ctx), boom))
			return later
		})
		for i := range 1000 {
			g.Go(ctx, func(context.Context) error {
				if ran++; i == 9 {
					return boom
				}
				return nil
			})
		}
		if err := g.Wait(); err != boom {
			t.Errorf("got %v", err)
		}
		if d := time.Since(start); d != sec || ran != 10 || !noted.Load() || !errors.Is(context.Cause(ctx), boom) {
			t.Errorf("ended after %v, %d ran, the other got: %t, cause %v", d, ran, noted.Load(), context.Cause(ctx))
		}
		time.Sleep(100 * ms)
		if b.Tokens() != 1 {
			t.Errorf("%v tokens: units were lost", b.Tokens())
		}
		g.Go(ctx, func(context.Context) error { t.Error("one ran after the end"); return nil })
		conserved(t, q)
	})
}

// TestGroupTaskCancelled: a task whose own ctx ends while it waits does not run, and its error is the
// group's.
func TestGroupTaskCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.NewLeaky(1), throttle.QueueOptions{})
		g, ctx := throttle.NewGroup(t.Context(), q)
		start := time.Now()
		own, cancel := context.WithCancel(ctx)
		var r runs
		g.Go(ctx, r.task(0, nil))
		g.Go(ctx, r.task(1, nil))
		g.Go(own, r.task(2, nil))
		g.Go(ctx, r.task(3, nil))
		time.Sleep(1500 * ms)
		cancel()
		err := g.Wait()
		var e *throttle.Error
		if d := time.Since(start); d != 1500*ms || !errors.Is(err, context.Canceled) || !errors.As(err, &e) {
			t.Errorf("%v after %v", err, d)
		}
		if !slices.Equal(r.ids, []int{0, 1}) {
			t.Errorf("ran: %v", r.ids)
		}
		conserved(t, q)
	})
}

// TestGroupParentCancelled while tasks wait.
func TestGroupParentCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := throttle.NewBucket(1, 1)
		q := throttle.NewQueue(b, throttle.QueueOptions{})
		parent, cancel := context.WithCancel(t.Context())
		g, ctx := throttle.NewGroup(parent, q)
		start := time.Now()
		var r runs
		for i := range 100 {
			g.Go(ctx, r.task(i, nil))
		}
		var other journal
		other.wait(q, t.Context(), 0) // of somebody else: moves up
		time.Sleep(2500 * ms)
		cancel()
		err := g.Wait()
		if d := time.Since(start); d != 2500*ms || !errors.Is(err, context.Canceled) || len(r.ids) != 3 {
			t.Errorf("%v after %v, %d ran", err, d, len(r.ids))
		}
		other.wg.Wait()
		if d := time.Since(start); d != 3*sec {
			t.Errorf("the one behind went after %v", d)
		}
		conserved(t, q)
	})
	synctest.Test(t, func(t *testing.T) { // before any task came
		parent, cancel := context.WithCancel(t.Context())
		cancel()
		g, ctx := throttle.NewGroup(parent, throttle.NewQueue(nil, throttle.QueueOptions{}))
		g.Go(ctx, func(context.Context) error { t.Error("ran"); return nil })
		g.Go(t.Context(), func(context.Context) error { t.Error("ran"); return nil })
		if err := g.Wait(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // no task at all
		g, _ := throttle.NewGroup(t.Context(), throttle.NewQueue(nil, throttle.QueueOptions{}))
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// TestGroupSlots: running tasks hold slots, and give them back after an error and a panic.
func TestGroupSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.NewBucket(rate.Inf, 0), throttle.QueueOptions{MaxInFlight: 3})
		g, ctx := throttle.NewGroup(t.Context(), q)
		start := time.Now()
		var flying, most atomic.Int64
		for range 30 {
			g.Go(ctx, func(context.Context) error {
				most.Store(max(most.Load(), flying.Add(1)))
				time.Sleep(sec)
				flying.Add(-1)
				return nil
			})
		}
		synctest.Wait()
		if s := q.Stats(); s.InFlight != 3 || s.Waiting != 27 {
			t.Errorf("%+v", s)
		}
		g.Wait()
		if d := time.Since(start); d != 10*sec || most.Load() != 3 {
			t.Errorf("took %v, %d in flight", d, most.Load())
		}
		conserved(t, q)
	})
}

// So does a task of a group.
func TestGroupWaitingForASlotSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.NewBucket(rate.Inf, 0), throttle.QueueOptions{MaxInFlight: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		g, ctx := throttle.NewGroup(ctx, q)
		for range 2 {
			g.Go(ctx, func(context.Context) error { time.Sleep(time.Minute); return nil })
		}
		if err := g.Wait(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 of 1 calls in flight") {
			t.Errorf("error %v", err)
		}
	})
}

// TestGroupGoFromTask: tasks make tasks, and Wait waits for them too.
func TestGroupGoFromTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.NewLeaky(100), throttle.QueueOptions{MaxInFlight: 1})
		g, gctx := throttle.NewGroup(t.Context(), q)
		start := time.Now()
		var ran atomic.Int64
		var tree func(depth int) func(context.Context) error
		tree = func(depth int) func(context.Context) error {
			return func(ctx context.Context) error {
				ran.Add(1)
				if depth > 0 {
					g.Go(throttle.WithPriority(ctx, depth), tree(depth-1))
					g.Go(t.Context(), func(context.Context) error { return tree(depth - 1)(gctx) })
				}
				return nil
			}
		}
		g.Go(gctx, tree(5))
		if err := g.Wait(); err != nil || ran.Load() != 63 || time.Since(start) != 620*ms {
			t.Errorf("%v, %d ran in %v", err, ran.Load(), time.Since(start))
		}
		conserved(t, q)
	})
}

// TestGroupsShareQueue: several groups and others in one line, one after the other and at once.
func TestGroupsShareQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.NewLeaky(100), throttle.QueueOptions{MaxInFlight: 5})
		boom := errors.New("boom")
		for range 3 {
			start := time.Now()
			var r runs
			a, actx := throttle.NewGroup(t.Context(), q)
			b, bctx := throttle.NewGroup(t.Context(), q)
			var other journal
			for i := range 10 {
				a.Go(actx, r.task(3*i, nil))
				var err error
				if i == 4 {
					err = boom
				}
				b.Go(bctx, r.task(3*i+1, err))
				other.wait(q, t.Context(), 3*i+2)
			}
			if err := a.Wait(); err != nil {
				t.Error(err)
			}
			if err := b.Wait(); err != boom {
				t.Error(err)
			}
			other.wg.Wait()
			if d := time.Since(start); len(r.ids) != 15 || !slices.IsSorted(r.ids) || d != 240*ms {
				t.Errorf("ran %v in %v", r.ids, d)
			}
			conserved(t, q)
			time.Sleep(sec)
		}
	})
}

// TestGroupRefused: a task that the queue refuses is the group's error.
func TestGroupRefused(t *testing.T) {
	for name, c := range map[string]struct {
		opts throttle.QueueOptions
		ctx  func(context.Context) context.Context
		want error
	}{
		"full":     {throttle.QueueOptions{MaxWaiting: 2}, func(c context.Context) context.Context { return c }, throttle.ErrQueueFull},
		"too long": {throttle.QueueOptions{MaxWait: 2 * sec}, func(c context.Context) context.Context { return c }, throttle.ErrWaitTooLong},
		"deadline": {throttle.QueueOptions{}, func(c context.Context) context.Context {
			c, cancel := context.WithTimeout(c, 2500*ms)
			context.AfterFunc(c, cancel)
			return c
		}, context.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := throttle.NewQueue(throttle.NewLeaky(1), c.opts)
			g, ctx := throttle.NewGroup(t.Context(), q)
			start := time.Now()
			var r runs
			for i := range 4 { // at 0, 1 and 2 s; the last would be too late
				g.Go(c.ctx(ctx), r.task(i, nil))
			}
			err := g.Wait()
			var e *throttle.Error
			if !errors.Is(err, c.want) || !errors.As(err, &e) || e.Wait != 3*sec || time.Since(start) != 0 {
				t.Errorf("%s: %v after %v", name, err, time.Since(start))
			}
			// The first had its grant, and may have found its ctx alive or dead.
			if len(r.ids) > 1 {
				t.Errorf("%s: ran %v", name, r.ids)
			}
			conserved(t, q)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.NewLeaky(1), throttle.QueueOptions{})
		g, ctx := throttle.NewGroup(t.Context(), q)
		g.Go(throttle.WithCost(ctx, -1), nil)
		var e *throttle.Error
		if err := g.Wait(); !errors.As(err, &e) {
			t.Error(err)
		}
		conserved(t, q)
	})
}

// TestGroupPause: the line's own callbacks let tasks go after a pause, paced.
func TestGroupPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.NewBucket(10, 5), throttle.QueueOptions{})
		q.Pause(3 * sec)
		g, ctx := throttle.NewGroup(t.Context(), q)
		start := time.Now()
		var r runs
		for i := range 5 {
			g.Go(ctx, r.task(i, nil))
		}
		short, cancel := context.WithTimeout(t.Context(), 5*sec)
		defer cancel()
		h, _ := throttle.NewGroup(t.Context(), q)
		h.Go(short, r.task(9, nil))
		q.Pause(6 * sec)
		if err := h.Wait(); !errors.Is(err, throttle.ErrWaitTooLong) || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		time.Sleep(4 * sec)
		q.Resume()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		want := []time.Duration{4 * sec, 4100 * ms, 4200 * ms, 4300 * ms, 4400 * ms}
		if got := offsets(start, r.at); !slices.Equal(got, want) || !slices.IsSorted(r.ids) {
			t.Errorf("ran %v at %v", r.ids, got)
		}
		conserved(t, q)
	})
}

// TestGroupForeign: one goroutine asks while tasks wait; a change is felt at once.
func TestGroupForeign(t *testing.T) {
	for _, notifies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			far := throttle.NewBucket(10, 1)
			r := &remote{trip: ms, take: far.Take}
			var lim throttle.Limiter = adjusting{r}
			if notifies {
				lim = notifying{adjusting{r}}
			}
			q := throttle.NewQueue(throttle.All(throttle.NewBucket(rate.Inf, 0), lim), throttle.QueueOptions{MaxInFlight: 2})
			g, ctx := throttle.NewGroup(t.Context(), q)
			var ran runs
			before, most := runtime.NumGoroutine(), 0
			for i := range 200 {
				g.Go(ctx, func(ctx context.Context) error {
					most = max(most, runtime.NumGoroutine())
					return ran.task(i, nil)(ctx)
				})
			}
			time.Sleep(5 * sec)
			start := time.Now()
			far.SetLimit(1000)
			r.change()
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
			if len(ran.ids) != 200 || !slices.IsSorted(ran.ids) || most > before+5 || r.atOnce != 1 {
				t.Errorf("ran %v, %d goroutines, %d before, %d questions at once", ran.ids, most, before, r.atOnce)
			}
			if d := time.Since(start); d > 500*ms {
				t.Errorf("the change was felt late: %v", d)
			}
			conserved(t, q)
			if r.taken != 200 || r.adjusted != 0 || len(r.watchers) != 0 {
				t.Errorf("taken %d, adjusted %d, watched by %d", r.taken, r.adjusted, len(r.watchers))
			}
		})
	}
}

// TestGroupForeignChange: the limiter says an hour, and then that it has changed.
func TestGroupForeignChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Bool
		r := &remote{take: opening(&open)}
		q := throttle.NewQueue(notifying{adjusting{r}}, throttle.QueueOptions{})
		start := time.Now()
		g, ctx := throttle.NewGroup(t.Context(), q)
		for range 3 {
			g.Go(ctx, func(context.Context) error { return nil })
		}
		time.Sleep(sec)
		open.Store(true)
		r.change()
		err := g.Wait()
		conserved(t, q)
		if err != nil || time.Since(start) != sec || len(r.watchers) != 0 {
			t.Errorf("%v after %v, %d watchers", err, time.Since(start), len(r.watchers))
		}
	})
	synctest.Test(t, func(t *testing.T) { // one behind a group that has ended hears it too
		var open atomic.Bool
		r := &remote{take: opening(&open)}
		q := throttle.NewQueue(notifying{adjusting{r}}, throttle.QueueOptions{})
		parent, cancel := context.WithCancel(t.Context())
		g, ctx := throttle.NewGroup(parent, q)
		g.Go(ctx, func(context.Context) error { return nil })
		synctest.Wait()
		var log journal
		log.wait(q, t.Context(), 0)
		time.Sleep(sec)
		cancel()
		if err := g.Wait(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		time.Sleep(sec)
		open.Store(true)
		r.change()
		log.wg.Wait()
		conserved(t, q)
		if d := time.Since(log.start); d != 2*sec || len(r.watchers) != 0 {
			t.Errorf("went after %v, %d watchers", d, len(r.watchers))
		}
	})
}

// TestGroupForeignCancelled: the end of the group, or of a task's own ctx, while its limiter is being
// asked. The tasks leave at once; the limiter sees it; if it does not look, what it gives goes back.
func TestGroupForeignCancelled(t *testing.T) {
	for name, c := range map[string]struct {
		looks, own bool
		answer     time.Duration
		taken      int
	}{
		"group ends, limiter looks":      {looks: true},
		"group ends, has to wait":        {answer: time.Hour},
		"group ends, granted":            {taken: 1},
		"task's own ends, limiter looks": {looks: true, own: true},
		"task's own ends, has to wait":   {answer: time.Hour, own: true},
		"task's own ends, granted":       {own: true, taken: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &remote{}
			r.take = func(ctx context.Context, n int) (time.Duration, error) {
				if !c.looks {
					time.Sleep(sec)
					return c.answer, nil
				}
				select {
				case <-ctx.Done():
					return 0, ctx.Err()
				case <-time.After(time.Hour):
					return 0, nil
				}
			}
			q := throttle.NewQueue(notifying{adjusting{r}}, throttle.QueueOptions{MaxInFlight: 1})
			start := time.Now()
			parent, cancel := context.WithCancel(t.Context())
			var g *throttle.Group
			if c.own {
				g, _ = throttle.NewGroup(t.Context(), q)
			} else {
				g, _ = throttle.NewGroup(parent, q)
				parent = t.Context() // the task's ctx knows nothing of the group's
			}
			g.Go(parent, func(context.Context) error { t.Errorf("%s: ran", name); return nil })
			g.Go(parent, func(context.Context) error { t.Errorf("%s: ran", name); return nil })
			time.Sleep(500 * ms)
			cancel()
			err := g.Wait()
			if d := time.Since(start); d != 500*ms || !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v after %v", name, err, d)
			}
			if c.looks {
				synctest.Wait() // it must not wait for its hour
			} else {
				time.Sleep(sec)
			}
			conserved(t, q)
			if r.taken != c.taken || r.adjusted != -c.taken || r.asking != 0 || len(r.watchers) != 0 {
				t.Errorf("%s: taken %d, adjusted %d, %d questions, %d watchers", name, r.taken, r.adjusted, r.asking, len(r.watchers))
			}
		})
	}
}
