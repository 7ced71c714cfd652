package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A plainCall is a waiting call in a plainFlows.
type plainCall struct {
	name string
	prio int32
	cost int32
	seq  uint64
}

// plainFlows computes the order by the formulas of start-time fair queueing, over a list in which everything is looked
// up anew. It never forgets a flow while somebody of its priority waits.
type plainFlows struct {
	wait   []plainCall
	now    map[int32]float64            // of a priority in which flows were named
	start  map[int32]map[string]float64 // of each flow
	weight map[string]float64
	turns  int
}

func (p *plainFlows) join(c plainCall) {
	if _, ok := p.now[c.prio]; !ok && c.name != "" {
		p.now[c.prio], p.start[c.prio] = 0, map[string]float64{}
	}
	waits := slices.ContainsFunc(p.wait, func(o plainCall) bool { return o.prio == c.prio && o.name == c.name })
	if s := p.start[c.prio]; s != nil && !waits {
		s[c.name] = max(s[c.name], p.now[c.prio])
	}
	p.wait = append(p.wait, c)
}

func (p *plainFlows) leave(c plainCall) {
	p.wait = slices.DeleteFunc(p.wait, func(o plainCall) bool { return o == c })
	if !slices.ContainsFunc(p.wait, func(o plainCall) bool { return o.prio == c.prio }) {
		delete(p.now, c.prio)
		delete(p.start, c.prio)
	}
}

// of is the next call of a priority.
func (p *plainFlows) of(prio int32) plainCall {
	return slices.MinFunc(p.wait, func(a, b plainCall) int {
		return cmp.Or(-cmp.Compare(btoi(a.prio == prio), btoi(b.prio == prio)),
			cmp.Compare(p.start[prio][a.name], p.start[prio][b.name]), cmp.Compare(a.seq, b.seq))
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (p *plainFlows) share(c plainCall) float64 { return float64(max(1, c.cost)) / p.weight[c.name] }

// grant is whose turn it is; that call goes.
func (p *plainFlows) grant() plainCall {
	var c plainCall
	p.turns++
	out := p.turns%fairEvery == 0
	if out {
		c = slices.MinFunc(p.wait, func(a, b plainCall) int { return cmp.Compare(a.seq, b.seq) })
		if s := p.start[c.prio]; s != nil && s[c.name] >= p.now[c.prio]+p.share(c) {
			c = p.of(c.prio)
		}
	} else {
		c = p.of(slices.MaxFunc(p.wait, func(a, b plainCall) int { return cmp.Compare(a.prio, b.prio) }).prio)
	}
	if s := p.start[c.prio]; s != nil {
		s[c.name] = max(s[c.name], p.now[c.prio])
		if !out {
			p.now[c.prio] = s[c.name]
		}
		s[c.name] += p.share(c)
	}
	p.leave(c)
	return c
}

// The order of grants is that of start-time fair queueing, whatever flows, weights, priorities, costs and scopes come,
// go, and come back to their old places.
func TestFlowsAgainstPlainList(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 5))
		names := []string{"", "a", "b", "c", "d", "e"}[rng.IntN(2):]
		names = names[:1+rng.IntN(len(names))]
		prios, scopes := 1+rng.Int32N(3), 1+rng.IntN(3)
		q := New(testConfig(Options{}), setOf())
		l := newLine(q)
		q.line = l
		p := &plainFlows{now: map[int32]float64{}, start: map[int32]map[string]float64{}, weight: map[string]float64{"": 1, "a": 1, "b": 2, "c": 0.5, "d": 4, "e": 1}}
		at := map[plainCall]*waiter{}
		var back []plainCall
		remove := func(c plainCall) {
			l.remove(at[c])
			q.goneLocked(at[c])
			delete(at, c)
			back = append(back, c)
		}
		for step := range 2000 {
			switch n := rng.IntN(10); {
			case n < 6 && (step/400)%2 == 0, n < 4, len(at) == 0:
				c := plainCall{names[rng.IntN(len(names))], rng.Int32N(prios), rng.Int32N(5), uint64(step + 1)}
				if len(back) > 0 && rng.IntN(4) == 0 { // a retry
					i := rng.IntN(len(back))
					c = back[i]
					back = slices.Delete(back, i, i+1)
				}
				o := &order{waiter: waiter{cost: c.cost, prio: c.prio, seq: c.seq, scope: uint8(rng.IntN(scopes))}, want: &Want{Flow: c.name}, weight: p.weight[c.name]}
				w := new(waiter)
				*w = o.waiter
				l.join(w, o)
				l.push(w)
				p.join(c)
				at[c] = w
			case n == 9: // gives up
				c := p.wait[rng.IntN(len(p.wait))]
				p.leave(c)
				remove(c)
			default:
				l.inTurn = !l.oldestTurn()
				w, c := l.next(), p.grant()
				if at[c] != w {
					t.Fatalf("seed %d, step %d: the turn is that of call %d, priority %d, flow %v, want %+v", seed, step, w.seq, w.prio, w.flow, c)
				}
				if f := l.flows.of(w); f != nil {
					f.charge(w.cost, l.inTurn)
				}
				l.served++
				remove(c)
			}
			if step%50 == 0 {
				checkFlows(t, l)
			}
		}
		for len(at) > 0 {
			remove(p.grant())
		}
		if len(l.flows) > 0 {
			t.Fatalf("seed %d: %d priorities are remembered though nobody waits", seed, len(l.flows))
		}
	}
}

