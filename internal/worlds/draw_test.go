package worlds

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/go-throttle/throttle"
	"golang.org/x/time/rate"
)

// A world is all that happens to a Transport, but for what the Transport does.
type world struct {
	seed     uint64
	accounts []*account // as they are at the beginning
	keys     []*keySpec
	lim      []int // the parts of Transport.Limiter, by index
	maxIn    int
	ownIn    int
	failures int
	weights  map[string]float64
	episodes [][]source
	acts     []act
	mixed    bool    // keys share different things
	hasty    float64 // share of the sources whose calls bear a bounded wait
	text     []string
}

type keySpec struct {
	own, shared  []int  // accounts: that this key alone pays, and others too
	pays         []int  // both
	class        string // the shared ones, as a name
	lim          []int  // what LimiterFor returns, by account; nil: none
	meter        int    // account of its meter; -1: none
	delay        time.Duration
	fault        int // 0: none; 1: dead for a time; 2: flaky
	from, to     time.Duration
	share        float64
	errs         bool // no answer in place of 502
	failDelay    time.Duration
	hasUnlimited bool // no limit of its own or for all is known: first contact
}

// A source makes calls: workers that each call again after think, or all n at once.
type source struct {
	at      time.Duration // since the episode began
	until   time.Duration
	workers int
	n       int // calls of each worker
	think   time.Duration
	keys    []int
	flow    string
	prio    int
	costs   []int
	maxWait time.Duration // 0: none
	timeout time.Duration
	cancel  float64 // share of calls that are cancelled within a second
	hold    time.Duration
}

type act struct {
	at    time.Duration // since the world began
	kind  int           // 0: pause, 1: resume, 2: set the rate
	key   int           // -1: all
	d     time.Duration
	acc   int
	limit float64
}

type call struct {
	id, key    int
	flow       string // as the oracle counts it
	name       string // as WithFlow is told; "": none
	prio       int
	cost, hold int
	maxWait    time.Duration
	timeout    time.Duration
	cancel     time.Duration
	bodyHold   time.Duration
	probe      bool
}

func (w *world) say(format string, args ...any) {
	w.text = append(w.text, fmt.Sprintf(format, args...))
}

func (w *world) String() string { return strings.Join(w.text, "; ") }

func (w *world) add(a account) int {
	a.level, a.moment.at = a.burst, -1
	w.accounts = append(w.accounts, &a)
	return len(w.accounts) - 1
}

// pick returns one of the values.
func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func between(r *rand.Rand, lo, hi float64) float64 { return lo + (hi-lo)*r.Float64() }

func ms(n float64) time.Duration {
	return time.Duration(n * float64(time.Millisecond)).Round(100 * time.Microsecond)
}

// limiter draws a limit of about rps; costs are at most most.
func (w *world) limiter(r *rand.Rand, name string, unit int, rps, most float64, windows bool) []int {
	a := account{name: name, unit: unit, kind: bucket, rate: rps, burst: pick(r, 1, 1, max(1, float64(int(rps/10))), max(2, float64(int(rps)))), back: false}
	if windows && r.IntN(5) == 0 {
		per := pick(r, 200*time.Millisecond, time.Second, 2*time.Second)
		n := max(most, float64(int(rps*per.Seconds())), 1)
		w.say("%s: window of %v per %v", name, n, per)
		b := account{name: name, unit: unit, kind: pick(r, fixed, sliding), burst: n, per: int64(per)}
		if r.IntN(3) == 0 {
			w.say("and %.3g/s burst %v", a.rate, a.burst)
			return []int{w.add(b), w.add(a)}
		}
		return []int{w.add(b)}
	}
	w.say("%s: %.3g/s burst %v", name, a.rate, a.burst)
	return []int{w.add(a)}
}

// make returns the library's limiter for some accounts, and notes it for SetLimit.
func (w *world) make(accounts []int, buckets map[int]*throttle.Bucket) throttle.Limiter {
	var all []throttle.Limiter
	for _, i := range accounts {
		switch a := w.accounts[i]; a.kind {
		case bucket:
			b := throttle.NewBucket(rate.Limit(a.rate), int(a.burst))
			buckets[i] = b
			all = append(all, b)
		case fixed:
			all = append(all, throttle.NewFixedWindow(int(a.burst), time.Duration(a.per)))
		case sliding:
			all = append(all, throttle.NewSlidingWindow(int(a.burst), time.Duration(a.per)))
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return throttle.All(all...)
}

// draw makes the world of a seed.
func draw(seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 37))
	w := &world{seed: seed, failures: 1 << 20, weights: map[string]float64{}}
	n := pick(r, 2, 2, 3, 4, 5, 8, 12, 20, 50)
	costs := [][]int{{1}, {1}, {1, 1, 1, 5}, {1, 2, 3}, {10, 10, 10, 30}, {3}}[r.IntN(6)]
	rps := pick(r, 5.0, 10, 20, 50, 100)
	w.say("seed %d: %d keys, costs %v", seed, n, costs)
	for range n {
		w.keys = append(w.keys, &keySpec{meter: -1, delay: ms(between(r, 1, 100))})
	}
	w.drawShared(r, n, rps, float64(most(costs)))
	w.drawOwn(r, rps, float64(most(costs)))
	w.drawFaults(r)
	w.finish()
	w.drawTraffic(r, rps, costs)
	w.drawActs(r)
	return w
}

