package queue

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/line"
	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/internal/upstream"
)

const (
	sec = time.Second
	ms  = time.Millisecond
)

var (
	errFull     = errors.New("full")
	errPaused   = errors.New("paused")
	errTooLong  = errors.New("too long")
	errDeadline = errors.New("too long for the deadline")
	errBudget   = errors.New("budget")
	errClosed   = errors.New("closed")
)

// testConfig is the config of a Queue, or of a Table, whose errors name the reason alone.
func testConfig(o Options) Config {
	return Config{
		Options: o, MaxPause: -1, Budget: Budget{PerCall: 0.2, Max: 10},
		Error: func(_ string, _ time.Duration, _ int, reason error) error {
			if held, ok := reason.(*Held); ok {
				return held.Unwrap()
			}
			return reason
		},
		Errors: Errors{Full: errFull, Paused: errPaused, TooLong: errTooLong, Deadline: errDeadline, Budget: errBudget, Closed: errClosed},
	}
}

// bucket is a token bucket; with a burst of 1, a leaky one.
func bucket(r rate.Limit, burst int) *limit.Bucket {
	b := new(limit.Bucket)
	b.Init("test", r, burst)
	return b
}

func setOf(accounts ...limit.Account) *limit.Set {
	s := new(limit.Set)
	for _, a := range accounts {
		s.Join(a)
	}
	return s
}

// locked looks at a queue, or a whole table, under its lock.
func locked(c *common, look func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	look()
}

// conserved fails if q is not as if nothing had ever waited in it.
func conserved(t *testing.T, q *Queue) {
	t.Helper()
	synctest.Wait()
	locked(q.common, func() {
		if q.line != nil || q.marks.has(crowded) || q.busyLocked() || q.troubled().resting.Load() != 0 {
			t.Errorf("line %v, slots %d, begun %d, ended %d, resting %d", q.line, q.slots, q.begun, q.ended.Load(), q.troubled().resting.Load())
		}
	})
}

// A watchedBucket counts those who watch it.
type watchedBucket struct {
	*limit.Bucket
	watchers atomic.Int32
}

func (b *watchedBucket) Notify(changed func()) (stop func()) {
	unwatch := b.Bucket.Notify(changed)
	b.watchers.Add(1)
	return func() { b.watchers.Add(-1); unwatch() }
}

// A line watches its limiters while somebody waits, and no longer: a limiter that lives on must not hold
// the queues that it once served.
func TestLimitersAreWatchedWhileSomebodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &watchedBucket{Bucket: bucket(1, 1)}
		q := New(testConfig(Options{}), setOf(b))
		for range 2 {
			go q.Wait(t.Context(), &Want{Cost: 1})
		}
		synctest.Wait()
		if n := b.watchers.Load(); n != 1 {
			t.Errorf("%d watchers while a call waits", n)
		}
		time.Sleep(time.Minute)
		conserved(t, q)
		if n := b.watchers.Load(); n != 0 {
			t.Errorf("%d watchers after the last call has gone", n)
		}
	})
}

// A journal notes who went when.
type journal struct {
	mu    sync.Mutex
	wg    sync.WaitGroup
	start time.Time // of the first wait
	went  []start
	errs  map[int]error
}

type start struct {
	id int
	at time.Time
}

func (j *journal) add(id int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil {
		j.went = append(j.went, start{id, time.Now()})
		return
	}
	if j.errs == nil {
		j.errs = map[int]error{}
	}
	j.errs[id] = err
}

// wait sends a caller into the line and returns when it stands there or has gone.
func (j *journal) wait(q *Queue, ctx context.Context, id int) {
	if j.start.IsZero() {
		j.start = time.Now()
	}
	j.wg.Go(func() { j.add(id, q.Wait(ctx, &Want{Cost: 1})) })
	synctest.Wait()
}

func (j *journal) sorted() []start {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := slices.Clone(j.went)
	slices.SortStableFunc(s, func(a, b start) int { return a.at.Compare(b.at) })
	return s
}

