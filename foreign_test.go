package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
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

// These tests are about limiters that are not the library's own: they can be asked, and nothing else.

// A remote is a limiter that is not the library's own. Each question takes trip.
type remote struct {
	take func(ctx context.Context, n int) (time.Duration, error)
	trip time.Duration

	mu       sync.Mutex
	asks     []time.Time
	asking   int
	atOnce   int // most questions at a time
	taken    int
	adjusted int
	watchers map[*int]func()
}

func (r *remote) Take(ctx context.Context, n int) (wait time.Duration, err error) {
	r.note(func() {
		r.asks = append(r.asks, time.Now())
		r.asking++
		r.atOnce = max(r.atOnce, r.asking)
	})
	defer r.note(func() { r.asking-- })
	time.Sleep(r.trip)
	if wait, err = r.take(ctx, n); wait == 0 && err == nil {
		r.note(func() { r.taken += n })
	}
	return wait, err
}

func (r *remote) note(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// change tells those who watch.
func (r *remote) change() {
	var tell []func()
	r.note(func() {
		for _, f := range r.watchers {
			tell = append(tell, f)
		}
	})
	for _, f := range tell {
		f()
	}
}

// adjusting is a remote that takes units back, notifying one that calls when it has changed.
type (
	adjusting struct{ *remote }
	notifying struct{ adjusting }
)

func (r adjusting) Adjust(n int) { r.note(func() { r.adjusted += n }) }

func (r notifying) Notify(changed func()) (stop func()) {
	id := new(int)
	r.note(func() {
		if r.watchers == nil {
			r.watchers = map[*int]func(){}
		}
		r.watchers[id] = changed
	})
	return func() { r.note(func() { delete(r.watchers, id) }) }
}

// after says wait until the moment has come, from the first question on.
func after(d time.Duration) func(context.Context, int) (time.Duration, error) {
	start := time.Now()
	return func(context.Context, int) (time.Duration, error) {
		return max(0, d-time.Since(start)), nil
	}
}

func offsets(start time.Time, at []time.Time) (d []time.Duration) {
	for _, x := range at {
		d = append(d, x.Sub(start))
	}
	return d
}

// opening is a Take that says an hour until open is set.
func opening(open *atomic.Bool) func(context.Context, int) (time.Duration, error) {
	return func(context.Context, int) (time.Duration, error) {
		if open.Load() {
			return 0, nil
		}
		return time.Hour, nil
	}
}

// TestForeignAskedAgain: after at most 1 s where the limiter cannot tell of a change, when it said
// where it can.
func TestForeignAskedAgain(t *testing.T) {
	for name, want := range map[string][]time.Duration{
		"plain":     {0, sec, 2 * sec, 2500 * ms},
		"notifying": {0, 2500 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &remote{take: after(2500 * ms)}
			lim := map[string]throttle.Limiter{"plain": r, "notifying": notifying{adjusting{r}}}[name]
			q := throttle.NewQueue(lim, throttle.QueueOptions{})
			start := time.Now()
			if err := q.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			if got := offsets(start, r.asks); !slices.Equal(got, want) {
				t.Errorf("%s: asked at %v, want %v", name, got, want)
			}
			conserved(t, q)
			if r.adjusted != 0 || len(r.watchers) != 0 {
				t.Errorf("%s: adjusted %d, watched by %d", name, r.adjusted, len(r.watchers))
			}
		})
	}
}

// TestForeignChange: a change is felt at once.
func TestForeignChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Bool
		r := &remote{}
		r.take = func(context.Context, int) (time.Duration, error) {
			if open.Load() {
				return 0, nil
			}
			return time.Hour, nil
		}
		q := throttle.NewQueue(notifying{adjusting{r}}, throttle.QueueOptions{})
		var log journal
		for i := range 5 {
			log.wait(q, t.Context(), i)
		}
		time.Sleep(1234 * ms)
		r.change() // still nothing: asked once more
		time.Sleep(sec)
		open.Store(true)
		r.change()
		log.wg.Wait()
		for i, e := range log.sorted() {
			if got := e.at.Sub(log.start); got != 2234*ms {
				t.Errorf("%d. after %v", i, got)
			}
		}
		if want := []time.Duration{0, 1234 * ms, 2234 * ms, 2234 * ms, 2234 * ms, 2234 * ms, 2234 * ms}; !slices.Equal(offsets(log.start, r.asks), want) {
			t.Errorf("asked at %v", offsets(log.start, r.asks))
		}
		conserved(t, q)
		if len(r.watchers) != 0 {
			t.Error("still watched")
		}
	})
}

