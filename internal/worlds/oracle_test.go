package worlds

import (
	"fmt"
	"slices"
	"time"
)

// slack is how long a unit or a slot may be idle for a timer's sake.
const slack = int64(2 * time.Millisecond)

// A waiter is a call in line, as the oracle sees it.
type waiter struct {
	*call
	at       int64 // of its arrival
	overtake int   // turns since it could go, was the oldest, and neither it nor its flow got one
}

const (
	live = iota
	dead
	murky
)

// A keyState is what the oracle knows of a key.
type keyState struct {
	spec       *keySpec
	waiting    []*waiter
	inFlight   int
	pauseEnd   int64
	reopening  int // 0: no; 1: from a pause until a start; 2: until a success; 3: until the line has been empty for a unit's time
	empty      int64
	health     int
	since      int64 // of its health
	failures   int
	ok, gated  bool // ever; and: its gate may have been closed by failures
	answered   bool
	used       int64
	fits       int64 // since when all its calls could go, but for what is shared; never: some cannot
	most       []float64
	idle       int64 // since when it could go at once; never: it cannot
	deadFlight int   // calls in flight that were granted while it was dead
}

// An oracle reads the log of a run and judges it by the properties.
type oracle struct {
	*world
	log       []event
	now       int64
	accounts  []*account
	keys      []*keyState
	users     [][]int // keys of an account
	flight    map[*call]bool
	asDead    map[*call]bool
	pairs     map[pairOf]*pair
	turns     map[int]*turnCount
	lastCost  map[string]float64
	deadUnits []float64 // of an account: how much more than a tenth the dead have got
	findings  []finding
	claims    map[string]int  // how often each property could be judged
	flips     []int64         // when a key became live or dead
	room      map[int64][]int // by moment: how many calls of each key may start that wait for nothing of their own
	pending   int             // calls that start and end at this moment
	largestOf map[string][3]float64
	deadSince []int64 // of an account: the moment up to which deadUnits counts
	liveSince []int64 // since when a live key waits for it; never: none does
	deadMost  []float64
}

type finding struct{ property, text string }

func newOracle(w *world, log []event) *oracle {
	o := &oracle{world: w, log: log, flight: map[*call]bool{}, asDead: map[*call]bool{}, pairs: map[pairOf]*pair{}, turns: map[int]*turnCount{},
		lastCost: map[string]float64{}, claims: map[string]int{}, room: map[int64][]int{}}
	for _, a := range w.accounts {
		o.accounts = append(o.accounts, a.clone())
	}
	o.users, o.deadUnits = make([][]int, len(o.accounts)), make([]float64, len(o.accounts))
	o.deadSince, o.liveSince, o.deadMost = make([]int64, len(o.accounts)), make([]int64, len(o.accounts)), make([]float64, len(o.accounts))
	for i := range o.liveSince {
		o.liveSince[i] = never
	}
	for k, s := range w.keys {
		o.keys = append(o.keys, &keyState{spec: s, fits: never, idle: never, pauseEnd: -1, since: -1, most: make([]float64, len(o.accounts))})
		for _, a := range s.shared {
			o.users[a] = append(o.users[a], k)
		}
	}
	return o
}

func (o *oracle) found(property, format string, args ...any) {
	if len(o.findings) < 200 {
		o.findings = append(o.findings, finding{property, fmt.Sprintf("%v: ", time.Duration(o.now)) + fmt.Sprintf(format, args...)})
	}
}

func (o *oracle) judge() {
	for i := 0; i < len(o.log); {
		j := i
		for j < len(o.log) && o.log[j].at == o.log[i].at {
			j++
		}
		o.instant(o.log[i:j])
		i = j
	}
	for k, s := range o.keys {
		for _, c := range s.waiting {
			o.found("left", "call %d of key %d has never ended", c.id, k)
		}
	}
	o.predictions()
}

