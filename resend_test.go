package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/usage"
)

// A keptKind is a kind of body: size bytes, pace apart, and then end; nil: it blocks until it is closed.
type keptKind struct {
	size  int
	pace  time.Duration
	end   error
	stuck bool // its Close takes an hour
}

// A keptBody is the body of an answer that is kept.
type keptBody struct {
	keptKind
	closed atomic.Int32
	done   chan struct{}
}

func (b *keptBody) Read(p []byte) (int, error) {
	if time.Sleep(b.pace); b.size > 0 {
		n := min(b.size, len(p))
		if b.pace > 0 {
			n = 1
		}
		b.size -= n
		return n, nil
	}
	if b.end == nil {
		<-b.done
		return 0, http.ErrBodyReadAfterClose
	}
	return 0, b.end
}

func (b *keptBody) Close() error {
	if b.closed.Add(1) == 1 {
		close(b.done)
	}
	if b.stuck {
		time.Sleep(time.Hour)
	}
	return errors.New("closed") // nobody hears of it
}

// keptBodies are bodies of all kinds, and what a reader gets of them.
var keptBodies = []struct {
	name string
	keptKind
	bytes int
	err   error // nil: the end
}{
	{"empty", keptKind{end: io.EOF}, 0, nil},
	{"1 byte", keptKind{size: 1, end: io.EOF}, 1, nil},
	{"16 KiB", keptKind{size: keepBytes, end: io.EOF}, keepBytes, nil},
	{"16 KiB and 1", keptKind{size: keepBytes + 1, end: io.EOF}, keepBytes, throttle.ErrBodyCut},
	{"10 MB", keptKind{size: 10e6, end: io.EOF}, keepBytes, throttle.ErrBodyCut},
	{"slow", keptKind{size: 1000, pace: 21 * time.Millisecond, end: io.EOF}, 4, throttle.ErrBodyCut},
	{"cut", keptKind{size: 100, end: io.ErrUnexpectedEOF}, 100, io.ErrUnexpectedEOF},
	{"endless", keptKind{size: math.MaxInt}, keepBytes, throttle.ErrBodyCut},
	{"blocks until it is closed", keptKind{size: 100}, 100, throttle.ErrBodyCut},
	{"blocks when it is closed", keptKind{size: 10e6, end: io.EOF, stuck: true}, keepBytes, throttle.ErrBodyCut},
}

// A keptCall is one call whose first answer is kept while the retry waits.
type keptCall struct {
	status int
	meter  string // how the units that it holds are settled; "": it holds none
	waits  string // for what the retry waits, for two seconds
	body   *keptBody
	tr     *throttle.Transport
	up     *upstream
	units  *throttle.Bucket
}

// begin makes the Transport and the ctx of the call.
func (c *keptCall) begin(ctx context.Context) context.Context {
	c.body.done = make(chan struct{}) // of the test's bubble
	c.up = newUpstream(0, func(n int, req *http.Request) (*http.Response, error) {
		if n > 1 {
			return reply(req, 200), nil
		}
		resp := reply(req, c.status, "Content-Type", "application/json", "Content-Length", "1000")
		resp.Body, resp.ContentLength = c.body, 1000
		return resp, nil
	})
	limiter, pause := throttle.NewBucket(100, 1), time.Millisecond
	c.units = throttle.NewBucket(100, 100)
	c.tr = &throttle.Transport{Base: c.up, Limiter: limiter, Queue: throttle.QueueOptions{MaxInFlight: 1}}
	c.tr.Retry = throttle.Retry{
		Backoff: func() throttle.Backoff { return constant(pause) },
		Check: func(*http.Request, *http.Response, error) throttle.Verdict {
			if len(c.up.times()) == 1 {
				return throttle.Again
			}
			return throttle.Default
		},
	}
	m := throttle.Meter{Name: "tokens", Limiter: c.units, Hold: func(*http.Request) int { return 100 }}
	if c.meter != "" {
		c.tr.Meters = func(string) []throttle.Meter { return []throttle.Meter{m} }
	}
	switch c.meter {
	case "Settle", "Learn", "Streams":
		m.Settle = func(held int, u usage.Usage) int { return int(u.Input) }
		m.Learn, m.Streams = c.meter != "Settle", c.meter == "Streams"
	case "Bill":
		ctx, _ = throttle.WithBill(ctx)
	}
	if c.waits == "backoff" {
		pause = 2 * time.Second
	}
	c.tr.Hooks.Retrying = func(context.Context, throttle.Event) { // it is decided: from now on it has to wait
		switch c.waits {
		case "gate":
			c.tr.Pause("x", 2*time.Second)
		case "limiter":
			limiter.Adjust(300)
		case "meter":
			c.units.Adjust(300)
		}
	}
	return ctx
}

