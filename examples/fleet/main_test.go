package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/examples/internal/leak"
	"github.com/go-throttle/throttle/examples/internal/localredis"
	"github.com/go-throttle/throttle/throttletest"
)

// TestMain: a process of a fleet that a test starts is the test binary again.
func TestMain(m *testing.M) {
	if serve() {
		return
	}
	os.Exit(m.Run())
}

// small is a run of two seconds; a slow machine is given minutes.
func small() config {
	return config{limit: 200, processes: 4, each: 400 * time.Millisecond, patience: 3 * time.Minute}
}

// withRedis skips the test if no redis-server is installed.
func withRedis(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("THROTTLE_REQUIRE_SERVERS") != "" {
			t.Fatal("redis-server is missing")
		}
		t.Skip("skipped: no redis-server")
	}
}

// words is a text without its line breaks.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }

// TestStory: in memory and on Redis, everything that the story tells happens, and each process has its calls counted
// by the upstream while it runs, and none when it is killed. How many there are is not judged.
func TestStory(t *testing.T) {
	for _, inMemory := range []bool{true, false} {
		t.Run(fmt.Sprintf("memory %v", inMemory), func(t *testing.T) {
			if !inMemory {
				withRedis(t)
			}
			leak.Check(t)
			cfg := small()
			place, note, err := newPlace(t.Context(), "", inMemory)
			if err != nil || note != "" {
				t.Fatal(err, note)
			}
			defer place.close()
			s := &story{cfg: cfg, place: place, upstream: cfg.upstream()}
			if err := s.upstream.Start(); err != nil {
				t.Fatal(err)
			}
			defer s.upstream.Close()
			s.job = job{Upstream: s.upstream.URL(), Name: "test", Limit: cfg.limit, Burst: burst}
			var out bytes.Buffer
			err = s.tell(t.Context(), lines{s, &out})
			s.endAll()
			if err == nil {
				err = s.print(&out, 80)
			}
			t.Logf("\n%s", &out)
			if err != nil {
				t.Fatal(err)
			}
			checkStory(t, s, out.String())
		})
	}
}

// TestPoint: in full and in brief, the limit is used and not exceeded while processes come and go, and 0.8 of it while
// the store hangs. At the beginning of a phase there may be the burst, or a moment until it is noticed.
func TestPoint(t *testing.T) {
	for _, brief := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := config{limit: 100, processes: 4, each: each(brief), patience: time.Minute}
			s := &story{cfg: cfg, place: new(goroutines), upstream: cfg.upstream()}
			s.upstream.Latency = throttletest.Span{Min: time.Millisecond, Max: 5 * time.Millisecond}
			s.job = job{Upstream: s.upstream.URL(), Name: "test", Limit: cfg.limit, Burst: burst, base: s.upstream}
			var out bytes.Buffer
			err := s.tell(t.Context(), lines{s, &out})
			s.endAll()
			if err == nil {
				err = s.print(&out, 80)
			}
			t.Logf("\n%s", &out)
			if err != nil {
				t.Fatal(err)
			}
			ledger := s.upstream.Ledger()
			if n := ledger.Tally().Throttled; n > 0 {
				t.Errorf("%d calls were throttled", n)
			}
			for _, p := range s.phases {
				used := float64(len(ledger.Between(p.from, p.to))) / (p.to - p.from).Seconds() / cfg.limit
				least, most := 0.9, 1.1
				if p.title == "Redis hangs" {
					least, most = 0.7, 0.9
				}
				if used < least || used > most {
					t.Errorf("%s: %.2f of the limit is used, want %v to %v", p.title, used, least, most)
				}
			}
		})
	}
}

// checkStory checks what the upstream saw against what the story says.
func checkStory(t *testing.T, s *story, text string) {
	t.Helper()
	text = words(text)
	for _, want := range []string{"4 processes", "process 3 is killed", "process 3 runs again", "Redis hangs", "Redis goes on", "3 again"} {
		if n := strings.Count(text, want+" "); n < 2 && want != "3 again" || n == 0 {
			t.Errorf("the output says %q %d times", want, n)
		}
	}
	ledger := s.upstream.Ledger()
	var names []string
	calls := 0
	for _, m := range s.members() {
		names = append(names, m.job.Process)
		own := m.calls(ledger)
		calls += len(own)
		stats, _ := m.look()
		if len(own) == 0 || stats.Trips == 0 || stats.Members < 1 {
			t.Errorf("process %s: %d calls, %+v", m.job.Process, len(own), stats)
		}
		if late := own.Between(m.to, s.upstream.Elapsed()); m.to > 0 && len(late) > 8 {
			t.Errorf("process %s: %d calls after it was killed; at most those of its %d workers were on their way", m.job.Process, len(late), workers)
		}
		if alive := m.to == 0; alive && stats.Alone == 0 {
			t.Errorf("process %s has used nothing by itself while the store hung: %+v", m.job.Process, stats)
		}
	}
	if want := []string{"1", "2", "3", "4", "3 again"}; !slices.Equal(names, want) || calls != len(ledger) {
		t.Errorf("processes %q with %d calls, want %q with %d", names, calls, want, len(ledger))
	}
}