// Where a grant and the end of the ctx fall into one instant, either may win, and nothing is lost.
func TestGrantMeetsCancel(t *testing.T) {
	won := 0
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			b := bucket(1, 1)
			q := New(testConfig(Options{MaxInFlight: 5}), setOf(b))
			q.Wait(t.Context(), &Want{Cost: 1})
			var log journal
			ctx, cancel := context.WithCancel(t.Context())
			log.wg.Go(func() {
				if q.Do(ctx, &Want{Cost: 1}, func(context.Context) error { return nil }) == nil {
					log.add(0, nil)
				}
			})
			synctest.Wait()
			log.wait(q, t.Context(), 1)
			grantAndCancel(q, sec, cancel)
			log.wg.Wait()
			won += 2 - len(log.went)
			last := log.sorted()[len(log.went)-1]
			if want := time.Duration(len(log.went)) * sec; last.id != 1 || last.at.Sub(log.start) != want {
				t.Errorf("%+v, want after %v", last, want)
			}
			if n := b.Tokens(); n != 0 || q.Stats().Sent != uint64(1+len(log.went)) {
				t.Error(n, "tokens,", q.Stats().Sent, "sent")
			}
			conserved(t, q)
		})
	}
	if won == 0 {
		t.Error("the cancel never won")
	}
}

// grantAndCancel lets the head of q go after that time, and cancels before it knows.
func grantAndCancel(q *Queue, after time.Duration, cancel func()) {
	locked(q.common, func() {
		time.Sleep(after)
		q.advanceLocked(time.Now())
		cancel()
	})
}

// The same while the gate reopens. A start that was not used counts neither for the spacing nor as a
// call in flight.
func TestGrantMeetsCancelReopening(t *testing.T) {
	for name, c := range map[string]struct {
		limits func() *limit.Set
		next   time.Duration // when the second goes if the first did
	}{
		"paced":      {func() *limit.Set { return setOf(bucket(10, 5)) }, 100 * ms},
		"slow start": {func() *limit.Set { return setOf() }, sec},
	} {
		won := 0
		for range 50 {
			synctest.Test(t, func(t *testing.T) {
				q := New(testConfig(Options{}), c.limits())
				q.Pause(sec)
				var log journal
				ctx, cancel := context.WithCancel(t.Context())
				log.wg.Go(func() {
					if q.Do(ctx, &Want{Cost: 1}, func(context.Context) error { time.Sleep(sec); log.add(0, nil); return nil }) != nil {
						won++
					}
				})
				synctest.Wait()
				log.wait(q, t.Context(), 1)
				grantAndCancel(q, sec, cancel)
				log.wg.Wait()
				want := sec
				if len(log.went) == 2 {
					want += c.next
				}
				for _, e := range log.went {
					if got := e.at.Sub(log.start); e.id == 1 && got != want {
						t.Errorf("%s: the second went after %v, want %v; the first went: %t", name, got, want, len(log.went) == 2)
					}
				}
				conserved(t, q)
			})
		}
		if won == 0 {
			t.Errorf("%s: the cancel never won", name)
		}
	}
}

// Of several reasons to turn a call away, a full line is named first, then a gate that stays closed
// for longer than MaxPause, then a wait that is too long.
func TestOrderOfReasons(t *testing.T) {
	for bits := range 16 {
		full, paused, late, long := bits&1 != 0, bits&2 != 0, bits&4 != 0, bits&8 != 0
		synctest.Test(t, func(t *testing.T) {
			c := testConfig(Options{})
			c.MaxPause = time.Minute
			if full {
				c.Options.MaxWaiting = 1
			}
			if long {
				c.Options.MaxWait = sec / 2
			}
			q := New(c, setOf(bucket(1, 1)))
			q.Wait(t.Context(), &Want{Cost: 1})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if late {
				ctx, cancel = context.WithTimeout(ctx, sec/2)
				defer cancel()
			}
			var err error
			locked(q.common, func() {
				now := time.Now()
				q.line = newLineup(q)
				w := &waiter{Call: callOf(1, 0, 1)}
				w.Of = w
				q.line.Push(&w.Call, "", 1)
				if paused {
					q.up.HoldUntil(now.Add(time.Hour), 429, now)
				}
				o := order{waiter: waiter{Call: callOf(1, 0, 2)}, want: new(Want)}
				q.noteDeadline(ctx, &o, now)
				err = q.turnAwayLocked(&o, now)
			})
			var want error
			switch {
			case full:
				want = errFull
			case paused:
				want = errPaused
			case late:
				want = errDeadline
			case long:
				want = errTooLong
			}
			if !errors.Is(err, want) {
				t.Errorf("full %t, paused %t, too long for the deadline %t, for MaxWait %t: %v", full, paused, late, long, err)
			}
		})
	}
}