// TestForeignChangeReaches whoever is the head then: also if the one who asked has left, and if the
// answer is on its way when the change comes.
func TestForeignChangeReachesTheHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Bool
		r := &remote{take: opening(&open)}
		q := throttle.NewQueue(notifying{adjusting{r}}, throttle.QueueOptions{})
		var log journal
		ctx, cancel := context.WithCancel(t.Context())
		log.wait(q, ctx, 0)
		log.wait(q, t.Context(), 1)
		time.Sleep(sec)
		cancel()
		time.Sleep(sec)
		open.Store(true)
		r.change()
		log.wg.Wait()
		conserved(t, q)
		if d := time.Since(log.start); d != 2*sec || len(r.watchers) != 0 {
			t.Errorf("went after %v, %d watchers", d, len(r.watchers))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Bool
		r := &remote{}
		r.take = func(ctx context.Context, n int) (time.Duration, error) {
			wait, err := opening(&open)(ctx, n)
			time.Sleep(sec) // the answer's way
			return wait, err
		}
		q := throttle.NewQueue(notifying{adjusting{r}}, throttle.QueueOptions{})
		var log journal
		log.wait(q, t.Context(), 0)
		time.Sleep(sec / 2)
		open.Store(true)
		r.change()
		log.wg.Wait()
		if d := time.Since(log.start); d != 2*sec {
			t.Errorf("went after %v", d)
		}
		conserved(t, q)
	})
}

// TestForeignQuestions: outside all locks, one at a time, with the head's cost and the line's ctx, which ends when nobody
// waits any more.
func TestForeignQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type id struct{}
		var asked []int
		var last context.Context
		var q *throttle.Queue
		r := &remote{trip: 100 * ms}
		r.take = func(ctx context.Context, n int) (time.Duration, error) {
			q.Stats() // would block under a lock
			q.Pause(0)
			if _, bounded := ctx.Deadline(); bounded || ctx.Value(id{}) != nil || ctx.Err() != nil {
				t.Errorf("asked with %v", ctx)
			}
			asked, last = append(asked, n), ctx
			if len(asked)%2 == 1 {
				return 50 * ms, nil
			}
			return 0, nil
		}
		q = throttle.NewQueue(adjusting{r}, throttle.QueueOptions{})
		var log journal
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), id{}, 1), time.Hour)
		defer cancel()
		for i, prio := range []int{0, 0, 7, 0} {
			log.wait(q, throttle.WithPriority(throttle.WithCost(ctx, 13-i), prio), i)
		}
		log.wg.Wait()
		// 0 is being asked for when 2 arrives; at 100 ms the answer is no, so 2, which costs less, is asked for at once.
		if want := []int{13, 11, 13, 13, 12, 12, 10, 10}; !slices.Equal(asked, want) {
			t.Errorf("asked for %v, want %v", asked, want)
		}
		if r.atOnce != 1 || r.adjusted != 0 || r.taken != 46 {
			t.Errorf("%d questions at once, adjusted %d, taken %d", r.atOnce, r.adjusted, r.taken)
		}
		conserved(t, q)
		if last.Err() == nil {
			t.Error("nobody waits, and the ctx has not ended")
		}
	})
}

