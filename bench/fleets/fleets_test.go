package fleets

import (
	"context"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/bench/scenario"
)

// TestMain: a process of a fleet that a test starts is the test binary again.
func TestMain(m *testing.M) {
	Serve()
	os.Exit(m.Run())
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

// TestRivals: each gives more units than the burst, and only the divided limit does so without Redis.
func TestRivals(t *testing.T) {
	withRedis(t)
	for _, r := range rivals() {
		srv, err := startRedis()
		if err != nil {
			t.Fatal(err)
		}
		c, h := redis.NewClient(&redis.Options{Addr: srv.addr()}), new(hook)
		c.AddHook(h)
		wait, err := r.wait(terms{Limit: 500, Burst: 5, Members: 1}, c)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			if err := wait(t.Context()); err != nil {
				t.Fatalf("%s, unit %d: %v", r.name, i, err)
			}
		}
		if n := h.n.Load(); (n == 0) != (r.name == "divided limit") {
			t.Errorf("%s: %d round trips", r.name, n)
		}
		c.Close()
		srv.close()
	}
}

// TestShort: every scenario runs to its end with real processes, and has figures of its own metrics. It does not judge
// them.
func TestShort(t *testing.T) {
	withRedis(t)
	for i, s := range All() {
		for _, c := range Clients() {
			if i != 1 && c.Name != "throttle: fleet" {
				continue // one scenario with all, and each with ours
			}
			r, err := s.Run(t.Context(), c, scenario.Options{Seed: 1, Short: true})
			if err != nil {
				t.Errorf("%s with %s: %v", s.Name, c.Name, err)
			}
			t.Log(s.Name, c.Name, r.Values)
			for name, v := range r.Values {
				if math.IsNaN(v) || !slices.ContainsFunc(s.Metrics, func(m scenario.Metric) bool { return m.Name == name }) {
					t.Errorf("%s with %s: %s is %v", s.Name, c.Name, name, v)
				}
			}
		}
	}
}

// TestFails: an unknown rival ends its process, and that ends the run.
func TestFails(t *testing.T) {
	withRedis(t)
	if _, err := All()[0].Run(t.Context(), client.Client{Name: "nobody"}, scenario.Options{Short: true}); err == nil {
		t.Error("no error")
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := All()[0].Run(t.Context(), Clients()[0], scenario.Options{Short: true}); err != ErrNoRedis {
		t.Errorf("without a redis-server: %v", err)
	}
}

func TestNames(t *testing.T) {
	for _, c := range Clients() {
		if _, other := client.Find(c.Name); other || !c.Fleet || strings.Contains(c.Name, ",") {
			t.Errorf("%+v", c)
		}
		if _, err := c.Start(client.Job{}); err == nil {
			t.Errorf("%s sends requests", c.Name)
		}
	}
	for _, s := range All() {
		if !strings.HasPrefix(s.Name, "fleet-") || !s.Fleet || !s.Alone || s.Virtual {
			t.Errorf("%+v", s)
		}
	}
}

// TestLoop: it sleeps as long as it hears, and asks again after an error.
func TestLoop(t *testing.T) {
	var asked atomic.Int64
	wait := loop(func(ctx context.Context) (time.Duration, error) {
		switch asked.Add(1) {
		case 1:
			return 3 * time.Millisecond, nil
		case 2:
			return 0, ErrNoRedis
		}
		return 0, nil
	})
	begun := time.Now()
	if err := wait(t.Context()); err != nil || asked.Load() != 3 || time.Since(begun) < 13*time.Millisecond {
		t.Errorf("%v, asked %d times in %v", err, asked.Load(), time.Since(begun))
	}
}

// TestLedger: the figures of a small ledger, by hand.
func TestLedger(t *testing.T) {
	l := ledger{trips: make([][]int64, 2)}
	ms := func(came, waited int64) use { return use{came * 1000, waited * 1000} }
	l.add(1, batch{Uses: []use{ms(100, 0), ms(100, 100), ms(500, 100)}, Trips: []int64{3, 10}})
	l.add(0, batch{Uses: []use{ms(0, 0), ms(100, 0), ms(0, 100)}, Lost: []use{ms(550, 400)}, Trips: []int64{1, 5}})
	l.sort()
	if at := l.uses[5].at(); at != 600*time.Millisecond {
		t.Errorf("the last use is at %v", at)
	}
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"used", l.used(12, 0, time.Second), 50},
		{"used above the limit", l.used(1, 0, time.Second), 100},
		{"excess", l.excess(terms{Limit: 10, Burst: 2}, 0, time.Second), 1}, // 4 by 100 ms, where 2 + 1 may be
		{"no excess", l.excess(terms{Limit: 10, Burst: 9}, 0, time.Second), 0},
		{"jain", l.jain(2, 0, time.Second), 1},
		{"jain of the first", l.jain(2, 0, 50*time.Millisecond), 0.5},
		{"trips", float64(l.tripsIn(0)), 4},
		{"later trips", float64(l.tripsIn(1)), 11},
		{"waits", quantile(l.waits(50*time.Millisecond, time.Second), 1), 400},
		{"median", quantile(l.waits(50*time.Millisecond, time.Second), 0.5), 100},
		{"nothing", quantile(nil, 0.5), math.NaN()},
		{"load of the first", load{Rate: 600, Uneven: true}.rateOf(0, 4), 300},
		{"load of others", load{Rate: 600, Uneven: true}.rateOf(3, 4), 100},
		{"even load", load{Rate: 600}.rateOf(0, 4), 150},
		{"load of one", load{Rate: 600, Uneven: true}.rateOf(0, 1), 600},
	} {
		if math.Abs(c.got-c.want) > 1e-9 || math.IsNaN(c.got) != math.IsNaN(c.want) {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
	if got := known(map[string]float64{"a": 1, "b": math.NaN()}); len(got) != 1 {
		t.Errorf("%v", got)
	}
}
