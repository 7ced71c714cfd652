package throttle

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/queue"
	"github.com/go-throttle/throttle/usage"
)

// A Transport is an [http.RoundTripper] that keeps its callers inside the limits of the upstreams they
// call. Each request waits in the line of its key, pays its limiters, is sent by Base, and is sent again
// if Retry says so. What one response says about limits applies to all calls of the key at once.
//
//	client := &http.Client{Transport: &throttle.Transport{
//		Limiter: throttle.NewBucket(10, 5),
//	}}
//
// Make one Transport and share it: a new one for each request limits nothing. Don't stack Transports:
// both would retry. Combine limits with [All].
//
// The zero value sets no limit of its own and obeys what the upstream says. A Transport is safe for
// concurrent use and must not be copied. Its fields must not be changed after the first request. A field
// with an impossible value makes every request fail with an error that names the field and the value.
//
// # Requests and responses
//
// The caller's request is never changed, and its body is closed exactly once. When attempts, budget or
// time run out, the caller gets the last response, as if there were no Transport: check its status, and
// close its body, which may hold one of the Queue.MaxInFlight slots.
//
// If the Transport itself ends a call, the error is an [*Error]. http.Client wraps it, so match it with
// errors.As. Mind that http.Client.Timeout includes the time in line and all attempts.
//
// # Keys
//
// Requests with the same key share a line, a gate, and what is learned from the upstream, whatever their hosts. A key
// takes about half a kilobyte. It is dropped, without a goroutine, some time after it was last used: after a minute if
// its limiter is full again, after an hour if something was learned or the limiter is not of this package. Above 65,536
// keys, unused ones go earlier, and a new one begins with one call, its next ones at the pace of its limit while they follow each
// other. What a key had spent that goes early is forgotten: if it comes back it has its burst again after a pause, and its
// meters are full. So a key for each URL does not leak memory, but neither does it limit anything.
//
// # What is learned
//
// What the upstream advertises can only tighten a configured limit. If the upstream keeps throttling
// calls that stay inside a configured limit, they are slowed to the rate that it accepts, for as long as
// that helps; the Learned field of [KeyStats] shows the rate. This applies to limiters of this package
// and calls of one unit, unless keys that fare differently share the limiter.
type Transport struct {
	// Base sends the requests; nil: http.DefaultTransport. It should not make requests wait for each other, as one
	// with a semaphore does: calls that were spaced would go in bunches. Use Queue.MaxInFlight.
	Base http.RoundTripper

	// Limiter is one limit shared by all requests; nil: none. A nil pointer to a limiter of this package
	// is an error, here and as a result of LimiterFor.
	Limiter Limiter

	// LimiterFor makes the limit of a key when the key is first used, or used again after it was dropped; nil, or a nil
	// result: none. What else it depends on, as a tenant's plan, Key puts into the key. Return a new limiter for each key:
	// one returned for several keys is shared, and they take turns there as at Limiter. Several goroutines may call it for
	// the same key at once; one result is kept. With Limiter set too, a request pays both.
	LimiterFor func(key string) Limiter

	// Key returns the key that a request is counted by; nil: ByHost. Keys appear in errors, Events and Stats, so put a
	// hash of a credential into a key, as ByCredential does, and never the credential. A key above 256 bytes is cut, and
	// ends with a hash of the whole. A refusal holds the key of its request, so a key of several hosts lets each of them
	// pause the others; one that is about its whole host (Global in [hint.Hint]) holds every key with calls for that
	// host.
	Key func(*http.Request) string

	// Cost returns the number of units that a request takes from Limiter and LimiterFor; nil: 1. WithCost takes
	// precedence. Both limiters take the same number; Meters count each in their own unit. An advertised quota without a
	// unit is charged the cost, one in requests is charged 1, one that has the name or unit of a meter what calls cost
	// there, and one in any other unit what calls were seen to use.
	Cost func(*http.Request) int

	// Meters makes several limits of a key, each in a unit of its own, beside Limiter and LimiterFor; nil, or an empty result:
	// none. It is called as LimiterFor is, and each key is to get its own limiters too. A mistake, such as two meters of
	// one name, or more than 64 of them, is an error of the key's calls.
	Meters func(key string) []Meter

	// Usage has rows of your own for what the bodies of Meters say, where package usage does not know an API; nil: none.
	Usage *usage.Parser

	// MaxInFlight bounds the calls of all keys that are sent and not finished; 0: no bound. Queue.MaxInFlight bounds
	// those of each key. A call takes its slots when its turn has come by every limit, and the keys (or flows, see
	// WithFlow) that could go take turns. While others wait, all keys together that keep failing (twice in a row, or once
	// if they never succeeded) get a tenth of the slots, or one, and of what else is shared. A call has finished when its
	// response's body is closed or read to its end, or its ctx ends.
	MaxInFlight int

	// WindowFactor says how fast an advertised long window is used, such as 5,000 calls an hour; 0: 4. Calls go at once
	// while three quarters of the quota remain, then at up to WindowFactor times the even rate, while half of what the
	// rest of the window is worth is kept for late calls. 1 spaces calls evenly from the start. A window without a reset
	// ends one window after its first answer. Negative values and NaN are errors.
	WindowFactor float64

	Queue QueueOptions // bounds the line of each key, not of all keys together
	Retry Retry        // says which requests are sent again

	// Hint reads what a response, received at the given time, says about limits; nil: hint.Parse. If it
	// sets Throttled, the response counts as throttled whatever its status. Quotas in its result hold the
	// key's calls back; without any, no quota is learned. It may be called concurrently.
	Hint func(*http.Response, time.Time) hint.Hint

	// Hooks observe the calls. All are nil by default.
	Hooks Hooks

	once   sync.Once
	table  *queue.Table
	shared *limit.Set // Limiter
	none   limit.Set  // of keys without a limiter of their own
	retry  Retry      // with defaults
	err    error      // of the configuration
}

