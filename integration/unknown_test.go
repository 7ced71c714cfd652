package integration

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
)

// These tests send the calls of servers_test.go through a Transport that knows no limit: it must
// learn serverLimit from the answers. They too assert what was refused and log how long it took.
const (
	expressRefusals = 8   // of all calls, where headers tell the limit
	mostAttempts    = 1.1 // for each call, where only refusals do
	gcraBurst       = 10
)

// TestUnknownExpress: a window of one second, advertised in four dialects. Each is spent at once, so the
// fourth hundred goes after three windows; 60 ms are for its calls.
func TestUnknownExpress(t *testing.T) {
	race.Long(t)
	t.Parallel()
	dir := installExpress(t)
	var all sync.WaitGroup
	defer all.Wait()
	for _, dialect := range []string{"draft-6", "draft-7", "draft-8", "legacy"} {
		all.Go(func() {
			t.Run(dialect, func(t *testing.T) {
				run := callUnknown(t, startExpress(t, dir, dialect))
				run.log(t, 3060*time.Millisecond, 1.1)
				if most := expressRefusals + run.late; run.refused > most {
					t.Errorf("the server refused %d attempts, want at most %d", run.refused, most)
				}
			})
		})
	}
}

func TestUnknownNginx(t *testing.T) {
	race.Long(t)
	t.Parallel()
	run := callUnknown(t, startNginx(t))
	run.log(t, idealTime(nginxBurst+1), 1.3)
	run.checkAttempts(t)
}

func TestUnknownHAProxy(t *testing.T) {
	race.Long(t)
	t.Parallel()
	run := callUnknown(t, startHAProxy(t))
	run.log(t, idealTime(serverLimit), 1.6)
	run.checkAttempts(t)
}

func TestUnknownGCRA(t *testing.T) {
	t.Parallel()
	upstream := &gcraServer{}
	server := httptest.NewServer(upstream)
	defer server.Close()
	run := callUnknown(t, server.URL)
	run.log(t, idealTime(gcraBurst), 1.6)
	run.checkAttempts(t)
	upstream.checkObeyed(t, run)
}

