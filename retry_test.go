package throttle_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/throttletest"
)

// What is sent again: each row is one answer or error, and who may be sent again after it.
func TestWhatIsSentAgain(t *testing.T) {
	const never, idempotentOnly, all = 0, 1, 2
	answer := func(code int, kv ...string) func(*http.Request) (*http.Response, error) {
		return func(req *http.Request) (*http.Response, error) { return reply(req, code, kv...), nil }
	}
	fail := func(err error) func(*http.Request) (*http.Response, error) {
		return func(*http.Request) (*http.Response, error) { return nil, err }
	}
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for name, c := range map[string]struct {
		first func(*http.Request) (*http.Response, error)
		again int
	}{
		"200":               {answer(200), never},
		"204":               {answer(204), never},
		"302, Retry-After":  {answer(302, "Retry-After", "5", "Location", "/"), never},
		"400":               {answer(400), never},
		"403, Retry-After":  {answer(403, "Retry-After", "5"), all},
		"403":               {answer(403), never},
		"404":               {answer(404), never},
		"407":               {answer(407), never},
		"408":               {answer(408), idempotentOnly}, // RFC 9110 15.5.9: the client may repeat; openai-go, Azure and Google's clients do
		"409":               {answer(409), never},
		"425":               {answer(425), never},
		"429":               {answer(429), all},
		"429 advertised":    {answer(429, "Retry-After", "5"), all},
		"429 nonsense":      {answer(429, "Retry-After", "soon"), all},
		"500":               {answer(500), idempotentOnly},
		"501":               {answer(501), never},
		"502":               {answer(502), idempotentOnly},
		"503":               {answer(503), idempotentOnly},
		"503 advertised":    {answer(503, "Retry-After", "5"), idempotentOnly},
		"504":               {answer(504), idempotentOnly},
		"505":               {answer(505), never},
		"507":               {answer(507), never}, // RFC 4918 11.5: not without another act of the user
		"511":               {answer(511), never}, // RFC 6585 6: a captive portal
		"509":               {answer(509), idempotentOnly},
		"520":               {answer(520), idempotentOnly}, // Cloudflare, 520 to 527 and 530
		"522":               {answer(522), idempotentOnly},
		"526":               {answer(526), idempotentOnly},
		"530":               {answer(530), idempotentOnly},
		"561":               {answer(561), idempotentOnly}, // AWS ELB
		"599":               {answer(599), idempotentOnly}, // HTTP clients behind gateways: connect timeout
		"999":               {answer(999), idempotentOnly}, // LinkedIn
		"408 advertised":    {answer(408, "Retry-After", "5"), idempotentOnly},
		"502 advertised":    {answer(502, "Retry-After", "5"), idempotentOnly},
		"500, an hour":      {answer(500, "Retry-After", "3600"), never},
		"418":               {answer(418), all},
		"529":               {answer(529), all},
		"529 advertised":    {answer(529, "Retry-After", "5"), all},
		"reset":             {fail(&net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}), idempotentOnly},
		"EOF":               {fail(io.EOF), idempotentOnly},
		"dial":              {fail(dial), all},
		"dial in url.Error": {fail(&url.Error{Op: "Get", URL: "http://x", Err: dial}), all},
		"DNS timeout":       {fail(&net.DNSError{Err: "i/o timeout", Name: "x", IsTimeout: true}), all},
		"no such host":      {fail(&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}}), never},
		"unknown CA":        {fail(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), never},
		"wrong host":        {fail(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "x"}), never},
		"expired":           {fail(x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.Expired}), never},
		"scheme":            {fail(&url.Error{Op: "Get", URL: "ftp://x", Err: errors.New("unsupported protocol scheme \"ftp\"")}), never},
		"no Host":           {fail(errors.New("http: no Host in request URL")), never},
		"no client cert":    {fail(&net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}), never},
		"CONNECT 407":       {fail(errors.New("Proxy Authentication Required")), never},
		"refused stream":    {fail(errors.New("stream error: stream ID 1; REFUSED_STREAM; received from peer")), all},
		"TLS timeout":       {fail(errors.New("net/http: TLS handshake timeout")), idempotentOnly}, // nobody has looked at the trace
	} {
		for _, m := range []struct {
			method, header string
			idempotent     bool
		}{
			{"", "", true}, {"GET", "", true}, {"HEAD", "", true}, {"OPTIONS", "", true}, {"TRACE", "", true}, {"PUT", "", true}, {"DELETE", "", true},
			{"POST", "", false}, {"PATCH", "", false}, {"CONNECT", "", false}, {"QUERY", "", false},
			{"POST", "Idempotency-Key", true}, {"PATCH", "X-Idempotency-Key", true},
		} {
			for _, body := range []string{"none", "replayable", "once"} {
				synctest.Test(t, func(t *testing.T) {
					up := newUpstream(0, func(n int, req *http.Request) (*http.Response, error) {
						if n == 1 {
							return c.first(req)
						}
						return reply(req, 200), nil
					})
					req := request(t.Context(), m.method, "http://x/")
					if m.header != "" {
						req.Header.Set(m.header, "1")
					}
					if body != "none" {
						b := &bodies{}
						full := b.request(t.Context(), m.method)
						if req.Body = full.Body; body == "replayable" {
							req.GetBody = full.GetBody
						}
					}
					resp, err := (&throttle.Transport{Base: up}).RoundTrip(req)
					want := 1
					if body != "once" && (c.again == all || c.again == idempotentOnly && m.idempotent) {
						want = 2
					}
					if got := len(up.times()); got != want {
						t.Errorf("%s, %s %s, body %s: %d attempts, want %d", name, m.method, m.header, body, got, want)
					}
					if (err == nil) == (resp == nil) || want == 2 && (err != nil || resp.StatusCode != 200) {
						t.Errorf("%s, %s: %v, %v", name, m.method, resp, err)
					}
				})
			}
		}
	}
}

// A request that cannot be sent is its caller's mistake, and no failure of the upstream.
func TestMistakesAreNotRetried(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	for name, spoil := range map[string]func(*http.Request){
		"value":   func(r *http.Request) { r.Header.Set("X", "a\nb") },
		"name":    func(r *http.Request) { r.Header["X Y"] = []string{"a"} },
		"header":  func(r *http.Request) { r.Header = nil },
		"method":  func(r *http.Request) { r.Method = "G ET"; r.Header.Set("Idempotency-Key", "1") },
		"scheme":  func(r *http.Request) { r.URL.Scheme = "gopher" },
		"host":    func(r *http.Request) { r.URL.Host = "" },
		"port":    func(r *http.Request) { r.URL.Host = "127.0.0.1:99999" },
		"length":  func(r *http.Request) { r.ContentLength = 5 },
		"trailer": func(r *http.Request) { r.Trailer = http.Header{"X Y": {"a"}} },
	} {
		raced := uint64(0) // net/http has closed the connection, and sometimes says that instead of the mistake
		tr := &throttle.Transport{Base: new(http.Transport), Hooks: throttle.Hooks{Retrying: func(_ context.Context, e throttle.Event) {
			if errors.Is(e.Err, net.ErrClosed) {
				raced++
				return
			}
			t.Errorf("%s: to be sent again after %v", name, e.Err)
		}}}
		for range 10 {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
			spoil(req)
			if _, err := tr.RoundTrip(req); err == nil {
				t.Errorf("%s: sent", name)
			}
		}
		if s := statsOf(t, tr); s.Sent != 10+raced || s.Retried != raced || s.Reason != "" {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// A retry of what was throttled waits for the gate alone, one after a failure for its own backoff.
func TestWhenItIsSentAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(*http.Request) (*http.Response, error)
		from   time.Duration
		to     time.Duration
	}{
		{"429 advertised 5 s", func(r *http.Request) (*http.Response, error) { return reply(r, 429, "Retry-After", "5"), nil }, 5 * time.Second, 5*time.Second + 250*time.Millisecond},
		{"429 advertised 60 s", func(r *http.Request) (*http.Response, error) { return reply(r, 429, "Retry-After", "60"), nil }, time.Minute, 61 * time.Second},
		{"503 advertised 5 s", func(r *http.Request) (*http.Response, error) { return reply(r, 503, "Retry-After", "5"), nil }, 5 * time.Second, 5*time.Second + 250*time.Millisecond},
		{"429, limit known", func(r *http.Request) (*http.Response, error) { return reply(r, 429), nil }, 500 * time.Millisecond, 500 * time.Millisecond},
		{"503", func(r *http.Request) (*http.Response, error) { return reply(r, 503), nil }, 3 * time.Second, 3 * time.Second},
		{"500", func(r *http.Request) (*http.Response, error) { return reply(r, 500), nil }, 3 * time.Second, 3 * time.Second},
		{"529", func(r *http.Request) (*http.Response, error) { return reply(r, 529), nil }, 3 * time.Second, 3 * time.Second},
		{"418", func(r *http.Request) (*http.Response, error) { return reply(r, 418), nil }, 3 * time.Second, 3 * time.Second},
		{"529 advertised 5 s", func(r *http.Request) (*http.Response, error) { return reply(r, 529, "Retry-After", "5"), nil }, 5 * time.Second, 5*time.Second + 250*time.Millisecond},
		{"error", func(r *http.Request) (*http.Response, error) { return nil, io.EOF }, 3 * time.Second, 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(0, func(n int, req *http.Request) (*http.Response, error) {
				if n == 1 {
					return c.answer(req)
				}
				return reply(req, 200), nil
			})
			tr := &throttle.Transport{Base: up, Limiter: throttle.NewBucket(2, 10), Retry: throttle.Retry{Backoff: func() throttle.Backoff { return constant(3 * time.Second) }}}
			if code, err := status(tr, t.Context(), "http://x/"); code != 200 {
				t.Fatal(code, err)
			}
			if got := up.times()[1]; got < c.from || got > c.to {
				t.Errorf("%s: sent again after %v, want %v to %v", c.name, got, c.from, c.to)
			}
		})
	}
}

