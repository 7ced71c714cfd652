package fleet

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet/store"
	"github.com/go-throttle/throttle/internal/race"
)

// bubble runs f in virtual time, and then lets requests that are still out end.
func bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t)
		time.Sleep(time.Minute)
	})
}

// A link is the way of one process to the store, with the faults of a network. It has a breaker of its own, as a
// process has.
type link struct {
	m       *Memory
	breaker store.Breaker

	mu     sync.Mutex
	trip   func() time.Duration // one way; nil: 1 ms
	lose   float64              // requests lost on their way
	cut    float64              // answers lost on their way
	twice  float64              // requests executed twice, as by a client that repeats them
	hang   time.Time            // nothing passes before
	trips  int
	strict bool // ends with ctx; otherwise it ignores it
	deaf   bool // no message arrives
	heard  int  // messages
	ways   int  // for messages, that are open
}

func (l *link) Breaker() *store.Breaker { return &l.breaker }

func (l *link) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

var errLost = errors.New("lost")

func (l *link) Exchange(ctx context.Context, name string, r store.Request) (store.Reply, error) {
	replies, err := l.ExchangeAll(ctx, []string{name}, []store.Request{r})
	if err != nil {
		return store.Reply{}, err
	}
	return replies[0], nil
}

func (l *link) ExchangeAll(ctx context.Context, names []string, rs []store.Request) ([]store.Reply, error) {
	l.mu.Lock()
	l.trips++
	there, back := time.Millisecond, time.Millisecond
	if l.trip != nil {
		there, back = l.trip(), l.trip()
	}
	lost, cut, twice := rand.Float64() < l.lose, rand.Float64() < l.cut, rand.Float64() < l.twice
	hang := time.Until(l.hang)
	strict := l.strict
	l.mu.Unlock()
	if !strict {
		ctx = context.Background()
	}
	if err := sleep(ctx, max(hang, there)); err != nil {
		return nil, err
	}
	if lost {
		sleep(ctx, 300*time.Millisecond)
		return nil, errLost
	}
	replies, err := l.m.ExchangeAll(context.Background(), names, rs)
	if twice {
		again, _ := l.m.ExchangeAll(context.Background(), names, rs)
		if !reflect.DeepEqual(again, replies) {
			return nil, errors.New("the store has granted twice")
		}
	}
	if cut {
		sleep(ctx, 300*time.Millisecond)
		return nil, errLost
	}
	if err := sleep(ctx, back); err != nil {
		return nil, err
	}
	return replies, err
}

func (l *link) Listen(heard func(store.Pause)) (stop func()) {
	l.set(func() { l.ways++ })
	off := l.m.Listen(func(p store.Pause) {
		time.AfterFunc(time.Millisecond, func() {
			deaf := false
			l.set(func() {
				l.heard++
				deaf = l.deaf
			})
			if !deaf {
				heard(p)
			}
		})
	})
	return func() {
		l.set(func() { l.ways-- })
		off()
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A ledger is what an upstream would see: every unit that is used, by any process.
type ledger struct {
	mu  sync.Mutex
	log []use
}

type use struct {
	at     time.Time
	member int
	n      int
}

func (l *ledger) add(member, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log = append(l.log, use{time.Now(), member, n})
}

// burst is the smallest b with which no window of any length admits more than b + limit·L.
func (l *ledger) burst(from, to time.Time, limit rate.Limit) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	worst, least, sum := 0.0, math.Inf(1), 0.0
	for _, u := range l.log {
		if u.at.Before(from) || !u.at.Before(to) {
			continue
		}
		due := u.at.Sub(from).Seconds() * float64(limit)
		least = min(least, sum-due)
		sum += float64(u.n)
		worst = max(worst, sum-due-least)
	}
	return worst
}

// units counts what a member has used from a moment to another; -1: all members.
func (l *ledger) units(member int, from, to time.Time) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, u := range l.log {
		if (member < 0 || u.member == member) && !u.at.Before(from) && u.at.Before(to) {
			n += u.n
		}
	}
	return n
}

// jain is Jain's index of fairness: 1 if all members used the same, 1/members if one used all.
func (l *ledger) jain(members int, from, to time.Time) float64 {
	sum, squares := 0.0, 0.0
	for i := range members {
		n := float64(l.units(i, from, to))
		sum, squares = sum+n, squares+n*n
	}
	return sum * sum / (float64(members) * squares)
}

