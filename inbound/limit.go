package inbound

import (
	"fmt"
	"hash/maphash"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/inbound/keys"
)

// A Limit bounds the requests that a server takes from each client. Its Handler is the middleware. Fields must not
// change once one of its methods was called; SetLimits changes limits. All methods may be called by several goroutines.
//
//	api := inbound.Limit{Limits: []string{"100/1m burst 20", "5000/24h window"}}
//	http.ListenAndServe(":8080", api.Handler(mux))
//
// A Limit has one table of keys, also if its Handler is called several times, so it must not be copied. Handler panics
// if a field makes no sense, naming it, as regexp.MustCompile does.
type Limit struct {
	// Limits hold for each key, all of them, in the words of throttle.Limit: "100/1m burst 20", "5/s even",
	// "1000/h window", "1000/h sliding", or several with commas between. There are at most three. "4 at once" is how many
	// requests may be in flight, until their handlers return; it is not in the fields, and Retry-After is 1. "1000/day in
	// Europe/Berlin" is a window that follows the calendar there; hour, week and month do too. Mind the kind:
	// "100/1m even" lets in a request each 600 ms and refuses the second of a page; "100/1m burst 20" lets 20 come
	// at once, and "100/1m window" all 100. A sliding limit of more than 20 units is an estimate here, by two counters,
	// see the package documentation. Empty, or "unlimited":
	// no limit for a key, which makes sense beside Tiers, And or Shared. Alone it lets everything in.
	Limits []string

	// Key says whose request it is; nil: ByIP(), which behind a proxy takes all clients for one. "" is a key like
	// any other: all requests with it share its limits. Key is asked once for each request, possibly by several
	// goroutines at once, and so are Cost, Tier and Allow. If one of them panics the request ends, as if the
	// handler had panicked, and nothing is taken.
	Key func(*http.Request) string

	// MaxKeys bounds how many keys have units of their own; 0: 65,536. Each takes up to 64 bytes, or more for small
	// sliding limits (see the package documentation), from the first call of Handler on. Above that newcomers share what one key has; see the package documentation.
	MaxKeys int

	// Cost is how many units a request takes; nil: 1. 0: none, and it is always let in. A negative one counts
	// as 1. A cost above the burst, or a window's size, needs all of it and leaves a debt; one whose surplus
	// would take more than an hour is always refused, without Retry-After.
	Cost func(*http.Request) int

	// Settle says what a request has cost, in units, when its handler has returned: 0 for a log-in that has succeeded, or an
	// answer with status 304; the tokens of one that was estimated by Cost. nil: what Cost said, and so does a negative
	// number. Until then the request counts by its Cost, for others that come meanwhile and in the fields of its answer:
	// with 5/m no more than five log-ins are tried at once. What was too much comes back, as far as it has not come
	// back by itself, and what was too little is taken then, as a debt if need be. The header is that of the answer, also what was
	// set too late to be sent; the status of a connection that was taken over is 101. If the handler panics, the request
	// counts by its Cost. A Settle that panics does so in place of the handler.
	Settle func(r *http.Request, status int, header http.Header) int

	// Refused answers a request that is refused, in place of a problem document (RFC 9457) with status 429. The
	// header of the answer has Retry-After and the other fields already.
	Refused http.Handler

	// Allow says which requests are let in without being counted, here and in And, and without fields in the
	// answer; nil: none. Requests of health checks are an example.
	Allow func(*http.Request) bool

	// Tier names the limits of a request, out of Tiers; nil or a name that is not there: Limits. A key that
	// changes its tier begins anew, so the name must not be the client's choice.
	Tier  func(*http.Request) string
	Tiers map[string][]string

	// Plan returns the limits of the request's key, as a list like Limits, such as those of a customer in a database; nil:
	// there is none. No list is Limits, and so is an error at first. What it says holds for PlanFor; 0: a minute. Then the
	// next request of the key asks again, and others go by the old limits meanwhile. A key takes what it has used along to
	// new limits, as with SetLimits. The first requests of a key wait for Plan, which should mind r.Context(). After an
	// error, or a list that makes no sense, a key keeps the limits that it had, and Plan is asked again after a second; Stats
	// counts them. At most 1,000 different lists can be in use. Each key that was asked for takes about 100 bytes.
	Plan    func(r *http.Request) ([]string, error)
	PlanFor time.Duration

	// And are further Limits, mostly by other keys, that hold too: all let a request in, or it takes from none.
	// They are asked in their order, after this one, and a request that one of them refuses takes no slot in the
	// tables of those behind it. So against floods the widest key comes first: a network before its addresses. Of
	// their fields Limits, Name, Key, MaxKeys, Cost, Settle, Allow, Tier, Tiers, Plan, PlanFor and Shadow are used. A Limit may be part of
	// several.
	And []*Limit

	// Store keeps the limits of each key for all servers that have the same Store, Name and Limits: inbound.Memory, or
	// Keys of module throttleredis. nil: this process counts for itself. It needs a Name, and is not for Plan, Settle,
	// SetLimits, windows of the calendar and requests at once. A request asks the Store at most once, and waits for it at
	// most a soft timeout (four round trips, 20 to 100 ms). Mode says what to do while it does not answer, and Servers
	// how many there are at least; 0: as many as the Store has counted. See the package documentation.
	Store   keys.Store
	Mode    Mode
	Servers int

	// Shared are limits for all requests together, such as a fleet.Limiter for all servers. They are asked
	// last, with the request's cost. All but the last must be throttle.Adjusters. The fields do not tell of
	// them.
	Shared []throttle.Limiter

	// Wait holds a request that would be refused for up to that time, in a line of its key, and lets it in
	// when its units are there; 0: it is refused at once. MaxWaiting bounds how many requests are held, over
	// all keys; 0: 1,000. A client that leaves gives its place up.
	Wait       time.Duration
	MaxWaiting int

	// Shadow counts what would be refused, see Stats and OnRefusal, and lets it in. Its limits are not
	// advertised.
	Shadow bool

	// OnRefusal is called for each request that is refused, or would be but for Shadow; wait is what
	// Retry-After is made of, negative if no wait helps. nil: nothing is called.
	OnRefusal func(r *http.Request, wait time.Duration)

	// Name precedes the names of the limits in the fields, which are their times otherwise: "m" for 100/m, and
	// "api-m" with the Name "api". Printable ASCII. Give Limits of the same requests different Names.
	Name string

	// XRateLimit sends X-RateLimit-Limit, -Remaining and -Reset too, of the tightest limit, also if another Limit
	// with XRateLimit stands around this one. Reset is in seconds from now, rounded up: with nothing remaining, a
	// request of cost 1 is let in then.
	XRateLimit bool

	// NoFields sends no RateLimit fields. Retry-After is always sent.
	NoFields bool

	once  sync.Once
	core  *core
	wrong error // why there is none

	// These are written under own, which another Limit's And may do at the same time.
	own       sync.Once
	part      *part
	wrongPart error
}

