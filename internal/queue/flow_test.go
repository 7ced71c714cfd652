package queue

import (
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

	"github.com/go-throttle/throttle/internal/race"
)

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
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
			for range 1 + 49*max(0, 1-i) + i%3 {
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
	for seed := range race.Pick(uint64(10), 40) {
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
		config := testConfig(Options{})
		var predicted time.Duration
		config.Error = func(_ string, wait time.Duration, _ int, reason error) error {
			predicted = wait
			return reason
		}
		n := newTenancy(New(config, setOf(bucket(1000, 1))))
		ctx, cancel := context.WithCancel(t.Context())
		n.call(ctx, "", 1)
		for i := range 10_000 { // two calls of each
			n.wg.Go(func() { n.call(ctx, fmt.Sprint("flow ", i%5000), 1) })
		}
		synctest.Wait()
		for name, want := range map[string]time.Duration{"new": 5 * sec, "flow 7": 9998 * ms} {
			n.q.Wait(ctx, &Want{Cost: 1, Flow: name, MaxWait: -1})
			if (predicted - want).Abs() > want/20 {
				t.Errorf("a call of %q is predicted to wait for %v, want %v", name, predicted, want)
			}
		}
		cancel()
		n.wg.Wait()
		conserved(t, n.q)
	})
}
