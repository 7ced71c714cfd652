package worlds

import (
	"cmp"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-throttle/throttle"
)

// A plant is a fault of the model, to see that the oracle finds it.
type plant string

// A model is a scheduler that has the properties, and nothing else: it is slow, and knows no gates. It shows that the
// oracle asks for what can be had.
type model struct {
	mu    sync.Mutex
	r     *run
	s     *sched
	timer *time.Timer
	chans map[*call]chan error
}

// A sched is the state of a model. It can be copied, to foretell.
type sched struct {
	plant    plant
	w        *world
	accounts []*account
	paused   []int64
	failures []int
	ok       []bool
	line     []*waiter
	turns    map[string]int
	last     map[share]float64 // the finish of a flow, and the virtual time of a class under the flow ""
	absent   map[share]bool
	asDead   map[*call]bool
	credit   []float64 // of the dead
}

func (r *run) model(p plant) subject {
	n := len(r.keys)
	s := &sched{plant: p, w: r.world, paused: make([]int64, n), failures: make([]int, n), ok: make([]bool, n), turns: map[string]int{}, last: map[share]float64{}, absent: map[share]bool{}, asDead: map[*call]bool{}, credit: make([]float64, len(r.accounts))}
	for _, a := range r.accounts {
		s.accounts = append(s.accounts, a.clone())
	}
	m := &model{r: r, s: s, chans: map[*call]chan error{}}
	return m
}

func (s *sched) clone() *sched {
	c := *s
	c.accounts = nil
	for _, a := range s.accounts {
		c.accounts = append(c.accounts, a.clone())
	}
	c.paused, c.failures, c.ok, c.line, c.credit = slices.Clone(s.paused), slices.Clone(s.failures), slices.Clone(s.ok), slices.Clone(s.line), slices.Clone(s.credit)
	c.turns, c.last, c.absent, c.asDead = maps.Clone(s.turns), maps.Clone(s.last), maps.Clone(s.absent), maps.Clone(s.asDead)
	return &c
}

func (s *sched) dead(k int) bool { return s.failures[k] >= 2 || s.failures[k] == 1 && !s.ok[k] }

func (s *sched) lacks(i int, c *call, now int64) bool {
	a := s.accounts[i]
	return a.free(now) < a.need(a.amount(c))-eps
}

func (s *sched) class(k int) string { return s.w.keys[k].class }

// counter is where the turns of a key are counted: together with all that share something, or by themselves.
func (s *sched) counter(k int) string {
	if len(s.w.keys[k].shared) > 0 {
		return "shared"
	}
	return host(k)
}

// units are what a turn costs a flow.
func (s *sched) units(c *call) float64 {
	u := float64(c.cost)
	for _, i := range s.w.keys[c.key].shared {
		if s.accounts[i].unit == byHold {
			u = float64(c.hold)
		}
	}
	for _, i := range s.w.keys[c.key].shared {
		if s.accounts[i].unit == byCost {
			u = float64(c.cost)
		}
	}
	if s.plant == "calls count" {
		return 1
	}
	return u
}

