package lab_test

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-throttle/throttle/throttletest"
)

// A lawClient shows what a cell of TestAdvertised or TestFleet allows; a cleverer client may do better. It
// is given what the upstream knew, its window too, with the reset rounded up, and has no gate and no
// scopes. While it sees others it keeps one law: what remains, less own calls in flight, over the time to the reset. Alone it needs no advertised
// reset: it sends the quota in any window of its own, made longer by the spread of its round trips.
// It is alone if what remains is no less than the quota without what it sent within a window.
type lawClient struct {
	sim  *sim
	port http.RoundTripper
	turn chan struct{} // held by the one who waits for its moment

	mu     sync.Mutex
	next   time.Duration // when the next may be sent
	flying int
	known  bool
	window throttletest.State
	end    time.Duration // of the advertised window; smallest seen
	rolled time.Duration // when this window was first known
	left   float64       // smallest advertised in this window
	others float64       // units a second taken by others
	ours   int           // answered since heard
	heard  time.Duration // when left was last advertised

	log               []time.Duration // when it sent, within a window
	foreign           time.Duration   // others were seen, which counts until then
	quickest, slowest time.Duration   // round trips
}

// newLawClient lets s say what it knows, to the nanosecond.
func newLawClient(s *sim, i int) *lawClient {
	s.Advertise = throttletest.Advert{Dialect: func(h http.Header, states []throttletest.State, _ time.Time) {
		q := states[0]
		h.Set("State", fmt.Sprint(q.Limit, q.Remaining, int64(q.Reset), int64(q.Window)))
	}}
	return &lawClient{sim: s, port: s.port(i), turn: make(chan struct{}, 1)}
}

func (c *lawClient) RoundTrip(req *http.Request) (*http.Response, error) {
	for {
		sent, err := c.wait(req)
		if err != nil {
			return nil, err
		}
		resp, err := c.port.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		var q throttletest.State
		if _, err := fmt.Sscan(resp.Header.Get("State"), &q.Limit, &q.Remaining, (*int64)(&q.Reset), (*int64)(&q.Window)); err != nil {
			return nil, err
		}
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
	now = c.sim.Elapsed()
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
	w := c.window.Window
	for len(c.log) > 0 && c.log[0] <= now-w-(c.slowest-c.quickest) {
		c.log = c.log[1:]
	}
	switch {
	case len(c.log) >= c.window.Limit:
		return c.log[0] + w + (c.slowest - c.quickest) - now
	case now < c.next:
		return c.next - now
	case w > 2*time.Second:
		c.next = now + w/time.Duration(c.window.Limit)
	}
	return 0
}

func (c *lawClient) shared(now time.Duration) time.Duration {
	isBucket := c.sim.Limits[0].Kind == throttletest.Bucket
	if now >= c.end && !isBucket { // a window that nobody has advertised of yet
		c.end += max(c.window.Window, time.Second)
		c.left, c.rolled, c.heard = float64(c.window.Limit), now, now
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
	w := c.window.Window.Seconds()
	h := max(1e-3, (c.end - now).Seconds())
	h = max(h, left*w/float64(c.window.Limit))
	c.next = now + time.Duration(min(h/left, h/2)*1e9)
	return 0
}

func (c *lawClient) learn(q throttletest.State, sent time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.sim.Elapsed()
	c.flying--
	if c.slowest = max(c.slowest, now-sent); c.quickest == 0 || now-sent < c.quickest {
		c.quickest = now - sent
	}
	mine := 0
	for i := len(c.log) - 1; i >= 0 && c.log[i] > sent-q.Window-c.slowest; i-- {
		mine++
	}
	switch {
	case q.Remaining < q.Limit-mine-1:
		c.foreign = now + 2*q.Window
	case !c.known: // others take a moment to be seen
		c.foreign = now + min(q.Window, 2*time.Second)
	}
	end := now + (q.Reset+time.Second-1)/time.Second*time.Second
	left := float64(q.Remaining)
	switch k := c.sim.Limits[0].Kind; {
	case !c.known || k != throttletest.Fixed && k != throttletest.FixedFirst:
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