// While a retry waits its answer holds nothing: no slot, no units of a meter, no goroutine, and its body is closed.
func TestKeptAnswersHoldNothing(t *testing.T) {
	n := 0
	for _, status := range []int{200, 429, 503} {
		for _, meter := range []string{"", "plain", "Settle", "Learn", "Streams", "Bill"} {
			for i, waits := range []string{"gate", "limiter", "meter", "backoff"} {
				for _, kind := range keptBodies {
					if n++; status == 429 && waits == "backoff" || meter == "" && waits == "meter" { // it has nothing to wait for
						continue
					}
					if n%race.Pick(5, 1) != i%race.Pick(5, 1) {
						continue
					}
					c := keptCall{status: status, meter: meter, waits: waits, body: &keptBody{keptKind: kind.keptKind}}
					synctest.Test(t, func(t *testing.T) { c.holdsNothing(t, kind.name) })
					if t.Failed() {
						return
					}
				}
			}
		}
	}
}

func (c *keptCall) holdsNothing(t *testing.T, body string) {
	ctx := c.begin(t.Context())
	what := fmt.Sprintf("%d, meter %q, waits for %s, body %s", c.status, c.meter, c.waits, body)
	var wg sync.WaitGroup
	wg.Go(func() {
		resp, err := c.tr.RoundTrip(request(ctx, "GET", "http://x/"))
		if err != nil || resp.StatusCode != 200 || len(c.up.times()) != 2 {
			t.Errorf("%s: %v, %v", what, resp, err)
			return
		}
		resp.Body.Close()
	})
	time.Sleep(900 * time.Millisecond)
	synctest.Wait()
	stats, closed := statsOf(t, c.tr), c.body.closed.Load()
	if n := len(c.up.times()); n != 1 || stats.InFlight != 0 || closed != 1 {
		t.Errorf("%s: %d attempts, %d in flight, closed %d times", what, n, stats.InFlight, closed)
	}
	for _, m := range stats.Meters {
		if m.Held != 0 {
			t.Errorf("%s: %d units are held", what, m.Held)
		}
	}
	left := leftBehind()
	if n := strings.Count(left, "synctest bubble"); n != 1 && !c.body.stuck {
		t.Errorf("%s: %d goroutines, want that of the call:\n%s", what, n, left)
	}
	wg.Wait()
	time.Sleep(2 * time.Hour)
}

// A kept answer that is the last one is the upstream's as far as it was read, and then says that it was cut.
func TestKeptAnswersThatAreLast(t *testing.T) {
	for _, kind := range keptBodies {
		synctest.Test(t, func(t *testing.T) {
			c := keptCall{status: 503, waits: "gate", body: &keptBody{keptKind: kind.keptKind}}
			ctx, cancel := context.WithTimeout(c.begin(t.Context()), time.Second)
			defer cancel()
			resp, err := c.tr.RoundTrip(request(ctx, "GET", "http://x/"))
			if err != nil || resp.StatusCode != 503 || resp.ContentLength != 1000 || resp.Header.Get("Content-Length") != "1000" {
				t.Fatal(kind.name, resp, err)
			}
			if why := throttle.Reason(resp); !errors.Is(why, context.DeadlineExceeded) {
				t.Errorf("%s: the reason is %v", kind.name, why)
			}
			got, err := io.ReadAll(resp.Body)
			if len(got) != kind.bytes || !errors.Is(err, kind.err) {
				t.Errorf("%s: %d bytes and %v, want %d and %v", kind.name, len(got), err, kind.bytes, kind.err)
			}
			if err := resp.Body.Close(); err != nil || c.body.closed.Load() != 1 {
				t.Errorf("%s: %v, closed %d times", kind.name, err, c.body.closed.Load())
			}
			time.Sleep(2 * time.Hour)
		})
	}
}

