package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/limit"
)

// Each short way of a call (a free start, the end of a plain line, an easy grant, a deadline that is late enough) is the
// same as the long one, which all calls go while some host is closed: every start, order, refusal, prediction and count.
func TestShortWays(t *testing.T) {
	for seed := range uint64(100) {
		short, long := walk(t, seed, false), walk(t, seed, true)
		if !slices.Equal(short, long) {
			i := 0
			for i < min(len(short), len(long))-1 && short[i] == long[i] {
				i++
			}
			t.Fatalf("seed %d: event %d of %d is %q the short way, and %q the long one", seed, i, len(short), short[i], long[i])
		}
	}
}

// walk makes the random calls of a seed, before a queue or keys, and returns what was seen of each.
func walk(t *testing.T, seed uint64, long bool) (seen []string) {
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var o Options
		if rnd.IntN(4) == 0 {
			o.MaxWaiting = 5 + rnd.IntN(20)
		}
		if rnd.IntN(4) == 0 {
			o.MaxWait = time.Duration(1+rnd.IntN(2000)) * ms
		}
		keys, flows, prios, costs := 1+rnd.IntN(4), 1+rnd.IntN(3)*rnd.IntN(2), 1+rnd.IntN(2), 1+rnd.IntN(3)*rnd.IntN(2)
		limits := func() *limit.Set { return setOf(bucket(rate.Limit(5+50*rnd.Float64()), 4+rnd.IntN(8))) }
		w := wayWorld{start: time.Now(), alone: rnd.IntN(2) == 0}
		if w.common = testConfig(o); w.alone {
			w.queue = New(w.common, limits())
			w.shut(w.queue.common, long)
		} else {
			if rnd.IntN(2) == 0 {
				w.common.Shared = limits()
			}
			w.client = newClient(w.common, nil)
			own := map[string]*limit.Set{}
			for k := range keys {
				own[fmt.Sprint(k)] = limits()
			}
			w.own = func(key string) *limit.Set { return own[key] }
			for k := range keys {
				w.table.add(fmt.Sprint(k))
			}
			w.shut(&w.table.common, long)
		}
		calls := 40 + rnd.IntN(80)
		w.seen = make([]string, 2*calls)
		for i := range calls {
			// No two moments are the same, those of limits neither, so that nothing is left to the scheduler.
			at, key := time.Duration(rnd.IntN(2000))*ms+time.Duration(i+1)*time.Microsecond, fmt.Sprint(rnd.IntN(keys))
			want := &Want{Cost: 1 + rnd.IntN(costs), Priority: int32(rnd.IntN(prios))}
			if f := rnd.IntN(flows); f > 0 {
				want.Flow = fmt.Sprint("f", f)
			}
			patience := time.Duration(0)
			if rnd.IntN(2) == 0 {
				patience = time.Duration(10+rnd.IntN(4000))*ms + 333*time.Nanosecond
			}
			w.wg.Go(func() { w.call(t.Context(), 2*i, at, patience, key, want) })
		}
		w.wg.Wait()
		seen = w.seen
	})
	return seen
}

// A wayWorld is a queue alone, or the keys of a client.
type wayWorld struct {
	*client
	common Config
	alone  bool
	queue  *Queue
	start  time.Time
	wg     sync.WaitGroup
	seen   []string
}

// shut closes a host that none of the calls is for, for longer than they last, if all are to go the long way.
func (w *wayWorld) shut(r *common, long bool) {
	if long {
		locked(r, func() { r.hostLocked("elsewhere", time.Now()).until = time.Now().Add(time.Hour) })
	}
}

// call makes one call, and notes what was foretold before it, and what became of it.
func (w *wayWorld) call(ctx context.Context, i int, at, patience time.Duration, key string, want *Want) {
	time.Sleep(at)
	if patience > 0 {
		c, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		ctx = c
	}
	q := w.queue
	if !w.alone {
		q = w.table.Get(key)
	}
	wait, known := q.Predict(1)
	w.seen[i] = fmt.Sprintf("%v %v %+v", wait, known, q.Stats())
	var err error
	if w.alone {
		err = q.Wait(ctx, want)
	} else {
		_, err = w.client.call(ctx, key, "/", want, true)
	}
	w.seen[i+1] = fmt.Sprintf("%v: %v", time.Since(w.start), err)
}
