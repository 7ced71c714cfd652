package throttleotel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet"
	"github.com/go-throttle/throttle/throttleotel"
	"github.com/go-throttle/throttle/throttletest"
)

// A baseFunc is a function as a Base.
type baseFunc func(*http.Request) (*http.Response, error)

func (f baseFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// answer is a Base that answers with a status at once.
func answer(code int) baseFunc {
	return func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	}
}

// get makes a call, reads its body and returns what became of it.
func get(rt http.RoundTripper, ctx context.Context, url string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

func TestInstrumentRefuses(t *testing.T) {
	p, _ := reader()
	o := throttleotel.Options{MeterProvider: p}
	used := &throttle.Transport{Base: answer(200)}
	get(used, t.Context(), "http://a.test/")
	twice := new(throttle.Transport)
	stop, err := throttleotel.Instrument("a", twice, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want, name string
		t          *throttle.Transport
		o          throttleotel.Options
	}{
		{"the Transport is nil", "b", nil, o},
		{"the name is empty", "", new(throttle.Transport), o},
		{`"a" is in use`, "a", new(throttle.Transport), o},
		{`instrumented already, as "a"`, "b", twice, o},
		{"was used before", "b", used, o},
		{"MaxKeys is -1", "b", new(throttle.Transport), throttleotel.Options{MeterProvider: p, MaxKeys: -1}},
	} {
		stop, err := throttleotel.Instrument(c.name, c.t, c.o)
		if err == nil || stop != nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "throttleotel: ") {
			t.Errorf("%v, want %q", err, c.want)
		}
		if c.t != nil && c.t != twice && c.t != used && (c.t.Base != nil || c.t.Hooks.Refused != nil) {
			t.Errorf("%s: the Transport was changed", c.want)
		}
	}
	if _, err := throttleotel.InstrumentFleet("b", nil, o); err == nil {
		t.Error("a nil Limiter is no error")
	}
	// Another provider is another place, and what was stopped is free again.
	other, _ := reader()
	elsewhere, err := throttleotel.Instrument("a", new(throttle.Transport), throttleotel.Options{MeterProvider: other})
	if err != nil {
		t.Fatal(err)
	}
	elsewhere()
	stop()
	stop()
	if stop, err = throttleotel.Instrument("a", new(throttle.Transport), o); err != nil {
		t.Fatal(err)
	}
	stop()
}

// An eager provider collects as soon as it can. A failing one refuses the callback.
type (
	eager   struct{ metric.MeterProvider }
	failing struct{ metric.MeterProvider }

	eagerMeter   struct{ metric.Meter }
	failingMeter struct{ metric.Meter }
)

func (e eager) Meter(name string, o ...metric.MeterOption) metric.Meter {
	return eagerMeter{e.MeterProvider.Meter(name, o...)}
}

func (e eagerMeter) RegisterCallback(f metric.Callback, o ...metric.Observable) (metric.Registration, error) {
	if err := f(context.Background(), noop.Observer{}); err != nil {
		return nil, err
	}
	return e.Meter.RegisterCallback(f, o...)
}

func (f failing) Meter(name string, o ...metric.MeterOption) metric.Meter {
	return failingMeter{f.MeterProvider.Meter(name, o...)}
}

func (failingMeter) RegisterCallback(metric.Callback, ...metric.Observable) (metric.Registration, error) {
	return nil, errors.New("no callbacks today")
}

// A collection that comes before the first call finds a Transport that is ready, so that its calls are seen.
func TestCollectedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := reader()
		tr := &throttle.Transport{Base: answer(200), Limiter: throttle.NewBucket(1, 1)}
		if stop, err := throttleotel.Instrument("x", tr, throttleotel.Options{MeterProvider: failing{p}}); stop != nil || err == nil || !strings.Contains(err.Error(), "no callbacks today") {
			t.Fatal(err)
		}
		stop, err := throttleotel.Instrument("x", tr, throttleotel.Options{MeterProvider: eager{p}})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		get(tr, t.Context(), "http://a.test/")
		get(tr, t.Context(), "http://a.test/")
		m := gather(t, r)
		if m.sum("throttle.client.waits", "throttle.reason", "limit:shared") != 1 || m.sum("throttle.client.requests", "", "") != 2 {
			t.Errorf("a wait and two calls are not there: %v", m.seen())
		}
	})
}

