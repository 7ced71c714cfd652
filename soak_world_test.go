package throttle

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/queue"
)

// A station is one Queue as an observer sees it: that of a Transport's key, or a bare one. Guarded by
// the soak's lock.
type station struct {
	name    string
	tr      *soakTransport // nil: bare
	bare    *Queue         // nil: a Transport's
	q       *queue.Queue   // that of a key may be dropped and made again
	models  []*soakModel   // limiters of ours that a start pays
	foreign []*soakForeign // and others

	inside int                     // calls that have come and not ended
	flying map[*soakCall]time.Time // those at the upstream, or whose func runs, since then
	bodies int                     // answers handed out that hold a slot
	line   []*soakCall             // calls that have come and not been sent, in order
	groups map[*Group]bool
	quiet  []quiet // told not to send
	seen   look    // at the last moment
	probes probes

	refused, succeeded, failed, paused bool // in this moment: the epoch may change
}

// probes counts those who have started while the gate was closed: the first may, and one for each that
// has been answered or has had its time.
type probes struct {
	closed                bool
	since                 time.Time
	started, landed, aged int
}

// quiet is a time in which nobody may start; at its first moment somebody may have.
type quiet struct{ since, until time.Time }

// A soakTransport is a Transport, and the RoundTripper that its callers use instead.
type soakTransport struct {
	s        *soak
	tr       *Transport
	name     string
	shared   *soakLimit
	limits   map[string]*soakLimit // of keys
	joined   bool                  // one key for all hosts
	flood    bool                  // more hosts than the table has places
	busiest  int                   // keys at once
	hosts    []string
	stations map[string]*station
}

// A soakBucketLine is the line of a Bucket's own Wait.
type soakBucketLine struct {
	bucket *Bucket
	model  *soakModel
	inside int
}

// A soakLimit is a Limiter, and what it consists of.
type soakLimit struct {
	lim     Limiter
	models  []*soakModel
	foreign []*soakForeign
}

// build makes limiters, Transports and Queues.
func (s *soak) build() {
	s.locked(func() {
		for i := range 1 + s.n(2) {
			s.trs = append(s.trs, s.newTransport(fmt.Sprint("t", i)))
		}
		for i := range s.n(3) {
			l := s.limit(true)
			opts := s.options()
			q := NewQueue(l.lim, opts)
			s.stations = append(s.stations, &station{
				name: fmt.Sprintf("queue %d %+v of %s", i, opts, l), bare: q, q: &q.q, models: l.models, foreign: l.foreign,
				flying: map[*soakCall]time.Time{}, groups: map[*Group]bool{},
			})
		}
		for _, m := range s.models {
			if b, ok := m.lim.(*Bucket); ok && s.one(3) {
				s.buckets = append(s.buckets, &soakBucketLine{bucket: b, model: m})
			}
		}
		for _, st := range s.stations {
			s.tell("%s", st.name)
		}
	})
}

func (s *soak) options() QueueOptions {
	return QueueOptions{
		MaxWaiting:  pick(s, 0, 0, 0, 4, 15),
		MaxWait:     pick(s, 0, 0, 0, 400*time.Millisecond, 3*time.Second),
		MaxInFlight: pick(s, 0, 0, 1, 2, 5, 10),
	}
}

func (s *soak) newTransport(name string) *soakTransport {
	x := &soakTransport{
		s: s, name: name, shared: new(soakLimit), limits: map[string]*soakLimit{}, stations: map[string]*station{},
		joined: s.one(6), flood: s.one(10),
	}
	hosts := 1 + s.n(4)
	if x.flood {
		hosts = 40
	}
	for i := range hosts {
		host := fmt.Sprintf("%sh%d.test", name, i)
		x.hosts = append(x.hosts, host)
		s.hosts[host] = s.newHost()
	}
	if s.one(3) {
		x.shared = s.limit(true)
	}
	x.tr = &Transport{
		Limiter: x.shared.lim, Base: soakUpstream{x}, Queue: s.options(), Hooks: s.hooks(),
		Retry: Retry{
			MaxAttempts: pick(s, 0, 0, 1, 2, 8),
			MaxPause:    pick(s, 0, 0, -1, 700*time.Millisecond, 5*time.Second),
			Budget:      Budget{PerCall: pick(s, 0, 0, -1, 0.5)},
		},
	}
	if s.one(4) {
		x.tr.Retry.Check = func(*http.Request, *http.Response, error) Verdict { return pick(s, Default, Default, Final, Again) }
	}
	if x.joined {
		x.tr.Key = func(*http.Request) string { return "all" }
	}
	own := s.n(3) // how many keys in three have a limiter
	x.tr.LimiterFor = func(key string) Limiter {
		s.mu.Lock()
		defer s.mu.Unlock()
		return x.station(key).own().lim
	}
	keys := x.hosts
	if x.joined {
		keys = []string{"all"}
	}
	for _, key := range keys {
		x.limits[key] = new(soakLimit)
		if s.n(3) < own && !x.flood {
			x.limits[key] = s.limit(!slices.ContainsFunc(x.shared.foreign, func(f *soakForeign) bool { return !f.adjusts }))
		}
		x.station(key)
	}
	if x.flood {
		x.tr.once.Do(x.tr.setup)
		x.tr.table.most = 8
	}
	return x
}

// own is the limit of the key alone.
func (st *station) own() *soakLimit { return st.tr.limits[st.key()] }

func (st *station) key() string { return st.name[len(st.tr.name)+1:] }

