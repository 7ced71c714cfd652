package worlds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"golang.org/x/time/rate"
)

// Events of a world's log.
const (
	arrives = iota
	starts
	answers // val: good, bad, or neither
	ends    // its slots are free
	leaves  // without having started; err says why
	foretold
	paused
	resumed
	setRate
	predicted // for the call, which arrives next
	until     // of the key: its first call is to start then
)

const (
	good = iota
	bad
	neither // the caller cancelled it
	unknown // its deadline passed in flight
)

type event struct {
	at   int64
	kind int
	c    *call
	key  int
	val  int64
	rate float64
	err  error
}

// A subject is what is judged: a Transport, or a model of one.
type subject interface {
	RoundTrip(*http.Request) (*http.Response, error)
	Pause(key string, d time.Duration)
	Resume(key string)
	Predict(key string, n int) time.Duration
	Explain(key string) (until time.Time)
	SetRate(account int, r float64)
}

// A run drives one world and logs it.
type run struct {
	*world
	begin time.Time
	sub   subject
	mu    sync.Mutex
	log   []event
	calls atomic.Int64
	wg    sync.WaitGroup
	stop  context.CancelFunc
	ctx   context.Context
	wrong []string // what is wrong whatever the properties
}

type callKey struct{}

const maxCalls = 500

func (r *run) note(e event) {
	r.mu.Lock()
	e.at = int64(time.Since(r.begin))
	r.log = append(r.log, e)
	r.mu.Unlock()
}

func (r *run) fault(format string, args ...any) {
	r.mu.Lock()
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
	r.mu.Unlock()
}

func host(k int) string { return fmt.Sprintf("k%d.test", k) }

// A real subject is the Transport itself.
type real struct {
	*throttle.Transport
	buckets map[int]*throttle.Bucket
}

func (s real) SetRate(a int, r float64) {
	if b := s.buckets[a]; b != nil { // some key pays it
		b.SetLimit(rate.Limit(r))
	}
}

func (s real) Explain(key string) time.Time {
	k, _ := s.Transport.Explain(key)
	return k.Until
}

func (r *run) transport() subject {
	s := real{buckets: map[int]*throttle.Bucket{}}
	t := &throttle.Transport{Base: r, MaxInFlight: r.maxIn}
	if r.lim != nil {
		t.Limiter = r.make(r.lim, s.buckets)
	}
	limits, meters := map[string]throttle.Limiter{}, map[string][]throttle.Meter{}
	made := map[int]throttle.Limiter{} // by first account: keys of a group share one
	for k, spec := range r.keys {
		if spec.lim != nil {
			if made[spec.lim[0]] == nil {
				made[spec.lim[0]] = r.make(spec.lim, s.buckets)
			}
			limits[host(k)] = made[spec.lim[0]]
		}
		if m := spec.meter; m >= 0 {
			if made[m] == nil {
				made[m] = r.make([]int{m}, s.buckets)
			}
			meters[host(k)] = []throttle.Meter{{Name: "m", Limiter: made[m], Failures: !r.accounts[m].back}}
		}
	}
	t.LimiterFor = func(key string) throttle.Limiter { return limits[key] }
	t.Meters = func(key string) []throttle.Meter { return meters[key] }
	t.Queue = throttle.QueueOptions{MaxInFlight: r.ownIn, Weight: func(f string) float64 { return r.weights[f] }}
	t.Retry = throttle.Retry{MaxAttempts: 1, MaxPause: -1, Failures: r.failures}
	t.Hooks.Waiting = func(ctx context.Context, e throttle.Event) {
		c := ctx.Value(callKey{}).(*call)
		r.note(event{kind: foretold, c: c, key: c.key, val: int64(e.Wait)})
	}
	s.Transport = t
	return s
}

// RoundTrip is the upstream.
func (r *run) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	c := ctx.Value(callKey{}).(*call)
	r.note(event{kind: starts, c: c, key: c.key})
	if req.Body != nil {
		defer req.Body.Close()
	}
	k, d, status := r.keys[c.key], r.keys[c.key].delay, 200
	now := time.Since(r.begin)
	random := rand.New(rand.NewPCG(r.seed, uint64(c.id)))
	if k.fault == 1 && now >= k.from && now < k.to || k.fault == 2 && random.Float64() < k.share {
		d, status = k.failDelay, 502
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		val := int64(neither)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			val = unknown
		}
		r.note(event{kind: answers, c: c, key: c.key, val: val})
		r.note(event{kind: ends, c: c, key: c.key})
		return nil, ctx.Err()
	}
	if status != 200 {
		r.note(event{kind: answers, c: c, key: c.key, val: bad})
		if k.errs {
			r.note(event{kind: ends, c: c, key: c.key})
			return nil, errors.New("connection reset")
		}
	} else {
		r.note(event{kind: answers, c: c, key: c.key, val: good})
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		Body: &once{Reader: strings.NewReader("an answer"), r: r, c: c}, ContentLength: 9, Request: req}, nil
}

// once is a body that is to be closed once.
type once struct {
	io.Reader
	r *run
	c *call
	n atomic.Int32
}

func (b *once) Close() error {
	if b.n.Add(1) == 2 {
		b.r.fault("the body of call %d was closed twice", b.c.id)
	}
	return nil
}