// TestForeignError: an error, a wait below 0, and a panic end that call alone. Nothing is taken for it, and the line moves
// on.
func TestForeignError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		r := &remote{trip: 10 * ms}
		r.take = func(_ context.Context, n int) (time.Duration, error) {
			switch n {
			case 2:
				return 0, boom
			case 3:
				return -time.Second, nil
			case 4:
				panic(boom)
			}
			return 0, nil
		}
		b := throttle.NewBucket(0.001, 100)
		q := throttle.NewQueue(throttle.All(b, adjusting{r}), throttle.QueueOptions{MaxInFlight: 1})
		var log journal
		for i, cost := range []int{1, 2, 1, 3, 1, 4, 1} {
			log.wg.Go(func() {
				err := q.Do(throttle.WithCost(t.Context(), cost), func(context.Context) error { log.add(i); return nil })
				if err != nil {
					log.fail(i, err)
				}
			})
			synctest.Wait()
		}
		log.wg.Wait()
		if ids := log.ids(); !slices.Equal(ids, []int{0, 2, 4, 6}) {
			t.Errorf("went: %v", ids)
		}
		var e *throttle.Error
		if !errors.Is(log.err(1), boom) || !errors.As(log.err(1), &e) {
			t.Error(log.err(1))
		}
		if err := log.err(3); !errors.As(err, &e) || !strings.Contains(err.Error(), "negative wait -1s") {
			t.Error(err)
		}
		if err := log.err(5); !errors.Is(err, boom) || !errors.As(err, &e) || !strings.Contains(err.Error(), "panicked") || log.failures() != 3 {
			t.Error(log.errs)
		}
		if n := math.Round(b.Tokens()); n != 96 || r.adjusted != 0 {
			t.Errorf("%v tokens, adjusted %d", n, r.adjusted)
		}
		conserved(t, q)
	})
}

// TestForeignAnswerServesTheNext: units that were asked for a call that has left go to the next one, also later, after a
// pause; they go back if that one costs something else.
func TestForeignAnswerServesTheNext(t *testing.T) {
	for _, cost := range []int{3, 1} {
		synctest.Test(t, func(t *testing.T) {
			r := &remote{trip: sec, take: after(0)}
			b := throttle.NewBucket(0.001, 10)
			q := throttle.NewQueue(throttle.All(adjusting{r}, b), throttle.QueueOptions{MaxInFlight: 1})
			ctx, cancel := context.WithCancel(throttle.WithCost(t.Context(), 3))
			var log journal
			log.wait(q, ctx, 0)
			log.wait(q, throttle.WithCost(t.Context(), cost), 1)
			time.Sleep(500 * ms)
			cancel()
			synctest.Wait()
			if !errors.Is(log.err(0), context.Canceled) {
				t.Errorf("it has not left: %v", log.err(0))
			}
			q.Pause(5 * sec)
			log.wg.Wait()
			conserved(t, q)
			given := 0
			if cost != 3 {
				given = 3
			}
			if n := math.Round(b.Tokens()); r.taken != cost+given || r.adjusted != -given || n != float64(10-cost) || r.atOnce != 1 {
				t.Errorf("cost %d: taken %d, adjusted %d, %v tokens, %d questions at once", cost, r.taken, r.adjusted, n, r.atOnce)
			}
			want := 5500 * ms // the answer was there
			if cost != 3 {
				want += sec // it was of no use
			}
			if got := log.sorted()[0].at.Sub(log.start); got != want {
				t.Errorf("cost %d: went after %v, want %v", cost, got, want)
			}
			if s := q.Stats(); s.Sent != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestForeignGrantGivenBack: to callers who have all gone, before the answer or with the units in hand. Who comes meanwhile
// is asked for once that is over.
func TestForeignGrantGivenBack(t *testing.T) {
	for _, pause := range []time.Duration{0, time.Hour} { // behind a closed gate the units wait in hand
		synctest.Test(t, func(t *testing.T) {
			r := &remote{trip: sec, take: after(0)}
			q := throttle.NewQueue(notifying{adjusting{r}}, throttle.QueueOptions{})
			var log journal
			for i, leaves := range []time.Duration{500 * ms, 200 * ms, 100 * ms} {
				ctx, cancel := context.WithTimeoutCause(throttle.WithCost(t.Context(), 2), time.Hour, nil)
				if pause > 0 {
					leaves += sec
				}
				time.AfterFunc(leaves, cancel)
				log.wait(q, ctx, i)
				q.Pause(pause)
				time.Sleep(leaves)
				synctest.Wait()
				if !errors.Is(log.err(i), context.Canceled) {
					t.Fatalf("%d: %v", i, log.err(i))
				}
				if pause > 0 && len(r.watchers) != 0 {
					t.Errorf("%d watch, and nobody waits", len(r.watchers))
				}
				q.Resume()
			}
			log.wait(q, t.Context(), 3)
			log.wg.Wait()
			conserved(t, q)
			if r.taken+r.adjusted != 1 || r.atOnce != 1 || len(r.watchers) != 0 || log.failures() != 3 {
				t.Errorf("taken %d, adjusted %d, %d questions at once, %d watchers, %v", r.taken, r.adjusted, r.atOnce, len(r.watchers), log.errs)
			}
		})
	}
}

// TestForeignAndOwn: both are paid or none, and the line asks no more than it must.
func TestForeignAndOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &remote{}
		next := time.Now()
		r.take = func(context.Context, int) (time.Duration, error) { // one every 300 ms
			if w := time.Until(next); w > 0 {
				return w, nil
			}
			next = time.Now().Add(300 * ms)
			return 0, nil
		}
		b := throttle.NewBucket(2, 3)
		q := throttle.NewQueue(throttle.All(b, r), throttle.QueueOptions{})
		var log journal
		for i := range 8 {
			log.wait(q, t.Context(), i)
		}
		log.wg.Wait()
		want := []time.Duration{0, 300 * ms, 600 * ms, 900 * ms, 1200 * ms, 1500 * ms, 2000 * ms, 2500 * ms}
		// the bucket has 3, and 0.6 more for each 300 ms: it says when from the 6th on
		for i, e := range log.sorted() {
			if got := e.at.Sub(log.start); got != want[i] || e.id != i {
				t.Errorf("call %d was the %d. and went after %v, want %v", e.id, i, got, want[i])
			}
		}
		// one question for the first, two for each of the next four, one where the bucket said when
		if math.Abs(b.Tokens()) > 1e-9 || len(r.asks) != 1+4*2+3 {
			t.Errorf("%v tokens, asked %d times", b.Tokens(), len(r.asks))
		}
		conserved(t, q)
	})
}

// TestForeignLeaving: those who wait behind the head leave, and so does the head, without a question.
func TestForeignLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &remote{take: after(10 * sec)}
		q := throttle.NewQueue(adjusting{r}, throttle.QueueOptions{})
		var log journal
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 6 {
			if i%2 == 0 {
				log.wait(q, ctx, i)
			} else {
				log.wait(q, t.Context(), i)
			}
		}
		time.Sleep(500 * ms)
		cancel()
		synctest.Wait()
		if log.failures() != 3 || r.adjusted != 0 {
			t.Error(log.errs, r.adjusted)
		}
		log.wg.Wait()
		ids := log.ids()
		slices.Sort(ids) // they go at one moment
		if !slices.Equal(ids, []int{1, 3, 5}) || r.taken != 3 || r.adjusted != 0 {
			t.Errorf("%v went, taken %d, adjusted %d", ids, r.taken, r.adjusted)
		}
		for _, e := range log.entries {
			if got := e.at.Sub(log.start); got != 10*sec {
				t.Errorf("%d after %v", e.id, got)
			}
		}
		conserved(t, q)
	})
}

