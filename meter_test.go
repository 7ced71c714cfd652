package throttle_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/usage"
)

// A ledger is a limiter that earns nothing, so that what is taken from it stays to be seen.
type ledger struct{ *throttle.Bucket }

const ledgerBurst = 1 << 30

func newLedger() ledger { return ledger{throttle.NewBucket(1e-9, ledgerBurst)} }

// used is what calls have taken in all, and not got back.
func (l ledger) used() int { return int(ledgerBurst - l.Tokens() + 0.5) }

// A meteredAnswer is what an upstream answers: text, in pieces, and what comes after that in place of the end.
type meteredAnswer struct {
	status int
	header string // Content-Type
	text   string
	piece  int   // bytes of a Read; 0: all
	err    error // after the text; nil: io.EOF
}

const (
	chatJSON   = `{"id":"1","choices":[{"message":{"content":"{\"usage\":{\"prompt_tokens\":7}}"}}],"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120}}`
	chatStream = "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}],\"usage\":null}\n\n" +
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":20,\"total_tokens\":120}}\n\ndata: [DONE]\n\n"
	chatMute = "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}],\"usage\":null}\n\ndata: [DONE]\n\n" // without include_usage
	claude   = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":100,\"output_tokens\":1}}}\n\n" +
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":20}}\n\n"
	overloaded = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"
	refused    = "data: {\"error\":{\"type\":\"tokens\",\"code\":\"rate_limit_exceeded\",\"message\":\"Rate limit reached. Please try again in 14.036s.\"}}\n\n"
)

func (a meteredAnswer) response(req *http.Request) *http.Response {
	h := http.Header{}
	if a.header != "" {
		h.Set("Content-Type", a.header)
	}
	resp := &http.Response{StatusCode: a.status, Header: h, Request: req, Body: http.NoBody}
	if a.text != "" || a.err != nil {
		resp.Body = &meteredBody{ctx: req.Context(), left: a.text, answer: a}
	}
	return resp
}

// A meteredBody hands its answer out piece by piece, and ends with its request's ctx.
type meteredBody struct {
	ctx    context.Context
	left   string
	answer meteredAnswer
}

func (b *meteredBody) Read(p []byte) (int, error) {
	switch {
	case b.ctx.Err() != nil:
		return 0, b.ctx.Err()
	case b.left == "" && b.answer.err != nil:
		return 0, b.answer.err
	case b.left == "":
		return 0, io.EOF
	}
	n := len(p)
	if b.answer.piece > 0 {
		n = min(n, b.answer.piece)
	}
	n = copy(p[:n], b.left)
	b.left = b.left[n:]
	return n, nil
}

func (b *meteredBody) Close() error { return nil }

// cost is what is charged for u: input and output.
func cost(held int, u usage.Usage) int { return usage.OpenAI().Settle(held, u) }

// A books is a key with three meters, which hold 1,000 each: one that reads bodies, one that does not, and one that charges
// for failures.
type books struct {
	read, plain, dear ledger
	transport         *throttle.Transport
	estimates         [3]int64 // what attempts held; 0: 1,000 each
}

func newBooks(base http.RoundTripper) *books {
	b := &books{read: newLedger(), plain: newLedger(), dear: newLedger()}
	hold := func(*http.Request) int { return 1000 }
	b.transport = &throttle.Transport{Base: base, Retry: throttle.Retry{MaxAttempts: 4}}
	b.transport.Meters = func(string) []throttle.Meter {
		return []throttle.Meter{
			{Name: "read", Limiter: b.read.Bucket, Hold: hold, Settle: cost},
			{Name: "plain", Limiter: b.plain.Bucket, Hold: hold},
			{Name: "dear", Limiter: b.dear.Bucket, Hold: hold, Settle: cost, Failures: true},
		}
	}
	return b
}