// instant judges the quiet time before a moment, and then all that happens at it.
func (o *oracle) instant(events []event) {
	now := events[0].at
	o.idleUntil(now)
	o.now = now
	var started []*waiter
	var after []event // of calls that start at this moment
	for _, e := range events {
		switch {
		case e.kind == starts:
		case (e.kind == answers || e.kind == ends) && !o.flight[e.c]:
			after = append(after, e)
		default:
			o.apply(e)
		}
	}
	dying := map[int]bool{} // keys that were dead before this moment and still are
	for k, s := range o.keys {
		dying[k] = s.health == dead && s.since < now
	}
	o.pending = len(after)
	for _, e := range events {
		switch {
		case e.kind == starts:
			if c := o.start(e, dying[e.key]); c != nil {
				started = append(started, c)
			}
		case len(after) > 0 && e == after[0]:
			o.apply(e)
			after = after[1:]
			o.pending--
		}
	}
	for _, a := range o.accounts {
		if a.kind == slots {
			continue
		}
		if c, had := a.admits(now); c != nil {
			o.found("admit", "call %d of key %d takes %v of %s, which has %.6g", c.id, c.key, a.amount(c), a.name, had)
		}
	}
	o.refusals(events)
	if len(started) > 0 {
		o.turn(started)
	}
	for _, s := range o.keys {
		o.refresh(s)
	}
	o.flowsAfter(started)
	o.deadAfter(started, dying)
	o.note(events)
}

// note keeps which keys wait for something of their own when something is foretold: they count before nobody.
func (o *oracle) note(events []event) {
	var room []int
	for _, e := range events {
		if e.kind != foretold && e.kind != predicted && e.kind != until {
			continue
		}
		if room == nil {
			for _, s := range o.keys {
				n := 1 << 30
				if s.fits > o.now {
					n = 0
				} else if o.ownIn > 0 {
					n = o.ownIn - s.inFlight
				}
				room = append(room, n)
			}
		}
		o.room[o.now] = room
	}
}

// apply takes note of what is not a start.
func (o *oracle) apply(e event) {
	switch e.kind {
	case arrives:
		s := o.keys[e.key]
		if s.used+int64(30*time.Second) < o.now && s.used > 0 {
			s.health, s.since = murky, o.now // it may have been forgotten
		}
		s.used = o.now
		if s.reopening == 3 && len(s.waiting) == 0 && o.now > s.empty+o.gap(s) {
			s.reopening = 0
		}
		s.waiting = append(s.waiting, &waiter{call: e.c, at: o.now})
	case leaves:
		s := o.keys[e.key]
		s.waiting = slices.DeleteFunc(s.waiting, func(w *waiter) bool { return w.call == e.c })
		s.empty = o.now
	case answers:
		o.answer(e)
	case ends:
		o.end(e)
	case paused, resumed:
		for k, s := range o.keys {
			if e.key >= 0 && e.key != k {
				continue
			}
			if e.kind == resumed {
				s.pauseEnd = min(s.pauseEnd, o.now)
			} else {
				s.pauseEnd = max(s.pauseEnd, o.now+e.val)
			}
			s.reopening = 1
		}
	case setRate:
		o.accounts[e.key].setRate(e.rate, o.now)
	}
}

func (o *oracle) end(e event) {
	s := o.keys[e.key]
	if !o.flight[e.c] {
		return
	}
	delete(o.flight, e.c)
	s.inFlight--
	if o.asDead[e.c] {
		s.deadFlight--
	}
	for _, i := range s.spec.pays {
		if a := o.accounts[i]; a.kind == slots {
			a.level++
		}
	}
}

func (o *oracle) answer(e event) {
	s := o.keys[e.key]
	s.used = o.now
	if e.val != good && s.spec.meter >= 0 && o.accounts[s.spec.meter].back {
		o.accounts[s.spec.meter].give(float64(e.c.hold), o.now)
	}
	health := s.health
	switch e.val {
	case good:
		s.failures, s.ok, s.answered, health = 0, true, true, live
		if s.reopening == 2 {
			s.reopening, s.empty = 3, max(s.empty, o.now)
		}
	case bad:
		s.answered = true
		if s.failures++; s.failures >= 2 || !s.ok {
			health = dead
		}
		s.gated = s.gated || o.failures == 0
	case unknown:
		if health == live {
			health = murky
		}
	}
	if health != s.health {
		s.health, s.since = health, o.now
		o.flips = append(o.flips, o.now)
	}
}