// candidates are the first of each flow of each key that wait for nothing of their own, in the order of their turn.
func (s *sched) candidates(now int64) (cands []*waiter) {
	type place struct {
		key, prio int
		flow      string
	}
	seen, blocked := map[place]bool{}, map[int]bool{}
	present := map[share]bool{}
	oldest := map[string]*waiter{} // by counter of turns
	for _, c := range s.line {
		at := place{c.key, c.prio, c.flow}
		if seen[at] || s.paused[c.key] > now || blocked[c.key] {
			continue
		}
		seen[at] = true
		if slices.ContainsFunc(s.w.keys[c.key].own, func(i int) bool { return s.lacks(i, c.call, now) }) {
			blocked[c.key] = true
			if s.plant == "own blocks" {
				cands = append(cands, c)
				if cl := s.counter(c.key); oldest[cl] == nil {
					oldest[cl] = c
				}
			}
			continue
		}
		cands = append(cands, c)
		present[share{s.class(c.key), c.flow, c.prio}] = present[share{s.class(c.key), c.flow, c.prio}] || !s.dead(c.key)
		if cl := s.counter(c.key); oldest[cl] == nil {
			oldest[cl] = c
		}
	}
	if s.plant != "no lift" {
		for sh := range s.last {
			if sh.flow != "" && present[sh] && s.absent[sh] {
				s.last[sh] = max(s.last[sh], s.last[share{sh.class, "", sh.prio}])
			}
			s.absent[sh] = !present[sh]
		}
	}
	order := func(c *waiter) (int, float64) {
		p := c.prio
		if cl := s.counter(c.key); s.turns[cl]%8 == 7 && p == oldest[cl].prio && s.plant != "no eighth" {
			p = 1 << 30
			if c == oldest[cl] && s.w.mixed { // so that no class starves; of one class the flow whose turn it is
				p++
			}
		}
		if s.plant == "no priority" {
			p = 0
		}
		sh, v := share{s.class(c.key), c.flow, c.prio}, share{s.class(c.key), "", c.prio}
		return p, s.from(sh) - s.last[v]
	}
	slices.SortStableFunc(cands, func(a, b *waiter) int {
		pa, sa := order(a)
		pb, sb := order(b)
		if s.plant == "by age" {
			sa, sb = 0, 0
		}
		if s.plant == "failed last" {
			sa, sb = sa+1e6*float64(s.failures[a.key]), sb+1e6*float64(s.failures[b.key])
		}
		return cmp.Or(cmp.Compare(pb, pa), cmp.Compare(sa, sb), cmp.Compare(a.at, b.at))
	})
	return cands
}

// from is the virtual start of a flow's next call.
func (s *sched) from(sh share) float64 {
	if f, ok := s.last[sh]; ok && !s.absent[sh] || s.plant == "no lift" {
		return f
	}
	return max(s.last[sh], s.last[share{sh.class, "", sh.prio}])
}