// check compares what was charged, and wants nothing held.
func (b *books) check(t *testing.T, what string, read, plain, dear int) {
	t.Helper()
	synctest.Wait()
	if got, want := [3]int{b.read.used(), b.plain.used(), b.dear.used()}, [3]int{read, plain, dear}; got != want {
		t.Errorf("%s: charged %v, want %v", what, got, want)
	}
	for s := range b.transport.Stats() {
		for i, m := range s.Meters {
			if want := int64([3]int{read, plain, dear}[i]); m.Held != 0 || m.Settled != want {
				t.Errorf("%s: meter %s has %d held, and %d settled; want none and %d", what, m.Name, m.Held, m.Settled, want)
			}
			if want := cmp.Or(b.estimates[i], int64(1000*s.Sent)); m.Estimate != want {
				t.Errorf("%s: meter %s has an estimate of %d for %d attempts, want %d", what, m.Name, m.Estimate, s.Sent, want)
			}
		}
	}
}

// What a call is charged, by how it ends.
func TestMeterEndings(t *testing.T) {
	const json, sse = "application/json", "text/event-stream"
	whole := meteredAnswer{status: 200, header: json, text: chatJSON, piece: 7}
	readAll := func(resp *http.Response) { io.Copy(io.Discard, resp.Body); resp.Body.Close(); resp.Body.Close() }
	broken := errors.New("connection reset")
	for _, c := range []struct {
		name    string
		answers []meteredAnswer // one for each attempt; status 0: an error, -1: a panic
		read    func(*http.Response)
		want    [3]int
	}{
		{"read to the end", []meteredAnswer{whole}, readAll, [3]int{120, 1000, 120}},
		{"a stream", []meteredAnswer{{status: 200, header: sse, text: chatStream, piece: 11}}, readAll, [3]int{120, 1000, 120}},
		{"Anthropic's stream", []meteredAnswer{{status: 200, header: sse, text: claude, piece: 3}}, readAll, [3]int{120, 1000, 120}},
		{"a stream without usage", []meteredAnswer{{status: 200, header: sse, text: chatMute}}, readAll, [3]int{1000, 1000, 1000}},
		{"closed unread", []meteredAnswer{whole}, func(r *http.Response) { r.Body.Close(); r.Body.Close() }, [3]int{1000, 1000, 1000}},
		{"closed early", []meteredAnswer{{status: 200, header: sse, text: claude, piece: 150}}, func(r *http.Response) { r.Body.Read(make([]byte, 150)); r.Body.Close() }, [3]int{1000, 1000, 1000}},
		{"cut", []meteredAnswer{{status: 200, header: json, text: chatJSON[:len(chatJSON)-3], err: broken}}, readAll, [3]int{1000, 1000, 1000}},
		{"ended where it should not", []meteredAnswer{{status: 200, header: json, text: chatJSON[:100]}}, readAll, [3]int{1000, 1000, 1000}},
		{"more than was held", []meteredAnswer{{status: 200, header: json, text: `{"usage":{"prompt_tokens":4000,"completion_tokens":20}}`}}, readAll, [3]int{4020, 1000, 4020}},
		{"more than was held, and cut", []meteredAnswer{{status: 200, header: sse, text: "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":4000,\"output_tokens\":1}}}\n\n", err: broken}}, readAll, [3]int{4001, 1000, 4001}},
		{"another type", []meteredAnswer{{status: 200, header: "text/html", text: chatJSON}}, readAll, [3]int{1000, 1000, 1000}},
		{"no body", []meteredAnswer{{status: 204}}, readAll, [3]int{1000, 1000, 1000}},
		{"a redirect", []meteredAnswer{{status: 302, header: json, text: chatJSON}}, readAll, [3]int{0, 0, 1000}},
		{"not found", []meteredAnswer{{status: 404}}, readAll, [3]int{0, 0, 1000}},
		{"throttled, then well", []meteredAnswer{{status: 429}, whole}, readAll, [3]int{120, 1000, 1120}},
		{"an error, then well", []meteredAnswer{{}, whole}, readAll, [3]int{120, 1000, 1120}},
		{"failures only", []meteredAnswer{{status: 503}, {}, {status: 503}, {status: 503, text: "down"}}, readAll, [3]int{0, 0, 4000}},
		{"a panic", []meteredAnswer{{status: -1}}, readAll, [3]int{0, 0, 1000}},
		{"a switch of protocols", []meteredAnswer{{status: 101}}, readAll, [3]int{1000, 1000, 1000}},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			b := newBooks(baseFunc(func(req *http.Request) (*http.Response, error) {
				a := c.answers[n]
				switch n++; a.status {
				case 0:
					return nil, broken
				case -1:
					panic("test")
				}
				return a.response(req), nil
			}))
			func() {
				defer func() { recover() }()
				if resp, err := b.transport.RoundTrip(request(t.Context(), "GET", "http://x/")); err == nil {
					c.read(resp)
				}
			}()
			if n != len(c.answers) {
				t.Errorf("%s: %d attempts", c.name, n)
			}
			b.check(t, c.name, c.want[0], c.want[1], c.want[2])
		})
	}
}

