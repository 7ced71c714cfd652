package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
)

// A melee has all verbs of the operator meet at the same moments: each time is a multiple of 10 ms, and so are the moments
// when limits let calls go. What happens in one of them has no order, and runs on all processors at once.
type melee struct {
	t      *testing.T
	seed   uint64
	most   int       // slots of all keys; 0: no bound
	each   int       // of a key
	quiet  time.Time // when Shutdown's time is over; zero: nobody has called it
	shared throttle.LimiterVar
	bucket *throttle.Bucket
	window *throttle.SlidingWindow
	fixed  *throttle.FixedWindow

	mu     sync.Mutex
	rng    *rand.Rand
	flying map[string]int
	all    int
}

// n is a random number below k.
func (m *melee) n(k int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rng.IntN(k)
}

// grains is a random number of grains below k: the times at which all happens.
func (m *melee) grains(k int) time.Duration { return time.Duration(m.n(k)) * 10 * time.Millisecond }

// enter counts an attempt under way, and leave takes it off.
func (m *melee) enter(key string, by int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flying[key] += by
	m.all += by
	if m.most > 0 && m.all > m.most || m.each > 0 && m.flying[key] > m.each {
		m.t.Errorf("seed %d: %d in flight of %d, %d of %s of %d", m.seed, m.all, m.most, m.flying[key], key, m.each)
	}
	if by > 0 && !m.quiet.IsZero() && time.Now().After(m.quiet) {
		m.t.Errorf("seed %d: an attempt %v after Shutdown's time was over", m.seed, time.Since(m.quiet))
	}
}

// RoundTrip answers after a while: mostly well.
func (m *melee) RoundTrip(req *http.Request) (*http.Response, error) {
	m.enter(req.URL.Host, 1)
	defer m.enter(req.URL.Host, -1)
	select {
	case <-time.After(m.grains(6)):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	resp := &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("x")), Request: req}
	switch m.n(30) {
	case 0:
		return nil, errors.New("the connection broke")
	case 1:
		resp.StatusCode = 503
	case 2:
		resp.StatusCode = 429
	case 3:
		resp.StatusCode = 429
		resp.Header.Set("Retry-After", "1")
	}
	return resp, nil
}

// limiter is a new one, of any kind.
func (m *melee) limiter() throttle.Limiter {
	switch m.n(5) {
	case 0:
		return throttle.NewLeaky(100)
	case 1:
		return throttle.NewFixedWindow(1+m.n(20), 100*time.Millisecond)
	case 2:
		return throttle.All(m.bucket, throttle.NewSlidingWindow(1+m.n(20), 100*time.Millisecond))
	case 3:
		return m.bucket
	}
	return throttle.NewBucket(rate.Limit(50+50*m.n(3)), 1+m.n(5))
}

// set changes a limit.
func (m *melee) set() {
	switch m.n(6) {
	case 0:
		m.shared.Set(m.limiter())
	case 1:
		m.bucket.SetLimit(rate.Limit(50 * m.n(4)))
	case 2:
		m.bucket.SetBurst(1 + m.n(5))
	case 3:
		m.window.SetLimit(1+m.n(20), time.Duration(1+m.n(10))*10*time.Millisecond)
	case 4:
		m.fixed.SetLimit(1+m.n(20), time.Duration(1+m.n(10))*10*time.Millisecond)
	default:
		m.bucket.Adjust(m.n(5) - 2)
	}
}

// context is that of a call: of any flow, priority and cost, and it may end at any moment.
func (m *melee) context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = throttle.WithFlow(ctx, []string{"", "a", "b", "c"}[m.n(4)])
	ctx = throttle.WithPriority(throttle.WithCost(ctx, []int{1, 1, 1, 0, 3}[m.n(5)]), m.n(2))
	switch m.n(4) {
	case 0:
		return context.WithTimeout(ctx, m.grains(100))
	case 1:
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(m.grains(50), cancel)
		return ctx, cancel
	case 2:
		return throttle.WithMaxWait(ctx, m.grains(100)), func() {}
	}
	return ctx, func() {}
}

// newMelee makes one; the limits are in use by all of its lines.
func newMelee(t *testing.T, seed uint64) *melee {
	m := &melee{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 21)), flying: map[string]int{}}
	m.most, m.each = m.n(3)*3, m.n(2)*2
	m.bucket, m.window = throttle.NewBucket(100, 2), throttle.NewSlidingWindow(10, 100*time.Millisecond)
	m.fixed = throttle.NewFixedWindow(10, 100*time.Millisecond)
	m.shared.Set(m.bucket)
	return m
}

