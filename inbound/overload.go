package inbound

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/load"
	"github.com/go-throttle/throttle/internal/shed"
)

// An Overload is a handler in front of others that turns requests away while this process has more to do than its cores
// can. Its zero value is ready to use. Fields must not change once Handler, HandlerFunc or Stats was called; all of
// these may be called by several goroutines.
//
//	var busy inbound.Overload
//	http.ListenAndServe(":8080", busy.Handler(mux))
//
// The fields Allow, Priority and Key say who is let in. The signal is how many goroutines wait for a core. Once they are more
// than 32 for each core that the process may use, over about 0.2 s, the requests in flight are limited to fewer than there are,
// until 16 wait that work on them; below 8 the limit rises again. Requests that take less than 5 ms of CPU time in the mean count
// for less: with 0.5 ms and less it takes ten times as many. A process that is well has no limit. CPU use says nothing of that: a
// process that has just enough to do uses all of its CPU. Nothing runs in the background: requests that come and end look, at
// most every 10 ms.
//
// In front of the limit requests wait, for Wait at most: the highest Priority goes first, then each Key in turn, then who came
// last. Every eighth turn is that of the request that has waited longest; with a Key only if a higher priority waits.
//
// An Overload does not see requests that wait for a connection of a pool, a lock or another server, while no core is missing: bound
// those by Adaptive or Deadline. Requests that need a core for 100 ms and more take seconds while 16 of them wait for each. What else
// the process runs counts as its requests do.
//
// An Overload must not be copied. Handler panics if a field makes no sense, naming it.
type Overload struct {
	// Priority says how important a request is, the highest goes first; nil: all are equal. While requests are turned away the
	// lowest go first, at once: as many as were not served in the second before. Priority is asked once for each request,
	// possibly by several goroutines at once, and so are Key, Deadline and Allow.
	Priority func(*http.Request) int

	// Key says whose request it is; nil: all are of one client. Requests of a priority that wait take turns by key, so that
	// each key gets an equal share of the time in flight, and who uses less leaves the rest to others. ByIP, ByHeader and the
	// like fit.
	Key func(*http.Request) string

	// Deadline says until when an answer is of use to the client, as a header may tell; nil, or the zero Time: the deadline
	// of the request's Context alone, which counts in any case. A request whose deadline is over is turned away. So is one that
	// would have to be quicker than all of the last second or two, if 20 at least have ended in them; but one in 100 ms goes
	// all the same, to see.
	Deadline func(*http.Request) time.Time

	// Wait bounds how long a request waits in front of the limit; 0: 100 ms; negative: none waits. MaxWaiting bounds how
	// many do; 0: 1,000. Above that the one that has waited longest makes room, or the newcomer goes if its priority is
	// lower.
	Wait       time.Duration
	MaxWaiting int

	// Adaptive is one more limit of the requests in flight, which follows a signal of yours, such as response times or the
	// wait for a pool; nil: there is none. It holds also while the process is well.
	Adaptive *throttle.Adaptive

	// Allow says which requests are let in whatever happens, and counted apart; nil: none. Health checks and requests of whoever
	// runs the server are examples. They need a core as others do, so their timeout has to be longer than a request takes that is
	// let in. Websockets, tunnels (CONNECT) and event streams are let in or turned away as others are, but do not count as in
	// flight after their first second.
	Allow func(*http.Request) bool

	// Shadow counts what would be turned away, see Stats and OnRefusal, and lets it in. Nobody waits. It says when requests
	// would be turned away, but more than would be: those let in keep the load up.
	Shadow bool

	// Status is that of the answer to a request that is turned away; 0: 503. There is no Retry-After: nobody knows when there
	// will be room, and who obeys it comes back at once with all others. A throttle.Transport sends what was answered 503 again,
	// within its budget, and goes on with all else. It takes 429 for a limit of its own, which it searches for, and may hold for minutes
	// after the overload is over; 529, and any Retry-After, stop all of its calls for a moment.
	Status int

	// Refused answers a request that is turned away, in place of a problem document (RFC 9457) with that Status.
	Refused http.Handler

	// OnRefusal is called for each request that is turned away, or would be but for Shadow; nil: nothing is called. why is
	//
	//	busy   it could not go within Wait
	//	full   it made room for another that waits
	//	low    its priority was too low
	//	late   it could not end before its deadline
	OnRefusal func(r *http.Request, why string)

	source source // nil: load.Reader; for tests

	once  sync.Once
	core  *shedder
	wrong error // why there is none
}

// A source says how busy this process is. load.Reader is one.
type source interface {
	Runnable() float64
	Procs() int
	Cores() float64
	Use(time.Time) load.Use
}

const defaultOverloadWait = 100 * time.Millisecond

