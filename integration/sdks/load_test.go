package sdks

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttletest"
)

// A caller makes the i-th call with an SDK. The fake must see the same id in all attempts of a call, and in no other.
type caller func(ctx context.Context, i int) error

// An api is one SDK before the fake of its API.
type api struct {
	name string
	fake func() fake                          // a new one
	use  func(throttled *http.Client) caller  // an SDK as its recipe makes it
	drop func(throttled *http.Client) dropper // opens a stream, reads its beginning and forgets it; nil: the SDK has none

	stream string // the beginning of one, not empty

	calls, workers int
	ideal          time.Duration // the shortest time in which the limit admits so many calls
	slack          float64       // what the calls may take, in ideal times

	silent    bool                       // of a call whose ctx was cancelled the SDK says only that
	noTimeout bool                       // the SDK takes a RoundTripper, so there is no http.Client with a timeout
	transport func() *throttle.Transport // of the recipe; nil: the zero Transport
	retries   bool                       // the SDK retries itself: more are throttled, and a refusal is tried again until the ctx ends
}

// A dropper begins to read a stream under ctx, which is withStream, and leaves it open.
type dropper func(ctx context.Context) error

// A fake is an upstream that enforces: a Server, and what stands before it to speak as the API does.
type fake struct {
	*throttletest.Server
	front http.RoundTripper // nil: the Server
}

func (f fake) RoundTrip(req *http.Request) (*http.Response, error) {
	if f.front != nil {
		return f.front.RoundTrip(req)
	}
	return f.Server.RoundTrip(req)
}

// roundTripper is a function as an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestLoad makes more calls than five windows of the limit hold, with the zero Transport. Each call is delivered, by one
// attempt alone; few are throttled; and they take little longer than the limit demands.
func TestLoad(t *testing.T) {
	for _, a := range enforced {
		t.Run(a.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				upstream := a.fake()
				tr := new(throttle.Transport)
				if a.transport != nil {
					tr = a.transport()
				}
				tr.Base = upstream
				call := a.use(&http.Client{Transport: tr})
				wall, failed := send(t, call, a.calls, a.workers)
				served := make(map[string]int)
				ledger := upstream.Ledger()
				for _, x := range ledger.Only(throttletest.Admitted) {
					served[x.Call]++
				}
				n := ledger.Tally()
				t.Logf("%d calls: %d admitted, %d throttled, %v of %v", a.calls, n.Admitted, n.Throttled, wall, a.ideal)
				if failed > 0 || n.Admitted != a.calls || len(served) != a.calls {
					t.Errorf("%d of %d calls failed, %d were admitted, %d different ones", failed, a.calls, n.Admitted, len(served))
				}
				most := a.calls / 10
				if a.retries {
					most *= 2
				}
				if n.Throttled > most {
					t.Errorf("%d were throttled, want at most %d", n.Throttled, most)
				}
				if most := time.Duration(a.slack * float64(a.ideal)); wall > most || a.ideal < time.Second {
					t.Errorf("it took %v, want at most %v", wall, most)
				}
			})
		})
	}
}

// send makes n calls with so many workers.
func send(t *testing.T, call caller, n, workers int) (wall time.Duration, failed int64) {
	var next, failures atomic.Int64
	var running sync.WaitGroup
	start := time.Now()
	for range workers {
		running.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := call(t.Context(), int(i)); err != nil && failures.Add(1) <= 3 {
					t.Errorf("call %d: %v", i, err)
				}
			}
		})
	}
	running.Wait()
	return time.Since(start), failures.Load()
}

// answer lets a fake answer with what body makes of a request, as JSON.
func answer(body func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, body(r))
	})
}

// asJSON is a Dialect that makes throttled answers JSON too.
func asJSON(say throttletest.Dialect) throttletest.Dialect {
	return func(h http.Header, states []throttletest.State, now time.Time) {
		h.Set("Content-Type", "application/json")
		if say != nil {
			say(h, states, now)
		}
	}
}

// byPath identifies a call by the last element of its path.
func byPath(r *http.Request) (client, call string) {
	return "", r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
}

// byBody identifies a call by the number that follows "call " in its body, which may be a form.
func byBody(r *http.Request) (client, call string) {
	b, err := io.ReadAll(r.Body)
	if _, rest, found := strings.Cut(strings.ReplaceAll(string(b), "+", " "), "call "); err == nil && found {
		var i int
		if _, err := fmt.Sscanf(rest, "%d", &i); err == nil {
			return "", fmt.Sprint(i)
		}
	}
	return "", ""
}

// way is the latency of the fakes.
var way = throttletest.Span{Min: 20 * time.Millisecond, Max: 60 * time.Millisecond}