// BenchmarkUnknown tells how much longer than the ideal time a Transport takes that knows no limit, which no test asserts:
//
//	go test -run '^$' -bench Unknown -benchtime 5x ./integration
func BenchmarkUnknown(b *testing.B) {
	gcra := func(b testing.TB) string {
		server := httptest.NewServer(&gcraServer{})
		b.Cleanup(server.Close)
		return server.URL
	}
	for _, c := range []struct {
		name  string
		start func(testing.TB) string
		ideal time.Duration
	}{
		{"nginx", startNginx, idealTime(nginxBurst + 1)},
		{"HAProxy", startHAProxy, idealTime(serverLimit)},
		{"GCRA", gcra, idealTime(gcraBurst)},
	} {
		b.Run(c.name, func(b *testing.B) {
			var times, attempts []float64
			for b.Loop() {
				run := callUnknown(b, c.start(b))
				times = append(times, run.took.Seconds()/c.ideal.Seconds())
				attempts = append(attempts, float64(run.sent)/serverCalls)
			}
			slices.Sort(times)
			b.ReportMetric(times[len(times)/2], "x-ideal")
			b.ReportMetric(slices.Max(times), "x-ideal-worst")
			b.ReportMetric(slices.Max(attempts), "attempts/call-worst")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// idealTime is the shortest in which a server admits all calls that admits burst of them at once.
func idealTime(burst int) time.Duration {
	return (serverCalls - time.Duration(burst)) * time.Second / serverLimit
}

// unknownRun is what became of the calls.
type unknownRun struct {
	took          time.Duration
	sent, refused int64
	late          int64         // calls that the machine may have delivered late
	latest        time.Duration // by no more than this
}

// callUnknown sends the calls through a Transport that knows no limit, and demands that all are
// delivered. The attempts are many, so that a slow machine does not run out of them.
func callUnknown(t testing.TB, url string) unknownRun {
	t.Helper()
	base := newCountingBase(t)
	late := watchLateness(t, base)
	client := &throttle.Transport{Base: late, Retry: throttle.Retry{MaxAttempts: 100}}
	began := time.Now()
	callers := callServer(t, client, url)
	run := unknownRun{
		took: time.Since(began), sent: base.sent.Load(), refused: base.refused.Load(),
		late: late.calls.Load(), latest: time.Duration(late.most.Load()),
	}
	if callers.ok != serverCalls {
		t.Errorf("%d callers see 200 and %d see 429, want all %d to see 200", callers.ok, callers.refused, serverCalls)
	}
	return run
}

func (r unknownRun) log(t testing.TB, ideal time.Duration, target float64) {
	t.Helper()
	t.Logf("%d calls in %v: %.2f x the ideal %v, target %v x; %d attempts, %d refused; at most %d calls late, by %v at most", serverCalls,
		r.took.Round(time.Millisecond), r.took.Seconds()/ideal.Seconds(), ideal, target, r.sent, r.refused, r.late, r.latest.Round(time.Millisecond))
}

func (r unknownRun) checkAttempts(t *testing.T) {
	t.Helper()
	if most := int64(mostAttempts*serverCalls) + r.late; r.sent > most {
		t.Errorf("%d attempts for %d calls, want at most %d", r.sent, serverCalls, most)
	}
}

// lateness counts the calls that a busy machine may deliver late, and so in a bunch. The server
// counts arrivals: it may refuse as many as came late, though the client let them go in time.
type lateness struct {
	base  http.RoundTripper
	calls atomic.Int64
	most  atomic.Int64 // a time.Duration
}

const (
	lateTick = 10 * time.Millisecond
	lateFrom = 100 * time.Millisecond // ten units' time; a round trip takes a millisecond
)

// watchLateness also watches the process itself, until the test ends: when it was kept from
// running, every worker's call may have been held between its turn and the wire.
func watchLateness(t testing.TB, base http.RoundTripper) *lateness {
	l := &lateness{base: base}
	ctx, stop := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(lateTick)
		defer tick.Stop()
		for last := time.Now(); ctx.Err() == nil; {
			<-tick.C
			now := time.Now()
			l.note(now.Sub(last)-lateTick, serverWorkers)
			last = now
		}
	})
	t.Cleanup(func() { stop(); watch.Wait() })
	return l
}

func (l *lateness) RoundTrip(req *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := l.base.RoundTrip(req)
	l.note(time.Since(began), 1)
	return resp, err
}

func (l *lateness) note(by time.Duration, calls int64) {
	for old := l.most.Load(); int64(by) > old && !l.most.CompareAndSwap(old, int64(by)); {
		old = l.most.Load()
	}
	if by >= lateFrom {
		l.calls.Add(calls)
	}
}

// gcraServer admits serverLimit a second and gcraBurst at once, and refuses the rest with
// Retry-After: 1 and no other word about limits. Refused requests cost nothing.
type gcraServer struct {
	mu      sync.Mutex
	next    time.Time // when the next request would be due, were they evenly spaced
	arrived []time.Time
	refused []time.Time
}

func (s *gcraServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if !s.admit() {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

func (s *gcraServer) admit() bool {
	const interval = time.Second / serverLimit
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.arrived = append(s.arrived, now)
	if s.next.Before(now) {
		s.next = now
	}
	if s.next.Sub(now) > (gcraBurst-1)*interval {
		s.refused = append(s.refused, now)
		return false
	}
	s.next = s.next.Add(interval)
	return true
}

// checkObeyed demands that nothing arrived in the second after a refusal, but what was under way
// before the refusal was known: that is allowed lateFrom, and twice (for the refusal, and for
// the call) as long as the machine made anything wait.
func (s *gcraServer) checkObeyed(t *testing.T, run unknownRun) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	known := lateFrom + 2*run.latest
	for _, refused := range s.refused {
		from, to := refused.Add(known), refused.Add(time.Second)
		for _, at := range s.arrived {
			if at.After(from) && at.Before(to) {
				t.Errorf("a call arrived %v after a refusal that advertised 1 s; it may be the first of many", at.Sub(refused))
				return
			}
		}
	}
}

// installExpress returns a directory with testdata/express and the packages that it names, each of
// the version and with the checksum that package-lock.json gives.
func installExpress(t *testing.T) (dir string) {
	t.Helper()
	serverProgram(t, "node")
	npm := serverProgram(t, "npm")
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "express"))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier",
		"--loglevel=error", "--prefer-offline", "--fetch-retries=1", "--fetch-retry-mintimeout=1000")
	cmd.Dir = dir
	output, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return dir
	case npmOffline.Match(output) && os.Getenv("THROTTLE_REQUIRE_SERVERS") != "1":
		t.Skipf("skipped: no npm registry: %v\n%s", err, output)
	}
	t.Fatalf("npm ci: %v\n%s", err, output)
	return ""
}

// npmOffline are the messages of a network that is not there.
var npmOffline = regexp.MustCompile(`EAI_AGAIN|ENOTFOUND|ECONNREFUSED|ECONNRESET|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|ERR_SOCKET_TIMEOUT`)

func startExpress(t *testing.T, dir, dialect string) (url string) {
	node := serverProgram(t, "node")
	return startServer(t, func(ctx context.Context, _ string, port int) *exec.Cmd {
		cmd := exec.CommandContext(ctx, node, "server.js", strconv.Itoa(port), dialect, strconv.Itoa(serverLimit))
		cmd.Dir = dir
		return cmd
	})
}
