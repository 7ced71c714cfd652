package throttle

import (
	"errors"
	"fmt"
	"iter"
	"net/http"
	"sync"
	"time"

	"github.com/go-throttle/throttle/hint"
)

// A Transport is an [http.RoundTripper] that keeps its callers inside the limits
// of the upstreams they call. Each request waits its turn in the line of its key,
// pays its limiters, is sent by Base, and is sent again where Retry says so. What
// one answer tells of the upstream holds for all calls of the key at once.
//
//	client := &http.Client{Transport: &throttle.Transport{
//		Limiter: throttle.NewBucket(10, 5),
//	}}
//
// Make one and share it: a Transport for each request has a limit for each request.
// Rather than to put one above another, join limits with [All]: each of the two would
// retry, and stop for what the other has waited for already.
//
// The zero value has no limit of its own, and obeys what the upstream says. What it says can only tighten
// a limit that is configured. One of this package's kinds that it keeps refusing is held to what it
// bears, for as long as that lasts, where a call costs one unit and the limit is not shared by keys that
// fare differently ([KeyStats].Learned tells).
//
// A Transport is safe for concurrent use. Its fields must not be changed after
// the first request, and it must not be copied. Nonsense in a field is an error
// of every request, which names the field and the value.
//
// The request is never changed and its body is closed exactly once. When there
// are no attempts, budget or time left, the caller gets the last response, as if
// there were no Transport: look at its status as ever, and close its body, which
// may hold one of Queue.MaxInFlight slots. An error that says why a call was not
// sent, or not again, is an [*Error]; http.Client wraps it, so use errors.As. Mind
// that http.Client.Timeout includes the time in line and all attempts.
type Transport struct {
	// Base sends the requests; nil: http.DefaultTransport.
	Base http.RoundTripper
	// Limiter is one limit shared by all requests; nil: none. A nil pointer to a
	// limiter of this package is an error, here and as a result of LimiterFor.
	Limiter Limiter
	// LimiterFor makes the limit of a key, when the key is first used, and again
	// if it was dropped meanwhile (see Key); nil, or a nil result: none. With both
	// limiters, a request pays its cost to both. Return a new one for each key: one
	// that is returned for several is shared by them; it is never exceeded, but
	// goes in no order between the keys. Several callers may ask for the same key
	// at once; one result is kept. A result that is not of this package's kinds
	// delays, beside a Limiter, the other keys by the time that its Take runs.
	LimiterFor func(key string) Limiter
	// Key tells what a request is counted by; nil: ByHost. What the upstream
	// says to one request of a key stops all of them, whatever their hosts. Keys
	// stand in errors, Events and Stats: put no credential into one, but a hash of
	// it, as ByCredential does. Of a key above 256 bytes a hash stands for the end.
	//
	// A key takes half a kilobyte or more. It is dropped, little by little as others
	// are used, when it has not been used for a minute and its limiter is full again;
	// where something was learned, or a limiter is not of this package, for an hour.
	// Of more than 65,536 some that have rested go earlier. So a key for each URL
	// is no leak, but it is no limit either.
	Key func(*http.Request) string
	// Cost is the number of units that a request takes of Limiter and LimiterFor;
	// nil: 1. WithCost wins. Both limiters take the same number: for requests beside
	// tokens see the example of Transport with tokens. Of the quotas that the
	// upstream tells, one without a unit takes it too; one of requests takes 1, and
	// one of anything else what calls have been seen to take.
	Cost func(*http.Request) int
	// Queue bounds the waiting line of each key, not of all together.
	Queue QueueOptions
	// Retry says what is sent again.
	Retry Retry
	// Hint reads what a response tells of limits, at the given time; nil:
	// hint.Parse. One that sets Throttled makes any answer a refusal. Quotas that
	// it tells hold the key's calls back; without Quotas nothing is learned of them.
	Hint func(*http.Response, time.Time) hint.Hint
	// Hooks observe. All are nil by default: the library never logs.
	Hooks Hooks

	once  sync.Once
	table *table
	retry Retry // with defaults
	err   error // of the configuration
}

// setup reads the fields, once.
func (t *Transport) setup() {
	t.err = errors.Join(t.Queue.check(), t.Retry.check())
	if isNil(t.Limiter) {
		t.err = errors.Join(fmt.Errorf("throttle: Transport.Limiter is a nil %T", t.Limiter), t.err)
	}
	t.retry = t.Retry.withDefaults()
	t.table = newTable(t.Queue, t.retry, t.Limiter)
}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := call{t: t, req: req, next: req}
	defer c.end()
	if err := c.begin(); err != nil {
		return nil, err
	}
	for {
		if err := c.wait(); err != nil {
			return c.without(err)
		}
		c.send()
		what := c.learn()
		delay, ok := c.retry(what)
		if !ok {
			return c.result()
		}
		if err := c.rest(delay); err != nil {
			return c.without(err)
		}
	}
}

// CloseIdleConnections forwards to Base, for http.Client.CloseIdleConnections.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Resume opens the closed gate of a key now, as [Queue.Resume] does, and lets one
// call ask a quota that is spent. A key that is not known is left alone.
func (t *Transport) Resume(key string) {
	t.once.Do(t.setup)
	if k := t.table.get(bounded(key)); k != nil {
		k.Resume()
	}
}

// KeyStats is what [Transport.Stats] tells of one key.
type KeyStats struct {
	Key        string // as Transport.Key gave it, with at most 256 bytes
	QueueStats        // of its line

	// Learned are the limits that the upstream has told of, and the rate that was
	// found if it only refuses. nil: none.
	Learned []Learned
}

// Stats yields a snapshot of every key that is kept, in no order. Each is true at the
// moment it is taken; together they are not one moment's picture.
func (t *Transport) Stats() iter.Seq[KeyStats] {
	t.once.Do(t.setup)
	return func(yield func(KeyStats) bool) {
		for _, k := range t.table.all() {
			s := KeyStats{Key: k.Key, QueueStats: QueueStats(k.Stats())}
			for _, l := range k.AllLearned() {
				s.Learned = append(s.Learned, Learned(l))
			}
			if !yield(s) {
				return
			}
		}
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}