// A body that nobody reads any more settles when its request's ctx ends, and units that come back serve those who wait at
// once.
func TestMeterOfACancelledBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := throttle.NewBucket(1, 1000)
		tr := &throttle.Transport{
			Base: baseFunc(func(req *http.Request) (*http.Response, error) {
				return meteredAnswer{status: 200, header: "application/json", text: chatJSON}.response(req), nil
			}),
			Meters: func(string) []throttle.Meter {
				return []throttle.Meter{{Name: "tokens", Limiter: tokens, Hold: func(*http.Request) int { return 800 }, Settle: cost}}
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := tr.RoundTrip(request(ctx, "GET", "http://x/"))
		if err != nil {
			t.Fatal(err)
		}
		s := statsOf(t, tr)
		if m := s.Meters[0]; m.Name != "tokens" || m.Available != 200 || m.Held != 800 || m.Limit != 1 {
			t.Errorf("%+v", m)
		}
		start := time.Now()
		done := make(chan time.Duration, 1)
		go func() {
			if resp, err := tr.RoundTrip(request(t.Context(), "GET", "http://x/")); err == nil {
				resp.Body.Close()
			}
			done <- time.Since(start)
		}()
		time.Sleep(10 * time.Second)
		if s := statsOf(t, tr); s.Reason != "meter:tokens" || s.Waiting != 1 {
			t.Errorf("%d wait for %q", s.Waiting, s.Reason)
		}
		io.Copy(io.Discard, resp.Body) // 120 of 800: it is settled before the ctx ends
		if waited := <-done; waited != 10*time.Second {
			t.Errorf("the second call waited %v", waited)
		}
		cancel()
		resp.Body.Close()
		synctest.Wait()
		if got := tokens.Tokens(); got != 1000-120-800+10 {
			t.Errorf("%v tokens are left", got)
		}
		if m := statsOf(t, tr).Meters[0]; m.Held != 0 {
			t.Errorf("%+v", m)
		}
	})
}

// By hand: the first word about a meter counts, before the body's and after it has said nothing.
func TestBill(t *testing.T) {
	const json = "application/json"
	for _, c := range []struct {
		name                   string
		text                   string
		before, during, after_ int // settled by hand; -2: not
		want                   [3]int
		held                   bool // open after all that, until ctx ends
	}{
		{"before the body", chatJSON, -2, 77, 500, [3]int{77, 77, 77}, false},
		{"after the body has said it", chatJSON, -2, -2, 77, [3]int{120, 77, 120}, false},
		{"after a body that says nothing", `{"id":1}`, -2, -2, 77, [3]int{77, 77, 77}, false},
		{"never", chatJSON, -2, -2, -2, [3]int{120, 1000, 120}, true},
		{"never, of a body that says nothing", `{"id":1}`, -2, -2, -2, [3]int{1000, 1000, 1000}, true},
		{"nonsense", chatJSON, -2, -5, 77, [3]int{1000, 1000, 1000}, false},
		{"before there is an attempt", chatJSON, 5, -2, 77, [3]int{120, 77, 120}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBooks(baseFunc(func(req *http.Request) (*http.Response, error) {
				return meteredAnswer{status: 200, header: json, text: c.text}.response(req), nil
			}))
			base, end := context.WithCancel(t.Context())
			ctx, bill := throttle.WithBill(base)
			settle := func(n int) {
				for _, name := range []string{"read", "plain", "dear", "", "other"} {
					if n != -2 {
						bill.Settle(name, n)
					}
				}
			}
			settle(c.before)
			child, cancel := context.WithTimeout(ctx, time.Minute) // as SDKs have it
			resp, err := b.transport.RoundTrip(request(child, "GET", "http://x/"))
			if err != nil {
				t.Fatal(err)
			}
			settle(c.during)
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			cancel()
			synctest.Wait()
			settle(c.after_)
			held := int64(0)
			for _, m := range statsOf(t, b.transport).Meters {
				held += m.Held
			}
			if (held > 0) != c.held {
				t.Errorf("%s: %d are held", c.name, held)
			}
			end()
			synctest.Wait()
			settle(3)
			b.check(t, c.name, c.want[0], c.want[1], c.want[2])
		})
	}
}