// setup checks the fields and makes the table of keys. It runs once, before the first request.
func (t *Transport) setup() {
	t.err = errors.Join(t.Queue.check(), t.Retry.check())
	if !(t.WindowFactor >= 0) {
		t.err = errors.Join(t.err, fmt.Errorf("throttle: Transport.WindowFactor is %v, must not be negative or NaN", t.WindowFactor))
	}
	if t.MaxInFlight < 0 {
		t.err = errors.Join(t.err, fmt.Errorf("throttle: Transport.MaxInFlight is %d, must not be negative", t.MaxInFlight))
	}
	if isNil(t.Limiter) {
		t.err = errors.Join(fmt.Errorf("throttle: Transport.Limiter is a nil %T", t.Limiter), t.err)
	}
	t.retry = t.Retry.withDefaults()
	t.shared = new(limit.Set)
	c := config(t.Queue, t.retry.MaxPause)
	c.Limits, c.MaxInFlight, c.Tell = t.limitsOf, t.MaxInFlight, t.Hooks.tell()
	c.Budget, c.WindowFactor, c.Failures = queue.Budget(t.retry.Budget), cmp.Or(t.WindowFactor, 4), t.retry.Failures
	if t.Limiter != nil {
		t.shared, _ = tryFlatten(t.Limiter) // fails only for a nil pointer, which t.err reports already
		c.Shared = t.shared
	}
	t.table = queue.NewTable(c)
}

// RoundTrip implements [http.RoundTripper]. It waits for the request's turn, sends the request, and sends it
// again if Retry says so.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := call{t: t, req: req, next: req}
	defer c.end()
	if err := c.begin(); err != nil {
		t.table.Refused(req.Context())
		return nil, err
	}
	for {
		if err := c.wait(); err != nil {
			return c.giveUp(err)
		}
		c.send()
		outcome := c.observe()
		c.settle()
		if !c.retry(outcome) {
			return c.result()
		}
		if err := c.turn.BackOff(req.Context(), c.keepResponse); err != nil {
			return c.giveUp(err)
		}
	}
}

// CloseIdleConnections calls Base's method of that name, if it has one, as http.Client does.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Pause stops the calls of a key for at least d, or with the key "" those of all keys, also of keys that are
// called for the first time later. They wait for its end as long as their contexts and Queue let them: Retry.MaxPause
// does not count it. It does not shorten a closing that lasts longer, d ≤ 0 does nothing, and attempts under way
// go on. Stats shows it, with the cause "paused".
func (t *Transport) Pause(key string, d time.Duration) {
	t.once.Do(t.setup)
	if t.err == nil {
		t.table.Pause(bounded(key), d)
	}
}

