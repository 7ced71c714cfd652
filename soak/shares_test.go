package soak

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-throttle/throttle"
)

// Shares are what the flows of a line have got. Two that wait without a break get the same per weight, but for two of
// their largest calls each: one that has been served, and one out of turn, as each eighth is the oldest call's.
//
// An example: x and y wait, with calls of one unit and the weights 1 and 2. After x has got 10 units and y 20, x may get 3
// more before y gets one, or y 6 more before x gets one: two calls of each are 2 + 1 per weight.
//
// A call whose context ends in the moment of its grant has been charged, and its flow's next calls go for that. So what
// left the line counts as slack of its flow until nobody waits. Guarded by the world's lock.
type shares struct {
	of    map[tenant]*share
	apart map[[2]tenant]float64 // by how much two are apart that wait without a break: what it was when that began
	seen  []*call               // those who waited at the last moment
	plain bool                  // who went next did not depend on anything but flows then
}

// A tenant is a flow of one priority.
type tenant struct {
	prio int
	flow string
}

// A share is what a tenant has got per weight since the line was empty, the largest that one of its calls is, and what
// has left the line.
type share struct{ got, largest, slack float64 }

// weights are those of flows; others have 1.
var weights = map[string]float64{"a": 2, "b": 1, "c": 0.5, "x": 1, "y": 2}

// charge is what a call counts for its flow.
func (c *call) charge() float64 { return float64(max(1, c.cost)) / cmp.Or(weights[c.flow], 1) }

// tenant is whose call it is.
func (c *call) tenant() tenant { return tenant{c.prio, c.flow} }

// share finds what the tenant of c has got.
func (s *shares) share(c *call) *share {
	if s.of == nil {
		s.of, s.apart = map[tenant]*share{}, map[[2]tenant]float64{}
	}
	p := s.of[c.tenant()]
	if p == nil {
		p = new(share)
		s.of[c.tenant()] = p
	}
	p.largest = max(p.largest, c.charge())
	return p
}

// started notes that c goes.
func (s *shares) started(c *call) { s.share(c).got += c.charge() }

// left notes that the context of c has ended, which was not sent.
func (s *shares) left(c *call) { s.share(c).slack += c.charge() }

// checkShares compares the flows of one line. In a line of several keys it depends on the others who goes next.
func (w *world) checkShares(st *station, plain bool) {
	if !st.flows || st.tr != nil && (st.tr.shared.lim != nil || st.tr.tr.MaxInFlight > 0) {
		return
	}
	line := slices.Clone(st.line)
	for g := range st.groups {
		for c := range g.waiting {
			if g.ctx.Err() == nil && c.ended.IsZero() { // otherwise it has left
				line = append(line, c)
			}
		}
	}
	if st.stats.Waiting == 0 {
		st.shares = shares{}
	}
	if wrong := st.shares.compare(line, plain); wrong != "" {
		w.fail("%s: %s", st.name, wrong)
	}
}

// compare compares each two tenants that wait, and says what is wrong.
func (s *shares) compare(line []*call, plain bool) (wrong string) {
	stays, waits := map[tenant]bool{}, map[tenant]bool{}
	for _, c := range line {
		s.share(c)
		waits[c.tenant()] = true
		stays[c.tenant()] = stays[c.tenant()] || slices.Contains(s.seen, c)
	}
	for a, x := range s.of {
		for b, y := range s.of {
			pair := [2]tenant{a, b}
			began, ok := s.apart[pair]
			if a.prio != b.prio || a.flow >= b.flow {
				continue
			}
			if !plain || !s.plain || !waits[a] || !waits[b] {
				delete(s.apart, pair)
				continue
			}
			if apart := x.got - y.got; !ok || !stays[a] || !stays[b] {
				s.apart[pair] = apart
			} else if most := 2*(x.largest+y.largest) + x.slack + y.slack; math.Abs(apart-began) > most+1e-6 {
				wrong = fmt.Sprintf("of priority %d flow %q has got %.1f units per weight more than %q while both waited, want %.1f at most",
					a.prio, a.flow, apart-began, b.flow, most)
			}
		}
	}
	s.seen, s.plain = line, plain
	return wrong
}

// flood has two flows of a line wait at once, one with its calls behind all of the other's.
func (w *world) flood(call func(flow string)) {
	var wg sync.WaitGroup
	for _, flow := range []string{"x", "y"} {
		for range 10 + w.n(40) {
			wg.Go(func() { call(flow) })
		}
		time.Sleep(time.Millisecond)
	}
	wg.Wait()
}

// plainCall makes a call of one unit of a flow.
func (w *world) plainCall(flow string) (context.Context, *call) {
	c := &call{w: w, cost: 1, flow: flow}
	ctx := throttle.WithFlow(context.WithValue(w.ctx, callKey{}, c), flow)
	ctx, c.cancel = context.WithCancel(ctx)
	c.watch(ctx)
	return ctx, c
}

// floodQueue makes a call of a flow.
func (w *world) floodQueue(st *station, flow string) {
	ctx, c := w.plainCall(flow)
	defer c.cancel()
	c.enter(st)
	defer c.leave()
	if st.bare.Wait(ctx) == nil {
		w.locked(func() {
			c.start()
			c.land()
		})
	}
}

// floodTransport makes a call of a flow to one host.
func (w *world) floodTransport(x *transport, host, flow string) {
	ctx, c := w.plainCall(flow)
	defer c.cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/", nil)
	if err != nil {
		panic(err)
	}
	resp, err := x.RoundTrip(req)
	if err != nil {
		w.sum.failed.Add(1)
		return
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
}

// Two flows that get the same per weight pass. One that gets more fails, unless one of them waits for the first time then.
func TestShares(t *testing.T) {
	for _, c := range []struct {
		name, turns string // who goes: x, y; "-": nobody of y waits for a moment, "!": something else has decided
		fails       bool
	}{
		{"by weight", "yyxyyxyyxyyxyyxyyxyyx", false},
		{"each eighth out of turn", "yyxyyxyxyyxyyxyxyyxyyxyx", false},
		{"ahead by two calls", "xxx", false},
		{"too far ahead", "xxxx", true},
		{"the other one", "yyyyyyy", true},
		{"with breaks", "xxx-xxx-xxx", false},
		{"while a gate is closed", "xxx!xxx", false},
	} {
		var s shares
		line := []*call{}
		for range 40 {
			line = append(line, &call{cost: 1, flow: "x"}, &call{cost: 1, flow: "y"})
		}
		wrong := s.compare(line, true) + s.compare(line, true)
		for _, turn := range strings.Split(c.turns, "") {
			of := func(o *call) bool { return o.flow == turn }
			switch i := slices.IndexFunc(line, of); turn {
			case "x", "y":
				s.started(line[i])
				line = slices.Delete(slices.Clone(line), i, i+1)
				wrong += s.compare(line, true)
			case "-":
				wrong += s.compare(slices.DeleteFunc(slices.Clone(line), func(o *call) bool { return o.flow == "y" }), true)
				wrong += s.compare(line, true)
			case "!":
				wrong += s.compare(line, false) + s.compare(line, true)
			}
		}
		if (wrong != "") != c.fails {
			t.Errorf("%s: %q, want a failure: %v", c.name, wrong, c.fails)
		}
	}
}