// checkFlows counts the waiters of each flow.
func checkFlows(t *testing.T, l *line) {
	t.Helper()
	count, units := map[*flow]int{}, map[*flow]int64{}
	l.each(func(w *waiter) {
		f := l.flows.of(w)
		count[f]++
		units[f] += int64(w.cost)
	})
	for prio, c := range l.flows {
		waiting := 0
		for _, f := range c.flows {
			waiting += f.count
			if f.count != count[f] || f.units != units[f] {
				t.Fatalf("priority %d: flow %v counts %d calls, %d units, has %d, %d", prio, f.id, f.count, f.units, count[f], units[f])
			}
			if f.count == 0 && f.place < 0 && f != c.unnamed {
				t.Fatalf("flow %v is neither waiting nor remembered", f.id)
			}
		}
		if waiting != c.waiting || waiting == 0 {
			t.Fatalf("priority %d: %d calls wait, %d are counted", prio, waiting, c.waiting)
		}
	}
}

// A program that names a flow for each call neither fills the memory nor starves those that do not.
func TestFlowsWithoutEndAreForgotten(t *testing.T) {
	q := New(testConfig(Options{}), setOf())
	l := newLine(q)
	q.line = l
	seq := uint64(0)
	put := func(name string) {
		seq++
		w := &waiter{seq: seq, cost: 1}
		l.join(w, &order{want: &Want{Flow: name}, weight: 1})
		l.push(w)
	}
	for range 10_000 {
		put("steady")
	}
	for range 10 {
		put(fmt.Sprint("once ", seq))
	}
	steady := 0
	for range 100_000 {
		w := l.next()
		if w.flow.id.name == "steady" {
			steady++
		}
		l.inTurn = !l.oldestTurn()
		w.flow.charge(w.cost, l.inTurn)
		l.served++
		l.remove(w)
		q.goneLocked(w)
		put(fmt.Sprint("once ", seq))
		if n := len(l.flows[0].flows); n > maxRemembered+10_100 {
			t.Fatalf("%d flows are remembered", n)
		}
	}
	if steady < 20 {
		t.Errorf("%d calls of the steady flow in 100,000 grants", steady)
	}
}

// A tenancy has tenants call a queue, and notes who went when.
type tenancy struct {
	q     *Queue
	start time.Time
	wg    sync.WaitGroup
	mu    sync.Mutex
	when  map[string][]time.Duration
}

func newTenancy(q *Queue) *tenancy {
	return &tenancy{q: q, start: time.Now(), when: map[string][]time.Duration{}}
}

func (n *tenancy) call(ctx context.Context, flow string, cost int) error {
	err := n.q.Wait(ctx, &Want{Cost: cost, Flow: flow})
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		n.when[flow] = append(n.when[flow], time.Since(n.start))
	}
	return err
}

// send sends calls, one after the other.
func (n *tenancy) send(ctx context.Context, flow string, calls int) {
	for range calls {
		n.wg.Go(func() { n.call(ctx, flow, 1) })
	}
	synctest.Wait()
}