// A process is a member with a line before its limiter.
type process struct {
	id   int
	lim  *Limiter
	link *link
	q    *throttle.Queue
	stop context.CancelFunc
	led  *ledger
	wg   sync.WaitGroup
	max  time.Duration // the longest wait
	mu   sync.Mutex
}

// newProcess starts nothing.
func newProcess(id int, m *Memory, led *ledger, limit rate.Limit, burst int, o Options) *process {
	p := &process{id: id, link: &link{m: m}, led: led}
	p.lim = New(p.link, "x", limit, burst, o)
	p.q = throttle.NewQueue(p.lim, throttle.QueueOptions{})
	return p
}

// work starts workers that want all they can get until the process is killed. cost gives each call's units.
func (p *process) work(workers int, cost func() int) {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	for range workers {
		p.wg.Go(func() {
			for ctx.Err() == nil {
				n := 1
				if cost != nil {
					n = cost()
				}
				p.call(ctx, n)
			}
		})
	}
}

// call waits for n units and uses them.
func (p *process) call(ctx context.Context, n int) time.Duration {
	began := time.Now()
	if p.q.Wait(throttle.WithCost(ctx, n)) != nil {
		return -1
	}
	p.led.add(p.id, n)
	wait := time.Since(began)
	p.mu.Lock()
	p.max = max(p.max, wait)
	p.mu.Unlock()
	return wait
}

// quiet makes calls at random moments (Poisson), so many a second, and collects their waits.
func (p *process) quiet(perSecond float64, waits *[]time.Duration) {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	var mu sync.Mutex
	p.wg.Go(func() {
		for sleep(ctx, time.Duration(rand.ExpFloat64()/perSecond*1e9)) == nil {
			p.wg.Go(func() {
				w := p.call(ctx, 1)
				mu.Lock()
				defer mu.Unlock()
				*waits = append(*waits, w)
			})
		}
	})
}

// kill ends the workers; what the process holds is lost.
func (p *process) kill() {
	p.stop()
	p.wg.Wait()
}

func killAll(ps []*process) {
	for _, p := range ps {
		p.kill()
	}
}

// fleetOf starts n processes that want all they can get.
func fleetOf(n int, m *Memory, led *ledger, limit rate.Limit, burst int, o Options) (ps []*process) {
	for i := range n {
		p := newProcess(i, m, led, limit, burst, o)
		p.work(4, nil)
		ps = append(ps, p)
	}
	return ps
}

func trips(ps []*process) (n int) {
	for _, p := range ps {
		p.link.set(func() { n += p.link.trips })
	}
	return n
}

// TestSaturated: processes that want more than the limit use all of it, in equal parts, with few round trips.
func TestSaturated(t *testing.T) {
	for _, c := range []struct {
		members int
		limit   rate.Limit
		trips   float64 // at most, for each call
	}{{1, 50, 1.1}, {4, 50, 1.1}, {16, 50, 1.1}, {3, 20, 1.1}, {7, 50, 1.1}, {8, 50, 1.1}, {13, 100, 1.1}, {4, 1000, 0.05}, {16, 1000, 0.15}, {16, 50000, 0.05}} {
		if race.Pick(c.limit > 10000, false) {
			continue
		}
		bubble(t, func(t *testing.T) {
			led, burst := new(ledger), 1
			start := time.Now()
			ps := fleetOf(c.members, new(Memory), led, c.limit, burst, Options{})
			run := 10 * time.Second
			if c.limit > 10000 {
				run = 1500 * time.Millisecond
			}
			time.Sleep(run)
			killAll(ps)
			from, to := start.Add(time.Second/2), start.Add(run)
			used := float64(led.units(-1, from, to)) / (to.Sub(from).Seconds() * float64(c.limit))
			excess := led.burst(start, to, c.limit) - float64(burst)
			perCall := float64(trips(ps)) / float64(len(led.log))
			jain := led.jain(c.members, from, to)
			t.Logf("%2d at %6v/s: used %.4f, excess %.2f, jain %.4f, trips %.3f a call", c.members, c.limit, used, excess, jain, perCall)
			if used < 0.98 || jain < 0.98 || perCall > c.trips {
				t.Errorf("%d at %v/s: used %.4f, jain %.4f, %.3f trips a call", c.members, c.limit, used, jain, perCall)
			}
			if most := float64(c.limit)*0.25 + 1; excess > most {
				t.Errorf("%d at %v/s: %.2f above burst + limit·L; at most %.2f", c.members, c.limit, excess, most)
			}
		})
	}
}
