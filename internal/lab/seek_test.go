package lab_test

import (
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// A seekClient is the search for an unknown limit in its plainest form, and nothing else: it
// shows what a cell of TestFinder allows, and is no bound.
type seekClient struct {
	sim   *sim
	port  http.RoundTripper
	turn  chan struct{} // held by the one who waits for its moment
	noted time.Duration

	mu                      sync.Mutex
	next, closed            time.Duration
	heard                   bool
	flying, out             int     // out: of this epoch
	srtt                    float64 // s
	epoch                   int
	phase                   seekPhase
	w, kappa, f, good, top  float64
	k, n, units, cur        int
	nEMA, hold              float64 // hold is P, s
	short, accepted         bool
	untold                  int
	since, probing, lastCut time.Duration // since: of the hold
}

type seekPhase int

const (
	seekStart seekPhase = iota
	seekHold
	seekProbe
)

func newSeekClient(s *sim, i int) *seekClient {
	return &seekClient{sim: s, port: s.port(i), turn: make(chan struct{}, 1), noted: s.RetryAfter,
		kappa: 0.88, f: 0.3, nEMA: 1, accepted: true}
}

func (c *seekClient) RoundTrip(req *http.Request) (*http.Response, error) {
	for {
		sent, epoch, rs, err := c.wait(req)
		if err != nil {
			return nil, err
		}
		resp, err := c.port.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		c.learn(resp.StatusCode == http.StatusOK, sent, epoch, rs)
		if resp.StatusCode == http.StatusOK {
			return resp, nil
		}
	}
}

func (c *seekClient) wait(req *http.Request) (sent time.Duration, epoch int, rs float64, err error) {
	select {
	case c.turn <- struct{}{}:
	case <-req.Context().Done():
		return 0, 0, 0, req.Context().Err()
	}
	defer func() { <-c.turn }()
	for {
		d := c.ask(&sent, &epoch, &rs)
		if d == 0 {
			return sent, epoch, rs, nil
		}
		time.Sleep(min(d, 10*time.Millisecond)) // an answer may change the plan
		if err := req.Context().Err(); err != nil {
			return 0, 0, 0, err
		}
	}
}

func (c *seekClient) rate(now time.Duration) float64 {
	if c.phase == seekHold && now >= c.since+time.Duration(c.hold*1e9) {
		c.phase, c.probing = seekProbe, now
		if !c.short {
			c.nEMA += 0.3 * (float64(c.n) - c.nEMA)
		}
		c.n = 0
	}
	switch c.phase {
	case seekStart:
		return 20 * math.Exp2(now.Seconds()/0.25)
	case seekProbe:
		return c.w * math.Exp(math.Ln2/5*(now-c.probing).Seconds())
	}
	return c.w
}

func (c *seekClient) ask(sent *time.Duration, epoch *int, rs *float64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.sim.Elapsed()
	switch {
	case now < c.closed:
		return c.closed - now
	case !c.heard && c.flying >= 4:
		return time.Millisecond
	case now < c.next:
		return c.next - now
	case c.untold > 2 && c.out > 0: // a probe
		return time.Millisecond
	}
	c.out++
	r := c.rate(now)
	c.next = max(c.next, now-time.Millisecond) + time.Duration(min(1e9/r, 10e9))
	c.flying++
	*sent, *epoch, *rs = now, c.epoch, r
	return 0
}

func (c *seekClient) learn(ok bool, sent time.Duration, epoch int, rs float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.sim.Elapsed()
	c.flying--
	c.heard = true
	if epoch == c.epoch {
		c.out--
	}
	if trip := (now - sent).Seconds(); c.srtt == 0 {
		c.srtt = trip
	} else {
		c.srtt += (trip - c.srtt) / 8
	}
	if ok {
		c.units++
		if epoch == c.epoch {
			c.cur++
			c.accepted, c.untold = true, 0
		}
		return
	}
	c.n++
	if epoch != c.epoch {
		if c.noted > 0 {
			c.close(now)
		}
		return
	}
	c.epoch++
	c.out = 0
	if !c.accepted || c.noted == 0 && c.phase == seekHold && (now-c.lastCut).Seconds() < max(4*c.srtt, 3/c.w) {
		c.close(now)
		c.cur = 0
		return
	}
	c.cut(now, rs)
	cost := c.close(now)
	c.hold = max(max(1, c.nEMA)/(0.01*c.w), cost/0.045)
	if c.short {
		c.hold = max(0.5, 10/c.w, 5*cost)
	}
	c.phase, c.lastCut, c.units, c.cur, c.accepted = seekHold, now, 0, 0, false
}

func (c *seekClient) close(now time.Duration) (cost float64) {
	if c.noted == 0 {
		c.untold++
	}
	cost = max(c.srtt, 1/max(c.w, 0.1))
	if c.untold > 2 {
		cost = rand.Float64() * min(30, c.srtt*math.Exp2(float64(c.untold-2)))
	}
	if c.noted > 0 {
		cost = c.noted.Seconds() * (1 + rand.Float64()/20)
	}
	c.closed = max(c.closed, now+time.Duration(cost*1e9))
	c.next, c.since = max(c.next, c.closed), c.closed
	return cost
}

func (c *seekClient) cut(now time.Duration, rs float64) {
	acc := float64(c.units) / max(1e-9, (now-c.lastCut).Seconds())
	switch c.phase {
	case seekStart:
		c.w, c.short = max(0.1, min(0.7*rs, 0.95*acc)), true
	case seekHold:
		if held := (now - c.since).Seconds(); held < c.hold/2 || c.short {
			c.k = min(c.k+1, 3)
		} else {
			c.k, c.top = 0, c.w
		}
		w := 0.0
		if c.noted == 0 && c.units >= 20 {
			w = min(max(0.985*acc, 0.5*c.w), 0.99*c.w)
		} else {
			e := min(0.4, min(max(4/max(1, float64(c.cur)), 0.01), 0.2)*math.Exp2(float64(c.k)))
			w = min(0.99*c.w, max(c.w*(1-e), 0.98*acc))
		}
		if c.k == 1 && 0 < c.good && c.good < c.w {
			w = min(0.995*c.w, max(w, c.good))
		}
		if c.k > 1 {
			c.good = 0
		}
		if c.k <= 1 {
			c.kappa = max(0.6, c.kappa*max(0.9, w/c.w))
		}
		c.f = max(0.03, c.f/2)
		c.short = w < 0.75*c.top
		c.w = w
	case seekProbe:
		if !c.short {
			c.good = c.w
			c.kappa += c.f * max(0, 0.985-c.kappa)
			c.f = min(0.3, 1.3*c.f)
		}
		if rs < c.w {
			c.w = 0.98 * c.w
		} else {
			c.w = min(0.99*rs, max(c.w, c.kappa*rs))
		}
		c.k, c.top, c.short = 0, c.w, false
	}
}