// TestForeignPanics: what others gave before goes back, and the call gets an error. All has a caller of its own, who sees
// the panic.
func TestForeignPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &remote{take: after(0)}
		r := &remote{take: func(context.Context, int) (time.Duration, error) { panic("boom") }}
		own := throttle.NewBucket(1, 10)
		lim := throttle.All(r, own, adjusting{a})
		check := func(what string, q *throttle.Queue, err error) {
			t.Helper()
			conserved(t, q)
			var e *throttle.Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), "the limiter panicked: boom") {
				t.Errorf("%s: %v", what, err)
			}
			if a.taken != 3 || a.adjusted != -3 || own.Tokens() != 10 || len(r.watchers) != 0 {
				t.Errorf("%s: taken %d, adjusted %d, %v tokens, %d watchers", what, a.taken, a.adjusted, own.Tokens(), len(r.watchers))
			}
			a.taken, a.adjusted = 0, 0
		}
		func() {
			defer func() {
				if x := recover(); x != "boom" || a.taken != 3 || a.adjusted != -3 || own.Tokens() != 10 {
					t.Errorf("All: %v, taken %d, adjusted %d, %v tokens", x, a.taken, a.adjusted, own.Tokens())
				}
				a.taken, a.adjusted = 0, 0
			}()
			lim.Take(t.Context(), 3)
		}()
		ctx := throttle.WithCost(t.Context(), 3)
		q := throttle.NewQueue(lim, throttle.QueueOptions{MaxInFlight: 1})
		check("Wait", q, q.Wait(ctx))
		check("Do", q, q.Do(ctx, nil))
		g, _ := throttle.NewGroup(ctx, q)
		g.Go(ctx, nil)
		check("Group", q, g.Wait())
		q = throttle.NewQueue(throttle.All(adjusting{a}, notifying{adjusting{r}}), throttle.QueueOptions{})
		check("a notifying one", q, q.Wait(ctx))
	})
}