// Resume opens the closed gate of a key now, whatever has closed it, or with the key "" those of all keys; see
// [Queue.Resume]. If an advertised quota of the key is exhausted, one call may go to see whether it still is. If the
// whole host of the key wants no calls, the key goes on alone. An unknown key is ignored.
func (t *Transport) Resume(key string) {
	t.once.Do(t.setup)
	t.table.Resume(bounded(key))
}

// Predict is [Queue.Predict] for calls of a key: how long until the last of n more of them would start. For a key that
// is not there LimiterFor may be asked, but no key is made. -1 also stands for an upstream that nothing is known about.
func (t *Transport) Predict(key string, n int) time.Duration {
	t.once.Do(t.setup)
	if t.err != nil {
		return -1
	}
	return foreseen(t.table.Predict(bounded(key), n))
}

// KeyStats is a snapshot of one key of a Transport, for dashboards and logs.
type KeyStats struct {
	Key        string // as returned by Transport.Key, but at most 256 bytes
	QueueStats        // of the key's line

	// Learned holds the limits that the upstream advertises, and the rate that was found if it only throttles. nil: nothing was.
	Learned []Learned

	// Meters are the key's, in the order of Transport.Meters; nil: it has none.
	Meters []MeterStats

	// Limits are all limits of this package that hold the key's calls: its own, Transport.Limiter, its meters'.
	Limits []LimitStats
}

// LimitStats is a snapshot of one limit. Calls wait for it while less is Available than they take.
type LimitStats struct {
	Reason    string        // of the calls that wait for it, see Event: "limit", "limit:shared", "meter:tokens"
	Limit     rate.Limit    // units per second in the long run
	Size      float64       // units that it has if none is used: a bucket's burst, a window's units
	Window    time.Duration // a window's length; 0: it is a bucket
	Available float64       // units ready now; negative: a debt
	Taken     int64         // units that calls of the key have taken since it was made; "limit:shared": those of all keys
}

// Utilization returns which share of the limit is used; 1: all. Of a window it is what is taken of it; of a bucket what calls have
// taken since an earlier look, at which Taken was before, that long ago. 10 s or more are enough not to count single calls.
func (l LimitStats) Utilization(before int64, ago time.Duration) float64 {
	switch {
	case l.Window > 0:
		return (l.Size - l.Available) / l.Size
	case l.Limit <= 0 || ago <= 0:
		return 0
	}
	return max(0, float64(l.Taken-before)) / ago.Seconds() / float64(l.Limit)
}

// snapshot is what observers see of a key.
func snapshot(q *queue.Queue) KeyStats {
	var few [4]limit.Stats
	stats, known, all := q.Look(few[:0])
	var learned []Learned
	for _, l := range known {
		learned = append(learned, Learned(l))
	}
	var meters []MeterStats
	for _, m := range q.Meters() {
		meters = append(meters, MeterStats(m))
	}
	limits := slices.Grow([]LimitStats(nil), len(all))
	for _, l := range all {
		limits = append(limits, LimitStats(l))
	}
	return KeyStats{q.Key(), QueueStats(stats), learned, meters, limits}
}

// Stats yields a snapshot of every key, in no particular order. Each snapshot is of one moment, but for its Meters, and they
// are taken one after the other.
func (t *Transport) Stats() iter.Seq[KeyStats] {
	t.once.Do(t.setup)
	return func(yield func(KeyStats) bool) {
		for _, q := range t.table.All() {
			if !yield(snapshot(q)) {
				return
			}
		}
	}
}

// Explain returns the snapshot of a key that Key returns, such as "api.example.com": what its first call waits for and until
// when (Reason, Until), since when the oldest has waited (Oldest), and how full its limits are (Limits). ok: the key is there.
func (t *Transport) Explain(key string) (s KeyStats, ok bool) {
	t.once.Do(t.setup)
	if q := t.table.Shown(bounded(key)); q != nil {
		return snapshot(q), true
	}
	return s, false
}

// Totals returns sums over all keys, also those that were dropped. Tokens and Limit are those of Transport.Limiter, Reason
// and ClosedFor those of a pause of all keys, and Flows, Until, MaxInFlight and Load are zero.
func (t *Transport) Totals() QueueStats {
	t.once.Do(t.setup)
	return QueueStats(t.table.Totals())
}

// base returns what sends the requests.
func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}