// neverCloses is so many failures that no gate closes for them.
const neverCloses = 1 << 30

// The default delays are uniform in (0, c], c = 500 ms doubling to 30 s.
func TestDefaultBackoff(t *testing.T) {
	ceilings := []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second}
	const rounds = 1000
	var sum, most [8]time.Duration
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{
			Base:  newUpstream(0, always(500)),
			Retry: throttle.Retry{MaxAttempts: len(ceilings) + 1, Failures: neverCloses, Budget: throttle.Budget{PerCall: -1}},
			Hooks: throttle.Hooks{Retrying: func(_ context.Context, e throttle.Event) {
				i, d := e.Attempt-1, e.Wait
				if d < 0 || d > ceilings[i]+1 {
					t.Errorf("delay %d is %v, want at most %v", i, d, ceilings[i])
				}
				sum[i] += d
				most[i] = max(most[i], d)
			}},
		}
		for range rounds {
			status(tr, t.Context(), "http://x/")
		}
	})
	for i, c := range ceilings {
		if mean := sum[i] / rounds; mean < c*45/100 || mean > c*55/100 || most[i] < c*95/100 {
			t.Errorf("delay %d: mean %v, most %v, want uniform up to %v", i, mean, most[i], c)
		}
	}
}

// constant is a Backoff.
type constant time.Duration

func (c constant) NextBackOff() time.Duration { return time.Duration(c) }

// delays is a Backoff that ends.
type delays []time.Duration

func (d *delays) NextBackOff() time.Duration {
	if len(*d) == 0 {
		return -1
	}
	next := (*d)[0]
	*d = (*d)[1:]
	return next
}

func TestCustomBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, always(500))
		made := 0
		tr := &throttle.Transport{Base: up, Retry: throttle.Retry{MaxAttempts: 10, Backoff: func() throttle.Backoff {
			made++
			return &delays{time.Second, 0, 2 * time.Second}
		}}}
		code, err := status(tr, t.Context(), "http://x/")
		if want := []time.Duration{0, time.Second, time.Second, 3 * time.Second}; code != 500 || err != nil || !slices.Equal(up.times(), want) || made != 1 {
			t.Errorf("%d %v, sent at %v, want %v; %d made", code, err, up.times(), want, made)
		}
		// One that stops at once; one that is never asked, after a success.
		tr = &throttle.Transport{Base: up, Retry: throttle.Retry{Backoff: func() throttle.Backoff { return &backoff.StopBackOff{} }}}
		status(tr, t.Context(), "http://x/")
		if n := len(up.times()); n != 5 {
			t.Errorf("%d attempts, want 1 more", n)
		}
	})
}

func TestMaxAttempts(t *testing.T) {
	for most, want := range map[int]int{1: 1, 2: 2, 4: 4, 7: 7} {
		for _, code := range []int{429, 500, 503} {
			synctest.Test(t, func(t *testing.T) {
				up := newUpstream(0, always(code))
				tr := &throttle.Transport{Base: up, Retry: throttle.Retry{MaxAttempts: most, MaxPause: -1, Budget: throttle.Budget{PerCall: -1}}}
				resp, err := tr.RoundTrip(request(t.Context(), "GET", "http://x/"))
				if err != nil || resp.StatusCode != code || len(up.times()) != want {
					t.Errorf("MaxAttempts %d, %d: %v %v, %d attempts, want %d", most, code, resp, err, len(up.times()), want)
				}
				if text, _ := io.ReadAll(resp.Body); string(text) != "answer" {
					t.Errorf("body %q", text)
				}
			})
		}
	}
}

// An ordeal is calls that begin within 20 ms of each other, to an upstream whose answers are bad at first.
type ordeal struct {
	callers int
	lasts   time.Duration
	bad     func(*http.Request) (*http.Response, error)
}

// run returns how many calls are served, and the attempts of all while the answers were bad.
func (o *ordeal) run(t *testing.T, tr *throttle.Transport) (served int64, attempts int) {
	start := time.Now()
	up := newUpstream(0, nil)
	up.answer = func(_ int, req *http.Request) (*http.Response, error) {
		time.Sleep(10*time.Millisecond + rand.N(20*time.Millisecond))
		if time.Since(start) < o.lasts {
			return o.bad(req)
		}
		return reply(req, 200), nil
	}
	tr.Base = up
	var n atomic.Int64
	var wg sync.WaitGroup
	for range o.callers {
		wg.Go(func() {
			time.Sleep(rand.N(20 * time.Millisecond))
			if code, _ := status(tr, t.Context(), "http://x/"); code == 200 {
				n.Add(1)
			}
		})
	}
	wg.Wait()
	return n.Load(), up.between(0, o.lasts)
}

// One caller outlives the restart of its upstream as a crowd does, whatever the answers are meanwhile, and without many
// attempts.
func TestFewCallersOutliveAnOutage(t *testing.T) {
	answer := func(code int, kv ...string) func(*http.Request) (*http.Response, error) {
		return func(req *http.Request) (*http.Response, error) { return reply(req, code, kv...), nil }
	}
	runs := 10
	if n, _ := strconv.Atoi(os.Getenv("THROTTLE_RUNS")); n > 0 {
		runs = n
	}
	for name, bad := range map[string]func(*http.Request) (*http.Response, error){
		"503": answer(503), "502": answer(502), "500": answer(500), "529": answer(529),
		"no answer":     func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
		"429":           answer(429),
		"Retry-After 0": answer(429, "Retry-After", "0"),
		"429, soon":     answer(429, "Retry-After", "1"),
		"503, soon":     answer(503, "Retry-After", "1"),
	} {
		for _, lasts := range race.Pick([]time.Duration{10 * time.Second}, []time.Duration{2 * time.Second, 5 * time.Second, 10 * time.Second, 14 * time.Second}) {
			for callers, most := range map[int]float64{1: 9, 2: 7, 4: 6.5, 8: 6.5, 32: 3} {
				o := ordeal{callers, lasts, bad}
				var served, attempts float64
				for range runs {
					synctest.Test(t, func(t *testing.T) {
						n, m := o.run(t, new(throttle.Transport))
						served, attempts = served+float64(n), attempts+float64(m)
					})
				}
				served, attempts = served/float64(runs*callers), attempts/float64(runs*callers)
				t.Logf("%s for %v, %d callers: %.1f %% served, %.2f attempts each until then", name, lasts, callers, 100*served, attempts)
				if served < 0.99 {
					t.Errorf("%s for %v, %d callers: %.1f %% served", name, lasts, callers, 100*served)
				}
				switch {
				case name == "503" && callers == 32 && lasts == 10*time.Second:
					most = 2.2
				case name == "503" && callers == 1:
					most = 7
				}
				if lasts <= 10*time.Second && attempts > most && !strings.Contains(name, "soon") {
					t.Errorf("%s for %v, %d callers: %.2f attempts each, want at most %v", name, lasts, callers, attempts, most)
				}
			}
		}
	}
}