// start takes what a start takes, and checks that it was there.
func (o *oracle) start(e event, dying bool) *waiter {
	s := o.keys[e.key]
	i := slices.IndexFunc(s.waiting, func(w *waiter) bool { return w.call == e.c })
	if i < 0 {
		o.found("left", "call %d starts though it does not wait", e.c.id)
		return nil
	}
	c := s.waiting[i]
	s.waiting = slices.Delete(s.waiting, i, i+1)
	if o.now < s.pauseEnd && s.reopening > 0 && o.pausedBefore(e.key) {
		o.found("admit", "call %d of key %d starts in a pause that ends at %v", c.id, e.key, time.Duration(s.pauseEnd))
	}
	for _, i := range s.spec.pays {
		a := o.accounts[i]
		n := a.amount(c.call)
		o.claims["admit"]++
		if a.kind == slots && a.level+float64(o.pending) < 1 {
			o.found("admit", "call %d of key %d takes a slot of %s, which has %v", c.id, e.key, a.name, a.level)
		}
		a.begin(o.now)
		a.moment.taken = append(a.moment.taken, c.call)
		a.take(n, o.now)
	}
	o.flight[e.c] = true
	s.inFlight++
	if dying {
		o.asDead[e.c] = true
		s.deadFlight++
	}
	if s.reopening == 1 && o.now >= s.pauseEnd {
		s.reopening = 2
	}
	s.used = o.now
	s.empty = o.now
	return c
}

func (o *oracle) pausedBefore(k int) bool {
	for i := len(o.log) - 1; i >= 0; i-- {
		if e := o.log[i]; e.at < o.now && (e.kind == paused || e.kind == resumed) && (e.key < 0 || e.key == k) {
			return e.kind == paused && e.at+e.val > o.now
		}
	}
	return false
}

// gap is how long the line has to have been empty for a reopening to be over: calls are spaced at the slowest rate.
func (o *oracle) gap(s *keyState) int64 {
	gap := int64(0)
	for _, i := range s.spec.pays {
		if a := o.accounts[i]; a.kind != slots && a.rate+float64(a.per) > 0 {
			gap = max(gap, a.produce(30))
		}
	}
	return gap
}

// refresh finds since when all calls of a key could go, were it not for what is shared.
func (o *oracle) refresh(s *keyState) {
	clear(s.most)
	at := o.now
	for _, i := range s.spec.pays {
		for _, c := range s.waiting {
			s.most[i] = max(s.most[i], o.accounts[i].need(o.accounts[i].amount(c.call)))
		}
	}
	for _, i := range s.spec.own {
		at = max(at, o.accounts[i].when(s.most[i], o.now))
	}
	if len(s.waiting) == 0 || s.reopening > 0 || o.now < s.pauseEnd || s.gated || !s.ok && s.inFlight >= 4 || !s.ok && s.spec.hasUnlimited && s.inFlight > 0 {
		at = never
	}
	if at > o.now || s.fits > o.now {
		s.fits = at
	}
}

// mayFit is the earliest moment at which a call of the key might go, were it not for what is shared.
func (o *oracle) mayFit(s *keyState) int64 {
	first := int64(never)
	for _, c := range s.waiting {
		at := o.now
		if !s.gated { // whose probes come when they come
			at = max(at, s.pauseEnd)
		}
		for _, i := range s.spec.own {
			if a := o.accounts[i]; at < never {
				at = max(at, a.when(a.need(a.amount(c.call)), o.now))
			}
		}
		first = min(first, at)
	}
	return first
}

// idleUntil judges the quiet time from the last moment to the next: property 1.
func (o *oracle) idleUntil(end int64) {
	waits := false
	for _, s := range o.keys {
		waits = waits || len(s.waiting) > 0
	}
	if !waits {
		return
	}
	may := make([]int64, len(o.keys))
	need := make([]float64, len(o.accounts)) // the most that a call that may go needs
	liveOn := make([]bool, len(o.accounts))  // somebody who is not known to be dead may want it
	for k, s := range o.keys {
		if len(s.waiting) == 0 {
			may[k] = never
			continue
		}
		if may[k] = o.mayFit(s); may[k] > end {
			continue
		}
		for _, i := range s.spec.shared {
			need[i] = max(need[i], s.most[i])
			liveOn[i] = liveOn[i] || s.health != dead || s.since >= o.now
		}
	}
	for k, s := range o.keys {
		o.idleKey(k, s, end, may, need, liveOn)
	}
}

