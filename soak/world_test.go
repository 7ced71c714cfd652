package soak

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttletest"
)

// A station is one line as its callers see it: that of a Transport's key, or a bare Queue. Guarded by
// the world's lock.
type station struct {
	name    string
	tr      *transport      // nil: bare
	key     string          // in tr
	bare    *throttle.Queue // nil: a Transport's
	opts    throttle.QueueOptions
	models  []*model   // limiters of ours that a start pays
	foreign []*foreign // and others

	inside  int                 // calls that have come and not ended
	flying  map[*call]time.Time // those at the upstream, or whose func runs, since then
	bodies  int                 // answers handed out that hold a slot
	line    []*call             // calls that have come and were never sent, in order
	groups  map[*group]bool
	flows   bool       // calls may name theirs
	shares  shares     // of the flows
	quiet   []quiet    // asked not to send
	answers []answered // of a Transport's upstreams
	seen    look       // at the last moment
	stats   throttle.KeyStats
}

// quiet is a time in which nobody may start; at its first moment somebody may have.
type quiet struct {
	since, until time.Time
	route        string // that was throttled; "": it was asked for by hand
}

// An answered is a route's answer, for station.alone.
type answered struct {
	at      time.Time
	route   string
	timed   bool // it was throttled, with a time for all
	served  bool
	dressed bool // it may say something of quotas
}

// A transport is a Transport, and the RoundTripper that its callers use instead.
type transport struct {
	w        *world
	tr       *throttle.Transport
	name     string
	shared   *limits
	own      map[string]*limits // of keys
	joined   bool               // one key for all hosts
	flood    bool               // more hosts than a small table has places
	hosts    []string
	stations map[string]*station
	flows    bool    // calls may name theirs
	end      *ending // nil: nobody has shut it down
	meters   *meters // nil: none
}

// A bucketLine is the line of a Bucket's own Wait.
type bucketLine struct {
	bucket *throttle.Bucket
	model  *model
}

// limits are a Limiter, and what it consists of.
type limits struct {
	lim     throttle.Limiter
	models  []*model
	foreign []*foreign
}

// build makes limiters, Transports and Queues.
func (w *world) build() {
	w.locked(func() {
		for i := range 1 + w.n(2) {
			w.trs = append(w.trs, w.newTransport(fmt.Sprint("t", i)))
		}
		for i := range w.n(3) {
			l := w.newLimits(true)
			opts := w.options()
			w.stations = append(w.stations, &station{
				name: fmt.Sprintf("queue %d %+v of %s", i, opts, l), bare: throttle.NewQueue(l.lim, opts), opts: opts,
				models: l.models, foreign: l.foreign, flying: map[*call]time.Time{}, groups: map[*group]bool{}, flows: w.one(2),
			})
		}
		for _, m := range w.models {
			if b, ok := m.lim.(*throttle.Bucket); ok && w.one(3) {
				w.buckets = append(w.buckets, &bucketLine{bucket: b, model: m})
			}
		}
		for _, st := range w.stations {
			w.note("%s", st.name)
		}
	})
}

func (w *world) options() throttle.QueueOptions {
	return throttle.QueueOptions{
		MaxWaiting:  pick(w, 0, 0, 0, 4, 15),
		MaxWait:     pick(w, 0, 0, 0, 400*time.Millisecond, 3*time.Second),
		MaxInFlight: pick(w, 0, 0, 1, 2, 5, 10),
		Weight:      func(flow string) float64 { return weights[flow] },
	}
}

func (w *world) newTransport(name string) *transport {
	x := &transport{
		w: w, name: name, shared: new(limits), own: map[string]*limits{}, stations: map[string]*station{},
		joined: w.one(6), flood: w.one(10), flows: w.one(2),
	}
	hosts := 1 + w.n(4)
	if x.flood {
		hosts = 40
	}
	for i := range hosts {
		host := fmt.Sprintf("%sh%d.test", name, i)
		x.hosts = append(x.hosts, host)
		w.hosts[host] = w.newHost()
	}
	if w.one(3) {
		x.shared = w.newLimits(true)
	}
	x.tr = &throttle.Transport{
		Limiter: x.shared.lim, Base: upstream{x}, Queue: w.options(), Hooks: w.watch(), Key: x.keyOf,
		MaxInFlight: pick(w, 0, 0, 0, 1, 3, 8),
		Retry: throttle.Retry{
			MaxAttempts: pick(w, 0, 0, 1, 2, 8),
			MaxPause:    pick(w, 0, 0, -1, 700*time.Millisecond, 5*time.Second),
			Budget:      throttle.Budget{PerCall: pick(w, 0, 0, -1, 0.5)},
		},
		LimiterFor: func(key string) throttle.Limiter {
			w.mu.Lock()
			defer w.mu.Unlock()
			if l := x.own[key]; l != nil {
				return l.lim
			}
			return nil
		},
	}
	if w.one(3) {
		x.meters = w.newMeters()
		x.tr.Meters = x.meters.of
	}
	if w.one(4) {
		x.tr.Retry.Check = func(*http.Request, *http.Response, error) throttle.Verdict {
			return pick(w, throttle.Default, throttle.Default, throttle.Final, throttle.Again)
		}
	}
	mayHave := w.n(3) // how many keys in three have a limiter
	keys := x.hosts
	if x.joined {
		keys = []string{joinedKey}
	}
	for _, key := range keys {
		l := new(limits)
		if w.n(3) < mayHave && !x.flood {
			l = w.newLimits(!slices.ContainsFunc(x.shared.foreign, func(f *foreign) bool { return !f.adjusts }))
		}
		x.own[key] = l
		x.addStation(key, l)
	}
	return x
}