func most(costs []int) int {
	m := 0
	for _, c := range costs {
		m = max(m, c)
	}
	return m
}

// drawShared draws what several keys share: at least one thing.
func (w *world) drawShared(r *rand.Rand, n int, rps, most float64) {
	what := pick(r, 1, 1, 1, 2, 3, 3, 4, 5, 6, 7, 8) // bits: Limiter, MaxInFlight, group; 8: meter
	if what&1 != 0 {
		w.lim = w.limiter(r, "Limiter", byCost, rps*pick(r, 1, most), most, true)
	}
	if what&2 != 0 {
		w.maxIn = pick(r, 1, 2, 4, 10, 20)
		w.say("MaxInFlight %d", w.maxIn)
	}
	if what&4 != 0 {
		for g := range 1 + r.IntN(2) {
			lim := w.limiter(r, fmt.Sprintf("group%d", g), byCost, rps*pick(r, 0.2, 1, most), most, true)
			for k := range n {
				if w.keys[k].lim == nil && r.IntN(2) == 0 {
					w.keys[k].lim = lim
				}
			}
		}
	}
	if what&8 != 0 || r.IntN(8) == 0 {
		m := w.limiter(r, "meter", byHold, rps*10, 0, false)[0]
		w.accounts[m].burst = max(w.accounts[m].burst, 10)
		w.accounts[m].level = w.accounts[m].burst
		w.accounts[m].back = r.IntN(2) == 0
		for k := range n {
			if r.IntN(4) != 0 {
				w.keys[k].meter = m
			}
		}
	}
}

// drawOwn draws what single keys have of their own.
func (w *world) drawOwn(r *rand.Rand, rps, most float64) {
	if r.IntN(5) == 0 {
		w.ownIn = pick(r, 1, 2, 5)
		w.say("Queue.MaxInFlight %d", w.ownIn)
	}
	share := pick(r, 0, 0, 0.3, 1)
	for k, s := range w.keys {
		if s.lim == nil && r.Float64() < share {
			s.lim = w.limiter(r, fmt.Sprintf("own%d", k), byCost, rps*pick(r, 0.05, 0.3, 1), most, r.IntN(2) == 0)
		}
		if s.meter < 0 && r.IntN(12) == 0 {
			s.meter = w.limiter(r, fmt.Sprintf("meter%d", k), byHold, rps*3, 0, false)[0]
		}
		if r.IntN(10) == 0 {
			s.delay = ms(between(r, 500, 3000))
			w.say("key %d answers after %v", k, s.delay)
		}
	}
}

func (w *world) drawFaults(r *rand.Rand) {
	share := pick(r, 0, 0, 0.2, 0.5, 0.9)
	if share > 0 && r.IntN(4) == 0 {
		w.failures = 0
		w.say("gates close after 8 failures")
	}
	for k, s := range w.keys {
		if r.Float64() >= share {
			continue
		}
		s.errs, s.failDelay = r.IntN(2) == 0, ms(pick(r, between(r, 1, 50), between(r, 100, 2000)))
		switch r.IntN(3) {
		case 0, 1:
			s.fault, s.from = 1, ms(pick(r, 0, between(r, 0, 4000)))
			s.to = s.from + ms(pick(r, 1e7, between(r, 1000, 8000)))
			w.say("key %d is dead from %v to %v, failing after %v", k, s.from, s.to, s.failDelay)
		case 2:
			s.fault, s.share = 2, pick(r, 0.05, 0.3)
			w.say("key %d fails %.0f %%, after %v", k, 100*s.share, s.failDelay)
		}
	}
}

// finish sorts what each key pays into its own and shared accounts.
func (w *world) finish() {
	users := map[int]int{}
	for _, s := range w.keys {
		s.own = append(append([]int{}, w.lim...), s.lim...)
		if s.meter >= 0 {
			s.own = append(s.own, s.meter)
		}
		s.hasUnlimited = len(s.lim) == 0 && len(w.lim) == 0
		for _, a := range s.own {
			users[a]++
		}
	}
	all := -1
	if w.maxIn > 0 {
		all = w.add(account{name: "slots", unit: bySlot, kind: slots, burst: float64(w.maxIn)})
		users[all] = len(w.keys)
	}
	first := ""
	for k, s := range w.keys {
		if all >= 0 {
			s.own = append(s.own, all)
		}
		pays := s.own
		s.own = nil
		for _, a := range pays {
			if users[a] > 1 {
				s.shared = append(s.shared, a)
			} else {
				s.own = append(s.own, a)
			}
		}
		s.class = fmt.Sprint(s.shared)
		if len(s.shared) > 0 {
			w.mixed, first = w.mixed || first != "" && s.class != first, s.class
		}
		if w.ownIn > 0 {
			s.own = append(s.own, w.add(account{name: fmt.Sprintf("slots of key %d", k), unit: bySlot, kind: slots, burst: float64(w.ownIn)}))
		}
		s.pays = append(slices.Clone(s.own), s.shared...)
	}
}