// TestForeignPanicsInOtherMethods: one in Notify is an error of the call; one in Adjust or stop, when nobody waits any more,
// reaches nobody. Nothing is held up by any of them.
func TestForeignPanicsInOtherMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(brokenNotify{after(0)}, throttle.QueueOptions{})
		for range 3 {
			if err := q.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "the limiter panicked: boom") {
				t.Error(err)
			}
		}
		conserved(t, q)
		r := &remote{take: after(0)}
		q = throttle.NewQueue(brokenEnd{r}, throttle.QueueOptions{MaxInFlight: 1})
		for range 3 {
			if err := q.Do(t.Context(), func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
			q.Pause(time.Hour)
			ctx, cancel := context.WithTimeout(t.Context(), sec)
			if err := q.Wait(ctx); !errors.Is(err, throttle.ErrWaitTooLong) {
				t.Error(err)
			}
			cancel()
			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(sec, cancel)
			if err := q.Wait(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			q.Resume()
			conserved(t, q)
		}
	})
}

// brokenEnd panics once nobody waits any more.
type brokenEnd struct{ *remote }

func (brokenEnd) Adjust(int)           { panic("boom") }
func (brokenEnd) Notify(func()) func() { return func() { panic("boom") } }

// TestForeignChangeUnheard: nobody watches while nobody waits, so who comes after that is asked for at once.
func TestForeignChangeUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Bool
		r := &remote{take: opening(&open)}
		q := throttle.NewQueue(notifying{adjusting{r}}, throttle.QueueOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(sec, cancel)
		if err := q.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		conserved(t, q)
		open.Store(true)
		start := time.Now()
		if err := q.Wait(t.Context()); err != nil || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		conserved(t, q)
	})
}

// TestForeignCheaperCall: that a costly call has to wait says nothing of a cheaper one, which is asked for at once when its
// turn comes: by its priority, or because the costly one leaves.
func TestForeignCheaperCall(t *testing.T) {
	for _, prio := range []int{1, 0} {
		synctest.Test(t, func(t *testing.T) {
			r := &remote{take: func(_ context.Context, n int) (time.Duration, error) {
				if n > 1 {
					return time.Hour, nil
				}
				return 0, nil
			}}
			q := throttle.NewQueue(notifying{adjusting{r}}, throttle.QueueOptions{})
			var log journal
			ctx, cancel := context.WithCancel(throttle.WithCost(t.Context(), 5))
			time.AfterFunc(sec, cancel)
			log.wait(q, ctx, 0)
			log.wait(q, throttle.WithPriority(t.Context(), prio), 1)
			log.wg.Wait()
			if e := log.sorted()[0]; prio == 1 && e.at != log.start || e.at.Sub(log.start) > sec || log.failures() != 1 {
				t.Errorf("priority %d: went after %v, %v", prio, e.at.Sub(log.start), log.errs)
			}
			conserved(t, q)
		})
	}
}