const (
	defaultKeys    = 1 << 16
	mostKeys       = 1 << 28
	defaultWaiting = 1000
	maxParts       = 4 // a Limit and three of And
	maxTiers       = 255
)

// A part is one Limit as it is used: its laws, its table and its functions. It is never changed, so it needs no lock;
// the table has its own.
//
// Example: a Limit by address with And{byUser, byTenant} is a core of three parts. byUser may be in the And of
// other Limits too, and have a Handler of its own: it is one part of several cores then, with one table.
type part struct {
	name   string
	table  *table
	seed   maphash.Seed
	tiers  map[string]int // to laws of the table; 0: Limits
	key    func(*http.Request) string
	cost   func(*http.Request) int
	settle func(*http.Request, int, http.Header) int
	allow  func(*http.Request) bool
	tier   func(*http.Request) string
	plans  *plans // nil: there is no Plan
	shadow bool
	stored *stored // nil: table counts
}

// A core is a Limit with all that holds beside it.
type core struct {
	*Limit
	parts    []*part
	policies atomic.Pointer[policies]
	lines    lines
	settles  bool // one of the parts does
	shadows  bool // so too
	refusals refusals
}

// Handler returns a handler that calls next for requests within the limits. It passes the ResponseWriter on as it is,
// so that hijacking, flushing and trailers work. It panics if a field of l makes no sense, or next is nil.
func (l *Limit) Handler(next http.Handler) http.Handler {
	c := l.compiled()
	if next == nil {
		panic("throttle: inbound.Limit.Handler: next is nil")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, next) })
}

// HandlerFunc is Handler for a function, as routers that register functions want it: mux.HandleFunc("/", l.HandlerFunc(f)).
func (l *Limit) HandlerFunc(next http.HandlerFunc) http.HandlerFunc {
	c := l.compiled()
	if next == nil {
		panic("throttle: inbound.Limit.HandlerFunc: next is nil")
	}
	return func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, next) }
}

// Stats is a snapshot of a Limit or a Keyed. Counts are since it was made.
type Stats struct {
	Keys       int    // that have units of their own
	Admitted   uint64 // requests let in, those of Shadow that would not have been not counted; or calls
	Refused    uint64 // requests refused, or that would have been but for Shadow; or calls
	Newcomers  uint64 // of both, those that came while the table was full, and shared what one key has
	Waiting    int    // requests that are held
	PlanErrors uint64 // answers of Limit.Plan that were errors, or no limits
}

// Stats returns a snapshot, for metrics. A request that And or Shared has refused counts as refused, and one that was
// held as what became of it.
func (l *Limit) Stats() Stats {
	c := l.compiled()
	s := c.parts[0].table.stats()
	s.Waiting = int(c.lines.waiting.Load())
	s.Refused -= min(s.Refused, uint64(max(0, c.lines.early.Load())))
	if p := c.parts[0].plans; p != nil {
		s.PlanErrors = p.failed.Load()
	}
	return s
}