// A call without a bound on its attempts is sent a last time 15 s after the first went badly. Only what others or an
// advertised time have closed does not count.
func TestPatience(t *testing.T) {
	far := func() throttle.Backoff { return constant(time.Minute) }
	for name, c := range map[string]struct {
		bad     func(n int, req *http.Request) (*http.Response, error)
		backoff func() throttle.Backoff
		pause   time.Duration // of all calls, by hand, when it is first sent
		sent    int           // 0: any number
		ends    time.Duration
		jitter  time.Duration
	}{
		"failures":                {always(503), nil, 0, 0, 15 * time.Second, 0},
		"a long backoff":          {always(503), far, 0, 2, 15 * time.Second, 0},
		"429":                     {always(429), nil, 0, 0, 15 * time.Second, time.Second},
		"429, a long backoff":     {always(429), far, 0, 3, 15 * time.Second, time.Second},
		"429, Retry-After 35":     {always(429, "Retry-After", "35"), nil, 0, 4, 107 * time.Second, 2500 * time.Millisecond},
		"then no time":            {script(429, 503, 503), far, 0, 0, 15 * time.Second, 0},
		"a pause by hand":         {always(503), nil, time.Hour, 0, time.Hour + 15*time.Second, 2 * time.Second},
		"an advertised quota":     {always(429, "X-RateLimit-Limit", "9", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "20"), nil, 0, 0, 90 * time.Second, 55 * time.Second},
		"a failure after a quota": {script(429, 503), far, 0, 0, 15 * time.Second, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(0, c.bad)
			tr := &throttle.Transport{Base: up, Retry: throttle.Retry{Backoff: c.backoff}}
			if c.pause > 0 {
				up.answer = func(n int, req *http.Request) (*http.Response, error) {
					if n == 1 {
						tr.Pause("x", c.pause)
					}
					return c.bad(n, req)
				}
			}
			start := time.Now()
			resp, err := tr.RoundTrip(request(t.Context(), "GET", "http://x/"))
			took := time.Since(start)
			if err != nil || resp.StatusCode < 400 || (took-c.ends).Abs() > c.jitter+time.Millisecond {
				t.Errorf("%s: %v, %v after %v, want an answer after %v", name, resp, err, took, c.ends)
			}
			if n := len(up.times()); c.sent != 0 && n != c.sent {
				t.Errorf("%s: %d attempts at %v, want %d", name, n, up.times(), c.sent)
			}
			if err := throttle.Reason(resp); !errors.Is(err, throttle.ErrMaxAttempts) && !errors.Is(err, throttle.ErrPaused) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// What holds a call back counts by whose doing it is: neither a pause by hand, nor a closing that somebody has ended by hand,
// nor a quota that is spent when it fails.
func TestPatienceIsOfItsOwnTime(t *testing.T) {
	quota := func(left int) []string {
		return []string{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", fmt.Sprint(left), "X-RateLimit-Reset", "40"}
	}
	for name, c := range map[string]struct {
		answer func(tr *throttle.Transport, n int, req *http.Request) *http.Response
		resume bool          // twice a second
		least  time.Duration // until it is given up
	}{
		"paused while its probe is out": {func(tr *throttle.Transport, n int, req *http.Request) *http.Response {
			if n == 4 {
				tr.Pause("x", time.Hour)
			}
			return reply(req, 429)
		}, false, time.Hour + 14*time.Second},
		"resumed": {func(_ *throttle.Transport, n int, req *http.Request) *http.Response { return reply(req, 429) }, true, 15 * time.Second},
		"its failure shows a spent quota": {func(_ *throttle.Transport, n int, req *http.Request) *http.Response {
			return reply(req, 503, quota(min(n-1, 1)*9)...)
		}, false, 54 * time.Second},
		"others have spent the quota": {func(_ *throttle.Transport, n int, req *http.Request) *http.Response {
			if req.URL.Path == "/other" {
				return reply(req, 200, quota(0)...)
			}
			return reply(req, 503)
		}, false, 54 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := new(throttle.Transport)
			up := newUpstream(100*time.Millisecond, func(n int, req *http.Request) (*http.Response, error) { return c.answer(tr, n, req), nil })
			tr.Base = up
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				for c.resume && ctx.Err() == nil {
					tr.Resume("x")
					time.Sleep(time.Second / 2)
				}
			}()
			go func() {
				if name == "others have spent the quota" {
					status(tr, ctx, "http://x/other")
				}
			}()
			code, err := status(tr, ctx, "http://x/")
			if up.now() < c.least || up.now() > c.least+45*time.Second {
				t.Errorf("%s: %d, %v after %v, want %v: sent at %v", name, code, err, up.now(), c.least, up.times())
			}
			cancel()
			time.Sleep(time.Second) // for those beside it
		})
	}
}

// A call that is alone ends after 15 s, although failures of the call before it have closed the gate with its own, and
// although it gets a 500 behind a gate that its own 429s have closed.
func TestPatienceOfALoneProbe(t *testing.T) {
	for name, answer := range map[string]func(n int, req *http.Request) (*http.Response, error){
		"503":         always(503),
		"529":         always(529),
		"429, 500":    script(429, 429, 429, 429, 500),
		"no answer":   func(int, *http.Request) (*http.Response, error) { return nil, errors.New("reset") },
		"503 and 429": script(503, 503, 503, 429, 429, 429, 503),
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(10*time.Millisecond, answer)
			tr := &throttle.Transport{Base: up}
			for range 3 {
				start, before := time.Now(), len(up.times())
				code, err := status(tr, t.Context(), "http://x/")
				if took, n := time.Since(start), len(up.times())-before; took > 47*time.Second || n > 19 {
					t.Errorf("%s: %d, %v after %v and %d attempts", name, code, err, took, n)
				}
				time.Sleep(time.Second)
			}
		})
	}
}

// Without a bound on attempts, a Backoff of 0 and no budget do not keep time from passing.
func TestAttemptsTakeTime(t *testing.T) {
	for _, code := range race.Pick([]int{503}, []int{500, 503, 529}) {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(0, always(code))
			none := func() throttle.Backoff { return constant(0) }
			tr := &throttle.Transport{Base: up, Retry: throttle.Retry{Backoff: none, Budget: throttle.Budget{PerCall: -1}}}
			up.answer = func(n int, req *http.Request) (*http.Response, error) {
				if n > 40_000 {
					panic("no time passes")
				}
				return reply(req, code), nil
			}
			status(tr, t.Context(), "http://x/")
		})
	}
}

// What others have closed does not count, so few callers outlive an outage of a minute too.
func TestClosedTimeCostsNoPatience(t *testing.T) {
	for _, callers := range []int{2, 4, 8} {
		synctest.Test(t, func(t *testing.T) {
			o := ordeal{callers, time.Minute, func(req *http.Request) (*http.Response, error) { return reply(req, 503), nil }}
			if n, attempts := o.run(t, new(throttle.Transport)); int(n) != callers {
				t.Errorf("%d of %d served, %d attempts", n, callers, attempts)
			}
		})
	}
}

// A batch that begins when an outage has ended unnoticed is not lost while its first call finds that out.
func TestBatchAfterAnOutage(t *testing.T) {
	for name, bad := range map[string]func(int, *http.Request) (*http.Response, error){
		"503": always(503), "429": always(429), "soon": always(429, "Retry-After", "5"),
	} {
		for _, back := range []time.Duration{time.Minute, time.Hour} { // the outage ends before, or a minute after that
			synctest.Test(t, func(t *testing.T) {
				up := newUpstream(20*time.Millisecond, nil)
				up.answer = func(n int, req *http.Request) (*http.Response, error) {
					if up.now() > 30*time.Minute {
						return reply(req, 200), nil
					}
					return bad(n, req)
				}
				tr := &throttle.Transport{Base: up}
				var lost atomic.Int64
				batch := func() {
					var wg sync.WaitGroup
					for range 16 {
						wg.Go(func() {
							if code, _ := status(tr, t.Context(), "http://x/"); code != 200 {
								lost.Add(1)
							}
						})
					}
					wg.Wait()
				}
				batch()
				if time.Sleep(back); up.now() < 30*time.Minute { // it lasts: behind a gate that failures have closed all but the probe fail soon
					lost.Store(0)
					start := time.Now()
					if batch(); lost.Load() != 16 || name == "503" && time.Since(start) > 16*time.Second {
						t.Errorf("%s, in the outage: %d of 16 lost after %v", name, lost.Load(), time.Since(start))
					}
					time.Sleep(time.Hour)
				}
				lost.Store(0)
				if batch(); lost.Load() > 0 {
					t.Errorf("%s, back after %v: %d of 16 lost", name, back, lost.Load())
				}
			})
		}
	}
}

// A client that calls once a minute gets its retries, although its calls hardly pay for them.
func TestBudgetComesBack(t *testing.T) {
	run := func(b throttle.Budget) (served int) {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(10*time.Millisecond, nil)
			up.answer = func(_ int, req *http.Request) (*http.Response, error) {
				if up.now()%time.Minute < 2*time.Second {
					return reply(req, 503), nil
				}
				return reply(req, 200), nil
			}
			tr := &throttle.Transport{Base: up, Retry: throttle.Retry{Budget: b, Failures: neverCloses}}
			for i := range time.Duration(60) {
				time.Sleep(i*time.Minute - up.now())
				if code, _ := status(tr, t.Context(), "http://x/"); code == 200 {
					served++
				}
			}
		})
		return served
	}
	if n := run(throttle.Budget{}); n != 60 {
		t.Errorf("%d of 60 served", n)
	}
	if n := run(throttle.Budget{PerSecond: -1}); n > 20 {
		t.Errorf("none come back: %d of 60 served", n)
	}
}