// A kept answer costs what its body has said, or as much as was held if it was cut before. No unit is lost or given back twice.
func TestKeptAnswersAreSettled(t *testing.T) {
	const said = `{"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120}}`
	pages := strings.Repeat(" ", 20_000)
	for name, c := range map[string]struct {
		text string
		bill bool
		want int // of both attempts, of which the second costs 120
	}{
		"said":                    {said, false, 240},
		"said, with a Bill":       {said, true, 240},
		"more after it":           {`{"a":1}` + pages, false, 300 + 120},
		"more after it, billed":   {`{"a":1}` + pages, true, 300 + 120},
		"said before it was cut":  {said[:len(said)-1] + pages + "}", false, 300 + 120},
		"nothing said":            {"{}", false, 300 + 120},
		"nothing said, billed":    {"{}", true, 300 + 120},
		"without a body, billed":  {"", true, 300 + 120},
		"without a body, or Bill": {"", false, 300 + 120},
	} {
		synctest.Test(t, func(t *testing.T) {
			units, n := newLedger(), 0
			tr := &throttle.Transport{
				Base: baseFunc(func(req *http.Request) (*http.Response, error) {
					a := meteredAnswer{status: 200, header: "application/json", text: said}
					if n++; n == 1 {
						a.text = c.text
					}
					return a.response(req), nil
				}),
				Meters: func(string) []throttle.Meter {
					return []throttle.Meter{{
						Name: "tokens", Limiter: units.Bucket, Hold: func(*http.Request) int { return 300 },
						Settle: func(_ int, u usage.Usage) int { return int(u.Input + u.Output) },
					}}
				},
				Retry: throttle.Retry{Check: func(*http.Request, *http.Response, error) throttle.Verdict {
					if n == 1 {
						return throttle.Again
					}
					return throttle.Default
				}},
			}
			ctx, cancel := context.WithCancel(t.Context())
			if c.bill {
				ctx, _ = throttle.WithBill(ctx)
			}
			resp, err := tr.RoundTrip(request(ctx, "GET", "http://x/"))
			if err != nil {
				t.Fatal(name, err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			cancel()
			synctest.Wait()
			if s := statsOf(t, tr).Meters[0]; units.used() != c.want || s.Held != 0 {
				t.Errorf("%s: %d units were used, want %d; %d are held", name, units.used(), c.want, s.Held)
			}
		})
	}
}

// asking is a limiter that holds nobody, and calls the function when somebody asks.
type asking func()

func (f asking) Take(context.Context, int) (time.Duration, error) { f(); return 0, nil }

// A busyServer knows how many of its connections are busy, and how many of its handlers run.
type busyServer struct {
	*httptest.Server
	handlers, attempts atomic.Int32
	mu                 sync.Mutex
	busy               map[net.Conn]bool
}

// newBusyServer answers the first request by first, and the others at once.
func newBusyServer(h2 bool, first http.HandlerFunc) *busyServer {
	s := &busyServer{busy: map[net.Conn]bool{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.handlers.Add(1)
		defer s.handlers.Add(-1)
		if s.attempts.Add(1) == 1 {
			first(w, r)
		}
	}))
	s.EnableHTTP2 = h2
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.busy[c] = true; state == http.StateIdle || state == http.StateClosed {
			delete(s.busy, c)
		}
	}
	s.StartTLS()
	return s
}