// MaxPause counts the time behind closed gates only, though the one who waits is held up by a slot
// meanwhile and nobody looks at the gate.
func TestMaxPauseClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(Options{MaxInFlight: 1})
		c.MaxPause = time.Minute
		q := New(c, setOf())
		closed := func() {
			q.change(func(now time.Time) { q.up.HoldUntil(now.Add(sec), 429, now) })
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			q.Do(t.Context(), &Want{Cost: 1}, func(context.Context) error { time.Sleep(200 * sec); return nil })
		})
		synctest.Wait()
		closed()
		wg.Go(func() {
			if err := q.Do(t.Context(), &Want{Cost: 1}, func(context.Context) error { return nil }); err != nil {
				t.Error("behind closed gates for 2 s:", err)
			}
		})
		time.Sleep(100 * sec)
		closed()
		wg.Wait()
		conserved(t, q)
	})
}

// One that waits behind a gate closed by failures leaves when nobody was served for MaxPause, though the only slot is
// taken and nothing else happens.
func TestMaxPauseSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(Options{MaxInFlight: 1})
		c.MaxPause = 10 * sec
		q := New(c, setOf(bucket(100, 1)))
		begin := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			q.Do(t.Context(), &Want{Cost: 1}, func(context.Context) error { time.Sleep(200 * sec); return nil })
		})
		synctest.Wait()
		locked(q.common, func() {
			for call := range uint64(8) {
				a := upstream.Answer{Outcome: Failure, Call: call, Epoch: q.up.Epoch(), Sent: time.Now()}
				q.up.Observe(&a, time.Now())
			}
		})
		if s := q.Stats(); s.Reason != "gate:failing" {
			t.Errorf("not closed: %+v", s)
		}
		err := q.Do(t.Context(), &Want{Cost: 1}, func(context.Context) error { return nil })
		if d := time.Since(begin); d != 10*sec || !errors.Is(err, errPaused) {
			t.Errorf("left after %v, %v", d, err)
		}
		wg.Wait()
		conserved(t, q)
	})
}

// Random arrivals, costs, priorities, cancels, deadlines, changes of the limit, pauses and panics. What
// holds throughout is said where it is checked.
func TestQueueRandom(t *testing.T) {
	for seed := range race.Pick(uint64(4), 30) {
		synctest.Test(t, func(t *testing.T) { newRandomRun(t, seed).run() })
	}
}

// A randomRun replays a bucket's account beside the queue's.
type randomRun struct {
	*testing.T
	seed  uint64
	rng   *rand.Rand
	q     *Queue
	b     *limit.Bucket
	slots int

	mu     sync.Mutex
	wg     sync.WaitGroup
	flying int
	tokens float64 // the model's
	as     time.Time
	limit  float64
	burst  float64
	closed time.Time // no start before
	sent   int
	errs   map[error]int
}

func newRandomRun(t *testing.T, seed uint64) *randomRun {
	r := &randomRun{T: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 5)), errs: map[error]int{}, as: time.Now()}
	r.limit, r.burst = float64(20+r.rng.IntN(200)), float64(1+r.rng.IntN(5))
	r.tokens, r.slots = r.burst, 1+r.rng.IntN(20)
	r.b = bucket(rate.Limit(r.limit), int(r.burst))
	o := Options{MaxInFlight: r.slots}
	if seed%3 == 1 {
		o.MaxWaiting = 30
	}
	if seed%3 == 2 {
		o.MaxWait = time.Second
	}
	r.q = New(testConfig(o), setOf(r.b))
	return r
}

// bring brings the model's account to now.
func (r *randomRun) bring() {
	now := time.Now()
	r.tokens = min(r.burst, r.tokens+now.Sub(r.as).Seconds()*r.limit)
	r.as = now
}

// went checks a start against the model: the bucket has what it costs, and the gate is open.
func (r *randomRun) went(cost int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bring()
	r.sent++
	if cost > 0 && r.tokens < min(float64(cost), r.burst)-1e-5 {
		r.Errorf("seed %d: cost %d went with %v of %v there", r.seed, cost, r.tokens, r.burst)
	}
	r.tokens -= float64(cost)
	if time.Now().Before(r.closed) {
		r.Errorf("seed %d: one went %v before the pause's end", r.seed, time.Until(r.closed))
	}
}

// fly counts those in flight.
func (r *randomRun) fly(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.flying += n; r.flying > r.slots {
		r.Errorf("seed %d: %d in flight, at most %d may be", r.seed, r.flying, r.slots)
	}
}