// call makes one call, and logs its side.
func (r *run) call(c *call) (err error) {
	r.wg.Add(1)
	defer r.wg.Done()
	ctx, cancel := context.WithCancel(context.WithValue(r.ctx, callKey{}, c))
	defer cancel()
	if c.cancel > 0 {
		defer time.AfterFunc(c.cancel, cancel).Stop()
	}
	if c.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	if c.maxWait > 0 {
		ctx = throttle.WithMaxWait(ctx, c.maxWait)
	}
	if c.name != "" {
		ctx = throttle.WithFlow(ctx, c.name)
	}
	if c.prio != 0 {
		ctx = throttle.WithPriority(ctx, c.prio)
	}
	if r.keys[c.key].meter >= 0 {
		ctx = throttle.WithHold(ctx, "m", c.hold)
	}
	ctx = throttle.WithCost(ctx, c.cost)
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+host(c.key)+"/", nil)
	var sent *once
	if c.id%4 == 0 {
		sent = &once{Reader: strings.NewReader("a question"), r: r, c: c}
		req.Method, req.Body, req.ContentLength = "POST", sent, 10
	}
	r.note(event{kind: arrives, c: c, key: c.key})
	resp, err := r.sub.RoundTrip(req)
	if e := new(throttle.Error); errors.As(err, &e) {
		r.note(event{kind: leaves, c: c, key: c.key, err: err})
	}
	if sent != nil {
		if sent.n.Load() != 1 {
			r.fault("the request's body of call %d was closed %d times", c.id, sent.n.Load())
		}
	}
	if err != nil {
		return err
	}
	r.finishCall(ctx, c, resp)
	return nil
}

func (r *run) finishCall(ctx context.Context, c *call, resp *http.Response) {
	if c.bodyHold > 0 && resp.StatusCode == 200 {
		timer := time.NewTimer(c.bodyHold)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	if c.id%2 == 0 {
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	r.note(event{kind: ends, c: c, key: c.key})
	_ = resp.Body.Close()
}

// source plays one source of calls.
func (r *run) source(i int, s source, episode time.Duration) {
	time.Sleep(s.at)
	for worker := range s.workers {
		go func() {
			random := rand.New(rand.NewPCG(r.seed, uint64(i*1000+worker)))
			for range s.n {
				if time.Since(r.begin) >= episode+s.until || r.calls.Load() >= maxCalls {
					return
				}
				c := r.newCall(s, random)
				if s.n > 1 && s.workers == 1 && s.n < 1000 { // an open loop
					go r.call(c)
				} else if r.call(c) != nil {
					time.Sleep(20 * time.Millisecond)
				}
				time.Sleep(s.think)
			}
		}()
	}
}

func (r *run) newCall(s source, random *rand.Rand) *call {
	c := &call{id: int(r.calls.Add(1)), key: pick(random, s.keys...), name: s.flow, prio: s.prio, cost: pick(random, s.costs...), maxWait: s.maxWait, timeout: s.timeout, bodyHold: s.hold}
	c.hold = 1 + random.IntN(20)
	c.flow = flowOf(c)
	if random.Float64() < s.cancel {
		c.cancel = ms(between(random, 1, 1000))
	}
	return c
}

func flowOf(c *call) string {
	if c.name == "" {
		return fmt.Sprintf("of key %d", c.key)
	}
	return c.name
}

func (r *run) act(a act) {
	name := ""
	if a.key >= 0 {
		name = host(a.key)
	}
	switch a.kind {
	case 0:
		r.note(event{kind: paused, key: a.key, val: int64(a.d)})
		r.sub.Pause(name, a.d)
	case 1:
		r.note(event{kind: resumed, key: a.key})
		r.sub.Resume(name)
	case 2:
		r.note(event{kind: setRate, key: a.acc, rate: a.limit})
		r.sub.SetRate(a.acc, a.limit)
	}
}

// play runs the world. It is the main goroutine of a bubble.
func (r *run) play() {
	r.begin = time.Now()
	r.ctx, r.stop = context.WithCancel(context.Background())
	done := make(chan struct{})
	for _, a := range r.acts {
		timer := time.AfterFunc(a.at, func() { r.act(a) })
		defer timer.Stop()
	}
	random := rand.New(rand.NewPCG(r.seed, 1<<40))
	for i, sources := range r.episodes {
		now, length := time.Since(r.begin), time.Duration(0)
		for j, s := range sources {
			go r.source(100*i+j, s, now)
			length = max(length, s.until)
		}
		time.Sleep(length + ms(between(random, 1, 50)) + 37*time.Microsecond)
		r.foretell(random)
		go func() {
			r.wg.Wait()
			done <- struct{}{}
		}()
		patience := time.NewTimer(40 * time.Second)
		select {
		case <-done:
		case <-patience.C: // own limits may be too slow for what was asked of them
			r.stop()
			synctest.Wait()
			select {
			case <-done:
			default:
				r.fault("calls do not leave when they are cancelled")
				time.Sleep(time.Hour)
				<-done
			}
			r.ctx, r.stop = context.WithCancel(context.Background())
		}
		patience.Stop()
	}
	r.stop()
	time.Sleep(time.Second) // for the workers that think
	synctest.Wait()
}

// foretell notes what is foretold while nobody comes: for one more call, and for the first of each key.
func (r *run) foretell(random *rand.Rand) {
	synctest.Wait()
	s := source{keys: []int{random.IntN(len(r.keys))}, costs: []int{1}}
	c := r.newCall(s, random)
	c.hold, c.probe = 1, true
	p := r.sub.Predict(host(c.key), 1)
	r.note(event{kind: predicted, c: c, key: c.key, val: int64(p)})
	go r.call(c)
	synctest.Wait()
	for k := range r.keys {
		if u := r.sub.Explain(host(k)); !u.IsZero() {
			r.note(event{kind: until, key: k, val: int64(u.Sub(r.begin))})
		}
	}
}