// Programs of all sizes outlive an upstream that answers nothing but 500 for less than their patience: the budget lasts until the
// gate closes. And none of them sends much more than its calls until then.
func TestBudgetLastsUntilTheGateCloses(t *testing.T) {
	const well = 3100 * time.Millisecond // until then
	for _, code := range race.Pick([]int{500}, []int{500, 503, 555}) {
		for _, lasts := range race.Pick([]time.Duration{10 * time.Second}, []time.Duration{2 * time.Second, 5 * time.Second, 14 * time.Second}) {
			for _, row := range []struct {
				name          string
				callers       int
				pause, apart  time.Duration // of a caller between two calls, and from one caller's first call to the next one's
				most, perCall float64       // attempts in the outage, and those for each call that begins before its end
			}{
				{"one call a minute", 1, time.Minute, 0, 9, 9},
				{"a loop", 1, 100 * time.Millisecond, 0, 9, 1},
				{"four callers", 4, 100 * time.Millisecond, 0, 60, 1},
				{"16 callers", 16, 100 * time.Millisecond, 0, 110, 1},
				{"a call a second", 5 + int(lasts/time.Second), time.Hour, time.Second, 90, 5},
				{"a batch", 32, 0, 0, 130, 1},
				{"a crowd", 1000, time.Hour, 0, 1100, 1.1},
				{"webhooks, 10 a second", 50 + int(lasts/time.Second)*10, time.Hour, 100 * time.Millisecond, 120, 2},
			} {
				synctest.Test(t, func(t *testing.T) {
					var attempts, calls atomic.Int32
					up := newUpstream(20*time.Millisecond, nil)
					fails := func() bool { return up.now() >= well && up.now() < well+lasts }
					up.answer = func(_ int, req *http.Request) (*http.Response, error) {
						if fails() {
							attempts.Add(1)
							return reply(req, code), nil
						}
						return reply(req, 200), nil
					}
					tr := &throttle.Transport{Base: up}
					one := func() {
						if up.now() < well+lasts {
							calls.Add(1)
						}
						if got, err := status(tr, t.Context(), "http://x/"); got != 200 {
							t.Errorf("%d for %v, %s: %d, %v", code, lasts, row.name, got, err)
						}
					}
					var wg sync.WaitGroup
					for i := range row.callers {
						wg.Go(func() {
							if row.pause >= time.Minute && row.apart == 0 {
								time.Sleep(well)
							}
							for time.Sleep(time.Duration(i) * row.apart); up.now() < well+lasts+time.Second; time.Sleep(row.pause) {
								one()
							}
						})
					}
					wg.Wait()
					if n := float64(attempts.Load()); n > row.most || n > row.perCall*float64(calls.Load()) {
						t.Errorf("%d for %v, %s: %v attempts in the outage, of %d calls", code, lasts, row.name, n, calls.Load())
					}
				})
			}
		}
	}
}

// A client that calls once a minute gets the one retry that each call needs.
func TestEachCallFailsAtFirst(t *testing.T) {
	for _, code := range []int{500, 502, 503, 522} {
		synctest.Test(t, func(t *testing.T) {
			tr := &throttle.Transport{Base: baseFunc(func(req *http.Request) (*http.Response, error) {
				if throttle.Attempt(req.Context()) == 0 {
					return reply(req, code), nil
				}
				return reply(req, 200), nil
			})}
			for i := range 60 {
				if got, err := status(tr, t.Context(), "http://x/"); got != 200 {
					t.Errorf("call %d: %d, %v", i, got, err)
				}
				time.Sleep(time.Minute)
			}
		})
	}
}

// What a gateway answers that does not reach its origin ends no outage, and makes one as a 503 does.
func TestGatewaysWithoutTheirOrigin(t *testing.T) {
	minute := func(code int) (attempts, lost int32) {
		var sent, failed atomic.Int32
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(20*time.Millisecond, nil)
			up.answer = func(_ int, req *http.Request) (*http.Response, error) {
				if up.now() < time.Minute {
					sent.Add(1)
					return reply(req, code), nil
				}
				return reply(req, 200), nil
			}
			tr := &throttle.Transport{Base: up}
			var wg sync.WaitGroup
			for i := range 32 {
				wg.Go(func() {
					for time.Sleep(time.Duration(i) * 31 * time.Millisecond); up.now() < time.Minute; time.Sleep(time.Second) {
						if got, _ := status(tr, t.Context(), "http://x/"); got != 200 {
							failed.Add(1)
						}
					}
				})
			}
			wg.Wait()
		})
		return sent.Load(), failed.Load()
	}
	for _, code := range []int{503, 520, 521, 522, 523, 524, 527, 530, 598, 599} {
		if attempts, lost := minute(code); attempts > 200 || lost > 32 {
			t.Errorf("%d for a minute: %d attempts, %d calls lost", code, attempts, lost)
		}
		synctest.Test(t, func(t *testing.T) { // the outage is noticed as 503, and goes on as something else
			up := newUpstream(20*time.Millisecond, nil)
			up.answer = func(_ int, req *http.Request) (*http.Response, error) {
				switch now := up.now(); {
				case now < 2*time.Second:
					return reply(req, 503), nil
				case now < 30*time.Second:
					return reply(req, code), nil
				}
				return reply(req, 200), nil
			}
			tr := &throttle.Transport{Base: up}
			var lost atomic.Int32
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					if got, _ := status(tr, t.Context(), "http://x/"); got != 200 {
						lost.Add(1)
					}
				})
			}
			wg.Wait()
			if lost.Load() > 5 {
				t.Errorf("503, then %d: %d of 100 lost", code, lost.Load())
			}
		})
	}
}

// A Retry-After on a failure delays its own call, and no other. If the call has no patience for it, it has its answer at once.
func TestRetryAfterOfFailures(t *testing.T) {
	for _, c := range []struct {
		code    int
		after   string
		retry   throttle.Retry
		timeout time.Duration
		again   time.Duration // 0: not again
		reason  error
	}{
		{500, "9", throttle.Retry{}, time.Hour, 9 * time.Second, nil},
		{502, "9", throttle.Retry{}, time.Hour, 9 * time.Second, nil},
		{504, "9", throttle.Retry{}, time.Hour, 9 * time.Second, nil},
		{522, "9", throttle.Retry{}, time.Hour, 9 * time.Second, nil},
		{555, "9", throttle.Retry{}, time.Hour, 9 * time.Second, nil},
		{408, "9", throttle.Retry{}, time.Hour, 9 * time.Second, nil},
		{500, "14", throttle.Retry{}, time.Hour, 14 * time.Second, nil},
		{500, "16", throttle.Retry{}, time.Hour, 0, throttle.ErrMaxAttempts},
		{500, "9", throttle.Retry{}, 5 * time.Second, 0, throttle.ErrWaitTooLong},
		{500, "3600", throttle.Retry{}, time.Hour, 0, throttle.ErrMaxAttempts},
		{500, "60", throttle.Retry{MaxAttempts: 2}, time.Hour, time.Minute, nil},
		{500, "180", throttle.Retry{MaxAttempts: 2}, time.Hour, 0, throttle.ErrMaxAttempts},
		{500, "180", throttle.Retry{MaxAttempts: 2, MaxPause: -1}, time.Hour, 3 * time.Minute, nil},
		{500, "180", throttle.Retry{MaxAttempts: -1, MaxPause: 5 * time.Minute}, time.Hour, 3 * time.Minute, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(0, nil)
			up.answer = func(n int, req *http.Request) (*http.Response, error) {
				if n == 1 {
					return reply(req, c.code, "Retry-After", c.after), nil
				}
				return reply(req, 200), nil
			}
			tr := &throttle.Transport{Base: up, Retry: c.retry}
			ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
			defer cancel()
			time.AfterFunc(time.Second, func() { // another call is not held
				if got, err := status(tr, t.Context(), "http://x/other"); got != 200 || up.now() != time.Second {
					t.Errorf("%d, %s s: the other one %d, %v at %v", c.code, c.after, got, err, up.now())
				}
			})
			resp, err := tr.RoundTrip(request(ctx, "GET", "http://x/"))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if c.again == 0 {
				if resp.StatusCode != c.code || up.now() != 0 || !errors.Is(throttle.Reason(resp), c.reason) {
					t.Errorf("%d, %s s: %d at %v, because of %v", c.code, c.after, resp.StatusCode, up.now(), throttle.Reason(resp))
				}
				time.Sleep(2 * time.Second)
				return
			}
			if late := up.now() - c.again; resp.StatusCode != 200 || late < 0 || late > min(c.again/20, time.Second) {
				t.Errorf("%d, %s s: %d at %v", c.code, c.after, resp.StatusCode, up.now())
			}
		})
	}
}

