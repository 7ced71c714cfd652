package throttle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/body"
	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/queue"
	"github.com/go-throttle/throttle/usage"
)

// A Meter is one of several limits of a key, in a unit of its own, such as tokens a minute. Each attempt takes what it
// holds of every meter together with its cost, or nothing. What it has really cost is settled once, by the first of
// these:
//
//	Bill.Settle                                    what it says
//	no response, or a status that is not 2xx       nothing, or what was held if Failures is set
//	a body that has said its usage to the end      what Settle says
//	a body that ended, was cut or closed before    the larger of what was held and what Settle says of the part seen
//	anything else, such as a body of another type  what was held
//
// A body is read only as its caller reads it, is not changed, and only where a meter of its key has Settle. If it says that
// the upstream has throttled the call after all, as an error event does, the gate closes as after a 429.
type Meter struct {
	Name    string  // unique in its key: for WithHold, Bill, Stats, Reason ("meter:tokens"), and the advertised quota that it mirrors
	Limiter Limiter // of this library; one that several keys share is never exceeded

	// Hold returns the units that an attempt takes before it is sent; nil: 1. WithHold takes precedence. Less than 0 is 0. What
	// exceeds the burst goes when the meter is full, and leaves a debt. Hold must not read req.Body; req.GetBody has a copy.
	Hold func(req *http.Request) int

	// Settle returns what an attempt has cost that took held units and says that it has used u; nil: what it held. A panic
	// and less than 0 count as held. It runs in the goroutine that reads the body, or when the request's ctx ends.
	Settle func(held int, u usage.Usage) int

	// Learn means that the upstream does not hold what Hold says, see [usage.Law.Learns]: less is held then, what 95 % of the last
	// 256 calls cost whose Hold was about as large. Until 30 such answers have ended, Hold counts.
	Learn bool

	// Streams means that the upstream charges an answer while it streams. With Learn and Settle the meter does so too: it holds
	// what is used in 10 s, and charges more as the body is read.
	Streams bool

	// Failures means that attempts without a response, and those whose status is not 2xx, cost what they held; false: nothing.
	Failures bool
}

// MeterStats is a snapshot of one meter of a key, for dashboards: how much is left, and how much is held.
type MeterStats struct {
	Name      string     // the meter's
	Available float64    // units ready now; negative: a debt
	Limit     rate.Limit // units per second; rate.Inf: none
	Held      int64      // units of attempts that are not settled; Available is without them
	Estimate  int64      // units that the settled attempts of this key had held
	Settled   int64      // units that these have cost; what was given back is not in it
}

// WithHold returns a ctx whose calls hold n units of a meter, in place of what Meter.Hold says. A negative n is 0, and a name
// that is not a meter's is ignored.
func WithHold(ctx context.Context, meter string, n int) context.Context {
	v := *ctxValue(ctx)
	holds := map[string]int{}
	maps.Copy(holds, v.holds)
	holds[meter], v.holds = n, holds
	return context.WithValue(ctx, ctxKey{}, &v)
}

// WithBill returns a ctx and the Bill of its calls, to settle meters by hand: where an SDK says what a call has cost, or
// the body does not. With it a meter whose body has not said its usage stays held until Bill.Settle, the next attempt under
// ctx, its retry, or the end of ctx, whichever is first. Use it for one call at a time.
func WithBill(ctx context.Context) (context.Context, *Bill) {
	v := *ctxValue(ctx)
	v.bill = &Bill{ctx: ctx}
	return context.WithValue(ctx, ctxKey{}, &v), v.bill
}

// A Bill settles the attempts under its ctx, see [WithBill]. It is safe for concurrent use.
type Bill struct {
	ctx  context.Context
	bill body.Bill
}

// Settle says that the newest attempt under the Bill's ctx has cost n units of a meter. It does nothing before an attempt is
// sent, for a meter that is settled, and for a name that is not a meter's. A negative n counts as what was held.
func (b *Bill) Settle(meter string, n int) {
	b.bill.Settle(func(h body.Holds) int { return h.(*queue.Holds).Meters().Find(meter) }, n)
}

// A metered is what the calls of a key ask their meters.
type metered struct {
	meters []Meter
	costs  []body.Cost // the same for each
	reads  bool        // one has Settle, so bodies are read
}

// metersOf checks the meters of a key, and joins them to its other limits.
func metersOf(key string, meters []Meter, l queue.Limits) (*queue.Meters, error) {
	m, names := metered{meters: meters}, map[string]bool{}
	var each []queue.Meter
	for i, one := range meters {
		set, err := new(limit.Set), error(nil)
		switch {
		case one.Name == "":
			err = errors.New("it has no Name")
		case names[one.Name]:
			err = errors.New("another one has its name")
		case one.Limiter == nil:
			err = errors.New("it has no Limiter")
		default:
			if set, err = tryFlatten(one.Limiter); err == nil && set.Foreign() > 0 {
				err = fmt.Errorf("its Limiter, a %T, is not one of this library", one.Limiter)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("throttle: Transport.Meters(%q)[%d], meter %q: %w", key, i, one.Name, err)
		}
		names[one.Name] = true
		each = append(each, queue.Meter{Name: one.Name, Limits: set, Failures: one.Failures, Learn: one.Learn, Streams: one.Streams})
		m.costs = append(m.costs, one.Settle)
		m.reads = m.reads || one.Settle != nil
	}
	switch {
	case each == nil:
		return nil, nil
	case len(each) > queue.MaxMeters:
		return nil, fmt.Errorf("throttle: Transport.Meters(%q) returned %d meters, more than %d", key, len(each), queue.MaxMeters)
	}
	return queue.NewMeters(each, &m, l.All, l.Own), nil
}

// hold says what the next attempt holds of the meters of its key. It asks the user's functions, so no lock is held.
func (c *call) hold(of *queue.Meters) {
	m := of.Owner().(*metered)
	for i := range m.meters {
		n, given := 0, false
		if c.says.holds != nil { // a look into a map that is not there would take longer than what follows
			n, given = c.says.holds[m.meters[i].Name]
		}
		switch {
		case given:
		case m.meters[i].Hold == nil:
			n = 1
		default:
			n = m.meters[i].Hold(c.req)
		}
		c.turn.Hold(i, n, given)
	}
	if c.tab = nil; c.says.bill != nil {
		c.tab = body.NewTab(c.turn.Holds(), m.costs)
	}
}

// settle ends what the last attempt holds, or leaves that to its Bill and to whoever reads its body.
func (c *call) settle() {
	if m := c.turn.Meters(); m != nil {
		c.settleHolds(m.Owner().(*metered))
	}
}

// settleHolds is settle of an attempt that holds something.
func (c *call) settleHolds(m *metered) {
	t, resp := c.tab, c.response()
	if resp == nil || resp.StatusCode/100 != 2 && resp.StatusCode != http.StatusSwitchingProtocols {
		if c.turn.Holds().Fail(); t != nil {
			t.Settled()
		}
		return
	}
	c.turn.KeepHolds()
	watch := (*usage.Watcher)(nil)
	if m.reads && !c.bodiless(resp) {
		watch = c.t.Usage.Watch(resp.Header)
	}
	switch {
	case watch != nil:
		if t == nil {
			t = body.NewTab(c.turn.Holds(), m.costs)
		}
		late := &call{t: c.t, turn: c.turn.Late(), req: c.req, resp: resp}
		resp.Body = t.Watch(c.req.Context(), resp.Body, watch, late.refusedIn)
	case t != nil:
		t.End()
	default:
		c.turn.SettleAsHeld()
	}
}
