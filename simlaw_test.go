package throttle_test

import (
	"net/http"
	"sync"
	"time"
)

// A lawClient shows what a cell of TestTold or TestFleet allows; a cleverer client may do better. It
// is given what the upstream knew, its window too, with the reset rounded up, and has no gate and no
// scopes. While it sees others it keeps the law of algorithms.md, section 20. Alone it needs no told
// reset: it sends the quota in any window of its own, made longer by the spread of its round trips.
// It is alone if what remains is no less than the quota without what it sent within a window.
type lawClient struct {
	port *port
	turn chan struct{} // held by the one who waits for its moment

	mu     sync.Mutex
	next   time.Duration // when the next may be sent
	flying int
	known  bool
	window told
	end    time.Duration // of the told window; smallest seen
	rolled time.Duration // when this window was first known
	left   float64       // smallest told in this window
	others float64       // units a second taken by others
	ours   int           // answered since heard
	heard  time.Duration // when left was last told

	log               []time.Duration // when it sent, within a window
	foreign           time.Duration   // others were seen, which counts until then
	quickest, slowest time.Duration   // round trips
}

func newLawClient(p *port) *lawClient { return &lawClient{port: p, turn: make(chan struct{}, 1)} }

func (c *lawClient) RoundTrip(req *http.Request) (*http.Response, error) {
	for {
		sent, err := c.wait(req)
		if err != nil {
			return nil, err
		}
		resp, q := c.port.exchange(req)
		c.learn(q, sent)
		if resp.StatusCode == http.StatusOK {
			return resp, nil
		}
	}
}

func (c *lawClient) wait(req *http.Request) (time.Duration, error) {
	select {
	case c.turn <- struct{}{}:
	case <-req.Context().Done():
		return 0, req.Context().Err()
	}
	defer func() { <-c.turn }()
	for {
		d, now := c.ask()
		if d == 0 {
			return now, nil
		}
		time.Sleep(min(d, 10*time.Millisecond)) // an answer may change the plan
		if err := req.Context().Err(); err != nil {
			return 0, err
		}
	}
}

// ask sends now, or tells how long to wait.
func (c *lawClient) ask() (wait, now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now = c.port.sim.now()
	switch {
	case !c.known && c.flying >= 4:
		wait = time.Millisecond
	case c.known && now >= c.foreign:
		wait = c.alone(now)
	case c.known:
		wait = c.shared(now)
	}
	if wait == 0 {
		c.flying++
		c.log = append(c.log, now)
	}
	return wait, now
}

func (c *lawClient) alone(now time.Duration) time.Duration {
	w := c.window.window
	for len(c.log) > 0 && c.log[0] <= now-w-(c.slowest-c.quickest) {
		c.log = c.log[1:]
	}
	switch {
	case len(c.log) >= c.window.limit:
		return c.log[0] + w + (c.slowest - c.quickest) - now
	case now < c.next:
		return c.next - now
	case w > 2*time.Second:
		c.next = now + w/time.Duration(c.window.limit)
	}
	return 0
}

func (c *lawClient) shared(now time.Duration) time.Duration {
	k := c.port.sim.limits[0].kind
	isBucket := k == bucket || k == bucketNext
	if now >= c.end && !isBucket { // a window that nobody has told of yet
		c.end += max(c.window.window, time.Second)
		c.left, c.rolled, c.heard = float64(c.window.limit), now, now
	}
	left := c.left - float64(c.flying)
	if !isBucket {
		left -= c.others * (now - c.heard).Seconds() / 2
	}
	if left < 1 {
		if isBucket && c.flying == 0 && now >= c.heard+200*time.Millisecond {
			return 0
		}
		return 10 * time.Millisecond
	}
	if now < c.next {
		return c.next - now
	}
	w := c.window.window.Seconds()
	h := max(1e-3, (c.end - now).Seconds())
	if k == bucketNext {
		h = max(h, float64(c.window.limit)/(2*float64(c.window.limit)/w))
	}
	h = max(h, left*w/float64(c.window.limit))
	c.next = now + time.Duration(min(h/left, h/2)*1e9)
	return 0
}

func (c *lawClient) learn(q told, sent time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.port.sim.now()
	c.flying--
	if c.slowest = max(c.slowest, now-sent); c.quickest == 0 || now-sent < c.quickest {
		c.quickest = now - sent
	}
	mine := 0
	for i := len(c.log) - 1; i >= 0 && c.log[i] > sent-q.window-c.slowest; i-- {
		mine++
	}
	switch {
	case q.remaining < q.limit-mine-1:
		c.foreign = now + 2*q.window
	case !c.known: // others take a moment to be seen
		c.foreign = now + min(q.window, 2*time.Second)
	}
	end := now + (q.reset+time.Second-1)/time.Second*time.Second
	left := float64(q.remaining)
	k := c.port.sim.limits[0].kind
	switch {
	case !c.known || k != fixed && k != fixedFirst:
		c.known, c.end, c.left, c.heard, c.ours = true, end, left, now, 0
	case sent < c.rolled: // of the window before
		return
	case end > c.end+time.Second && left > c.left: // a new one has begun
		c.end, c.left, c.rolled, c.heard, c.ours = end, left, now, now, 0
	case left <= c.left:
		if dt := (now - c.heard).Seconds(); dt > 0 {
			a := min(1, dt/0.3)
			c.others += a * (max(0, c.left-left-float64(c.ours)-1)/dt - c.others)
			if c.others < 0.5 {
				c.others = 0
			}
		}
		c.left, c.heard, c.ours = left, now, 0
		c.end = min(c.end, end)
	default:
		c.ours++
		c.end = min(c.end, end)
	}
	c.window = q
}