// With a Bill the next attempt ends the say about the one before, and a failure gives back as ever.
func TestBillOfARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		b := newBooks(baseFunc(func(req *http.Request) (*http.Response, error) {
			if n++; n == 2 {
				return reply(req, 503), nil
			}
			return meteredAnswer{status: 200, header: "application/json", text: `{}`}.response(req), nil
		}))
		ctx, bill := throttle.WithBill(t.Context())
		for range 2 {
			resp, err := b.transport.RoundTrip(request(ctx, "GET", "http://x/"))
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
		}
		for _, name := range []string{"read", "plain", "dear"} {
			bill.Settle(name, 10)
		}
		b.check(t, "two calls, one retried", 1010, 1010, 2010)
	})
}

// WithHold wins over Hold, for the meter that it names, and nonsense of either is 0.
func TestWithHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBooks(answers(200))
		b.estimates = [3]int64{5 + 0 + 1000, 7 + 1000 + 1000, 1000 + 1000 + 0}
		for _, ctx := range []context.Context{
			throttle.WithHold(throttle.WithHold(throttle.WithHold(t.Context(), "read", 5), "plain", 7), "other", 100),
			throttle.WithHold(throttle.WithHold(t.Context(), "read", 500), "read", -3),
			throttle.WithCost(throttle.WithHold(t.Context(), "dear", 0), 3),
		} {
			resp, err := b.transport.RoundTrip(request(ctx, "GET", "http://x/"))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		b.check(t, "holds", 5+0+1000, 7+1000+1000, 1000+1000+0)
	})
}

// embedded is a limiter of the user's own, with a Take of its own.
type embedded struct{ *throttle.Bucket }

func (e embedded) Take(ctx context.Context, n int) (time.Duration, error) {
	return e.Bucket.Take(ctx, 2*n)
}

