package throttleotel_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet"
	"github.com/go-throttle/throttle/fleet/store"
	"github.com/go-throttle/throttle/throttledebug"
	"github.com/go-throttle/throttle/throttlelog"
	"github.com/go-throttle/throttle/throttleotel"
	"github.com/go-throttle/throttle/throttletest"
)

// A situation makes the next call for http://a.test/ wait for one reason.
type situation struct {
	reason string
	tr     *throttle.Transport
	base   http.RoundTripper // nil: its answers never come
	before func(s *scene)    // what has happened before the call; nil: one call
}

// situations are all that a call can wait for. They are made anew for each bubble.
func situations() []situation {
	slow := func(string) throttle.Limiter { return throttle.NewBucket(0.01, 1) }
	burst := func(string) throttle.Limiter { return throttle.NewBucket(0.1, 10) }
	half := throttle.NewBucket(1, 10)
	half.AllowN(5)
	quota := http.Header{"Ratelimit-Policy": {`"a";q=10;w=60`}, "Ratelimit": {`"a";r=0;t=30`}}
	return []situation{
		{"limit", &throttle.Transport{LimiterFor: slow}, nil, nil},
		{"limit:shared", &throttle.Transport{Limiter: slow("")}, nil, nil},
		{"limit:advertised", &throttle.Transport{}, answers{200, quota}, nil},
		{"limit:found", &throttle.Transport{}, throttletest.NewServer(throttletest.Limit{N: 20, Burst: 1}), func(s *scene) {
			s.work(5)
			s.until(func(k throttle.KeyStats) bool { return k.Reason == "limit:found" })
		}},
		{"in-flight:found", &throttle.Transport{}, crowded(), func(s *scene) {
			s.work(25)
			s.until(func(k throttle.KeyStats) bool { return k.Reason == "in-flight:found" && len(k.Learned) > 0 })
		}},
		{"store", &throttle.Transport{Limiter: fleet.New(silent{}, "x", 1, 1, fleet.Options{})}, nil, nothing},
		{"gate:retry-after", &throttle.Transport{LimiterFor: burst}, answers{429, http.Header{"Retry-After": {"30"}}}, nil},
		{"gate:throttled", &throttle.Transport{LimiterFor: burst}, answers{429, nil}, nil},
		{"gate:failing", &throttle.Transport{LimiterFor: burst}, answers{503, nil}, func(s *scene) { s.send(8) }},
		{"gate:paused", &throttle.Transport{}, nil, func(s *scene) { s.tr.Pause("a.test", time.Minute) }},
		{"gate:reopening", &throttle.Transport{LimiterFor: burst}, answers{200, nil}, func(s *scene) {
			s.tr.Pause("a.test", time.Second)
			s.send(3)
			s.until(func(k throttle.KeyStats) bool { return k.Sent > 0 })
		}},
		{"gate:first-contact", &throttle.Transport{}, nil, func(s *scene) { s.send(4) }},
		{"slot", &throttle.Transport{Queue: throttle.QueueOptions{MaxInFlight: 1}}, nil, nil},
		{"in-flight:load", &throttle.Transport{Queue: throttle.QueueOptions{InFlight: &throttle.Adaptive{Target: 1, Most: 1}}}, nil, nil},
		{"meter:tokens", &throttle.Transport{Meters: func(string) []throttle.Meter {
			return []throttle.Meter{{Name: "tokens", Limiter: slow("")}}
		}}, nil, nil},
		{"order", &throttle.Transport{Limiter: half}, nil, func(s *scene) {
			s.calls.Go(func() { get(s.tr, throttle.WithCost(s.ctx, 10), "http://b.test/") })
		}},
	}
}

// crowded is an upstream that serves ten at once.
func crowded() *throttletest.Server {
	s := throttletest.NewServer(throttletest.Limit{Kind: throttletest.InFlight, N: 10})
	s.Work = throttletest.Span{Min: 40 * time.Millisecond, Max: 160 * time.Millisecond}
	return s
}