// The zero Options use the globals, which do nothing unless the program sets them.
func TestZeroOptions(t *testing.T) {
	for _, o := range []throttleotel.Options{{}, {MeterProvider: noop.NewMeterProvider()}} {
		tr := &throttle.Transport{Base: answer(200)}
		stop, err := throttleotel.Instrument("zero", tr, o)
		if err != nil {
			t.Fatal(err)
		}
		if code, err := get(throttleotel.Calls(tr, o), t.Context(), "http://a.test/"); code != 200 || err != nil {
			t.Error(code, err)
		}
		tr.CloseIdleConnections()
		stop()
	}
}

// An upstream with a limit of its own and an outage, a Transport that knows too high a limit, callers that leave, calls
// that are refused, and a pause: afterwards the metrics say what the upstream's ledger says.
func TestMetricsEqualTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := throttletest.NewServer(throttletest.Limit{N: 20, Burst: 5})
		up.RetryAfter, up.Seed = throttletest.Exact, 7
		up.Latency = throttletest.Span{Min: 5 * time.Millisecond, Max: 15 * time.Millisecond}
		up.Identify = func(req *http.Request) (client, call string) { return "", req.Header.Get("Call") }
		up.Faults = []throttletest.Fault{{From: 20 * time.Second, To: 25 * time.Second, Status: 503}}
		var waited, refused, closed, begun atomic.Int64
		count := func(n *atomic.Int64) func(context.Context, throttle.Event) {
			return func(context.Context, throttle.Event) { n.Add(1) }
		}
		tr := &throttle.Transport{
			Base: up, LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(30, 10) },
			Queue: throttle.QueueOptions{MaxWaiting: 20},
			Hooks: throttle.Hooks{Waited: count(&waited), Refused: count(&refused), Closed: count(&closed), Waiting: count(&begun)},
		}
		p, r := reader()
		stop, err := throttleotel.Instrument("upstream", tr, throttleotel.Options{MeterProvider: p})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		var errs [3]atomic.Int64 // full, canceled, other
		var calls sync.WaitGroup
		for n := range 1200 { // for a minute
			time.Sleep(50 * time.Millisecond)
			if n == 700 {
				tr.Pause("a.test", 3*time.Second)
			}
			if n%100 == 99 {
				gather(t, r)
			}
			for i := range 1 + n%2 {
				calls.Go(func() {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if (n+i)%17 == 0 {
						time.AfterFunc(31*time.Millisecond, cancel)
					}
					req, _ := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("http://%c.test/", 'a'+rune(n%3)), nil)
					req.Header.Set("Call", fmt.Sprintf("%d.%d", n, i))
					resp, err := tr.RoundTrip(req)
					var e *throttle.Error
					switch {
					case err == nil:
						resp.Body.Close()
					case errors.Is(err, throttle.ErrQueueFull):
						errs[0].Add(1)
					case errors.As(err, &e) && errors.Is(err, context.Canceled):
						errs[1].Add(1)
					case errors.As(err, &e):
						errs[2].Add(1)
					}
				})
			}
		}
		calls.Wait()
		m, ledger := gather(t, r), up.Ledger()
		tally := ledger.Tally()
		resent := len(ledger.Where(func(a throttletest.Arrival) bool { return a.Attempt > 1 }))
		allRefused := m.sum("throttle.client.requests", "", "") - m.sum("throttle.client.requests", "throttle.outcome", "admitted")
		for _, c := range []struct {
			what      string
			got, want float64
		}{
			{"sent", m.sum("throttle.client.requests", "throttle.outcome", "admitted"), float64(tally.Total())},
			{"throttled", m.sum("throttle.client.throttled_responses", "", ""), float64(tally.Throttled)},
			{"throttled by 429", m.sum("throttle.client.throttled_responses", "http.response.status_code", "429"), float64(tally.Throttled)},
			{"failed", m.sum("throttle.client.failures", "error.type", "503"), float64(tally.Failed)},
			{"resent", m.sum("throttle.client.resends", "", ""), float64(resent)},
			{"waited", m.sum("throttle.client.request.time_in_queue", "", ""), float64(waited.Load())},
			{"began to wait", m.sum("throttle.client.waits", "", ""), float64(begun.Load())},
			{"closed", m.sum("throttle.client.closings", "", ""), float64(closed.Load())},
			{"full", m.sum("throttle.client.requests", "throttle.outcome", "queue_full"), float64(errs[0].Load())},
			{"canceled", m.sum("throttle.client.requests", "throttle.outcome", "canceled"), float64(errs[1].Load())},
			{"refused", allRefused, float64(refused.Load())},
			{"in line at the end", m.sum("throttle.client.queued_request.count", "", ""), 0},
			{"in flight at the end", m.sum("throttle.client.active_request.count", "", ""), 0},
			{"keys", m.sum("throttle.client.key.count", "", ""), 3},
		} {
			t.Logf("%s: %v", c.what, c.got)
			if c.got != c.want {
				t.Errorf("%s: %v in the metrics, and in truth %v", c.what, c.got, c.want)
			}
			if c.got == 0 && !strings.HasSuffix(c.what, "at the end") {
				t.Errorf("%s: nothing was tried", c.what)
			}
		}
	})
}