func TestMetersThatMakeNoSense(t *testing.T) {
	b := throttle.NewBucket(1, 1)
	for _, c := range []struct {
		meters []throttle.Meter
		want   string
	}{
		{[]throttle.Meter{{Name: "tokens"}}, `throttle: Transport.Meters("x")[0], meter "tokens": it has no Limiter`},
		{[]throttle.Meter{{Name: "tokens", Limiter: (*throttle.Bucket)(nil)}}, `[0], meter "tokens": limiters[0] is a nil *throttle.Bucket`},
		{[]throttle.Meter{{Name: "a", Limiter: b}, {Limiter: b}}, `[1], meter "": it has no Name`},
		{[]throttle.Meter{{Name: "a", Limiter: b}, {Name: "b", Limiter: b}, {Name: "a", Limiter: b}}, `[2], meter "a": another one has its name`},
		{[]throttle.Meter{{Name: "a", Limiter: embedded{b}}}, `meter "a": its Limiter, a throttle_test.embedded, is not one of this library`},
		{[]throttle.Meter{{Name: "a", Limiter: throttle.All(b, embedded{b})}}, `is not one of this library`},
		{[]throttle.Meter{{Name: "a", Limiter: throttle.All(b, throttle.NewLeaky(1))}, {Name: "b", Limiter: new(throttle.LimiterVar)}}, ""},
		{nil, ""},
		{make([]throttle.Meter, 65), `[0], meter "": it has no Name`},
		{slices.Collect(func(yield func(throttle.Meter) bool) {
			for i := range 65 {
				yield(throttle.Meter{Name: strconv.Itoa(i), Limiter: b})
			}
		}), "returned 65 meters, more than 64"},
	} {
		tr := &throttle.Transport{Base: answers(200), Meters: func(string) []throttle.Meter { return c.meters }}
		_, err := status(tr, t.Context(), "http://x/")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// A panic of Hold passes up with nothing held; one of Settle, and nonsense that it returns, count as held.
func TestMeterFunctionsThatPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		hold, settle := func() int { panic("hold") }, func() int { panic("settle") }
		tr := &throttle.Transport{
			Base: baseFunc(func(req *http.Request) (*http.Response, error) {
				return meteredAnswer{status: 200, header: "application/json", text: chatJSON}.response(req), nil
			}),
			Limiter: throttle.NewBucket(1e-9, 3),
			Meters: func(string) []throttle.Meter {
				return []throttle.Meter{
					{Name: "a", Limiter: l.Bucket, Hold: func(*http.Request) int { return 10 }, Settle: func(int, usage.Usage) int { return settle() }},
					{Name: "b", Limiter: l.Bucket, Hold: func(*http.Request) int { return hold() }},
				}
			},
		}
		get := func() (panicked any) {
			defer func() { panicked = recover() }()
			resp, err := tr.RoundTrip(request(t.Context(), "GET", "http://x/"))
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			if string(text) != chatJSON || err != nil {
				t.Errorf("%q, %v", text, err)
			}
			return nil
		}
		if p := get(); p != "hold" || l.used() != 0 {
			t.Errorf("%v, and %d are used", p, l.used())
		}
		hold = func() int { return -100 }
		if p := get(); p != nil || l.used() != 10 {
			t.Errorf("%v, and %d are used", p, l.used())
		}
		settle = func() int { return -1 << 30 }
		if p := get(); p != nil || l.used() != 20 {
			t.Errorf("%v, and %d are used", p, l.used())
		}
		if s := statsOf(t, tr); s.Tokens != 1 || s.Meters[0].Held+s.Meters[1].Held != 0 || s.InFlight != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A refusal in the body of a 200 closes the gate as a 429 does: nobody is sent before the time that it names, and the
// caller gets every byte.
func TestRefusalInABody(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		most  time.Duration // the gate is closed for so long at the most; at least it is what the body says
		least time.Duration
		cause string
	}{
		"OpenAI, with a time":       {chatMute[:60] + "\n\n" + refused, 15036 * time.Millisecond, 14036 * time.Millisecond, "retry-after"},
		"Anthropic, without a time": {claude[:130] + "\n\n" + overloaded, time.Second, time.Nanosecond, "failing"},
		"nothing of the kind, JSON": {chatJSON, 0, 0, ""},
	} {
		for _, piece := range []int{0, 1, 13} {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var sent []time.Time
				first, events := true, 0
				b := newBooks(nil)
				b.transport.Base = baseFunc(func(req *http.Request) (*http.Response, error) {
					mu.Lock()
					defer mu.Unlock()
					if !first {
						sent = append(sent, time.Now())
						return reply(req, 200), nil
					}
					first = false
					kind := "text/event-stream"
					if c.text[0] == '{' {
						kind = "application/json"
					}
					return meteredAnswer{status: 200, header: kind, text: c.text, piece: piece}.response(req), nil
				})
				b.transport.Hooks.Throttled = func(_ context.Context, e throttle.Event) {
					events++
					if e.Status != 200 || e.Key != "x" || e.Wait > c.least {
						t.Errorf("%s: %+v", name, e)
					}
				}
				if _, err := status(b.transport, t.Context(), "http://x/warm"); err != nil {
					t.Fatal(err)
				}
				first = true
				sent = nil
				resp, err := b.transport.RoundTrip(request(t.Context(), "GET", "http://x/"))
				if err != nil {
					t.Fatal(err)
				}
				if text, err := io.ReadAll(resp.Body); string(text) != c.text || err != nil {
					t.Errorf("%s: %q, %v", name, text, err)
				}
				said := time.Now()
				s := statsOf(t, b.transport)
				if s.ClosedFor < c.least || s.ClosedFor > c.most || c.cause == "retry-after" && s.Reason != "gate:"+c.cause || (events == 1) != (c.most > 0) {
					t.Errorf("%s: closed for %v, because of %q, %d events", name, s.ClosedFor, s.Reason, events)
				}
				var wg sync.WaitGroup
				for range 20 {
					wg.Go(func() { status(b.transport, t.Context(), "http://x/") })
				}
				wg.Wait()
				if len(sent) != 20 || slices.ContainsFunc(sent, func(at time.Time) bool { return at.Sub(said) < c.least }) {
					t.Errorf("%s: %d calls sent, the first after %v", name, len(sent), slices.MinFunc(sent, time.Time.Compare).Sub(said))
				}
			})
		}
	}
}