func (w *world) drawTraffic(r *rand.Rand, rps float64, costs []int) {
	flows := pick(r, 0, 0, 2, 5)
	for f := range flows {
		w.weights[fmt.Sprintf("f%d", f)] = pick(r, 1.0, 1, 1, 2, 0.5)
	}
	prios := pick(r, 1, 1, 2, 3)
	w.hasty = pick(r, 1.0/8, 1.0/8, 1.0/8, 0.6)
	length := pick(r, 3*time.Second, 6*time.Second)
	budget := min(300, int(rps*3*length.Seconds()))
	w.say("%d flows, %d priorities, episodes of %v", flows, prios, length)
	for range 1 + r.IntN(2) {
		var sources []source
		for calls := 0; calls < budget && len(sources) < 40; {
			s := w.source(r, length, flows, prios, costs)
			calls += s.workers * min(s.n, 20)
			sources = append(sources, s)
		}
		w.episodes = append(w.episodes, sources)
	}
	w.say("%d and %d sources", len(w.episodes[0]), len(w.episodes[len(w.episodes)-1]))
}

func (w *world) source(r *rand.Rand, length time.Duration, flows, prios int, costs []int) source {
	s := source{until: length, keys: []int{r.IntN(len(w.keys))}, prio: r.IntN(prios), costs: costs, hold: ms(pick(r, 0, between(r, 0, 100)))}
	if r.IntN(3) == 0 {
		for range 1 + r.IntN(5) {
			s.keys = append(s.keys, r.IntN(len(w.keys)))
		}
	}
	if flows > 0 && r.IntN(4) != 0 {
		s.flow = fmt.Sprintf("f%d", r.IntN(flows))
	}
	if r.IntN(3) == 0 { // costs differ between sources, not within one
		s.costs = costs[len(costs)-1:]
	}
	switch r.IntN(4) {
	case 0: // at once
		s.at, s.workers, s.n = ms(between(r, 0, float64(length/time.Millisecond)/2)), 1+r.IntN(60), 1
	case 1: // workers that come back at once
		s.at, s.workers, s.n = ms(pick(r, 0, between(r, 0, 1000))), 1+r.IntN(8), 1000
	case 2: // one after the other, whatever becomes of them
		s.at, s.workers, s.n, s.think = ms(between(r, 0, 1000)), 1, 10+r.IntN(40), ms(between(r, 5, 200))
	case 3: // workers that think
		s.at, s.workers, s.n, s.think = ms(between(r, 0, 2000)), 1+r.IntN(4), 1000, ms(between(r, 10, 500))
	}
	switch x := r.Float64(); {
	case x < w.hasty:
		s.maxWait = ms(between(r, 1, 5000))
	case x < w.hasty+1.0/8:
		s.cancel = pick(r, 0.1, 0.5)
	case x < w.hasty+1.0/4:
		s.timeout = ms(between(r, 200, 5000))
	}
	return s
}

func (w *world) drawActs(r *rand.Rand) {
	if r.IntN(3) == 0 {
		for range 1 + r.IntN(4) {
			a := act{at: ms(between(r, 0, 6000)), key: r.IntN(len(w.keys)), d: ms(between(r, 100, 6000))}
			if r.IntN(8) == 0 {
				a.key, a.d = -1, a.d/4
			}
			w.acts = append(w.acts, a)
			w.say("at %v key %d is paused for %v", a.at, a.key, a.d)
			if r.IntN(3) == 0 {
				w.acts = append(w.acts, act{at: a.at + a.d/2, kind: 1, key: a.key})
				w.say("and resumed at half")
			}
		}
	}
	if r.IntN(5) == 0 { // many keys stand still, with all that they were asked for
		at, d := ms(between(r, 0, 300)), ms(between(r, 3000, 20000))
		for k := range w.keys {
			if r.IntN(2) == 0 {
				w.acts = append(w.acts, act{at: at, key: k, d: d})
				w.say("at %v key %d is paused for %v", at, k, d)
			}
		}
	}
	for i, a := range w.accounts {
		if a.kind == bucket && a.burst > 0 && r.IntN(2+2*len(w.accounts)) == 0 {
			b := act{at: ms(between(r, 500, 6000)), kind: 2, acc: i, limit: a.rate * pick(r, 0.5, 2)}
			w.acts = append(w.acts, b)
			w.say("at %v %s gets %.3g/s", b.at, a.name, b.limit)
		}
	}
}
