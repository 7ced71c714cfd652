package soak

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/usage"
)

// plenty is more units than all calls of a world hold.
const plenty = 1e9

// meters are the meters of a Transport's keys. Nobody waits for those of a ledger, and what they are given comes back
// too late to matter: so what they hold less than at the beginning is what calls hold, or have cost. One more is for
// those who do wait.
type meters struct {
	ledgers [2]*ledger
	tight   throttle.Limiter
}

// A ledger is one meter, and what ought to be gone from it. Guarded by the world's lock.
type ledger struct {
	name        string
	lim         throttle.Limiter
	asked       *throttle.Queue // only its Stats are, for the units of lim
	failures    bool            // Meter.Failures
	silent      bool            // it has no Settle
	least, most int             // by what the attempts that are over have cost
	held        int             // of those under way
}

// A hold is what the next attempt of a call holds of each ledger.
type hold [2]int

func (w *world) newMeters() *meters {
	var m meters
	for i := range m.ledgers {
		l := &ledger{name: fmt.Sprint("ledger ", i), failures: w.one(3), silent: w.one(4)}
		if l.lim = throttle.NewBucket(1e-9, plenty); w.one(2) {
			l.lim = throttle.NewFixedWindow(plenty, 100*maxBelief)
		}
		l.asked = throttle.NewQueue(l.lim, throttle.QueueOptions{})
		m.ledgers[i] = l
	}
	if w.one(2) {
		m.tight = w.newModel().lim // which no model watches: what calls have cost comes later
	}
	return &m
}

// of is Transport.Meters.
func (m *meters) of(string) (all []throttle.Meter) {
	for i, l := range m.ledgers {
		one := throttle.Meter{Name: l.name, Limiter: l.lim, Failures: l.failures, Hold: func(req *http.Request) int {
			c, n := callOf(req.Context()), 0
			c.w.locked(func() {
				n = pick(c.w, 0, 1, 2, 3, 10, 1000)
				c.hold[i] = n
			})
			return n
		}}
		if !l.silent {
			one.Settle = func(held int, u usage.Usage) int {
				if u.Output < 0 {
					return held / 2
				}
				return int(u.Output)
			}
		}
		all = append(all, one)
	}
	if m.tight != nil {
		all = append(all, throttle.Meter{Name: "tight", Limiter: m.tight, Hold: func(*http.Request) int { return 1 }})
	}
	return all
}

// A receipt is what one attempt has held, and what it may have cost by what is known. Guarded by the world's lock.
type receipt struct {
	m           *meters
	held        hold
	least, most hold
	answer      int // what its answer says that it has cost; -1: nothing
	by          int // what its caller may say by hand; -1: nothing
}

// holdUnits notes that an attempt of c starts.
func (c *call) holdUnits() {
	c.receipt = nil
	if x := c.st.tr; x != nil && x.meters != nil {
		c.receipt = &receipt{m: x.meters, held: c.hold, answer: -1, by: c.bill}
		for i, l := range x.meters.ledgers {
			l.held += c.hold[i]
		}
	}
}

// land notes that the attempt has its answer, or none. It counts if its status is 2xx: then it has cost what it held,
// what the answer says, or what its caller says by hand.
func (r *receipt) land(counts bool) {
	if r == nil {
		return
	}
	for i, l := range r.m.ledgers {
		least, most := r.held[i], r.held[i]
		if !counts && !l.failures {
			least, most = 0, 0
		}
		if counts && r.by >= 0 {
			least, most = min(least, r.by), max(most, r.by)
		}
		if counts && r.answer >= 0 && !l.silent {
			least, most = min(least, r.answer), max(most, r.answer)
		}
		l.held -= r.held[i]
		l.least, l.most = l.least+least, l.most+most
		r.least[i], r.most[i] = least, most
	}
}

// read notes that the answer was read to its end, so that what it says is what the attempt has cost.
func (r *receipt) read() {
	if r == nil || r.answer < 0 || r.by >= 0 {
		return
	}
	for i, l := range r.m.ledgers {
		if !l.silent {
			l.least, l.most = l.least+r.answer-r.least[i], l.most+r.answer-r.most[i]
			r.least[i], r.most[i] = r.answer, r.answer
		}
	}
}

// checkMeters: all that is gone from a ledger is held by an attempt under way, or is what one has cost.
func (x *transport) checkMeters(over bool) {
	if x.meters == nil {
		return
	}
	for _, l := range x.meters.ledgers {
		held := l.held
		if gone := plenty - l.asked.Stats().Tokens; gone < float64(l.least)-grain || gone > float64(l.most+held)+grain || over && held != 0 {
			x.w.fail("%s %s: %v units are gone; calls have cost %d to %d, and hold %d", x.name, l.name, gone, l.least, l.most, held)
		}
	}
	for key, s := range x.stats() {
		for _, m := range s.Meters {
			if over && m.Held != 0 {
				x.w.fail("%s %s: nobody is there, and %d units of %s are held", x.name, key, m.Held, m.Name)
			}
		}
	}
}

// billed lets some calls of a Transport with meters say by hand what they have cost, before or after the end of the body.
func (c *call) billed(ctx context.Context, x *transport) (context.Context, func()) {
	c.bill = -1
	if x.meters == nil || !c.w.one(5) {
		return ctx, func() {}
	}
	ctx, bill := throttle.WithBill(ctx)
	c.bill = c.w.n(50)
	return ctx, func() {
		for _, l := range x.meters.ledgers {
			if c.w.one(2) {
				bill.Settle(l.name, c.bill)
			}
		}
	}
}

// price makes half of the bodies that are watched say at their very end what the attempt has cost.
func (b *answerBody) price(c *call) {
	r, resp := c.receipt, b.resp
	if r == nil || resp.StatusCode/100 != 2 || resp.Request.Method == http.MethodHead {
		return
	}
	if b.receipt = r; !b.w.one(2) {
		return
	}
	r.answer = b.w.n(2000)
	says := fmt.Sprintf(`{"usage":{"prompt_tokens":1,"completion_tokens":%d}}`, r.answer)
	b.text = strings.Repeat(" ", max(0, b.size-len(says))) + says
	b.size, b.long = len(b.text), len(b.text) > readAhead
	resp.Header.Set("Content-Type", "application/json")
}