// What was sent under a key that was dropped, and has come back or has not, is not lost.
func TestSumsOutliveKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := reader()
		tr := &throttle.Transport{Base: answer(200)}
		stop, err := throttleotel.Instrument("x", tr, throttleotel.Options{MeterProvider: p, MaxKeys: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		sent := 0
		send := func(n int, hosts ...string) {
			for range n {
				for _, h := range hosts {
					get(tr, t.Context(), "http://"+h+"/")
					sent++
				}
			}
		}
		check := func(a, b, others float64) {
			t.Helper()
			m := gather(t, r)
			const name, key = "throttle.client.requests", "throttle.key"
			got := []float64{m.sum(name, key, "a"), m.sum(name, key, "b"), m.sum(name, key, "_other"), m.sum(name, "", "")}
			if want := []float64{a, b, others, float64(sent)}; !slices.Equal(got, want) {
				t.Errorf("a, b, others and all are %v, want %v", got, want)
			}
		}
		send(10, "a")
		check(10, 0, 0)
		send(20, "a", "b")
		send(5, "c", "d")
		check(30, 20, 10)
		send(4, "a")
		rest := func() { // the keys are dropped, as soon as others come
			for range 100 {
				time.Sleep(10 * time.Minute)
				send(1, "e")
			}
		}
		rest()
		check(30, 20, 114) // the last four of a are among the others
		send(40, "a")
		check(70, 20, 114)
		rest() // and no collection sees that
		for k := range tr.Stats() {
			if k.Key == "a" {
				t.Error("the key is there still")
			}
		}
		send(3, "a")
		check(73, 20, 214)
	})
}

// Keys that are not UTF-8 and look the same with U+FFFD have one series, and the sum is exact also when one of them is
// dropped.
func TestSumsOfKeysThatLookTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := reader()
		tr := &throttle.Transport{Base: answer(200), Key: func(req *http.Request) string { return req.URL.Path }}
		stop, err := throttleotel.Instrument("x", tr, throttleotel.Options{MeterProvider: p})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		sent := 0
		send := func(n int, path string) {
			for range n {
				get(tr, t.Context(), "http://a"+path)
				sent++
			}
		}
		check := func(first, others float64) {
			t.Helper()
			m := gather(t, r)
			const name, key = "throttle.client.requests", "throttle.key"
			got := []float64{m.sum(name, key, "/\uFFFD"), m.sum(name, key, "_other"), m.sum(name, "", "")}
			if want := []float64{first, others, float64(sent)}; !slices.Equal(got, want) {
				t.Errorf("the first, others and all are %v, want %v", got, want)
			}
		}
		send(100, "/%ff")
		send(10, "/%fe")
		send(5, "/%EF%BF%BD")
		check(100, 15)
		for range 8 { // the first is dropped
			time.Sleep(30 * time.Second)
			send(1, "/%fe")
			send(20, "/e")
		}
		check(100, 23)
	})
}

// However many keys there are, an instrument has a series for each of the first 100 of them and one for the others.
func TestManyKeys(t *testing.T) {
	const keys = 20_000
	p, r := reader()
	tr := &throttle.Transport{Base: answer(200), Key: func(req *http.Request) string { return req.URL.Path }}
	stop, err := throttleotel.Instrument("crawl", tr, throttleotel.Options{MeterProvider: p})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	h := tr.Hooks
	req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://a.test/", nil)
	for n := range keys {
		path := fmt.Sprintf("/%d", n)
		req.URL.Path = path // a new request each time takes a race detector long
		tr.RoundTrip(req)
		e := throttle.Event{Key: path, Status: 429, Wait: time.Second, Reason: "gate:retry-after", Err: throttle.ErrQueueFull}
		for _, hook := range []func(context.Context, throttle.Event){h.Waiting, h.Waited, h.Refused, h.Throttled, h.Failed, h.Closed} {
			hook(t.Context(), e)
		}
		if n == keys/2 {
			gather(t, r)
		}
	}
	m := gather(t, r)
	for name := range m {
		points := m.points(name)
		by := map[string]int{}
		for _, p := range points {
			outcome, _ := p.attrs.Value("throttle.outcome")
			by[outcome.AsString()]++
		}
		for outcome, n := range by {
			if n > 101 {
				t.Errorf("%s %s has %d series", name, outcome, n)
			}
		}
	}
	for _, name := range []string{"throttle.client.requests", "throttle.client.request.time_in_queue", "throttle.client.waits",
		"throttle.client.throttled_responses", "throttle.client.failures", "throttle.client.closings"} {
		want := float64(keys)
		if name == "throttle.client.requests" {
			want *= 2 // sent and refused
		}
		if got := m.sum(name, "", ""); got != want {
			t.Errorf("%s: the series add up to %v, want %v", name, got, want)
		}
		if m.sum(name, "throttle.key", "/0") == 0 || m.sum(name, "throttle.key", "_other") < keys-200 {
			t.Errorf("%s: key /0 has %v, the others %v", name, m.sum(name, "throttle.key", "/0"), m.sum(name, "throttle.key", "_other"))
		}
	}
}