func (r *randomRun) ended(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch err {
	case nil:
	case errFull, errTooLong, errDeadline:
		r.errs[err]++
	default:
		for _, x := range []error{context.Canceled, context.DeadlineExceeded} {
			if errors.Is(err, x) {
				r.errs[x]++
				return
			}
		}
		r.Errorf("seed %d: %v", r.seed, err)
	}
}

// call is one caller, in a goroutine of its own.
func (r *randomRun) call() {
	cost := min(r.rng.IntN(4), 1+r.rng.IntN(4))
	if r.rng.IntN(50) == 0 {
		cost = 12
	}
	ctx, prio := r.Context(), int32(r.rng.IntN(4))
	cancel := func() {}
	switch d := time.Duration(r.rng.Int64N(int64(2 * sec))); r.rng.IntN(4) {
	case 0:
		ctx, cancel = context.WithTimeout(ctx, d)
	case 1:
		c, stop := context.WithCancel(ctx)
		ctx, cancel = c, stop
		time.AfterFunc(d, stop)
	}
	do, panics, takes := r.rng.IntN(4) > 0, r.rng.IntN(10) == 0, time.Duration(r.rng.Int64N(int64(200*ms)))
	r.wg.Go(func() {
		defer cancel()
		if !do {
			err := r.q.Wait(ctx, &Want{Cost: cost, Priority: prio})
			if err == nil {
				r.went(cost)
			}
			r.ended(err)
			return
		}
		defer func() {
			if x := recover(); x != nil && x != &r.wg {
				panic(x)
			}
		}()
		r.ended(r.q.Do(ctx, &Want{Cost: cost, Priority: prio}, func(context.Context) error {
			r.went(cost)
			r.fly(1)
			defer r.fly(-1)
			time.Sleep(takes)
			if panics {
				panic(&r.wg)
			}
			return nil
		}))
	})
}

// disturb changes the limit, pauses or resumes.
func (r *randomRun) disturb() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bring()
	now := time.Now()
	switch d := time.Duration(r.rng.Int64N(int64(300 * ms))); r.rng.IntN(3) {
	case 0:
		r.limit = float64(20 + r.rng.IntN(200))
		r.b.SetLimit(rate.Limit(r.limit))
	case 1:
		r.q.Pause(d)
		r.closed = limit.Latest(r.closed, now.Add(d))
	case 2:
		r.q.Resume()
		r.closed = now
	}
}

// look fails if the head could go and does not: no idle capacity while someone waits.
func (r *randomRun) look() {
	synctest.Wait()
	now := time.Now()
	locked(r.q.common, func() {
		q := r.q
		if int(q.slots) > r.slots || q.slots < 0 {
			r.Errorf("seed %d: %d slots of %d", r.seed, q.slots, r.slots)
		}
		if q.line == nil {
			return
		}
		w := q.headLocked(now)
		if w == nil {
			r.Fatalf("seed %d: a line with nobody in it", r.seed)
		}
		if _, d := q.readyLocked(w, now, now); d.verdict != grant {
			return
		}
		if there := q.limits().Available(now); w.Cost == 0 || there >= min(float64(w.Cost), r.burst)+1e-5 {
			r.Errorf("seed %d: cost %d waits with %v units there and the gate open", r.seed, w.Cost, there)
		}
	})
}

func (r *randomRun) run() {
	n := 0
	for range 1500 {
		time.Sleep(time.Duration(r.rng.Int64N(int64(20 * ms))))
		r.look()
		if r.rng.IntN(25) == 0 {
			r.disturb()
		} else {
			n++
			r.call()
		}
		r.look()
	}
	r.wg.Wait()
	conserved(r.T, r.q)
	r.bring()
	if got := r.b.Tokens(); math.Abs(got-r.tokens) > 1e-3 {
		r.Errorf("seed %d: %v tokens, want %v", r.seed, got, r.tokens)
	}
	if s := r.q.Stats(); s.Sent != uint64(r.sent) || r.sent < n/10 {
		r.Errorf("seed %d: %d of %d went, stats %+v", r.seed, r.sent, n, s)
	}
	time.Sleep(sec) // all is as new
	if got := r.b.Tokens(); got != r.burst {
		r.Errorf("seed %d: %v tokens, want %v", r.seed, got, r.burst)
	}
	r.Logf("seed %d: %d calls, %d went, %v", r.seed, n, r.sent, r.errs)
}

// callOf is a call of that cost, priority and place.
func callOf(cost, prio int32, seq uint64) (c line.Call[waiter]) {
	c.Cost, c.Prio, c.Seq = cost, prio, seq
	return c
}