// fight has callers and operators meet until it is over, and then lets everybody go.
func (m *melee) fight(call func(), operate func(), shutdown func(context.Context) error) {
	var callers, operators sync.WaitGroup
	end := time.Now().Add(3 * time.Second)
	for range 40 {
		callers.Go(func() {
			for time.Now().Before(end) {
				call()
				time.Sleep(m.grains(5))
			}
		})
	}
	for range 4 {
		operators.Go(func() {
			for time.Now().Before(end) {
				time.Sleep(m.grains(8))
				if m.n(3) == 0 {
					m.set()
				} else {
					operate()
				}
			}
		})
	}
	if m.n(2) == 0 {
		for range 2 {
			operators.Go(func() {
				time.Sleep(m.grains(300))
				ctx, cancel := context.WithTimeout(context.Background(), m.grains(100))
				defer cancel()
				func() {
					m.mu.Lock()
					defer m.mu.Unlock()
					if until, _ := ctx.Deadline(); m.quiet.IsZero() || until.Before(m.quiet) {
						m.quiet = until
					}
				}()
				if err := shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
					m.t.Errorf("seed %d: Shutdown: %v", m.seed, err)
				}
			})
		}
	}
	operators.Wait()
	m.bucket.SetLimit(1000)
	m.window.SetLimit(1000, time.Second)
	m.fixed.SetLimit(1000, time.Second)
	m.shared.Set(m.bucket)
	callers.Wait()
	if took := time.Since(end); took > 5*time.Minute {
		m.t.Errorf("seed %d: the last call ended %v after the end", m.seed, took)
	}
}

// Whatever the operator does at one moment, nobody is stuck, no bound is broken, and nothing is left.
func TestVerbsAtOnce(t *testing.T) {
	for seed := range race.Pick(uint64(4), 12) {
		t.Run(fmt.Sprint("transport ", seed), func(t *testing.T) { synctest.Test(t, newMelee(t, seed).transport) })
		t.Run(fmt.Sprint("queue ", seed), func(t *testing.T) { synctest.Test(t, newMelee(t, seed).queue) })
	}
}

func (m *melee) transport(t *testing.T) {
	m.t = t
	hosts := []string{"a.test", "b.test", "c.test", "d.test"}
	tr := &throttle.Transport{
		Base: m, Limiter: &m.shared, MaxInFlight: m.most, Retry: throttle.Retry{MaxPause: -1},
		LimiterFor: func(key string) throttle.Limiter {
			return map[string]throttle.Limiter{"a.test": m.window, "b.test": m.fixed, "c.test": throttle.NewBucket(100, 1)}[key]
		},
		Queue: throttle.QueueOptions{MaxInFlight: m.each, Weight: func(flow string) float64 { return weights[flow] }},
	}
	m.fight(func() {
		ctx, cancel := m.context(t.Context())
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+hosts[m.n(4)]+"/", nil)
		if err != nil {
			t.Error(err)
		}
		if resp, err := tr.RoundTrip(req); err == nil {
			resp.Body.Close()
		}
	}, func() {
		key := append(hosts, "", "new.test")[m.n(6)]
		switch m.n(6) {
		case 0, 1:
			tr.Pause(key, m.grains(20))
		case 2, 3:
			tr.Resume(key)
		case 4:
			tr.Predict(key, m.n(1000))
		default:
			for range tr.Stats() {
			}
		}
	}, tr.Shutdown)
	for s := range tr.Stats() {
		if s.Waiting != 0 || s.InFlight != 0 {
			t.Errorf("seed %d: left behind: %+v", m.seed, s)
		}
	}
}

func (m *melee) queue(t *testing.T) {
	m.t, m.most = t, 0
	q := throttle.NewQueue(throttle.All(&m.shared, m.window), throttle.QueueOptions{MaxInFlight: m.each})
	work := func(context.Context) error {
		m.enter("", 1)
		defer m.enter("", -1)
		time.Sleep(m.grains(6))
		return nil
	}
	m.fight(func() {
		ctx, cancel := m.context(t.Context())
		defer cancel()
		switch m.n(5) {
		case 0:
			_ = q.Wait(ctx)
		case 1:
			group, ctx := throttle.NewGroup(ctx, q)
			for range 1 + m.n(6) {
				group.Go(ctx, work)
			}
			_ = group.Wait()
		default:
			_ = q.Do(ctx, work)
		}
	}, func() {
		switch m.n(5) {
		case 0:
			q.Pause(m.grains(20))
		case 1, 2:
			q.Resume()
		case 3:
			q.Predict(m.n(1000))
		default:
			q.Stats()
		}
	}, q.Shutdown)
	if s := q.Stats(); s.Waiting != 0 || s.InFlight != 0 {
		t.Errorf("seed %d: left behind: %+v", m.seed, s)
	}
}