func b2f(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// pick returns who goes now; wake is when to ask again.
func (s *sched) pick(now int64) (_ *waiter, wake int64) {
	wake = never
	cands := s.candidates(now)
	var before []*waiter // whose turn it is, and who cannot go yet
	for _, c := range cands {
		if s.dead(c.key) && s.plant != "dead are live" && s.tooDead(c, cands, now) {
			continue
		}
		at, reserved := s.ready(c.call, now), false
		for _, b := range before {
			reserved = reserved || s.delays(c, b, now)
		}
		if at <= now && !reserved {
			return c, now
		}
		if at > now {
			wake = min(wake, at)
		} else {
			wake = min(wake, now+int64(time.Millisecond))
		}
		if s.plant != "no saving" && at > now {
			before = append(before, c)
		}
	}
	for _, c := range s.line {
		if s.paused[c.key] > now {
			wake = min(wake, s.paused[c.key])
		}
		if at := s.ready(c.call, now); at > now {
			wake = min(wake, at)
		}
	}
	return nil, wake
}

func (s *sched) pays(k int) []int {
	return s.w.keys[k].pays
}

func (s *sched) ready(c *call, now int64) int64 {
	at := now
	for _, i := range s.pays(c.key) {
		a := s.accounts[i]
		at = max(at, a.when(a.need(a.amount(c)), now))
	}
	return at
}

// delays reports whether c going now makes b later, whose turn is before.
func (s *sched) delays(c, b *waiter, now int64) bool {
	ready := s.ready(b.call, now)
	for _, i := range s.pays(b.key) {
		if !slices.Contains(s.pays(c.key), i) {
			continue
		}
		if s.accounts[i].kind == slots {
			if s.lacks(i, b.call, now) {
				return true
			}
			continue
		}
		a := s.accounts[i].clone()
		if ready == never && !s.lacks(i, b.call, now) {
			continue
		}
		a.take(a.amount(c.call), now)
		if at := a.when(a.need(a.amount(b.call)), now); at > ready || ready == never || s.plant == "own blocks" {
			return true
		}
	}
	return false
}

// tooDead reports whether the dead have had their tenth of what a live key waits for.
func (s *sched) tooDead(c *waiter, cands []*waiter, now int64) bool {
	for _, i := range s.w.keys[c.key].shared {
		wanted := slices.ContainsFunc(cands, func(x *waiter) bool {
			return !s.dead(x.key) && slices.Contains(s.w.keys[x.key].shared, i)
		})
		if !wanted {
			s.credit[i] = 0
			continue
		}
		a := s.accounts[i]
		if a.kind == slots {
			n := 0
			for d := range s.asDead {
				if s.dead(d.key) {
					n++
				}
			}
			if n >= max(1, s.w.maxIn/10) {
				return true
			}
		} else if s.credit[i] < 0 {
			return true
		}
	}
	return false
}

// step lets go who can, and returns when to ask again.
func (s *sched) step(now int64, start func(*waiter)) int64 {
	for {
		c, wake := s.pick(now)
		if c == nil {
			return wake
		}
		s.line = slices.DeleteFunc(s.line, func(x *waiter) bool { return x == c })
		for _, i := range s.pays(c.key) {
			n := s.accounts[i].amount(c.call)
			s.accounts[i].take(n, now)
			if s.dead(c.key) {
				s.credit[i] -= n
			}
			s.credit[i] = min(0, s.credit[i]+n/10)
		}
		if s.dead(c.key) {
			s.asDead[c.call] = true
		}
		s.turns[s.counter(c.key)]++
		sh, v := share{s.class(c.key), c.flow, c.prio}, share{s.class(c.key), "", c.prio}
		from := s.from(sh)
		w := 1.0
		if x := s.w.weights[c.flow]; x > 0 && s.plant != "no weights" {
			w = x
		}
		least := from // an eighth turn may go to one that is ahead of the others
		for _, x := range s.line {
			if o := (share{s.class(x.key), x.flow, x.prio}); o.class == sh.class && o.prio == sh.prio && !s.absent[o] {
				least = min(least, s.from(o))
			}
		}
		s.last[v], s.last[sh] = max(s.last[v], least), from+s.units(c.call)/w
		start(c)
	}
}

// foretell returns when the first call that is wanted starts, if nobody comes or leaves; -1: unknown.
func (s *sched) foretell(c *waiter, now int64, wanted func(*waiter) bool) int64 {
	s = s.clone()
	if c != nil {
		s.line = append(s.line, c)
	}
	found := int64(-1)
	for n := 0; n < 5000 && found < 0; n++ {
		next := s.step(now, func(x *waiter) {
			if found < 0 && wanted(x) {
				found = now
			}
		})
		if next == never {
			break
		}
		now = max(next, now+1)
	}
	if found >= 0 && slices.ContainsFunc(s.line, func(x *waiter) bool { // nobody knows when that comes back
		return slices.ContainsFunc(s.pays(x.key), func(i int) bool { return s.accounts[i].kind == slots && s.lacks(i, x.call, now) })
	}) {
		return -1
	}
	if found >= 0 && s.plant == "optimist" {
		return now - (now-found)/2
	}
	return found
}

func (m *model) now() int64 { return int64(time.Since(m.r.begin)) }

// run lets go who can. m.mu is held.
func (m *model) run() {
	next := m.s.step(m.now(), func(c *waiter) {
		close(m.chans[c.call])
		delete(m.chans, c.call)
	})
	if m.timer != nil {
		m.timer.Stop()
	}
	if next < never && len(m.s.line) > 0 {
		m.timer = time.AfterFunc(time.Duration(max(1, next-m.now())), func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.run()
		})
	}
}