// A 409 that follows a failed attempt with an idempotency key says that the upstream still works on that one. Stripe's and OpenAI's
// clients send it again too. Every other 409 is the answer.
func TestConflictAfterALostAnswer(t *testing.T) {
	lost := func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }
	code := func(code int) func(*http.Request) (*http.Response, error) {
		return func(req *http.Request) (*http.Response, error) { return reply(req, code), nil }
	}
	for _, c := range []struct {
		method, key string
		first       func(*http.Request) (*http.Response, error)
		want, n     int
	}{
		{"POST", "Idempotency-Key", lost, 200, 4},
		{"POST", "X-Idempotency-Key", code(504), 200, 4},
		{"PUT", "Idempotency-Key", lost, 200, 4},
		{"PUT", "", lost, 409, 2},
		{"POST", "Idempotency-Key", code(409), 409, 1},
		{"POST", "Idempotency-Key", code(429), 409, 2}, // it was not acted on
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(0, func(n int, req *http.Request) (*http.Response, error) {
				switch n {
				case 1:
					return c.first(req)
				case 2, 3:
					return reply(req, 409), nil
				}
				return reply(req, 200), nil
			})
			req := request(t.Context(), c.method, "http://x/")
			if c.key != "" {
				req.Header.Set(c.key, "1")
			}
			resp, err := (&throttle.Transport{Base: up}).RoundTrip(req)
			if err != nil || resp.StatusCode != c.want || len(up.times()) != c.n {
				t.Errorf("%s, %s: %v, %v after %d attempts", c.method, c.key, resp, err, len(up.times()))
			}
		})
	}
}

// A negative MaxAttempts means what it says, also as a call's own bound, beyond any budget. MaxPause holds.
func TestAsManyAttemptsAsFit(t *testing.T) {
	for _, own := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o := ordeal{1, 10 * time.Minute, func(req *http.Request) (*http.Response, error) { return reply(req, 503), nil }}
			tr, ctx := &throttle.Transport{Retry: throttle.Retry{MaxAttempts: -1}}, t.Context()
			if own {
				tr.Retry.MaxAttempts, ctx = 2, throttle.WithMaxAttempts(ctx, -1)
			}
			up := newUpstream(0, nil)
			up.answer = func(_ int, req *http.Request) (*http.Response, error) {
				if up.now() < o.lasts {
					return o.bad(req)
				}
				return reply(req, 200), nil
			}
			tr.Base = up
			if code, err := status(tr, ctx, "http://x/"); code != 200 || err != nil || len(up.times()) < 20 {
				t.Errorf("%d %v, %d attempts", code, err, len(up.times()))
			}
			up.answer = always(429)
			start := time.Now()
			if code, err := status(tr, ctx, "http://x/"); code != 429 || err != nil || time.Since(start) > 155*time.Second { // MaxPause, and the backoff before the last attempt
				t.Errorf("nobody is served: %d %v after %v", code, err, time.Since(start))
			}
		})
	}
}

// A backlog behind a window of a minute is served, however often the gate closes: somebody is served each time. Only the last
// calls, which have nobody beside them, may spend their own 15 s on a window that they have found spent.
func TestMaxPauseIsOfUpstreamsThatServeNobody(t *testing.T) {
	for name, callers := range map[string]int{"a batch": 400, "four workers": 4} {
		synctest.Test(t, func(t *testing.T) {
			up := throttletest.NewServer(throttletest.Limit{Kind: throttletest.Fixed, N: 60, Per: time.Minute})
			tr, start := &throttle.Transport{Base: up}, time.Now()
			var lost atomic.Int64
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for range 400 / callers {
						resp, err := tr.RoundTrip(request(t.Context(), "GET", up.URL()))
						if err != nil || resp.StatusCode != 200 {
							lost.Add(1)
							t.Log(err, throttle.Reason(resp), time.Since(start))
						}
					}
				})
			}
			wg.Wait()
			if n := lost.Load(); n > 20 {
				t.Errorf("%s: %d of 400 calls lost", name, n)
			}
		})
	}
}

// verdicts of Check.
func TestCheck(t *testing.T) {
	errTest := errors.New("test")
	for _, c := range []struct {
		name     string
		verdict  throttle.Verdict
		method   string
		first    func(*http.Request) (*http.Response, error)
		attempts int
	}{
		{"Default, 429", throttle.Default, "POST", func(r *http.Request) (*http.Response, error) { return reply(r, 429), nil }, 2},
		{"Final, 429", throttle.Final, "GET", func(r *http.Request) (*http.Response, error) { return reply(r, 429, "Retry-After", "1"), nil }, 1},
		{"Final, error", throttle.Final, "GET", func(r *http.Request) (*http.Response, error) { return nil, errTest }, 1},
		{"Again, 200", throttle.Again, "GET", func(r *http.Request) (*http.Response, error) { return reply(r, 200), nil }, 2},
		{"Again, 404", throttle.Again, "GET", func(r *http.Request) (*http.Response, error) { return reply(r, 404), nil }, 2},
		{"Again, POST 503", throttle.Again, "POST", func(r *http.Request) (*http.Response, error) { return reply(r, 503), nil }, 2},
		{"Again, POST error", throttle.Again, "POST", func(r *http.Request) (*http.Response, error) { return nil, errTest }, 2},
		{"Again, body once", throttle.Again, "PUT", func(r *http.Request) (*http.Response, error) { return reply(r, 429), nil }, 1},
		{"nonsense", throttle.Verdict(99), "GET", func(r *http.Request) (*http.Response, error) { return reply(r, 200), nil }, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(0, func(n int, req *http.Request) (*http.Response, error) {
				if n == 1 {
					return c.first(req)
				}
				return reply(req, 201), nil
			})
			req := request(t.Context(), c.method, "http://x/")
			if c.name == "Again, body once" {
				req.Body = io.NopCloser(strings.NewReader("x"))
			}
			calls := 0
			tr := &throttle.Transport{Base: up, Retry: throttle.Retry{Check: func(r *http.Request, resp *http.Response, err error) throttle.Verdict {
				if calls++; r.URL != req.URL || r.Method != req.Method || throttle.Attempt(r.Context()) != calls {
					t.Errorf("%s %v, attempt %d, is not attempt %d of the caller's request", r.Method, r.URL, throttle.Attempt(r.Context()), calls)
				}
				if (resp == nil) == (err == nil) {
					t.Error("both or neither", resp, err)
				}
				if calls > 1 {
					return throttle.Default
				}
				return c.verdict
			}}}
			resp, err := tr.RoundTrip(req)
			if got := len(up.times()); got != c.attempts || calls != c.attempts {
				t.Errorf("%s: %d attempts, %d calls of Check, want %d", c.name, got, calls, c.attempts)
			}
			if c.attempts == 2 && (err != nil || resp.StatusCode != 201) {
				t.Errorf("%s: %v %v", c.name, resp, err)
			}
			if s, ok := keyStats(tr, "x"); c.name == "Final, 429" && (!ok || s.Reason != "gate:retry-after") {
				t.Error("a Final 429 does not close the gate")
			}
		})
	}
}

// What says that it is not to be sent again is handed out at once, untouched, and stops nobody.
func TestShouldRetryFalseIsFinal(t *testing.T) {
	for _, field := range []string{"X-Should-Retry", "Stripe-Should-Retry"} {
		for _, code := range []int{400, 403, 409, 418, 429, 500, 502, 503, 504, 529} {
			synctest.Test(t, func(t *testing.T) {
				var ans bodyLog
				var sent *http.Response
				var throttled, failed int
				up := newUpstream(time.Millisecond, func(_ int, req *http.Request) (*http.Response, error) {
					sent = ans.reply(req, code, 100, "Retry-After", "30", field, "false")
					return sent, nil
				})
				tr := &throttle.Transport{Base: up, Hooks: throttle.Hooks{
					Throttled: func(context.Context, throttle.Event) { throttled++ },
					Failed:    func(context.Context, throttle.Event) { failed++ },
				}}
				const calls = 20
				for i := range calls { // one after the other, in no time but their round trips
					resp, err := tr.RoundTrip(request(t.Context(), "GET", "http://x/"))
					if err != nil || resp != sent || ans.made[i].read.Load() != 0 {
						t.Fatalf("%s on %d: %v, %v, want the answer as it came", field, code, resp, err)
					}
					resp.Body.Close()
				}
				s := statsOf(t, tr)
				if n, d := len(up.times()), up.now(); n != calls || d != calls*time.Millisecond {
					t.Errorf("%s on %d: %d attempts in %v, want %d in %d ms", field, code, n, d, calls, calls)
				}
				if s.Reason != "" || len(s.Learned) > 0 || s.Retried != 0 {
					t.Errorf("%s on %d: left behind %+v", field, code, s)
				}
				if isThrottled := code == 403 || code == 418 || code == 429 || code == 503 || code == 529; isThrottled != (throttled == calls) ||
					int(s.Throttled) != throttled || (failed > 0) != (code == 500 || code == 502 || code == 504) {
					t.Errorf("%s on %d: %d throttled, %d failed, counted %d", field, code, throttled, failed, s.Throttled)
				}
			})
		}
	}
}