// TestRun: the program with a Redis of the user's, reached by its address alone, and with one that is not there.
func TestRun(t *testing.T) {
	leak.Check(t)
	cfg := small()
	cfg.redis = "127.0.0.1:1"
	if err := run(t.Context(), cfg, io.Discard); err == nil || !strings.HasPrefix(err.Error(), "-redis: ") {
		t.Errorf("no Redis there: %v", err)
	}
	withRedis(t)
	url, stop, err := localredis.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	cfg.redis = strings.TrimPrefix(url, "redis://")
	var out bytes.Buffer
	if err := run(t.Context(), cfg, &out); err != nil {
		t.Fatal(err)
	}
	if text := words(out.String()); !strings.Contains(text, "4 processes share 200 calls/s, each a process, with the Redis of -redis") ||
		!strings.Contains(text, "process calls throttled share") {
		t.Errorf("the output is\n%s", &out)
	}
}

// TestNoRedis: without a redis-server the program says how to get one, and goes on in memory.
func TestNoRedis(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	p, note, err := newPlace(t.Context(), "", false)
	if _, ok := p.(*goroutines); !ok || err != nil || !strings.Contains(note, "apt-get install redis-server") {
		t.Errorf("%T, %q, %v", p, note, err)
	}
}

// TestInterrupted: after Ctrl-C there are the tables, within the columns; on a terminal nothing else remains.
func TestInterrupted(t *testing.T) {
	leak.Check(t)
	for _, columns := range []int{80, 50, 30} {
		for _, terminal := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(300*time.Millisecond, cancel)
			cfg := small()
			cfg.inMemory, cfg.each, cfg.columns = true, time.Hour, columns
			if terminal {
				cfg.width = func() int { return columns }
			}
			var out bytes.Buffer
			if err := run(ctx, cfg, &out); !errors.Is(err, context.Canceled) {
				t.Errorf("run after an interrupt: %v, want %v", err, context.Canceled)
			}
			text := out.String()
			if i := strings.LastIndex(text, "\x1b[J"); terminal && i < 0 {
				t.Errorf("nothing is drawn:\n%q", text)
			} else if terminal {
				text = text[i:]
			}
			if w := words(text); !strings.Contains(w, "4 processes") || !strings.Contains(w, "Used: of the limit.") {
				t.Errorf("%d columns: the tables are not there:\n%s", columns, text)
			}
			for line := range strings.Lines(strings.TrimPrefix(text, "\x1b[J")) {
				if n := len([]rune(line)); n > columns+1 {
					t.Errorf("wider than %d columns: %s", columns, line)
				}
			}
		}
	}
}

// TestPipe: while the gate is closed nothing passes, in either direction; what was sent meanwhile comes after it.
func TestPipe(t *testing.T) {
	leak.Check(t)
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() { // an echo
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); _, _ = io.Copy(conn, conn) }()
		}
	}()
	p, err := newPipe("tcp", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	conn, err := net.Dial("tcp", p.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	buf := make([]byte, 3)
	for i, stalled := range []bool{false, true, false} {
		p.stall(stalled)
		fmt.Fprintf(conn, "%d;\n", i)
		if stalled {
			_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			if n, err := conn.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a closed gate lets %q pass, %v", buf[:n], err)
			}
			p.stall(false)
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != fmt.Sprintf("%d;\n", i) {
			t.Errorf("%q, %v", buf, err)
		}
	}
}

func TestNonsense(t *testing.T) {
	for _, spoil := range []func(*config){
		func(c *config) { c.limit = 0 },
		func(c *config) { c.limit = 1e6 },
		func(c *config) { c.processes = 1 },
		func(c *config) { c.processes = 1000 },
		func(c *config) { c.redis = "ftp://example.com" },
	} {
		cfg := small()
		spoil(&cfg)
		var out bytes.Buffer
		if err := run(t.Context(), cfg, &out); err == nil || out.Len() > 0 || !strings.HasPrefix(err.Error(), "-") {
			t.Errorf("run with %+v did not complain before it began: %v\n%s", cfg, err, &out)
		}
	}
}