func (o *oracle) idleKey(k int, s *keyState, end int64, may []int64, need []float64, liveOn []bool) {
	if s.fits > end || len(s.spec.shared) == 0 || s.health == murky || s.since >= o.now {
		s.idle = never
		return
	}
	from := max(s.fits, o.now)
	until := end
	for _, i := range s.spec.shared {
		if s.health == dead && liveOn[i] {
			s.idle = never
			return
		}
		from = max(from, o.accounts[i].when(need[i], o.now))
		until = min(until, o.savedUntil(i, need[i], end, may, s))
	}
	if s.idle == never || from > o.now || s.fits >= o.now {
		s.idle = from
	}
	s.idle = max(s.idle, s.waiting[0].at)
	o.claims["conserve"]++
	if from > until {
		s.idle = never
		return
	}
	if until-s.idle > slack {
		property := "conserve"
		for _, i := range s.spec.shared {
			for _, other := range o.users[i] {
				if len(o.keys[other].waiting) > 0 && may[other] > until {
					property = "isolate"
				}
			}
		}
		o.found(property, "key %d, with call %d, could have gone since %v, until %v%s", k, s.waiting[0].id, time.Duration(s.idle), time.Duration(until), o.state())
		s.idle = until
	}
	if until < end {
		s.idle = never
	}
}

// largestWaits is the most that a call that waits takes of i.
func (o *oracle) largestWaits(i int) (n float64) {
	for _, k := range o.users[i] {
		for _, c := range o.keys[k].waiting {
			n = max(n, o.accounts[i].amount(c.call))
		}
	}
	return n
}

// savedUntil is when a call that waits for another shared thing begins to need the units of i for the moment at
// which it has that. Whose turn it is at i is not known: it may be the largest call that waits, and while that one would delay the
// other, a smaller one does not overtake it, though it might delay neither. To find one would cost a look at each key.
func (o *oracle) savedUntil(i int, most float64, end int64, may []int64, self *keyState) int64 {
	until := end
	for _, k := range o.users[i] {
		s := o.keys[k]
		if s == self || may[k] > end {
			continue
		}
		for _, j := range s.spec.shared {
			if j == i {
				continue
			}
			if o.accounts[i].kind == slots { // nobody knows when one comes back, so none is kept for who waits for units
				continue
			}
			p := o.accounts[i].produce(most + o.largestWaits(i))
			for _, c := range s.waiting {
				a := o.accounts[j]
				if ready := a.when(a.need(a.amount(c.call)), o.now); ready > o.now && ready < never {
					until = min(until, max(o.now, ready-p))
				}
			}
		}
	}
	return until
}

// state tells of everybody who waits.
func (o *oracle) state() string {
	t := ""
	for k, s := range o.keys {
		if len(s.waiting) == 0 && s.inFlight == 0 {
			continue
		}
		c := "nobody"
		if len(s.waiting) > 0 {
			c = fmt.Sprintf("call %d (%s, priority %d, cost %d)", s.waiting[0].id, s.waiting[0].flow, s.waiting[0].prio, s.waiting[0].cost)
		}
		fits := "-"
		if s.fits < never {
			fits = time.Duration(s.fits).String()
		}
		t += fmt.Sprintf("\n      key %d, %s: %d wait, first %s, %d in flight, fits since %s, pays own %s and shared %s", k, []string{"live", "dead", "murky"}[s.health], len(s.waiting), c, s.inFlight, fits, o.names(s.spec.own), o.names(s.spec.shared))
		if len(t) > 1200 {
			return t + " ..."
		}
	}
	return t
}

func (o *oracle) names(accounts []int) string {
	t := "("
	for _, i := range accounts {
		t += fmt.Sprintf("%s %.4g ", o.accounts[i].name, o.accounts[i].free(o.now))
	}
	return t[:max(1, len(t)-1)] + ")"
}

// lacks reports whether a call waits for an account.
func (o *oracle) lacks(i int, c *call) bool {
	a := o.accounts[i]
	return a.free(o.now) < a.need(a.amount(c))-eps
}

// could reports whether a key was in line for what is shared, live, at a moment before this one and without a break.
func (o *oracle) could(s *keyState) bool {
	return s.fits < o.now && s.health == live && s.since < o.now && s.reopening == 0 && o.now >= s.pauseEnd
}