// Bodies of an API that only the program knows settle its meters, by rows of its own for answers and requests. Those of
// APIs that are known still do.
func TestUsageRows(t *testing.T) {
	own := &usage.Parser{Dialects: []usage.Dialect{{Input: "meta.in", Output: "meta.out", Bound: "limits.longest"}}}
	law := usage.OpenAI()
	law.Parser = own
	for text, want := range map[string]int{
		`{"meta":{"in":12,"out":5}}`:          17,
		chatJSON:                              120,
		`{"usage":{"total_tokens":1234}}`:     1234,
		`{"data":[]}`:                         700, // as held
		`{"meta":{"in":12,"out":5}} nonsense`: 700,
	} {
		tokens := newLedger()
		client := &http.Client{Transport: &throttle.Transport{
			Base: baseFunc(func(req *http.Request) (*http.Response, error) {
				return meteredAnswer{status: 200, header: "application/json", text: text}.response(req), nil
			}),
			Usage: own,
			Meters: func(string) []throttle.Meter {
				return []throttle.Meter{{Name: "tokens", Limiter: tokens.Bucket, Hold: law.Hold, Settle: law.Settle}}
			},
		}}
		resp, err := client.Post("http://a.test/", "application/json", strings.NewReader(`{"limits":{"longest":700}}`))
		if err != nil {
			t.Fatal(err)
		}
		if held := tokens.used(); held != 700 {
			t.Errorf("%s: %d held, want 700", text, held)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if got := tokens.used(); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

// Bodies arrive as they were sent, whatever the pieces, and the first byte is not kept back.
func TestMetersChangeNoByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 1))
		for i := range 40 {
			text := strings.Repeat(chatStream, 1+r.IntN(50))
			switch i % 4 {
			case 0:
				text = strings.Repeat("x", 1<<20) // no newline
			case 1:
				text = strings.Repeat(chatJSON, 3)
			}
			a := meteredAnswer{status: 200, header: []string{"text/event-stream", "application/json", ""}[r.IntN(3)], text: text, piece: 1 + r.IntN(5000)}
			b := newBooks(baseFunc(func(req *http.Request) (*http.Response, error) { return a.response(req), nil }))
			b.transport.Queue.MaxInFlight = i % 2
			resp, err := b.transport.RoundTrip(request(t.Context(), "GET", "http://x/"))
			if err != nil {
				t.Fatal(err)
			}
			one := make([]byte, 1)
			if n, err := resp.Body.Read(one); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			h := sha256.New()
			h.Write(one)
			n, err := io.Copy(h, resp.Body)
			if want := sha256.Sum256([]byte(text)); n+1 != int64(len(text)) || err != nil || !bytes.Equal(h.Sum(nil), want[:]) {
				t.Errorf("%d of %d bytes, %v", n+1, len(text), err)
			}
		}
	})
}