// Three calls of one flow are done within 80 ms at 100/s, though 10,000 of another one wait.
func TestFloodDelaysOnlyItself(t *testing.T) {
	for _, flood := range []string{"flood", ""} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			n := newTenancy(New(testConfig(Options{}), setOf(bucket(100, 1))))
			n.send(ctx, flood, 10_001)
			time.Sleep(time.Second + 5*ms)
			arrived := time.Since(n.start)
			n.send(ctx, "small", 3)
			time.Sleep(80 * ms)
			synctest.Wait()
			if n.mu.Lock(); len(n.when["small"]) != 3 {
				t.Errorf("flood %q: %v went of 3 calls that came at %v", flood, n.when["small"], arrived)
			}
			n.mu.Unlock()
			cancel()
			n.wg.Wait()
			conserved(t, n.q)
		})
	}
}

// Flows share by weight, each second.
func TestFlowsShareByWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		weights := map[string]float64{"a": 1, "b": 1, "c": 2, "d": 4}
		ctx, cancel := context.WithCancel(t.Context())
		n := newTenancy(New(testConfig(Options{Weight: func(flow string) float64 { return weights[flow] }}), setOf(bucket(800, 1))))
		for flow := range weights {
			n.send(ctx, flow, 3000)
		}
		time.Sleep(5*time.Second + ms)
		cancel()
		n.wg.Wait()
		for flow, weight := range weights {
			for second := range 5 {
				got := 0
				for _, at := range n.when[flow] {
					if int(at/time.Second) == second {
						got++
					}
				}
				if want := 100 * weight; math.Abs(float64(got)-want) > 0.03*want {
					t.Errorf("flow %s got %d in second %d, want %v", flow, got, second, want)
				}
			}
		}
	})
}

// Tenants with one worker get as much as one with fifty, though its calls always wait longest.
func TestFlowsAreFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tenants = 20
		ctx, cancel := context.WithCancel(t.Context())
		n := newTenancy(New(testConfig(Options{}), setOf(bucket(1000, 1))))
		for i := range tenants {
			for range 1 + 49*btoi(i == 0) + i%3 {
				n.wg.Go(func() {
					for n.call(ctx, fmt.Sprint(i), 1) == nil {
					}
				})
			}
		}
		time.Sleep(tenants * 100 * ms)
		cancel()
		n.wg.Wait()
		var sum, squares float64
		for _, when := range n.when {
			sum += float64(len(when))
			squares += float64(len(when)) * float64(len(when))
		}
		if jain := sum * sum / (tenants * squares); jain < 0.999 {
			t.Errorf("Jain's index is %.4f over %v calls, want 0.999", jain, sum)
		}
	})
}

// Weights that are nonsense count as 1, and those beyond the bounds as the bounds.
func TestWeights(t *testing.T) {
	for _, c := range []struct{ weight, want float64 }{
		{0, 1}, {-1, 1}, {math.NaN(), 1}, {math.Inf(-1), 1}, {math.Inf(1), 1000}, {1e300, 1000}, {1e-300, 0.001}, {2.5, 2.5},
	} {
		o := Options{Weight: func(string) float64 { return c.weight }}
		if got := o.weigh("flow"); got != c.want {
			t.Errorf("a weight of %v counts as %v, want %v", c.weight, got, c.want)
		}
	}
	for _, what := range []any{"oops", nil, errors.New("oops")} {
		o := Options{Weight: func(string) float64 { panic(what) }}
		if got := o.weigh("flow"); got != 1 {
			t.Errorf("a weight that panics counts as %v, want 1", got)
		}
	}
}

// A weight is asked for once a call, without the lock, and not for calls that name no flow.
func TestWeightIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q *Queue
		var asked []string
		q = New(testConfig(Options{Weight: func(flow string) float64 {
			q.Stats() // takes the lock
			asked = append(asked, flow)
			return 2
		}}), setOf(bucket(10, 1)))
		q.Wait(t.Context(), &Want{Cost: 1})
		q.Wait(t.Context(), &Want{Cost: 1})
		q.Wait(t.Context(), &Want{Cost: 1, Flow: "a"})
		q.Do(t.Context(), &Want{Cost: 1, Flow: "b"}, func(context.Context) error { return nil })
		if !slices.Equal(asked, []string{"a", "b"}) {
			t.Errorf("asked for the weights of %q", asked)
		}
		conserved(t, q)
	})
}