func (m *model) wait(req *http.Request, c *call) error {
	m.mu.Lock()
	if m.s.plant == "counts all" && c.maxWait > 0 && m.s.behindAll(c) > c.maxWait {
		m.mu.Unlock()
		return &throttle.Error{Err: throttle.ErrWaitTooLong}
	}
	now, ch := m.now(), make(chan error)
	m.chans[c] = ch
	w := &waiter{call: c, at: now}
	if c.probe || len(m.s.line) < 5 {
		if at := m.s.foretell(w, now, func(x *waiter) bool { return x == w }); at > now {
			if m.s.plant == "optimist" {
				at = (at + now) / 2
			}
			m.r.note(event{kind: foretold, c: c, key: c.key, val: at - now})
		}
	}
	m.s.line = append(m.s.line, w)
	m.run()
	m.mu.Unlock()
	var late <-chan time.Time
	if c.maxWait > 0 {
		t := time.NewTimer(c.maxWait)
		defer t.Stop()
		late = t.C
	}
	err := throttle.ErrWaitTooLong
	select {
	case <-ch:
		return nil
	case <-late:
	case <-req.Context().Done():
		err = req.Context().Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-ch: // at the same moment
		return nil
	default:
	}
	m.s.line = slices.DeleteFunc(m.s.line, func(x *waiter) bool { return x == w })
	delete(m.chans, c)
	m.run()
	return &throttle.Error{Err: err}
}

// behindAll is the wait of a call if all who wait would go before it, whatever they wait for.
func (s *sched) behindAll(c *call) (wait time.Duration) {
	for _, i := range s.w.keys[c.key].shared {
		n := s.accounts[i].amount(c)
		for _, x := range s.line {
			if slices.Contains(s.w.keys[x.key].shared, i) {
				n += s.accounts[i].amount(x.call)
			}
		}
		if a := s.accounts[i]; a.kind == bucket && a.rate > 0 {
			wait = max(wait, time.Duration((n-a.level)/a.rate*1e9))
		}
	}
	return wait
}

func (m *model) RoundTrip(req *http.Request) (*http.Response, error) {
	c := req.Context().Value(callKey{}).(*call)
	if err := m.wait(req, c); err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	resp, err := m.r.RoundTrip(req)
	m.mu.Lock()
	defer m.mu.Unlock()
	k, bad := c.key, err != nil || resp.StatusCode != 200
	if !bad {
		m.s.failures[k], m.s.ok[k] = 0, true
	} else if req.Context().Err() == nil {
		m.s.failures[k]++
	}
	if i := m.r.keys[k].meter; bad && i >= 0 && m.s.accounts[i].back {
		m.s.accounts[i].give(float64(c.hold)*(1+b2f(m.s.plant == "gives twice")), m.now())
	}
	if err != nil {
		m.done(c)
		return nil, err
	}
	resp.Body = &release{ReadCloser: resp.Body, done: func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.done(c)
	}}
	m.run()
	return resp, nil
}

// done frees the slots of a call. m.mu is held.
func (m *model) done(c *call) {
	delete(m.s.asDead, c)
	for _, i := range m.s.pays(c.key) {
		if a := m.s.accounts[i]; a.kind == slots {
			a.give(1, m.now())
		}
	}
	m.run()
}

type release struct {
	io.ReadCloser
	done func()
}

func (b *release) Close() error {
	b.done()
	return b.ReadCloser.Close()
}

func (m *model) Pause(key string, d time.Duration) { m.pause(key, m.now()+int64(d)) }
func (m *model) Resume(key string)                 { m.pause(key, 0) }

func keyOf(host string) int {
	k, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(host, "k"), ".test"))
	return k
}

func (m *model) pause(key string, end int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k := range m.s.paused {
		if key == "" || k == keyOf(key) {
			m.s.paused[k] = max(m.s.paused[k], end) * int64(b2f(end > 0))
		}
	}
	m.run()
}

func (m *model) Predict(key string, n int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &call{key: keyOf(key), cost: 1, hold: 1}
	c.flow = flowOf(c)
	w := &waiter{call: c, at: m.now()}
	at := m.s.foretell(w, m.now(), func(x *waiter) bool { return x == w })
	if at < 0 {
		return -1
	}
	return time.Duration(at - m.now())
}

func (m *model) Explain(key string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.s.foretell(nil, m.now(), func(x *waiter) bool { return x.key == keyOf(key) })
	if at < 0 {
		return time.Time{}
	}
	return m.r.begin.Add(time.Duration(at))
}

func (m *model) SetRate(a int, r float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.s.accounts[a].setRate(r, m.now())
	m.run()
}