// TestReasonsAgree: whatever a call waits for, the same word stands in Hooks, Error, Stats, the metrics, the spans, the log and
// the page, while it waits and when it is given up.
func TestReasonsAgree(t *testing.T) {
	var names []string
	for i, c := range situations() {
		names = append(names, c.reason)
		t.Run(c.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { agree(t, situations()[i]) })
		})
	}
	for _, word := range documentedReasons(t) {
		if !slices.Contains(names, word) {
			t.Errorf("nothing waits for %q, which is documented", word)
		}
	}
}

// agree makes a call wait, asks all observers, gives the call up, and asks again.
func agree(t *testing.T, c situation) {
	tp, spans := tracing()
	p, r := reader()
	s := newScene(t, c, p)
	calls := throttleotel.Calls(s.tr, throttleotel.Options{TracerProvider: tp})
	ctx, cancel := context.WithCancel(context.WithValue(s.ctx, underTest{}, true))
	before := gather(t, r).sum("throttle.client.waits", "throttle.reason", c.reason)
	var failed error
	s.calls.Go(func() { _, failed = get(calls, ctx, "http://a.test/") })
	synctest.Wait()
	s.say(ctx, "Stats", s.stats().Reason)
	if gather(t, r).sum("throttle.client.waits", "throttle.reason", c.reason) == before+1 {
		s.say(ctx, "metric", c.reason)
	}
	s.look(ctx)
	s.check("it waits", c.reason, "Hooks.Waiting", "Stats", "metric", "log: throttle: call waits", "page: state.json", "page: details")

	cancel()
	synctest.Wait()
	if e := new(throttle.Error); errors.As(failed, &e) {
		s.say(ctx, "Error", e.Reason)
	}
	if span := callSpan(spans); span != nil {
		s.say(ctx, "span", attr(span.Attributes(), "throttle.reason"))
		s.say(ctx, "span event", attr(eventOf(span), "throttle.reason"))
	}
	s.check("it is given up", c.reason, "Hooks.Refused", "Error", "span", "span event", "log: throttle: call refused")
	s.end()
	s.calls.Wait()
	time.Sleep(time.Minute) // a silent store is given up meanwhile
}

// A scene is a situation and its observers. The calls that it takes are made in the background, and end with it.
type scene struct {
	*testing.T
	tr    *throttle.Transport
	page  http.Handler
	ctx   context.Context
	end   context.CancelFunc
	calls sync.WaitGroup

	mu   sync.Mutex
	said map[string]string // reasons of the call under test, by who has said them
}

// underTest is in the ctx of the call under test: hooks and log lines of other calls are left out.
type underTest struct{}

// newScene brings a situation about.
func newScene(t *testing.T, c situation, p *sdkmetric.MeterProvider) *scene {
	s := &scene{T: t, tr: c.tr, said: map[string]string{}}
	s.ctx, s.end = context.WithCancel(t.Context())
	if c.tr.Base = c.base; c.base == nil {
		c.tr.Base = baseFunc(hang)
	}
	c.tr.Retry.MaxAttempts = 1
	c.tr.Hooks = throttlelog.Hooks(slog.New(s)).Join(throttle.Hooks{Waiting: s.hook("Hooks.Waiting"), Refused: s.hook("Hooks.Refused")})
	stop, err := throttleotel.Instrument("x", c.tr, throttleotel.Options{MeterProvider: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	s.page = throttledebug.Handler(map[string]*throttle.Transport{"x": c.tr})
	if c.before == nil {
		s.send(1)
	} else {
		c.before(s)
	}
	synctest.Wait()
	return s
}

// say notes a reason, if ctx is that of the call under test.
func (s *scene) say(ctx context.Context, who, reason string) {
	if ctx.Value(underTest{}) == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said[who] = reason
}

// check wants the same word of each of those.
func (s *scene) check(when, want string, who ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range who {
		if s.said[one] != want {
			s.Errorf("%s: %s says %q, want %q", when, one, s.said[one], want)
		}
	}
}

// hook notes the reason of an event.
func (s *scene) hook(who string) func(context.Context, throttle.Event) {
	return func(ctx context.Context, e throttle.Event) { s.say(ctx, who, e.Reason) }
}

// A scene is the handler of the log.
func (s *scene) Enabled(context.Context, slog.Level) bool { return true }
func (s *scene) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s *scene) WithGroup(string) slog.Handler            { return s }
func (s *scene) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "reason" {
			s.say(ctx, "log: "+r.Message, a.Value.String())
		}
		return true
	})
	return nil
}