// What is predicted for a call comes true, if nobody else comes: within a twentieth, or the time of one call of each flow.
func TestPredictionsWithFlows(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 6))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			weights := map[string]float64{"a": 1, "b": 0.3, "c": 2, "d": 5, "e": 1}
			config := testConfig(Options{Weight: func(flow string) float64 { return weights[flow] }})
			var predicted time.Duration
			config.Error = func(_ string, wait time.Duration, _ int, reason error) error {
				predicted = wait
				return reason
			}
			n := newTenancy(New(config, setOf(bucket(100, 1))))
			flows := strings.Split("a,b,c,d,", ",")
			flows = flows[:2+rng.IntN(4)]
			for range 10 + rng.IntN(1000) {
				flow, cost := flows[rng.IntN(len(flows))], 1+rng.IntN(3)
				n.wg.Go(func() { n.call(ctx, flow, cost) })
				if rng.IntN(50) == 0 {
					time.Sleep(time.Duration(rng.IntN(300)) * ms)
				}
			}
			synctest.Wait()
			last := append(flows, "e")[rng.IntN(len(flows)+1)]
			if n.q.Wait(ctx, &Want{Cost: 1, Flow: last, MaxWait: -1}) == nil {
				return // nobody waits any more
			}
			wait, begin := predicted, time.Now()
			n.call(ctx, last, 1)
			took := time.Since(begin)
			if off := (wait - took).Abs(); off > max(took/20, time.Duration(30*len(flows))*ms) {
				t.Errorf("seed %d: flow %q waited for %v, predicted %v", seed, last, took, wait)
			}
			cancel()
			n.wg.Wait()
			conserved(t, n.q)
		})
	}
}

// At a limiter that all keys share each key is a flow: one with 10,000 waiting calls leaves the two others their shares.
// Calls that name a flow share by that, whatever their keys.
func TestKeysShareALimiter(t *testing.T) {
	for name, c := range map[string]struct {
		flows map[string]string // by key
		want  map[string]int    // calls of each key in 10 s, of 1,000
	}{
		"keys":      {want: map[string]int{"flooded": 334, "h1": 333, "h2": 333}},
		"one flow":  {flows: map[string]string{"h1": "tenant", "h2": "tenant"}, want: map[string]int{"flooded": 500, "h1": 250, "h2": 250}},
		"all named": {flows: map[string]string{"flooded": "a", "h1": "b", "h2": "light"}, want: map[string]int{"flooded": 400, "h1": 400, "h2": 200}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := testConfig(Options{Weight: func(flow string) float64 { return 1 - 0.5*float64(btoi(flow == "light")) }})
				config.Shared = setOf(bucket(100, 1))
				var mu sync.Mutex
				got := map[string]int{}
				c1 := newClient(config, func(_ context.Context, key, _ string, _ int) Outcome {
					mu.Lock()
					defer mu.Unlock()
					got[key]++
					return Success
				})
				ctx, stop := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				for key := range c.want {
					want := &Want{Cost: 1, Flow: c.flows[key]}
					for range 1 + 9_999*btoi(key == "flooded") {
						wg.Go(func() {
							for {
								if _, err := c1.call(ctx, key, "/", want, false); err != nil || key == "flooded" {
									return
								}
							}
						})
					}
				}
				time.Sleep(10*time.Second - ms)
				mu.Lock()
				for key, n := range c.want {
					if math.Abs(float64(got[key]-n)) > 0.02*float64(n) {
						t.Errorf("%s: %d calls, want %d", key, got[key], n)
					}
				}
				mu.Unlock()
				stop()
				wg.Wait()
			})
		})
	}
}

// Of thousands of flows a prediction looks at some, which stand for the others.
func TestPredictionAmongManyFlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(testConfig(Options{}), setOf(bucket(1000, 1)))
		q.Wait(t.Context(), &Want{Cost: 1})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 10_000 { // two calls of each
			wg.Go(func() { q.Wait(ctx, &Want{Cost: 1, Flow: fmt.Sprint("flow ", i%5000)}) })
		}
		synctest.Wait()
		locked(q.common, func() {
			c := q.line.flows[0]
			for name, want := range map[string]int64{"new": 5000, "flow 7": 9998} {
				got := q.predictLocked(&order{waiter: waiter{cost: 1, seq: 1 << 40}, want: &Want{Flow: name}, weight: 1}, time.Now())
				all := c.ahead(flowID{name: name}, 1, 0)
				if math.Abs(float64(got.Milliseconds()-want)) > 0.05*float64(want) || math.Abs(float64(all-want)) > 0.05*float64(want) {
					t.Errorf("a call of %q is predicted to wait for %v, behind %d units; want %d ms", name, got, all, want)
				}
			}
		})
		cancel()
		wg.Wait()
		conserved(t, q)
	})
}