// A bookkeeper knows what each attempt should cost, and compares that with what is charged whenever nothing happens.
//
// A call holds a number of units that no other call holds at that time, the same of each meter, so Settle knows which call it is
// asked about. Its answer is three times that, or a third of it; with a Bill it is what was held, which is also what
// the Bill says, because either may be first.
type bookkeeper struct {
	*books
	mu    sync.Mutex
	r     *rand.Rand
	owed  [3]int      // by the meters: attempts under way and answers as held, failures and settlements as they are
	ends  map[int]int // how often each status came; 0: an error, -1: a panic
	words int         // of Settle
}

func (k *bookkeeper) draw(n int) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.r.IntN(n)
}

// owe adds to what is owed.
func (k *bookkeeper) owe(by ...int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.owed {
		k.owed[i] += by[i]
	}
}

func billed(held int) bool { return held%4 == 0 }

// settle is Settle of the meter of that number.
func (k *bookkeeper) settle(i, held int, u usage.Usage) int {
	n := 3 * held
	switch {
	case billed(held):
		n = held
	case held%2 == 0:
		n = held / 3
	}
	by := make([]int, 3)
	if by[i] = n - held; !u.Final {
		by[i] = max(0, by[i])
	}
	k.owe(by...)
	k.mu.Lock()
	k.words++
	k.mu.Unlock()
	return n
}

type heldKey struct{}

// RoundTrip is the upstream: it takes a moment, and answers as it likes.
func (k *bookkeeper) RoundTrip(req *http.Request) (*http.Response, error) {
	held := req.Context().Value(heldKey{}).(int)
	k.owe(held, held, held)
	time.Sleep(time.Duration(k.draw(5)) * time.Millisecond)
	texts := []string{chatJSON, chatStream, chatMute, claude, chatJSON[:50], ""}
	a := meteredAnswer{status: []int{204, 302, 404, 429, 503, 0, -1, 200}[min(7, k.draw(40))], text: texts[k.draw(len(texts))], piece: 1 + k.draw(200)}
	if a.header = "text/event-stream"; a.text != "" && a.text[0] == '{' {
		a.header = "application/json"
	}
	if k.draw(5) == 0 {
		a.err = io.ErrUnexpectedEOF
	}
	if req.Context().Err() != nil {
		a.status = 0
	}
	if a.status/100 != 2 {
		k.owe(-held, -held, 0)
	}
	k.mu.Lock()
	k.ends[a.status]++
	k.mu.Unlock()
	switch a.status {
	case 0:
		return nil, io.ErrUnexpectedEOF
	case -1:
		panic("test")
	}
	return a.response(req), nil
}

// call makes one call, which ends at random.
func (k *bookkeeper) call(held int) {
	defer func() { recover() }()
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), heldKey{}, held), time.Duration(1+k.draw(300))*time.Millisecond)
	defer cancel()
	settle := func() {}
	for _, name := range []string{"read", "plain", "dear"} {
		ctx = throttle.WithHold(ctx, name, held)
	}
	if billed(held) {
		var bill *throttle.Bill
		ctx, bill = throttle.WithBill(ctx)
		settle = func() { bill.Settle([]string{"read", "plain", "dear"}[k.draw(3)], held-2*held*k.draw(2)) }
	}
	resp, err := k.transport.RoundTrip(request(ctx, "GET", "http://x/"))
	if err != nil || resp.StatusCode/100 != 2 {
		return
	}
	go func() { time.Sleep(time.Duration(k.draw(20)) * time.Millisecond); settle() }()
	p := make([]byte, 100)
	for n := k.draw(20); n != 0; n-- {
		time.Sleep(time.Duration(k.draw(3)) * time.Millisecond)
		if _, err := resp.Body.Read(p); err != nil {
			break
		}
		settle()
	}
	if k.draw(4) == 0 {
		go resp.Body.Close() // while it is closed, or its ctx ends
	}
	if k.draw(8) > 0 { // otherwise its ctx ends it
		resp.Body.Close()
	}
	settle()
}

