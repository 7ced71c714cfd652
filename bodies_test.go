package throttle

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/hint"
)

// strictBody is the body of an answer on a connection: it yields left bytes, pace apart, then end, or blocks for ever if that is
// nil, until it is closed. It counts how often it is.
type strictBody struct {
	what   string
	left   int
	pace   time.Duration
	end    error
	closed atomic.Int32
	done   chan struct{}   // closed with it
	ctx    context.Context // of its request: a connection ends with it
}

func (b *strictBody) Read(p []byte) (int, error) {
	if b.pace > 0 {
		select {
		case <-time.After(b.pace):
		case <-b.done:
		case <-b.ctx.Done():
		}
	}
	switch {
	case b.closed.Load() > 0:
		return 0, http.ErrBodyReadAfterClose
	case b.ctx.Err() != nil:
		return 0, b.ctx.Err()
	case b.left > 0:
		n := min(len(p), b.left, 4<<10)
		b.left -= n
		return n, nil
	case b.end != nil:
		return 0, b.end
	}
	select {
	case <-b.done:
		return 0, http.ErrBodyReadAfterClose
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}

func (b *strictBody) Close() error {
	if b.closed.Add(1) == 1 {
		close(b.done)
	}
	return nil
}

// strictWorld is an upstream whose answers, callers and observers are drawn from a seed.
type strictWorld struct {
	mu   sync.Mutex
	rnd  *rand.Rand
	made []*strictBody
}

func (w *strictWorld) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rnd.IntN(n)
}

// body is one of the kinds that are kept, left open, read by nobody, or broken.
func (w *strictWorld) body(ctx context.Context) *strictBody {
	b := &strictBody{end: io.EOF, done: make(chan struct{}), ctx: ctx}
	switch b.what = []string{"empty", "short", "just kept", "long", "slow", "slower than it is kept", "endless", "broken"}[w.draw(8)]; b.what {
	case "short":
		b.left = 100
	case "just kept":
		b.left = keepBytes - 1 + w.draw(3)
	case "long":
		b.left = 5 * keepBytes
	case "slow":
		b.left, b.pace = 10_000, time.Duration(w.draw(60))*time.Millisecond
	case "slower than it is kept":
		b.left, b.pace = 100, keepTime+time.Duration(w.draw(3)-1)*time.Millisecond
	case "endless":
		b.left, b.end = 100, nil
	case "broken":
		b.left, b.end = 100, io.ErrUnexpectedEOF
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made = append(w.made, b)
	return b
}

func (w *strictWorld) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		req.Body.Close()
	}
	select {
	case <-time.After(time.Duration(w.draw(50)) * time.Millisecond):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	var resp *http.Response
	switch w.draw(12) {
	case 0:
		panic("Base")
	case 1, 2:
		return nil, io.ErrUnexpectedEOF
	case 3, 4:
		resp = reply(req, 200)
	case 5:
		resp = reply(req, 429, "Retry-After", "1")
	case 6:
		resp = reply(req, 429, "Retry-After", "3600")
	case 7:
		resp = reply(req, 429, "X-Should-Retry", "false")
	case 8, 9:
		resp = reply(req, 503)
	case 10:
		resp = reply(req, 500)
	default:
		resp = reply(req, 429)
	}
	resp.Body, resp.ContentLength = w.body(req.Context()), -1
	if w.draw(2) == 0 {
		resp.Header.Set("Content-Type", "application/json") // a Parser looks into it
	}
	return resp, nil
}

// call makes one call, reads what it likes of the answer, and closes it, as a caller has to, once.
func (w *strictWorld) call(ctx context.Context, tr *Transport, req *http.Request) {
	defer func() { recover() }() // Base, or a hook
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if w.draw(4) == 0 {
		time.AfterFunc(time.Duration(w.draw(2000))*time.Millisecond, cancel)
	}
	resp, err := tr.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return
	}
	switch body := resp.Body; w.draw(4) {
	case 0:
	case 1:
		body.Read(make([]byte, 10))
	case 2: // read until another goroutine closes it
		var wg sync.WaitGroup
		wg.Go(func() { io.Copy(io.Discard, body) })
		time.Sleep(time.Duration(w.draw(200)) * time.Millisecond)
		defer wg.Wait()
	case 3:
		io.CopyN(io.Discard, body, 50)
	}
	resp.Body.Close()
}

func (w *strictWorld) transport() *Transport {
	observe := func(context.Context, Event) {
		if w.draw(30) == 0 {
			panic("a hook")
		}
	}
	tr := &Transport{
		Base:  w,
		Queue: QueueOptions{MaxInFlight: w.draw(3)},
		Retry: Retry{MaxAttempts: 1 + w.draw(5), Budget: Budget{PerCall: -1}, MaxPause: 5 * time.Second},
		Hooks: Hooks{Waited: observe, Refused: observe, Throttled: observe, Failed: observe, Retrying: observe},
	}
	if w.draw(2) == 0 {
		tr.Limiter = NewBucket(20, 2)
	}
	if w.draw(2) == 0 {
		tr.Hint = (&hint.Parser{Dialects: []hint.Dialect{{Body: true}}}).Parse
	}
	if w.draw(3) == 0 {
		tr.Retry.Check = func(*http.Request, *http.Response, error) Verdict {
			switch w.draw(20) {
			case 0:
				panic("Check")
			case 1:
				return Final
			case 2:
				return Again
			}
			return Default
		}
	}
	return tr
}

// Whatever becomes of a call, and whoever panics: each body of an answer is closed once, by the Transport or by the caller
// who got it, and each body of a request is closed once, too.
func TestEveryBodyIsClosedOnce(t *testing.T) {
	seeds := 400
	if testing.Short() {
		seeds = 50
	}
	kinds := map[string]int{}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			w := &strictWorld{rnd: rand.New(rand.NewPCG(uint64(seed), 7))}
			tr := w.transport()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			var sent []*bodies
			var wg sync.WaitGroup
			for i := range 5 {
				b := &bodies{}
				sent = append(sent, b)
				req := b.request(ctx, []string{"PUT", "POST"}[i%2])
				wg.Go(func() {
					for range 2 {
						w.call(ctx, tr, req)
						time.Sleep(time.Duration(w.draw(1000)) * time.Millisecond)
						b2 := &bodies{}
						w.mu.Lock()
						sent = append(sent, b2)
						w.mu.Unlock()
						req = b2.request(ctx, "PUT")
					}
					req.Body.Close() // of the one that was not sent
				})
			}
			wg.Wait()
			synctest.Wait()
			for _, b := range w.made {
				kinds[b.what]++
				if n := b.closed.Load(); n != 1 {
					t.Errorf("seed %d: a body (%s) was closed %d times", seed, b.what, n)
				}
			}
			for _, s := range sent {
				for i, b := range s.made {
					if n := b.closed.Load(); n != 1 {
						t.Errorf("seed %d: body %d of a request was closed %d times", seed, i+1, n)
					}
				}
			}
			if left := leftBehind(); left != "" {
				t.Errorf("seed %d: goroutines are left:\n%s", seed, left)
			}
		})
		if t.Failed() {
			return
		}
	}
	if testing.Verbose() {
		t.Log(fmt.Sprint(kinds))
	}
}