// Who asks for a retry does not change what is safe to send again, and Check has the last word.
func TestShouldRetryOverridesNoRule(t *testing.T) {
	for _, c := range []struct {
		method, value string
		code          int
		check         throttle.Verdict
		sent          int
	}{
		{"POST", "true", 503, throttle.Default, 1},
		{"POST", "true", 500, throttle.Default, 1},
		{"GET", "true", 409, throttle.Default, 1},
		{"GET", "true", 429, throttle.Default, 2},
		{"GET", "maybe", 500, throttle.Default, 2},
		{"GET", "false", 200, throttle.Default, 1},
		{"GET", "false", 429, throttle.Default, 1},
		{"GET", "False", 500, throttle.Default, 1},
		{"POST", "false", 429, throttle.Again, 2},
		{"GET", "true", 429, throttle.Final, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(0, func(n int, req *http.Request) (*http.Response, error) {
				if n > 1 {
					return reply(req, 200), nil
				}
				return reply(req, c.code, "X-Should-Retry", c.value), nil
			})
			tr := &throttle.Transport{Base: up, Retry: throttle.Retry{Check: func(_ *http.Request, resp *http.Response, _ error) throttle.Verdict {
				if resp.StatusCode == 200 {
					return throttle.Default
				}
				return c.check
			}}}
			resp, err := tr.RoundTrip(request(t.Context(), c.method, "http://x/"))
			if err != nil || len(up.times()) != c.sent || c.sent > 1 && resp.StatusCode != 200 {
				t.Errorf("%+v: %d attempts, %v, %v", c, len(up.times()), resp, err)
			}
		})
	}
}

// A spent account: the caller gets the 429 that names the cause, and nobody waits. On a host where the same code means a limit
// of tokens a minute it is tried again.
func TestSpentAccountStopsNobody(t *testing.T) {
	const text = `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`
	for host, sent := range map[string]int{"api.openai.com": 1, "dashscope.aliyuncs.com": 4} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(time.Millisecond, func(_ int, req *http.Request) (*http.Response, error) {
				resp := reply(req, 429, "Content-Type", "application/json")
				resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
				return resp, nil
			})
			tr := &throttle.Transport{Base: up, Retry: throttle.Retry{MaxAttempts: 4}}
			resp, err := tr.RoundTrip(request(t.Context(), "POST", "https://"+host+"/v1/responses"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			if resp.Body.Close(); resp.StatusCode != 429 || string(got) != text || err != nil || len(up.times()) != sent {
				t.Errorf("%s: %d %q %v after %d attempts, want %d", host, resp.StatusCode, got, err, len(up.times()), sent)
			}
			if s := statsOf(t, tr); (sent == 1) != (s.Reason == "" && len(s.Learned) == 0) {
				t.Errorf("%s: %+v", host, s)
			}
		})
	}
}

// A nil Body has no body to replay, whatever GetBody says.
func TestNilBodyIsNotReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, func(n int, req *http.Request) (*http.Response, error) {
			if req.Body != nil && req.Body != http.NoBody {
				t.Errorf("attempt %d has a body", n)
			}
			return reply(req, 429), nil
		})
		for _, body := range []io.ReadCloser{nil, http.NoBody} {
			req, _ := http.NewRequest("GET", "http://x/", strings.NewReader("body"))
			req.Body, req.ContentLength = body, 0
			(&throttle.Transport{Base: up, Retry: throttle.Retry{MaxAttempts: 4}}).RoundTrip(req)
		}
		if n := len(up.times()); n != 8 {
			t.Error(n)
		}
	})
}

// A call whose pause would outlast it gets the answer at once, untouched; later calls meet the closed gate.
func TestPausesThatCannotBeSatThrough(t *testing.T) {
	for _, c := range []struct {
		name     string
		noted    string
		pause    time.Duration
		deadline time.Duration
		later    error
	}{
		{"deadline", "10", -1, 5 * time.Second, context.DeadlineExceeded},
		{"MaxPause", "10", 9 * time.Second, 0, throttle.ErrPaused},
		{"default MaxPause", "121", 0, 0, throttle.ErrPaused},
		{"a day", "86400", 0, 0, throttle.ErrPaused},
		{"for ever", "99999999999999999999", 0, 0, throttle.ErrPaused},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(0, always(429, "Retry-After", c.noted))
			tr := &throttle.Transport{Base: up, Retry: throttle.Retry{MaxPause: c.pause}}
			start := time.Now()
			ctx := t.Context()
			if c.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.deadline)
				defer cancel()
			}
			if code, err := status(tr, ctx, "http://x/"); code != 429 || err != nil {
				t.Errorf("%s: %d %v", c.name, code, err)
			}
			_, err := status(tr, ctx, "http://x/")
			var e *throttle.Error
			if !errors.As(err, &e) || !errors.Is(err, c.later) || e.Key != "x" || e.Attempts != 0 || e.Timeout() != (c.later != throttle.ErrPaused) {
				t.Errorf("%s: %v, want %v", c.name, err, c.later)
			} else if e.Wait < 10*time.Second || e.Wait > 24*time.Hour+2*time.Second { // a jitter of 1 s, and perhaps a probe before it
				t.Errorf("%s: predicted wait %v", c.name, e.Wait)
			}
			if err := at(0, start); err != nil || len(up.times()) != 1 {
				t.Errorf("%s: %v, %d attempts", c.name, err, len(up.times()))
			}
		})
	}
}

// MaxPause is all the time behind closed gates of one call.
func TestMaxPauseIsSpentOverAllAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, always(429, "Retry-After", "4"))
		tr := &throttle.Transport{Base: up, Retry: throttle.Retry{MaxAttempts: 100, MaxPause: 10 * time.Second}}
		start := time.Now()
		if code, err := status(tr, t.Context(), "http://x/"); code != 429 || err != nil {
			t.Error(code, err)
		}
		// two pauses of 4 to 4.2 s; the third does not fit
		if n, d := len(up.times()), time.Since(start); n != 3 || d < 8*time.Second || d > 8400*time.Millisecond {
			t.Errorf("%d attempts in %v, want 3 in 8 s", n, d)
		}
	})
}

// A call that waits behind a gate closed for failures leaves after MaxPause: with its answer, or with ErrPaused.
func TestMaxPauseInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, always(503))
		tr := &throttle.Transport{Base: up, Retry: throttle.Retry{MaxPause: 30 * time.Second, MaxAttempts: 1000, Backoff: func() throttle.Backoff { return constant(1) }}}
		start := time.Now()
		var wg sync.WaitGroup
		var mu sync.Mutex
		ended := map[string]int{}
		call := func() {
			wg.Go(func() {
				begin := time.Now()
				code, err := status(tr, t.Context(), "http://x/")
				mu.Lock()
				defer mu.Unlock()
				if ended[fmt.Sprint(code, errors.Is(err, throttle.ErrPaused))]++; err != nil && !errors.Is(err, throttle.ErrPaused) {
					t.Error(err)
				}
				if d := time.Since(begin); d > 30*time.Second+300*time.Millisecond {
					t.Errorf("ended after %v", d)
				}
			})
		}
		for range 20 {
			call()
		}
		time.Sleep(5 * time.Second)
		for range 20 { // these meet the closed gate
			call()
		}
		time.Sleep(25*time.Second - time.Since(start))
		synctest.Wait()
		s, _ := keyStats(tr, "x")
		if s.Reason != "gate:failing" || s.Waiting == 0 {
			t.Errorf("%+v", s)
		}
		wg.Wait()
		if len(ended) > 2 || ended["503 false"] < 20 || ended["503 false"]+ended["0 true"] != 40 {
			t.Errorf("ended %v", ended)
		}
		// The closing is older than MaxPause now: a new call is the probe if one is due, else it is refused at once.
		time.Sleep(time.Minute)
		before := len(up.times())
		if code, _ := status(tr, t.Context(), "http://x/"); code != 503 || len(up.times()) != before+1 {
			t.Errorf("the next call is no probe: %d, %d attempts", code, len(up.times())-before)
		}
		begin := time.Now()
		if _, err := status(tr, t.Context(), "http://x/"); !errors.Is(err, throttle.ErrPaused) || time.Since(begin) != 0 {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		up.answer = always(200)
		time.Sleep(30 * time.Second)
		if code, err := status(tr, t.Context(), "http://x/"); code != 200 {
			t.Error("the outage does not end:", code, err)
		}
	})
}