// stats are those of the key under test.
func (s *scene) stats() (k throttle.KeyStats) {
	for one := range s.tr.Stats() {
		if one.Key == "a.test" {
			k = one
		}
	}
	return k
}

// look reads the page, for programs and for people.
func (s *scene) look(ctx context.Context) {
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.page.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w
	}
	var state struct {
		Transports []struct {
			Keys []struct{ Key, Reason string }
		}
	}
	if err := json.Unmarshal(get("/state.json").Body.Bytes(), &state); err != nil || len(state.Transports) != 1 {
		s.Fatal(err, state)
	}
	for _, k := range state.Transports[0].Keys {
		if k.Key == "a.test" {
			s.say(ctx, "page: state.json", k.Reason)
		}
	}
	sentence := regexp.MustCompile(`The first call in line waits[^<]*\(([^)]*)\)`)
	if found := sentence.FindStringSubmatch(get("/?name=x&key=a.test").Body.String()); found != nil {
		s.say(ctx, "page: details", found[1])
	}
}

// send makes calls in the background, until each has ended or waits.
func (s *scene) send(n int) {
	for range n {
		s.calls.Go(func() { get(s.tr, s.ctx, "http://a.test/") })
	}
	synctest.Wait()
}

// work has so many workers call without a pause.
func (s *scene) work(n int) {
	for range n {
		s.calls.Go(func() {
			for s.ctx.Err() == nil {
				get(s.tr, s.ctx, "http://a.test/")
			}
		})
	}
}

// until waits for something that Stats show.
func (s *scene) until(is func(throttle.KeyStats) bool) {
	for range 100_000 {
		synctest.Wait()
		if is(s.stats()) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	s.Fatal("what the call is to wait for does not happen")
}

// nothing has to happen before the call.
func nothing(*scene) {}

// hang answers when the ctx ends.
func hang(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// answers is a Base with one answer.
type answers struct {
	code   int
	header http.Header
}

func (a answers) RoundTrip(req *http.Request) (*http.Response, error) {
	header := http.Header{}
	for name, values := range a.header {
		header[name] = values
	}
	return &http.Response{StatusCode: a.code, Header: header, Body: http.NoBody, Request: req}, nil
}

// silent is a store that does not answer.
type silent struct{}

func (silent) Exchange(ctx context.Context, _ string, _ store.Request) (store.Reply, error) {
	<-ctx.Done()
	return store.Reply{}, ctx.Err()
}

// callSpan is the one span of the call under test; nil: there is none.
func callSpan(r *tracetest.SpanRecorder) sdktrace.ReadOnlySpan {
	if ended := r.Ended(); len(ended) == 1 {
		return ended[0]
	}
	return nil
}

// eventOf is the attributes of a span's one event.
func eventOf(s sdktrace.ReadOnlySpan) []attribute.KeyValue {
	if e := s.Events(); len(e) == 1 && e[0].Name == "throttle.refused" {
		return e[0].Attributes
	}
	return nil
}

// documentedReasons are the words that the docs of throttle.Event list.
func documentedReasons(t *testing.T) (words []string) {
	text, err := os.ReadFile("../event.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range regexp.MustCompile(`(?m)^//\t"([a-z:-]+)" `).FindAllStringSubmatch(string(text), -1) {
		words = append(words, word[1])
	}
	if len(words) < 8 {
		t.Fatalf("event.go lists %d words", len(words))
	}
	return words
}
