package scenario

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/throttletest"
)

// OracleName is the name of the client that knows everything.
const OracleName = "oracle"

// Oracle is a client that knows the upstream's limits, their state, and when outages begin and end:
// it starts each call at the first moment that admits it. What others reach is a share of that. Only
// the scenarios of this package can start it.
func Oracle() client.Client {
	return client.Client{
		Name: OracleName, Limits: true, Retries: true, Bubble: true, Urgent: urgently,
		Start: func(client.Job) (client.Doer, error) {
			return nil, errors.New("the oracle is started by a scenario")
		},
	}
}

type urgentKey struct{}

func urgently(ctx context.Context) context.Context { return context.WithValue(ctx, urgentKey{}, true) }

// An oracle is a line before a planner. Its head goes at the moment that is planned.
type oracle struct {
	base   http.RoundTripper
	server *throttletest.Server
	way    time.Duration // how long a request is on its way, at least

	mu     sync.Mutex
	plan   *planner
	last   time.Duration // planned
	slots  int           // free, of calls in flight
	timer  *time.Timer
	line   []*turn
	asleep time.Duration // until when the timer runs
}

type turn struct {
	urgent bool
	come   chan struct{}
}

// newOracle leaves room for what overtakes on its way: in real time the network is never even.
func newOracle(server *throttletest.Server, config config, base http.RoundTripper, virtual bool) *oracle {
	o := &oracle{base: base, server: server, way: config.latency.Min, slots: math.MaxInt}
	spread := max(0, config.latency.Max-config.latency.Min)
	if !virtual {
		spread += 10 * time.Millisecond
	}
	var limits []throttletest.Limit
	for _, l := range config.limits {
		switch l.Kind {
		case throttletest.InFlight:
			o.slots = l.N
			continue
		case "", throttletest.Bucket:
			l.Burst = max(1, l.Burst-int(math.Ceil(perSecond(l)*spread.Seconds())))
		case throttletest.Sliding:
			l.Per += spread
		}
		limits = append(limits, l)
	}
	config.limits = limits
	o.plan = config.planner()
	return o
}

// Do sends when it is time, again and again until an answer is neither a 429 nor a 503.
func (o *oracle) Do(req *http.Request) (*http.Response, error) {
	for {
		if err := o.wait(req.Context()); err != nil {
			return nil, err
		}
		resp, err := o.base.RoundTrip(req)
		o.free()
		if err != nil && req.Context().Err() != nil {
			return nil, err
		}
		if err == nil {
			if resp.StatusCode == http.StatusOK {
				return resp, nil
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
}

func (o *oracle) wait(ctx context.Context) error {
	t := &turn{come: make(chan struct{}), urgent: ctx.Value(urgentKey{}) != nil}
	o.join(t)
	select {
	case <-t.come:
		return nil
	case <-ctx.Done():
		o.leave(t)
		return ctx.Err()
	}
}

func (o *oracle) join(t *turn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := len(o.line)
	if t.urgent {
		i = 0
		for i < len(o.line) && o.line[i].urgent {
			i++
		}
	}
	o.line = slices.Insert(o.line, i, t)
	o.advance()
}

func (o *oracle) leave(t *turn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := slices.Index(o.line, t); i >= 0 {
		o.line = slices.Delete(o.line, i, i+1)
	}
}

func (o *oracle) free() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.slots++
	o.advance()
}

// advance lets go whose time has come, and sets the timer for the next. A timer that comes late is
// no reason to lose what was planned.
func (o *oracle) advance() {
	for len(o.line) > 0 && o.slots > 0 {
		now := o.server.Elapsed()
		arrive := now + o.way
		if o.asleep > now-5*time.Millisecond && o.asleep <= now {
			arrive = o.asleep + o.way
		}
		at := o.plan.next(max(arrive, o.last))
		o.last = at // nobody who comes meanwhile can be earlier
		if at-o.way > now {
			o.sleep(at - o.way)
			return
		}
		o.plan.take(at)
		o.slots--
		close(o.line[0].come)
		o.line = o.line[1:]
	}
}

func (o *oracle) sleep(until time.Duration) {
	o.asleep = until
	if o.timer != nil {
		o.timer.Stop()
	}
	o.timer = time.AfterFunc(until-o.server.Elapsed(), func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.advance()
	})
}