// Handler returns a handler that calls next for requests that are let in. It passes the ResponseWriter on as it is. A request
// that comes through two handlers of one Overload counts once. It panics if a field of o makes no sense, or next is nil.
func (o *Overload) Handler(next http.Handler) http.Handler {
	c := o.compiled()
	if next == nil {
		panic("throttle: inbound.Overload.Handler: next is nil")
	}
	c.handlers.Add(1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, next) })
}

// HandlerFunc is Handler for a function, as routers that register functions want it: mux.HandleFunc("/", o.HandlerFunc(f)).
func (o *Overload) HandlerFunc(next http.HandlerFunc) http.HandlerFunc {
	c := o.compiled()
	if next == nil {
		panic("throttle: inbound.Overload.HandlerFunc: next is nil")
	}
	c.handlers.Add(1)
	return func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, next) }
}

// OverloadStats is a snapshot of an Overload, for metrics and for whoever runs the server: Why says what holds requests
// back. Counts are since it was made. CPU, Throttled and Pressure are shown, and not
// obeyed; NaN: the system does not tell.
type OverloadStats struct {
	Why string // what holds requests back, and why, in a sentence; "": nothing

	Admitted uint64 // requests let in, those of Allow not counted
	Refused  uint64 // requests turned away, or that would have been but for Shadow
	Full     uint64 // of Refused, those that made room for others
	Low      uint64 // of Refused, for their priority
	Late     uint64 // of Refused, for their deadline
	Left     uint64 // requests whose clients left while they waited
	Allowed  uint64 // requests let in by Allow

	Limit    int // requests that may be in flight; 0: any number
	InFlight int // requests that are, without streams and those of Allow
	Waiting  int // requests in front of the limit
	Streams  int // websockets, tunnels and event streams that last for more than a second
	Exempt   int // requests of Allow that last

	Runnable  float64       // goroutines that wait, for each core that may be used, smoothed; before Go 1.26 made of Latency: 40 ms are 16
	Latency   time.Duration // for how long goroutines waited for a core in the last 0.1 s, the 90th percentile; -1: too few did
	CPU       float64       // CPU time used in the last 0.1 s, as a share of what the process may use
	Throttled float64       // share of the last second's periods in which the cgroup's quota was used up; NaN: there is no quota
	Pressure  float64       // share of the last 0.1 s in which a task waited for a CPU, of the cgroup or the machine (PSI)
}

// Stats returns a snapshot, for metrics. It looks how busy the process is, as a request does.
func (o *Overload) Stats() OverloadStats { return o.compiled().stats() }

// compiled makes the core once, and panics each time if it cannot, as that of Limit does.
func (o *Overload) compiled() *shedder {
	o.once.Do(func() { o.core, o.wrong = newShedder(o) })
	if o.core == nil {
		panic("throttle: " + o.wrong.Error())
	}
	return o.core
}

// newShedder checks the fields.
func newShedder(o *Overload) (*shedder, error) {
	switch {
	case o.MaxWaiting < 0:
		return nil, fmt.Errorf("inbound.Overload: MaxWaiting is %d, must not be negative", o.MaxWaiting)
	case o.Wait < 0 && o.MaxWaiting > 0:
		return nil, errors.New("inbound.Overload: MaxWaiting is set, and Wait is negative, so nobody waits")
	case o.Status != 0 && (o.Status < 400 || o.Status > 599):
		return nil, fmt.Errorf("inbound.Overload: Status is %d, must be from 400 to 599", o.Status)
	}
	c := &shedder{Overload: o, start: time.Now(), most: max(0, o.Wait), places: o.MaxWaiting}
	if o.Wait == 0 {
		c.most = defaultOverloadWait
	}
	if c.places == 0 {
		c.places = defaultWaiting
	}
	if c.from = o.source; c.from == nil {
		c.from = load.New()
	}
	if c.status = o.Status; c.status == 0 {
		c.status = http.StatusServiceUnavailable
	}
	c.body, _ = json.Marshal(&document{ // strings and numbers: it cannot fail
		Type: "about:blank", Title: http.StatusText(c.status), Status: c.status, Detail: "This server has more to do than it can.",
	})
	c.line.seed = maphash.MakeSeed()
	c.bound.Store(math.MaxInt64)
	if o.Adaptive != nil {
		b, err := boundOf(o.Adaptive)
		if err != nil {
			return nil, err
		}
		c.bound.Store(int64(b))
	}
	c.limit.Store(math.MaxInt64)
	c.quickest.Store(math.MaxInt64)
	c.before.Store(math.MaxInt64)
	c.procs.Store(int64(c.from.Procs()))
	c.due.Store(int64(shed.Look))
	return c, nil
}

// boundOf is what an Adaptive begins with, or the error of a field that makes no sense.
func boundOf(a *throttle.Adaptive) (n int, err error) {
	defer func() {
		if wrong := recover(); wrong != nil {
			err = fmt.Errorf("inbound.Overload: %v", wrong)
		}
	}()
	return a.Bound(0, 1), nil
}