// TestForeignLooksAskNothing: Stats and Explain neither ask a limiter nor take an error from a call.
func TestForeignLooksAskNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		r := &remote{trip: sec, take: func(context.Context, int) (time.Duration, error) { return 0, boom }}
		tr := &throttle.Transport{Base: answers(200), Limiter: notifying{adjusting{r}}, MaxInFlight: 3}
		look := func() {
			synctest.Wait()
			for range tr.Stats() {
			}
			tr.Explain("a")
			tr.Explain("b")
		}
		look()
		if len(r.asks) != 0 || len(r.watchers) != 0 {
			t.Errorf("asked %d times for nobody, %d watchers", len(r.asks), len(r.watchers))
		}
		tr.Pause("a", sec)
		tr.Pause("b", sec)
		var wg sync.WaitGroup
		for range 3 {
			for _, url := range []string{"http://a/", "http://b/"} {
				wg.Go(func() {
					if _, err := status(tr, t.Context(), url); !errors.Is(err, boom) {
						t.Error(err)
					}
				})
			}
		}
		look()
		if len(r.asks) != 0 {
			t.Errorf("asked %d times for calls that nobody lets go", len(r.asks))
		}
		for range 14 {
			time.Sleep(500 * ms)
			look()
		}
		wg.Wait()
		look()
		if len(r.asks) != 6 || len(r.watchers) != 0 || r.atOnce != 1 {
			t.Errorf("asked %d times, %d at once, %d watchers", len(r.asks), r.atOnce, len(r.watchers))
		}
	})
}

type brokenNotify struct {
	take func(context.Context, int) (time.Duration, error)
}

func (b brokenNotify) Take(ctx context.Context, n int) (time.Duration, error) { return b.take(ctx, n) }

func (brokenNotify) Notify(func()) func() { panic("boom") }

// TestForeignPrediction is the wait that the limiter named last and the units ahead at the smoothed rate of grants.
func TestForeignPrediction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := throttle.NewBucket(1, 1)
		q := throttle.NewQueue(&remote{take: far.Take}, throttle.QueueOptions{})
		var log journal
		for i := range 20 {
			log.wait(q, t.Context(), i)
		}
		time.Sleep(2500 * ms) // 3 went, at 0, 1 and 2 s
		const want = 17*sec + 500*ms
		ctx, cancel := context.WithTimeout(t.Context(), want-1)
		defer cancel()
		var e *throttle.Error
		if err := q.Wait(ctx); !errors.Is(err, throttle.ErrWaitTooLong) || !errors.As(err, &e) || e.Wait != want {
			t.Errorf("%+v, want a wait of %v", err, want)
		}
		ctx, cancel = context.WithTimeout(t.Context(), want)
		time.AfterFunc(100*ms, cancel)
		if err := q.Wait(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, throttle.ErrWaitTooLong) {
			t.Error(err)
		}
		log.wg.Wait()
		conserved(t, q)
	})
}

// TestForeignRandom: foreign limiters that may adjust or not, notify or not, fail or take their time,
// beside an own one. What they gave and did not get back is what went; one question at a time; the
// line always ends.
func TestForeignRandom(t *testing.T) {
	for seed := range race.Pick(uint64(8), 30) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 6))
			far := throttle.NewBucket(100, 5) // behind the remote
			r := &remote{trip: time.Duration(rng.IntN(5)) * ms}
			r.take = func(ctx context.Context, n int) (time.Duration, error) {
				if n == 3 {
					return 0, errors.New("no")
				}
				return far.Take(ctx, n)
			}
			var lim throttle.Limiter = adjusting{r}
			if seed%2 == 1 {
				lim = notifying{adjusting{r}}
			}
			own := throttle.NewLeaky(150)
			q := throttle.NewQueue(throttle.All(own, lim), throttle.QueueOptions{MaxInFlight: 1 + rng.IntN(9)})
			var wg sync.WaitGroup
			var went, lost atomic.Int64
			for i := range 400 {
				time.Sleep(time.Duration(rng.IntN(15)) * ms)
				switch rng.IntN(40) {
				case 0:
					q.Pause(time.Duration(rng.IntN(200)) * ms)
				case 1:
					q.Resume()
				case 2:
					far.SetLimit(rate.Limit(10 + rng.IntN(200)))
					r.change()
				}
				cost := 1 + rng.IntN(2)
				if i%50 == 49 {
					cost = 3
				}
				ctx, cancel := context.WithTimeout(throttle.WithCost(throttle.WithPriority(t.Context(), rng.IntN(3)), cost), time.Duration(1+rng.IntN(3000))*ms)
				takes := time.Duration(rng.IntN(50)) * ms
				wg.Go(func() {
					defer cancel()
					err := q.Do(ctx, func(context.Context) error {
						went.Add(int64(cost))
						time.Sleep(takes)
						return nil
					})
					if err != nil {
						lost.Add(1)
					}
				})
			}
			wg.Wait()
			conserved(t, q)
			if got := int64(r.taken + r.adjusted); got != went.Load() || r.atOnce != 1 || len(r.watchers) != 0 {
				t.Errorf("seed %d: %d units taken and kept, %d went, %d questions at once, %d watchers", seed, got, went.Load(), r.atOnce, len(r.watchers))
			}
			if went.Load() < 100 || lost.Load() < 8 {
				t.Errorf("seed %d: %d units went, %d calls did not", seed, went.Load(), lost.Load())
			}
		})
	}
}