// A word that an upstream or a limiter makes up does not make series without end either, and every key is valid UTF-8.
func TestHostileWords(t *testing.T) {
	p, r := reader()
	tr := &throttle.Transport{Base: answer(200)}
	stop, err := throttleotel.Instrument("x", tr, throttleotel.Options{MeterProvider: p})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for n := range 1000 {
		tr.Hooks.Waiting(t.Context(), throttle.Event{Key: "\xff<script>", Reason: fmt.Sprint("limit:", n)})
		tr.Hooks.Throttled(t.Context(), throttle.Event{Key: "\xff<script>", Status: n})
		tr.Hooks.Failed(t.Context(), throttle.Event{Err: fmt.Errorf("error %d", n)})
		tr.Hooks.Refused(t.Context(), throttle.Event{Key: "_other", Err: io.EOF})
	}
	m := gather(t, r)
	for _, name := range []string{"throttle.client.waits", "throttle.client.throttled_responses"} {
		if n := len(m.points(name)); n > 100 {
			t.Errorf("%s has %d series", name, n)
		}
		if got := m.sum(name, "throttle.key", "\uFFFD<script>"); got != 1000 {
			t.Errorf("%s counts %v, want 1000", name, got)
		}
	}
	if got := m.sum("throttle.client.failures", "error.type", "*errors.errorString") + m.sum("throttle.client.failures", "error.type", "*fmt.wrapError"); got != 1000 {
		t.Errorf("%v failures by their type, want 1000", got)
	}
	if got := m.sum("throttle.client.requests", "throttle.outcome", "error"); got != 1000 {
		t.Errorf("%v refused, want 1000", got)
	}
}

// What the documentation lists is what there is, by name, kind and unit.
func TestInstruments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := reader()
		o := throttleotel.Options{MeterProvider: p}
		tr := &throttle.Transport{
			Base: answer(429), Limiter: throttle.NewBucket(10, 1), Retry: throttle.Retry{MaxAttempts: 2},
			Meters: func(string) []throttle.Meter {
				return []throttle.Meter{{Name: "tokens", Limiter: throttle.NewBucket(10, 100)}}
			},
			Queue: throttle.QueueOptions{InFlight: &throttle.Adaptive{Load: func() float64 { return 0.5 }, Target: 1, Most: 7}},
		}
		stop, err := throttleotel.Instrument("x", tr, o)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		gather(t, r)
		time.Sleep(time.Second)
		tr.Hooks.Failed(t.Context(), throttle.Event{Key: "a.test", Status: 503})
		get(tr, t.Context(), "http://a.test/")
		tr.Pause("a.test", time.Hour)
		m := gather(t, r)
		if got, want := m.seen(), documented(t, "doc.go"); !slices.Equal(got, want) {
			t.Errorf("there is\n%s\nand documented is\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if got := m.sum("throttle.client.closed.remaining", "throttle.reason", "gate:paused"); got != 3600 {
			t.Errorf("closed for %v s, want 3600", got)
		}
		if most, load := m.sum("throttle.client.active_request.limit", "", ""), m.sum("throttle.client.load", "", ""); most != 7 || load != 0.5 {
			t.Errorf("%v may be in flight, under a load of %v; want 7 and 0.5", most, load)
		}
		if got := m.sum("throttle.client.limit", "throttle.limit.source", "config"); got != 10 {
			t.Errorf("the limit is %v, want 10", got)
		}
		for name := range m {
			for _, p := range m.points(name) {
				if !p.has("throttle.policy", "x") || !p.has("throttle.key", "a.test") && !p.has("throttle.reason", "limit:shared") {
					t.Errorf("%s has the attributes %s", name, p.attrs.Encoded(attribute.DefaultEncoder()))
				}
			}
		}
	})
}