// closedByFailures makes tr's Base, and has its gate closed by eight failures in a row.
func closedByFailures(t *testing.T, tr *throttle.Transport) *upstream {
	up := newUpstream(0, always(503))
	tr.Base, tr.Retry.MaxAttempts = up, 1
	for range 8 {
		if s, _ := keyStats(tr, "x"); s.Reason != "" {
			t.Fatalf("closed too soon: %+v", s)
		}
		status(tr, t.Context(), "http://x/")
	}
	if s, _ := keyStats(tr, "x"); s.Reason != "gate:failing" {
		t.Fatalf("not closed: %+v", s)
	}
	return up
}

// An outage always ends: however long it has lasted, the next call is the probe, even if it has to
// wait for the limiter.
func TestTheNextCallIsTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := throttle.NewBucket(1, 10)
		tr := &throttle.Transport{Limiter: lim}
		up := closedByFailures(t, tr)
		up.answer = always(200)
		time.Sleep(time.Hour)
		lim.Adjust(15) // a debt of 5
		start := time.Now()
		if code, err := status(tr, t.Context(), "http://x/"); code != 200 {
			t.Error(code, err)
		}
		if err := at(6*time.Second, start); err != nil {
			t.Error(err)
		}
	})
}

// The probe is rather a call that can be sent again.
func TestProbeIsOneThatCanBeSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{}
		up := closedByFailures(t, tr)
		var order []string
		var mu sync.Mutex
		up.answer = func(n int, req *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, req.Method)
			return reply(req, 503), nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		for _, method := range []string{"POST", "PATCH", "PUT", "POST", "GET"} {
			go tr.RoundTrip(request(ctx, method, "http://x/"))
			synctest.Wait()
		}
		time.Sleep(600 * time.Millisecond) // two probes
		cancel()
		synctest.Wait()
		if want := []string{"PUT", "GET"}; !slices.Equal(order, want) {
			t.Errorf("probes %v, want %v", order, want)
		}
	})
}

// A 500 is no failure that closes a gate, but one that answers a probe does not end the outage, and the
// next probe is not due at once. A probe whose caller cancels makes place for another.
func TestWhatAnswersAProbe(t *testing.T) {
	for _, c := range []struct {
		name     string
		answer   func(int, *http.Request) (*http.Response, error)
		from, to int // attempts in 10 s
	}{
		{"503", always(503), 20, 40},
		{"500", always(500), 20, 40},
		{"521", always(521), 20, 40},
		{"561", always(561), 20, 40},
		{"certificate", func(int, *http.Request) (*http.Response, error) { return nil, x509.UnknownAuthorityError{} }, 20, 40},
		{"200", always(200), 1000, 1000},
		{"404", always(404), 1000, 1000},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := &throttle.Transport{}
			up := closedByFailures(t, tr)
			up.answer = c.answer
			ctx, cancel := context.WithCancel(t.Context())
			before := len(up.times())
			for range 1000 {
				go status(tr, ctx, "http://x/")
			}
			time.Sleep(10 * time.Second)
			cancel()
			synctest.Wait()
			if n := len(up.times()) - before; n < c.from || n > c.to {
				t.Errorf("%s: %d attempts in 10 s, want %d to %d", c.name, n, c.from, c.to)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{}
		up := closedByFailures(t, tr)
		up.trip = time.Second
		up.answer = always(200)
		ctx, cancel := context.WithCancel(t.Context())
		go status(tr, ctx, "http://x/") // the probe, at 250 ms
		synctest.Wait()
		done := make(chan bool)
		go func() { status(tr, t.Context(), "http://x/"); close(done) }()
		time.Sleep(500 * time.Millisecond)
		cancel()
		<-done
		if got := up.now(); got != 1500*time.Millisecond {
			t.Errorf("the next probe was answered at %v, want 1.5 s", got)
		}
	})
}

// A final answer to a probe says nothing of the gate: it stays as it is, and the next caller is the probe at once, so that
// all of them get their own answer.
func TestFinalAnswerToAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trip = 10 * time.Millisecond
		var first time.Duration // final answer
		up := newUpstream(trip, nil)
		up.answer = func(n int, req *http.Request) (*http.Response, error) {
			if n <= 8 {
				return reply(req, 429), nil
			}
			if first == 0 {
				first = up.now()
			}
			return reply(req, 429, "X-Should-Retry", "false"), nil
		}
		tr := &throttle.Transport{Base: up, Retry: throttle.Retry{MaxAttempts: 100}}
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if code, err := status(tr, t.Context(), "http://x/"); code != 429 || err != nil {
					t.Error(code, err)
				}
			})
		}
		wg.Wait()
		if took := up.now() - first; first == 0 || took > 100*trip {
			t.Errorf("50 callers had their answers %v after the first, want about %v", took, 49*trip)
		}
	})
}

func TestBudget(t *testing.T) {
	// run sends calls that all fail, one after the other, and returns the retries.
	run := func(ctx context.Context, tr *throttle.Transport, up *upstream, calls int) int {
		before := len(up.times())
		for range calls {
			status(tr, ctx, "http://x/")
		}
		return len(up.times()) - before - calls
	}
	for _, c := range []struct {
		name   string
		budget throttle.Budget
		calls  int
		want   int
		full   int // retries of one call when all that can be is saved up
	}{
		{"default", throttle.Budget{PerSecond: -1}, 100, 10 + 20, 3},
		{"none saved up", throttle.Budget{Max: 1, PerSecond: -1}, 50, 1 + 10, 1},
		{"half", throttle.Budget{PerCall: 0.5, Max: 4, PerSecond: -1}, 40, 4 + 20, 3},
		{"no budget", throttle.Budget{PerCall: -1}, 50, 150, 3},
		{"too small for one", throttle.Budget{PerCall: 0.1, Max: 0.5, PerSecond: 1}, 50, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(0, always(500))
			tr := &throttle.Transport{Base: up, Retry: throttle.Retry{MaxAttempts: 4, Budget: c.budget, Failures: neverCloses}}
			if got := run(t.Context(), tr, up, c.calls); got > c.want || got < c.want-2 {
				t.Errorf("%s: %d retries for %d calls, want %d", c.name, got, c.calls, c.want)
			}
			// Successes refill it up to Max.
			up.answer = always(200)
			run(t.Context(), tr, up, 200)
			up.answer = always(500)
			if first := run(t.Context(), tr, up, 1); first != c.full {
				t.Errorf("%s: %d retries of the first call after the refill, want %d", c.name, first, c.full)
			}
		})
	}
}

// An upstream that is overloaded by others does not get a retry for each call that it turns away, although it rests
// after each of them.
func TestOverloadedAnswersPayTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(20*time.Millisecond, func(n int, req *http.Request) (*http.Response, error) {
			return reply(req, []int{529, 529, 200}[n%3]), nil
		})
		tr := &throttle.Transport{Base: up, Retry: throttle.Retry{Budget: throttle.Budget{PerCall: 0.1, Max: 5, PerSecond: -1}}}
		const calls = 200
		for range calls {
			status(tr, t.Context(), "http://x/")
		}
		if retries := len(up.times()) - calls; retries > 5+calls/10 || retries < calls/10 {
			t.Errorf("%d retries for %d calls, want at most %d", retries, calls, 5+calls/10)
		}
	})
}

// State is per key.
func TestBudgetIsPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, always(500))
		tr := &throttle.Transport{Base: up, Retry: throttle.Retry{Budget: throttle.Budget{Max: 3}}}
		for _, want := range []int{4, 5, 9, 10} { // 3 retries, none; the same for b
			host := "a"
			if want > 5 {
				host = "b"
			}
			status(tr, t.Context(), "http://"+host)
			if got := len(up.times()); got != want {
				t.Errorf("%d attempts, want %d", got, want)
			}
		}
	})
}

// When the budget is spent, an answer is handed out as it is; an error says why it was not sent again.
func TestErrRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errTest := errors.New("test")
		up := newUpstream(0, func(int, *http.Request) (*http.Response, error) { return nil, errTest })
		tr := &throttle.Transport{Base: up, Retry: throttle.Retry{MaxAttempts: 3, Budget: throttle.Budget{PerCall: 0.001, Max: 3}}}
		for i, attempts := range []int{0, 2, 1} { // two retries, one, none
			_, err := status(tr, t.Context(), "http://x/")
			var e *throttle.Error
			switch {
			case i == 0 && err != errTest:
				t.Errorf("out of attempts: %v", err)
			case i > 0 && (!errors.Is(err, throttle.ErrRetryBudget) || !errors.Is(err, errTest) || !errors.As(err, &e) || e.Attempts != attempts || e.Key != "x"):
				t.Errorf("out of budget: %v", err)
			}
		}
		up.answer = always(500)
		if code, err := status(tr, t.Context(), "http://x/"); code != 500 || err != nil || len(up.times()) != 7 {
			t.Error(code, err, len(up.times()))
		}
	})
}