// rests reports whether nothing is under way.
func (s *busyServer) rests() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handlers.Load() == 0 && len(s.busy) == 0
}

// On a real server, by both protocols: while a retry waits the one connection is free or closed, and the stream has ended. The
// client may have one connection alone, so a retry that needs another one would wait for ever.
func TestKeptAnswersFreeTheirConnection(t *testing.T) {
	for name, c := range map[string]struct {
		size int
		ends string // how the answer ends after that
	}{
		"empty": {}, "1 byte": {size: 1}, "16 KiB": {size: keepBytes}, "16 KiB and 1": {size: keepBytes + 1}, "10 MB": {size: 10e6},
		"slow": {1, "slowly"}, "cut": {100, "cut"}, "never": {100, "never"}, "endless": {0, "endless"},
	} {
		for _, h2 := range []bool{false, true} {
			srv := newBusyServer(h2, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(503)
				w.Write(make([]byte, c.size))
				w.(http.Flusher).Flush()
				for c.ends != "" && r.Context().Err() == nil {
					switch c.ends {
					case "slowly":
						w.Write([]byte("."))
						w.(http.Flusher).Flush()
						time.Sleep(20 * time.Millisecond)
					case "cut":
						panic(http.ErrAbortHandler)
					case "never":
						<-r.Context().Done()
					case "endless":
						w.Write(make([]byte, 1<<20))
					}
				}
			})
			base := srv.Client().Transport.(*http.Transport)
			base.MaxConnsPerHost = 1
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			tr := &throttle.Transport{
				Base: base, Retry: throttle.Retry{Backoff: func() throttle.Backoff { return constant(time.Millisecond) }},
				Limiter: asking(func() {
					for srv.attempts.Load() == 1 && !srv.rests() && ctx.Err() == nil { // the retry waits
						time.Sleep(time.Millisecond)
					}
				}),
			}
			resp, err := tr.RoundTrip(request(ctx, "GET", srv.URL))
			if err != nil || resp.StatusCode != 200 || (resp.ProtoMajor == 2) != h2 {
				t.Errorf("HTTP/2 %v, %s: %v, %v", h2, name, resp, err)
			} else {
				resp.Body.Close()
			}
			cancel()
			srv.Close()
		}
	}
}

// A Base that changes what it gets, against the contract of RoundTripper, finds what it has done once at most: the first attempt is
// the caller's request itself, and each later one is made from that.
func TestBaseThatAddsToTheHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fields, paths []string
		base := baseFunc(func(req *http.Request) (*http.Response, error) {
			if req.Body != nil {
				io.Copy(io.Discard, req.Body)
				req.Trailer.Set("Sum", "1")
				req.Body.Close()
			}
			req.Header.Add("X-Id", "base")
			req.Header["X-Own"][0] += "+"
			req.URL.Path = "/v1" + req.URL.Path
			fields = append(fields, fmt.Sprint(len(req.Header["X-Id"]), req.Header["X-Own"]))
			paths = append(paths, req.URL.Path)
			return reply(req, 503), nil
		})
		b := &bodies{}
		req := b.request(t.Context(), "PUT")
		req.Header.Set("X-Id", "own")
		req.Header.Set("X-Own", "a")
		req.Trailer = http.Header{"Sum": nil}
		tr := &throttle.Transport{Base: base, Retry: throttle.Retry{MaxAttempts: 5}}
		if resp, err := tr.RoundTrip(req); err != nil || resp.StatusCode != 503 || req.Trailer.Get("Sum") != "1" {
			t.Error(resp, err, req.Trailer)
		}
		if got, want := fmt.Sprint(fields), "[2 [a+] 3 [a++] 3 [a++] 3 [a++] 3 [a++]]"; got != want {
			t.Errorf("Base found %s, want %s", got, want)
		}
		if got, want := fmt.Sprint(paths), "[/v1/path /v1/v1/path /v1/v1/path /v1/v1/path /v1/v1/path]"; got != want {
			t.Errorf("Base found %s, want %s", got, want)
		}
	})
}