// compiled makes the core once, and panics each time if it cannot: a program that recovers from the first panic must
// not get a handler without limits from the second call.
func (l *Limit) compiled() *core {
	l.once.Do(func() {
		c, err := newCore(l)
		if err != nil {
			l.wrong = err
			return
		}
		l.core = c
	})
	if l.core == nil {
		panic("throttle: " + l.wrong.Error())
	}
	return l.core
}

// newCore checks a Limit and all that belongs to it. The texts of errors name the field, and the value if it is short.
//
// What cannot be checked here fails closed later: a Tier that is not in Tiers has the Limits, a Key that returns "" for
// everybody has one limit for everybody.
func newCore(l *Limit) (*core, error) {
	switch {
	case l.Wait < 0:
		return nil, fmt.Errorf("inbound.Limit: Wait is %v, must not be negative", l.Wait)
	case l.MaxWaiting < 0:
		return nil, fmt.Errorf("inbound.Limit: MaxWaiting is %d, must not be negative", l.MaxWaiting)
	case len(l.And) >= maxParts:
		return nil, fmt.Errorf("inbound.Limit: And has %d Limits; there may be %d", len(l.And), maxParts-1)
	}
	for i, s := range l.Shared {
		if s == nil {
			return nil, fmt.Errorf("inbound.Limit: Shared[%d] is nil", i)
		}
		if _, ok := s.(throttle.Adjuster); !ok && i < len(l.Shared)-1 {
			return nil, fmt.Errorf("inbound.Limit: Shared[%d], a %T, has no Adjust; only the last may lack it", i, s)
		}
	}
	c := &core{Limit: l, lines: newLines(l.Wait, l.MaxWaiting)}
	for i, one := range append([]*Limit{l}, l.And...) {
		if one == nil {
			return nil, fmt.Errorf("inbound.Limit: And[%d] is nil", i-1)
		}
		if i > 0 && (len(one.And) > 0 || len(one.Shared) > 0 || one == l) {
			return nil, fmt.Errorf("inbound.Limit: And[%d] has And or Shared itself", i-1)
		}
		if i > 0 && slices.Index(l.And, one) < i-1 {
			return nil, fmt.Errorf("inbound.Limit: And[%d] is And[%d] again, and would be charged twice", i-1, slices.Index(l.And, one))
		}
		p, err := one.compile()
		if err != nil {
			return nil, err
		}
		c.parts = append(c.parts, p)
		c.settles, c.shadows = c.settles || p.settle != nil, c.shadows || p.shadow
	}
	c.policies.Store(newPolicies(c.parts, new(policies), nil))
	return c, nil
}

// compile makes the part of a Limit once; it may belong to several cores. own is another sync.Once than once, because
// a Limit of And is compiled while the core of the other is being made.
func (l *Limit) compile() (*part, error) {
	l.own.Do(func() {
		l.part, l.wrongPart = newPart(l)
	})
	return l.part, l.wrongPart
}

// newPart checks what a Limit counts by, and makes its table: all memory that it will ever need.
func newPart(l *Limit) (*part, error) {
	p := &part{
		name: l.Name, seed: maphash.MakeSeed(), key: l.Key, cost: l.Cost, settle: l.Settle,
		allow: l.Allow, shadow: l.Shadow, tiers: map[string]int{}, tier: l.Tier,
	}
	if p.key == nil {
		p.key = ByIP()
	}
	for i := range len(l.Name) {
		if c := l.Name[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return nil, fmt.Errorf("inbound.Limit: Name %q has other characters than printable ASCII without quotation marks and backslashes", l.Name)
		}
	}
	switch {
	case l.MaxKeys < 0 || l.MaxKeys > mostKeys:
		return nil, fmt.Errorf("inbound.Limit: MaxKeys is %d, must be from 0 to %d", l.MaxKeys, mostKeys)
	case len(l.Tiers) > maxTiers:
		return nil, fmt.Errorf("inbound.Limit: Tiers has %d names; there may be %d", len(l.Tiers), maxTiers)
	case l.Tier == nil && len(l.Tiers) > 0:
		return nil, fmt.Errorf("inbound.Limit: Tiers is set, and Tier is nil")
	case l.Plan != nil && l.Tier != nil:
		return nil, fmt.Errorf("inbound.Limit: Plan and Tier are both set")
	case l.PlanFor < 0 || l.PlanFor > 0 && l.Plan == nil:
		return nil, fmt.Errorf("inbound.Limit: PlanFor is %v, must be of a Plan and not negative", l.PlanFor)
	}
	laws, err := newLaws(l.Limits)
	if err != nil {
		return nil, fmt.Errorf("inbound.Limit: Limits: %w", err)
	}
	all := [][]law{laws}
	for name, limits := range l.Tiers {
		if laws, err = newLaws(limits); err != nil {
			return nil, fmt.Errorf("inbound.Limit: Tiers[%q]: %w", name, err)
		}
		p.tiers[name] = len(all)
		all = append(all, laws)
	}
	keys := l.MaxKeys
	if keys == 0 {
		keys = defaultKeys
	}
	p.table = newTable(all, keys)
	if l.Plan != nil {
		p.plans = newPlans(l, p.table, keys)
	}
	return p, p.useStore(l)
}