// Waiting calls are visible while they wait: how many, for what, and how long the oldest has.
func TestGaugesOfALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := reader()
		tr := &throttle.Transport{Base: answer(200), LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(0.1, 1) }}
		stop, err := throttleotel.Instrument("x", tr, throttleotel.Options{MeterProvider: p})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() { get(tr, ctx, "http://a.test/") })
		}
		time.Sleep(25 * time.Second) // at 0, 10 and 20 s one goes
		m := gather(t, r)
		oldest := m.sum("throttle.client.oldest_wait", "", "")
		if n := m.sum("throttle.client.queued_request.count", "", ""); n != 1 || oldest < 25 || oldest > 26 {
			t.Errorf("%v in line, the oldest for %v s; want 1, for 25 s and up to a thirty-second more", n, oldest)
		}
		if got := m.sum("throttle.client.tokens", "", ""); got < 0.49 || got > 0.51 {
			t.Errorf("%v tokens, want 0.5", got)
		}
		if got := m.sum("throttle.client.waits", "throttle.reason", "limit"); got != 3 {
			t.Errorf("%v waits for the limit, want 3", got)
		}
		cancel()
		calls.Wait()
		stop()
		tr.Hooks.Throttled(t.Context(), throttle.Event{Key: "a.test", Status: 429})
		if m := gather(t, r); m.sum("throttle.client.throttled_responses", "", "") != 0 || len(m.points("throttle.client.requests")) != 0 {
			t.Error("something is measured after stop")
		}
	})
}

func TestInstrumentFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := reader()
		l := fleet.New(new(fleet.Memory), "x", 100, 10, fleet.Options{})
		o := throttleotel.Options{MeterProvider: p}
		stop, err := throttleotel.InstrumentFleet("x", l, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := throttleotel.InstrumentFleet("x", l, o); err == nil {
			t.Error("the same name twice is no error")
		}
		tr := &throttle.Transport{Base: answer(200), Limiter: l}
		for range 50 {
			get(tr, t.Context(), "http://a.test/")
		}
		m, s := gather(t, r), l.Stats()
		if got, want := m.seen(), documented(t, "store.go"); !slices.Equal(got, want) {
			t.Errorf("there is\n%s\nand documented is\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if got := m.sum("throttle.store.units", "throttle.store.state", "used"); got != 50 || s.Used != 50 {
			t.Errorf("%v units used, want 50", got)
		}
		if m.sum("throttle.store.trips", "", "") != float64(s.Trips) || m.sum("throttle.store.mode", "throttle.store.mode", s.Mode) != 1 || m.sum("throttle.store.mode", "", "") != 1 {
			t.Errorf("trips and mode differ from %+v", s)
		}
		stop()
		if m := gather(t, r); len(m) != 0 {
			t.Error("something is measured after stop")
		}
		l.Close()
	})
}

// A call that need not wait allocates no more than without telemetry, and neither do the hooks of one that waits.
func TestNothingIsAllocated(t *testing.T) {
	p, _ := reader()
	calls := func(instrumented bool) float64 {
		tr := &throttle.Transport{Base: answer(200), Limiter: throttle.NewBucket(1e9, 1e9)}
		if instrumented {
			stop, err := throttleotel.Instrument("x", tr, throttleotel.Options{MeterProvider: p})
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			e := throttle.Event{Key: "a.test", Reason: "limit", Wait: time.Second, Status: 429, Err: throttle.ErrQueueFull}
			for name, hook := range map[string]func(context.Context, throttle.Event){
				"Waiting": tr.Hooks.Waiting, "Waited": tr.Hooks.Waited, "Refused": tr.Hooks.Refused, "Throttled": tr.Hooks.Throttled, "Closed": tr.Hooks.Closed,
			} {
				if n := testing.AllocsPerRun(1000, func() { hook(t.Context(), e) }); n != 0 {
					t.Errorf("%s allocates %v times", name, n)
				}
			}
		}
		req, _ := http.NewRequest("GET", "http://a.test/", nil)
		return testing.AllocsPerRun(1000, func() { tr.RoundTrip(req) })
	}
	if bare, with := calls(false), calls(true); with > bare {
		t.Errorf("a call allocates %v times with telemetry, %v without", with, bare)
	}
}
