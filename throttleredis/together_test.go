package throttleredis

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet"
	"github.com/go-throttle/throttle/fleet/store"
)

// TestExchangeAll: several limits in one request; if one of them cannot be served none has changed.
func TestExchangeAll(t *testing.T) {
	srv := start(t)
	s := New(srv.client(t))
	seq := uint64(0)
	ask := func(names ...string) ([]store.Reply, error) {
		var rs []store.Request
		seq++
		for range names {
			rs = append(rs, store.Request{Member: "a", Seq: seq, Limit: 0.001, Burst: 2, Validity: validity, Need: 1})
		}
		return s.ExchangeAll(t.Context(), names, rs)
	}
	for i := range 2 {
		replies, err := ask("x", "y", "z")
		if err != nil || len(replies) != 3 {
			t.Fatalf("%d: %+v, %v", i, replies, err)
		}
		for _, r := range replies {
			if len(r.Runs) != 1 || r.Runs[0] != (store.Run{Count: 1}) {
				t.Errorf("%d: %+v", i, r)
			}
		}
		srv.do(t, "SCRIPT", "FLUSH")
	}
	srv.do(t, "SET", Key("text"), "x")
	if _, err := ask("new", "text"); !errors.Is(err, store.ErrLimit) {
		t.Errorf("one of another type: %v", err)
	}
	if n := srv.do(t, "EXISTS", Key("new")); n != int64(0) {
		t.Error("the other one has changed")
	}
	if _, err := s.ExchangeAll(t.Context(), []string{"x"}, []store.Request{{}}); !errors.Is(err, store.ErrLimit) {
		t.Errorf("no limit: %v", err)
	}
}

// TestTogether: calls that pay two limits in a server are within both, and in a Cluster, which cannot grant them together,
// too.
func TestTogether(t *testing.T) {
	test := func(t *testing.T, client func() Client) (trips uint64) {
		m := newMembers(t, 3, 500, 5, fleet.Closed, client)
		var others []*fleet.Limiter
		for i, lim := range m.lims {
			other := fleet.New(m.stores[i], "y", 400, 5, fleet.Options{Mode: fleet.Closed})
			others = append(others, other)
			m.queues[i] = throttle.NewQueue(throttle.All(lim, other), throttle.QueueOptions{})
		}
		m.work(3)
		m.granted(20)
		m.more(100)
		m.limit = rate.Limit(400) // the slower of the two
		m.check(400, 0)
		for i, l := range others {
			if s := l.Stats(); s.Used < 10 || s.Granted < s.Used {
				t.Errorf("the other limit: %+v", s)
			}
			trips += l.Stats().Trips + m.lims[i].Stats().Trips
		}
		t.Logf("%d requests of limits for %d calls", trips, m.count(-1))
		return trips
	}
	t.Run("server", func(t *testing.T) {
		srv := start(t)
		trips := test(t, func() Client { return srv.client(t) })
		_, calls, _ := strings.Cut(srv.do(t, "INFO", "commandstats").(string), "cmdstat_evalsha:calls=")
		calls, _, _ = strings.Cut(calls, ",")
		if n, err := strconv.ParseUint(calls, 10, 64); err != nil || n >= trips {
			t.Errorf("the server has run %s scripts for %d requests of limits; some should have been one", calls, trips)
		}
	})
	t.Run("cluster", func(t *testing.T) {
		_, client := cluster(t)
		test(t, func() Client { return client() })
	})
}