// station returns that of a key.
func (x *soakTransport) station(key string) *station {
	st := x.stations[key]
	if st == nil {
		l := x.limits[key]
		st = &station{name: x.name + " " + key, tr: x, flying: map[*soakCall]time.Time{}}
		for _, m := range append(slices.Clone(l.models), x.shared.models...) {
			if !slices.Contains(st.models, m) {
				st.models = append(st.models, m)
			}
		}
		if st.foreign = append(slices.Clone(l.foreign), x.shared.foreign...); len(st.foreign) > 0 {
			for _, m := range st.models {
				m.loose = true
			}
		}
		x.stations[key] = st
		x.s.stations = append(x.s.stations, st)
	}
	return st
}

// limit makes a limit, or takes one that others have too. plain: one part may be unable to give back.
func (s *soak) limit(plain bool) *soakLimit {
	l := new(soakLimit)
	var parts []Limiter
	for range 1 + s.n(2) {
		if len(s.models) > 0 && s.one(4) {
			m := pick(s, s.models...)
			if !slices.Contains(l.models, m) {
				l.models = append(l.models, m)
			}
			parts = append(parts, m.lim)
			continue
		}
		var o Limiter
		switch limit := rate.Limit(5 + s.n(60)); s.n(5) {
		case 0, 1:
			o = NewBucket(limit, 1+s.n(10))
		case 2:
			o = NewLeaky(limit)
		case 3:
			o = NewFixedWindow(1+s.n(20), s.dur(50*time.Millisecond, 3*time.Second))
		default:
			o = NewSlidingWindow(1+s.n(20), s.dur(50*time.Millisecond, 3*time.Second))
		}
		m := newSoakModel(o)
		s.models, l.models = append(s.models, m), append(l.models, m)
		parts = append(parts, o)
	}
	if s.one(4) {
		f, lim := s.newForeign(plain)
		s.foreign, l.foreign = append(s.foreign, f), append(l.foreign, f)
		parts = append(parts, lim)
		if s.one(3) {
			f, lim := s.newForeign(false)
			s.foreign, l.foreign = append(s.foreign, f), append(l.foreign, f)
			parts = append(parts, lim)
		}
		if s.one(3) { // nothing of ours
			l.models, parts = nil, parts[len(parts)-len(l.foreign):]
		}
		for _, m := range l.models {
			m.loose = true
		}
	}
	l.lim = All(parts...)
	return l
}

func (l *soakLimit) String() string {
	var names []string
	for _, m := range l.models {
		names = append(names, m.name)
	}
	for _, f := range l.foreign {
		names = append(names, f.name)
	}
	return fmt.Sprint(names)
}

// hooks let the conductor look at what an observer may see.
func (s *soak) hooks() Hooks {
	seen := func(context.Context, Event) { s.happened() }
	return Hooks{Waited: seen, Refused: func(_ context.Context, e Event) {
		s.sum.refused.Add(1)
		s.happened()
	}, Throttled: seen, Failed: seen, Learned: seen, Retrying: func(context.Context, Event) {
		s.sum.retried.Add(1)
		s.happened()
	}}
}

// meddle changes something between two moments, with mu held: what it wakes has to wait for that.
func (s *soak) meddle() {
	now := time.Now()
	switch s.n(8) {
	case 0:
		if len(s.models) > 0 {
			pick(s, s.models...).meddle(s, now)
		}
	case 1:
		if len(s.foreign) > 0 {
			pick(s, s.foreign...).meddle()
		}
	case 2, 3:
		s.pause(pick(s, s.stations...), now)
	case 4:
		s.changeWeather()
	case 5, 6:
		s.cancelAtGrant(pick(s, s.stations...), now)
	case 7:
		for _, x := range s.trs {
			for range x.tr.Stats() {
			}
		}
		if len(s.booked) > 0 {
			s.booked[0]()
			s.booked = s.booked[1:]
		}
	}
}

// pause pauses or resumes a line.
func (s *soak) pause(st *station, now time.Time) {
	if st.q == nil {
		return
	}
	if d := s.dur(0, 3*time.Second); s.one(2) && d > 0 {
		s.tell("pause %s for %v", st.name, d)
		st.quiet = append(st.quiet, quiet{now, now.Add(d)})
		st.paused = true
		st.q.Pause(d)
		return
	}
	s.tell("resume %s", st.name)
	st.quiet = nil
	if st.tr != nil {
		st.tr.tr.Resume(st.key())
		return
	}
	st.q.Resume()
}

// reserve books units, and cancels most bookings later.
func (s *soak) reserve(m *soakModel, b *Bucket, now time.Time) {
	n := 1 + s.n(3)
	r := b.Reserve(n)
	if !r.OK() {
		return
	}
	s.tell("%s Reserve(%d)", m.name, n)
	m.acc.adjust(now, n)
	if s.one(4) {
		return
	}
	s.booked = append(s.booked, func() {
		s.tell("%s cancels a reservation of %d", m.name, n)
		m.acc.roll(time.Now())
		m.acc.adjust(time.Now(), -n)
		r.Cancel()
	})
}

// calm ends all trouble, so that who still waits must be served.
func (s *soak) calm() {
	s.tell("calm")
	s.over = true
	for _, h := range s.hosts {
		*h = soakHost{trip: 10 * time.Millisecond}
	}
	for _, m := range s.models {
		if a, ok := m.acc.(*tokenAccount); ok && a.rate < 5 {
			m.acc.roll(time.Now())
			a.rate = 5
			m.lim.(interface{ SetLimit(rate.Limit) }).SetLimit(5)
		}
	}
}