// A brown-out: 30 % of the answers are failures, more than the budget covers; the load stays within
// 1 + PerCall, and what is retried costs nothing while the gate is closed.
func TestBrownOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 3000
		up := newUpstream(10*time.Millisecond, func(n int, req *http.Request) (*http.Response, error) {
			if n%10 < 3 {
				return reply(req, 503), nil
			}
			return reply(req, 200), nil
		})
		tr := &throttle.Transport{Base: up}
		delivered := 0
		for range calls {
			if code, _ := status(tr, t.Context(), "http://x/"); code == 200 {
				delivered++
			}
		}
		regained := int(up.now() / (5 * time.Second))
		if n := len(up.times()); n > calls*12/10+10+regained {
			t.Errorf("%d attempts for %d calls, want at most 1.2 times and 10, and one every 5 s: %d", n, calls, regained)
		}
		if delivered < calls*80/100 {
			t.Errorf("%d of %d delivered", delivered, calls)
		}
		t.Logf("%d delivered, %d attempts", delivered, len(up.times()))
		// Within the share that the budget covers, nothing is lost.
		n := 0
		up.answer = func(_ int, req *http.Request) (*http.Response, error) {
			if n++; n%8 == 0 {
				return reply(req, 503), nil
			}
			return reply(req, 200), nil
		}
		for range 1000 {
			if code, _ := status(tr, t.Context(), "http://x/"); code != 200 {
				t.Fatal("lost at a failure share of 1/8")
			}
		}
	})
}

// What a retry took out is given back when the gate closes before it is sent, whatever becomes of it.
func TestBudgetIsGivenBackWhenTheGateCloses(t *testing.T) {
	for _, retryAfter := range []string{"2", "600"} { // sat through, and not
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(0, func(_ int, req *http.Request) (*http.Response, error) {
				if req.URL.Path == "/429" {
					return reply(req, 429, "Retry-After", retryAfter), nil
				}
				return reply(req, 500), nil
			})
			tr := &throttle.Transport{Base: up, Retry: throttle.Retry{
				MaxAttempts: 2, Budget: throttle.Budget{PerCall: 1e-6, Max: 1}, // for one retry
				Backoff: func() throttle.Backoff { return constant(time.Second) },
			}}
			var wg sync.WaitGroup
			wg.Go(func() { status(tr, t.Context(), "http://x/") })
			synctest.Wait()
			status(tr, t.Context(), "http://x/")
			if s := statsOf(t, tr); s.Sent != 2 {
				t.Errorf("Retry-After %s: %d attempts of two calls, want 2: one retry is planned, and there is none for the other", retryAfter, s.Sent)
			}
			wg.Go(func() { status(tr, t.Context(), "http://x/429") })
			wg.Wait()
			tr.Resume("x")
			before := statsOf(t, tr).Retried
			if status(tr, t.Context(), "http://x/"); statsOf(t, tr).Retried != before+1 {
				t.Errorf("Retry-After %s: what was taken out has not been given back", retryAfter)
			}
		})
	}
}

// In an outage retries are free: the gate bounds them.
func TestRetriesBehindAClosedGateCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, nil)
		up.answer = func(n int, req *http.Request) (*http.Response, error) {
			if up.now() < 20*time.Second {
				return reply(req, 503), nil
			}
			return reply(req, 200), nil
		}
		const saved = 20
		tr := &throttle.Transport{Base: up, Retry: throttle.Retry{MaxAttempts: 100, Budget: throttle.Budget{PerCall: 1e-6, Max: saved, PerSecond: -1}}}
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				time.Sleep(time.Millisecond)
				if code, err := status(tr, t.Context(), "http://x/"); code != 200 {
					t.Error(code, err)
				}
			})
		}
		wg.Wait()
		before := len(up.times())
		up.answer = always(500)
		status(tr, t.Context(), "http://x/")
		if n := len(up.times()) - before; n != 1+saved {
			t.Errorf("%d retries are left after the outage, want %d", n-1, saved)
		}
	})
}

// deliveries sends 40 deliveries to an endpoint that answers code for an hour, and returns how many attempts that took.
func deliveries(t *testing.T, code int, retry throttle.Retry) (attempts int) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(50*time.Millisecond, always(code))
		retry.MaxAttempts, retry.MaxPause, retry.Budget = -1, -1, throttle.Budget{PerCall: -1}
		tr := &throttle.Transport{Base: up, Retry: retry}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var calls sync.WaitGroup
		for range 40 {
			calls.Go(func() {
				if resp, err := tr.RoundTrip(request(ctx, "PUT", "http://hook.test/")); err == nil {
					resp.Body.Close()
				}
			})
			time.Sleep(time.Second)
		}
		calls.Wait()
		for s := range tr.Stats() {
			attempts = int(s.Sent)
		}
	})
	return attempts
}

// An endpoint that answers nothing but 500 is left alone like one that answers 503, after more of them.
func TestNothingBut500(t *testing.T) {
	fails, errs := deliveries(t, 503, throttle.Retry{}), deliveries(t, 500, throttle.Retry{})
	t.Logf("40 deliveries took %d attempts with 503, %d with 500", fails, errs)
	if errs > 500 || errs < 40 {
		t.Errorf("40 deliveries took %d attempts with 503, %d with 500; want at most 500", fails, errs)
	}
}

// closesAt sends calls one after the other, with the codes as answers, and returns after how many the gate was closed.
func closesAt(t *testing.T, retry throttle.Retry, codes ...int) (n int) {
	synctest.Test(t, func(t *testing.T) {
		retry.MaxAttempts = 1
		tr := &throttle.Transport{Base: newUpstream(0, script(codes...)), Retry: retry}
		for n = 1; n <= len(codes); n++ {
			status(tr, t.Context(), "http://a/")
			if statsOf(t, tr).Reason == "gate:failing" {
				return
			}
		}
		n = 0
	})
	return n
}

// many is code n times.
func many(n, code int) []int { return slices.Repeat([]int{code}, n) }

// How many failures close the gate, and when a 500 is one.
func TestFailures(t *testing.T) {
	for _, c := range []struct {
		name     string
		failures int
		codes    []int
		want     int // the answer that closes the gate; 0: none
	}{
		{"503", 0, many(20, 503), 8},
		{"503, three are enough", 3, many(20, 503), 3},
		{"503, one is enough", 1, many(20, 503), 1},
		{"503, twenty are needed", 20, many(30, 503), 20},
		{"a success between", 3, []int{503, 503, 200, 503, 503, 503}, 6},
		{"500", 0, many(60, 500), 40},
		{"500, three failures are enough", 3, many(60, 500), 35},
		{"a 404 among them", 0, slices.Concat(many(30, 500), []int{404}, many(60, 500)), 71},
		{"a success among them", 0, slices.Concat(many(39, 500), []int{200}, many(39, 500)), 0},
		{"one in twenty answers 200", 0, slices.Repeat(append(many(19, 500), 200), 20), 0},
		{"500s and 503s", 0, slices.Repeat([]int{500, 503}, 20), 16},
	} {
		if got := closesAt(t, throttle.Retry{Failures: c.failures}, c.codes...); got != c.want {
			t.Errorf("%s: answer %d closes the gate, want %d", c.name, got, c.want)
		}
	}
	_, err := status(&throttle.Transport{Retry: throttle.Retry{Failures: -2}}, t.Context(), "http://a/")
	if err == nil || !strings.Contains(err.Error(), "Retry.Failures is -2") {
		t.Error(err)
	}
}

// Calls that a limit of one minute refuses together wait for their Retry-After of a minute, though the refusals come one
// after the other and each counts from its own moment. Jitter hides most of that, so it takes some rounds.
func TestMinuteOfRetryAfter(t *testing.T) {
	for range 40 {
		synctest.Test(t, func(t *testing.T) {
			upstream := throttletest.NewServer(throttletest.Limit{Kind: throttletest.Sliding, N: 50, Per: time.Minute})
			upstream.RetryAfter, upstream.Latency = time.Minute, throttletest.Span{Min: 20 * time.Millisecond, Max: 60 * time.Millisecond}
			client := &http.Client{Transport: &throttle.Transport{Base: upstream}}
			var calls sync.WaitGroup
			for range 8 {
				calls.Go(func() {
					for range 10 {
						resp, err := client.Get(upstream.URL())
						if err != nil {
							t.Error(err)
							return
						}
						if resp.Body.Close(); resp.StatusCode != 200 {
							t.Errorf("a call was answered %d", resp.StatusCode)
						}
					}
				})
			}
			calls.Wait()
		})
	}
}