// TestForeignRandomKeys: keys that share a foreign limiter, some of them with one of their own, that errs and panics, is
// asked, changes, and is looked at, while calls of several costs and priorities leave. Of each: what it gave and did not get
// back is what went; one question at a time; an error ends one call; nothing is left once nobody waits.
func TestForeignRandomKeys(t *testing.T) {
	for seed := range race.Pick(uint64(10), 40) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 37))
			keys, leave := 1+rng.IntN(6), seed%4 != 0
			boom := errors.New("boom")
			var boomed, ended atomic.Int64
			made := func() (*remote, *throttle.Bucket, throttle.Limiter) {
				far := throttle.NewBucket(rate.Limit(20+rng.IntN(200)), 3+rng.IntN(5))
				trip, n, silent := time.Duration(rng.IntN(3)*rng.IntN(30))*ms, 0, rng.IntN(2) == 0
				r := &remote{trip: trip}
				r.take = func(ctx context.Context, cost int) (time.Duration, error) {
					if n++; n%23 == 0 {
						boomed.Add(1)
						if n%2 == 0 {
							panic(boom)
						}
						return 0, boom
					}
					return far.Take(ctx, cost)
				}
				if silent {
					return r, far, adjusting{r}
				}
				return r, far, notifying{adjusting{r}}
			}
			shared, far, lim := made()
			tr := &throttle.Transport{Limiter: throttle.All(throttle.NewBucket(300, 10), lim), MaxInFlight: rng.IntN(3) * 5, Retry: throttle.Retry{MaxAttempts: 1}}
			own := make([]*remote, keys)
			paid := make([]throttle.Limiter, keys)
			for i := range keys {
				if rng.IntN(2) == 0 {
					own[i], _, paid[i] = made()
				}
			}
			tr.LimiterFor = func(key string) throttle.Limiter { return paid[key[0]-'a'] }
			went := make([]atomic.Int64, keys)
			down := rng.IntN(2) == 0 // key a
			tr.Cost = func(req *http.Request) int { return int(req.URL.Path[1] - '0') }
			tr.Base = baseFunc(func(req *http.Request) (*http.Response, error) {
				went[req.URL.Host[0]-'a'].Add(int64(tr.Cost(req)))
				time.Sleep(20 * ms)
				if down && req.URL.Host == "a" {
					return nil, io.ErrUnexpectedEOF
				}
				return reply(req, 200), nil
			})
			var wg sync.WaitGroup
			for range 300 {
				time.Sleep(time.Duration(rng.IntN(3)*rng.IntN(20)) * ms)
				key := string(rune('a' + rng.IntN(keys)))
				switch rng.IntN(20) {
				case 0:
					far.SetLimit(rate.Limit(10 + rng.IntN(200)))
					shared.change()
				case 1:
					tr.Explain(key)
					for range tr.Stats() {
					}
				case 2:
					tr.Pause(key, time.Duration(rng.IntN(200))*ms)
				}
				ctx, cancel := context.WithCancel(throttle.WithPriority(t.Context(), rng.IntN(3)))
				if leave && rng.IntN(3) == 0 {
					time.AfterFunc(time.Duration(1+rng.IntN(500))*ms, cancel)
				}
				url := fmt.Sprint("http://", key, "/", 1+rng.IntN(3))
				wg.Go(func() {
					defer cancel()
					if _, err := status(tr, ctx, url); errors.Is(err, boom) {
						ended.Add(1)
					}
				})
			}
			wg.Wait()
			time.Sleep(100 * ms) // the last answers
			synctest.Wait()
			check := func(what string, r *remote, went int64) {
				if got := int64(r.taken + r.adjusted); got != went || r.atOnce > 1 || len(r.watchers) != 0 {
					t.Errorf("seed %d, %s: %d units taken and kept, %d went, %d questions at once, %d watchers", seed, what, got, went, r.atOnce, len(r.watchers))
				}
			}
			all := int64(0)
			for i, r := range own {
				all += went[i].Load()
				if r != nil {
					check(fmt.Sprint("key ", i), r, went[i].Load())
				}
			}
			check("shared", shared, all)
			if e, b := ended.Load(), boomed.Load(); e > b || !leave && e != b || b == 0 {
				t.Errorf("seed %d: %d errors ended %d calls", seed, b, e)
			}
			for s := range tr.Stats() {
				if s.Waiting+s.InFlight != 0 {
					t.Errorf("seed %d: left behind: %+v", seed, s)
				}
			}
			if left := leftBehind(); left != "" {
				t.Error(left)
			}
		})
	}
}