// However calls end, and however many at once: what is charged is what is held and what was settled, whenever one looks, and
// in the end nothing is held. THROTTLE_ENDINGS=1000000 makes a million calls.
func TestMetersAreConserved(t *testing.T) {
	const each = 5000 // by one Transport: the rate that it finds after its 429s makes later calls wait
	n := race.Pick(5_000, 100_000)
	if given, err := strconv.Atoi(os.Getenv("THROTTLE_ENDINGS")); err == nil {
		n = given
	}
	attempts, words := map[int]int{}, 0
	for seed := range n / each {
		synctest.Test(t, func(t *testing.T) {
			k := newBookkeeper(uint64(seed))
			k.run(t, each)
			words += k.words
			for status, n := range k.ends {
				attempts[status] += n
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d calls, attempts by status %v, %d words of bodies", n/each*each, attempts, words)
}

func newBookkeeper(seed uint64) *bookkeeper {
	k := &bookkeeper{r: rand.New(rand.NewPCG(seed, 3)), ends: map[int]int{}}
	k.books = newBooks(k)
	k.transport.Limiter = throttle.NewBucket(20_000, 50)
	k.transport.Queue.MaxInFlight = 300
	k.transport.Retry = throttle.Retry{MaxPause: -1, Budget: throttle.Budget{PerCall: 1}}
	meters := k.transport.Meters("x")
	for _, i := range []int{0, 2} {
		meters[i].Settle = func(held int, u usage.Usage) int { return k.settle(i, held, u) }
	}
	k.transport.Meters = func(string) []throttle.Meter { return meters }
	return k
}

// run makes n calls, 500 at once, and looks at the meters while they go and after they have ended.
func (k *bookkeeper) run(t *testing.T, n int) {
	for done := 0; done < n; {
		var wg sync.WaitGroup
		for range 500 {
			done++
			held := 1000 + done%1000
			wg.Go(func() { k.call(held) })
		}
		for range 5 {
			time.Sleep(time.Duration(k.draw(10)) * time.Millisecond)
			synctest.Wait()
			k.audit(t, false)
		}
		wg.Wait()
		time.Sleep(time.Minute) // the last bills, and the gate
		synctest.Wait()
		k.audit(t, true)
	}
}

// audit compares what is charged with what is owed.
func (k *bookkeeper) audit(t *testing.T, idle bool) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, l := range []ledger{k.read, k.plain, k.dear} {
		if l.used() != k.owed[i] {
			t.Errorf("meter %d: %d are charged, and %d are owed", i, l.used(), k.owed[i])
		}
	}
	for s := range k.transport.Stats() {
		for _, m := range s.Meters {
			if idle && m.Held != 0 || m.Held < 0 {
				t.Errorf("%s: %d are held; idle: %v", m.Name, m.Held, idle)
			}
		}
	}
}

// A call whose ctx ends at the moment of its grant gives back what it holds: nothing was sent.
func TestUndoneGrantGivesItsHoldsBack(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			tokens := throttle.NewBucket(10, 10)
			tr := &throttle.Transport{
				Base: baseFunc(func(req *http.Request) (*http.Response, error) {
					return meteredAnswer{status: http.StatusOK}.response(req), nil
				}),
				Meters: func(string) []throttle.Meter {
					return []throttle.Meter{{Name: "tokens", Limiter: tokens, Hold: func(*http.Request) int { return 10 }}}
				},
			}
			send := func(ctx context.Context) error {
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/", nil)
				resp, err := tr.RoundTrip(req)
				if err == nil {
					resp.Body.Close()
				}
				return err
			}
			if err := send(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel) // when the second call is granted
			if err := send(ctx); err == nil {
				return // it went before that
			}
			if synctest.Wait(); tokens.Tokens() != 10 {
				t.Fatalf("%v tokens of 10", tokens.Tokens())
			}
		})
	}
}