const joinedKey = "all"

// keyOf is Transport.Key.
func (x *transport) keyOf(req *http.Request) string {
	if host := req.URL.Host; !x.joined || host == sweeper {
		return host
	}
	return joinedKey
}

// addStation makes the station of a key that has limits of its own.
func (x *transport) addStation(key string, own *limits) {
	st := &station{name: x.name + " " + key, tr: x, key: key, opts: x.tr.Queue, flying: map[*call]time.Time{}, flows: x.flows}
	for _, m := range append(slices.Clone(own.models), x.shared.models...) {
		if !slices.Contains(st.models, m) {
			st.models = append(st.models, m)
		}
	}
	if st.foreign = append(slices.Clone(own.foreign), x.shared.foreign...); len(st.foreign) > 0 {
		for _, m := range st.models {
			m.loose = true
		}
	}
	x.stations[key] = st
	x.w.stations = append(x.w.stations, st)
}

// newLimits makes limits, or takes some that others have too. plain: one part may be unable to give back.
func (w *world) newLimits(plain bool) *limits {
	l := new(limits)
	var parts []throttle.Limiter
	for range 1 + w.n(2) {
		if len(w.models) > 0 && w.one(4) {
			m := pick(w, w.models...)
			if !slices.Contains(l.models, m) {
				l.models = append(l.models, m)
			}
			parts = append(parts, m.lim)
			continue
		}
		m := w.newModel()
		w.models, l.models = append(w.models, m), append(l.models, m)
		parts = append(parts, m.lim)
	}
	if w.one(4) {
		f, lim := w.newForeign(plain)
		w.foreign, l.foreign = append(w.foreign, f), append(l.foreign, f)
		parts = append(parts, lim)
		if w.one(3) {
			f, lim := w.newForeign(false)
			w.foreign, l.foreign = append(w.foreign, f), append(l.foreign, f)
			parts = append(parts, lim)
		}
		if w.one(3) { // nothing of ours
			l.models, parts = nil, parts[len(parts)-len(l.foreign):]
		}
		for _, m := range l.models {
			m.loose = true
		}
	}
	l.lim = throttle.All(parts...)
	return l
}

func (l *limits) String() string {
	var names []string
	for _, m := range l.models {
		names = append(names, m.name)
	}
	for _, f := range l.foreign {
		names = append(names, f.name)
	}
	return fmt.Sprint(names)
}

// meddle changes something between two moments, with mu held: what it wakes has to wait for that.
func (w *world) meddle() {
	now := time.Now()
	switch w.n(8) {
	case 0:
		if len(w.models) > 0 {
			pick(w, w.models...).meddle(w, now)
		}
	case 1:
		if len(w.foreign) > 0 {
			pick(w, w.foreign...).meddle()
		}
	case 2, 3:
		w.pause(pick(w, w.stations...), now)
	case 4:
		w.changeWeather()
	case 5, 6:
		w.cancelAtGrant(pick(w, w.stations...))
	case 7:
		if len(w.booked) > 0 {
			w.booked[0]()
			w.booked = w.booked[1:]
		}
	}
}

// pause pauses or resumes a line.
func (w *world) pause(st *station, now time.Time) {
	if d := w.dur(0, 3*time.Second); w.one(2) && d > 0 && st.bare != nil {
		w.note("pause %s for %v", st.name, d)
		st.quiet = append(st.quiet, quiet{now, now.Add(d), ""})
		st.bare.Pause(d)
		return
	}
	w.note("resume %s", st.name)
	st.quiet = nil
	if st.tr != nil {
		st.tr.tr.Resume(st.key)
		return
	}
	st.bare.Resume()
}

// cancelAtGrant lets a call be cancelled at the moment at which its limiter has the units.
func (w *world) cancelAtGrant(st *station) {
	if len(st.line) == 0 || len(st.models) == 0 {
		return
	}
	c := pick(w, st.line[0], pick(w, st.line...))
	m := pick(w, st.models...)
	if c.cost < 1 || m.available() > 0.99 {
		return
	}
	wait, err := m.lim.Take(w.ctx, c.cost) // takes nothing: there is nothing
	if err == nil {
		time.AfterFunc(wait, c.cancel)
	}
}

// reserve books units, and cancels most bookings later.
func (w *world) reserve(m *model, b *throttle.Bucket, now time.Time) {
	n := 1 + w.n(3)
	r := b.Reserve(n)
	if !r.OK() {
		return
	}
	w.note("%s Reserve(%d)", m.name, n)
	m.acc.adjust(now, n)
	if w.one(4) {
		return
	}
	w.booked = append(w.booked, func() {
		w.note("%s cancels a reservation of %d", m.name, n)
		m.acc.roll(time.Now())
		m.acc.adjust(time.Now(), -n)
		r.Cancel()
	})
}

// calm ends all trouble, so that whoever still waits must be served.
func (w *world) calm() {
	w.note("calm")
	w.over = true
	for name := range w.hosts {
		w.hosts[name] = &host{Server: &throttletest.Server{Latency: throttletest.Span{Max: 5 * time.Millisecond}}}
	}
	for _, m := range w.models {
		if a, ok := m.acc.(*tokenAccount); ok && a.rate < 5 {
			m.acc.roll(time.Now())
			a.rate, m.changed = 5, true
			m.lim.(interface{ SetLimit(rate.Limit) }).SetLimit(5)
		}
	}
}