// What is joined with a foreign limiter is not held while that one is asked, or says to wait.
func TestUnitsStayFreeWhileAskingForOtherLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := throttle.NewBucket(rate.Every(time.Hour), 1)
		qa := throttle.NewQueue(throttle.All(lim, &slowForeign{delay: 100 * ms, f: func(int) time.Duration { return 20 * time.Second }}), throttle.QueueOptions{})
		qb := throttle.NewQueue(lim, throttle.QueueOptions{})
		var log journal
		ctx, cancel := context.WithTimeout(t.Context(), 150*ms)
		defer cancel()
		log.wait(qa, ctx, 0)
		time.Sleep(50 * ms)
		log.wait(qb, t.Context(), 1)
		log.wg.Wait()
		if e := log.sorted()[0]; e.id != 1 || e.at.Sub(log.start) != 50*ms || log.failures() != 1 {
			t.Errorf("%d went after %v, %v", e.id, e.at.Sub(log.start), log.errs)
		}
		time.Sleep(sec) // a limiter that does not obey ctx
	})
}

// Of two foreign limiters the second says wait; the first is given back what it gave, and notifies of it.
func TestGivingBackIsNoReasonToAskAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &wrapped{Bucket: throttle.NewBucket(100, 100)}, &wrapped{Bucket: throttle.NewBucket(1, 1)}
		q := throttle.NewQueue(throttle.All(a, b), throttle.QueueOptions{})
		start := time.Now()
		for range 3 {
			if err := q.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("three units at 1/s and burst 1 took %v", took)
		}
		if a.asked.Load() > 40 || b.asked.Load() > 40 {
			t.Errorf("asked %d and %d times", a.asked.Load(), b.asked.Load())
		}
	})
}

// The same, where two keys wake each other.
func TestGivingBackToAnotherKeyIsNoReasonToAskAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &wrapped{Bucket: throttle.NewBucket(100, 100)}
		var made [2]atomic.Pointer[wrapped] // as many callers as want may make one
		tr := &throttle.Transport{Base: answers(200), Limiter: a, LimiterFor: func(key string) throttle.Limiter {
			w := &wrapped{Bucket: throttle.NewBucket(1, 1)}
			made[key[0]-'a'].Store(w)
			return w
		}}
		for range 3 {
			for _, url := range []string{"http://a.test/", "http://b.test/"} {
				go func() {
					if _, err := status(tr, t.Context(), url); err != nil {
						t.Error(err)
					}
				}()
			}
		}
		start := time.Now()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		for i := range made {
			if n := made[i].Load().asked.Load(); n > 60 {
				t.Errorf("key %d: asked %d times in %v", i, n, time.Since(start))
			}
		}
		for s := range tr.Stats() {
			if s.Sent != 3 {
				t.Errorf("%+v", s)
			}
		}
	})
}

func TestEmbeddedLimiterIsForeign(t *testing.T) {
	w := &wrapped{Bucket: throttle.NewBucket(1, 1)}
	throttle.All(w, throttle.NewLeaky(1)).Take(context.Background(), 1)
	if n := w.asked.Load(); n != 1 {
		t.Errorf("a limiter that embeds a *Bucket was asked %d times, want 1", n)
	}
}
