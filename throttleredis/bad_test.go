package throttleredis

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet"
	"github.com/go-throttle/throttle/fleet/store"
)

// A canned client gives one answer to everything.
type canned struct {
	value any
	err   error
}

func (c canned) Eval(context.Context, string, []string, ...any) *redis.Cmd {
	return redis.NewCmdResult(c.value, c.err)
}

func (c canned) EvalSha(context.Context, string, []string, ...any) *redis.Cmd {
	return redis.NewCmdResult(c.value, c.err)
}

// reply is an error that a server has answered.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// TestBadAnswers: whatever a server answers, calls go on at the share, and not earlier, and Stats says what is wrong.
func TestBadAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		canned
		ofLimit bool // others on that server are not concerned
	}{
		"nil":                     {canned{nil, redis.Nil}, true},
		"nothing":                 {canned{nil, nil}, true},
		"a text":                  {canned{"OK", nil}, true},
		"a number":                {canned{int64(1), nil}, true},
		"texts":                   {canned{[]any{"a", "b", "c", "d", "e", "f"}, nil}, true},
		"another script's answer": {canned{[]any{int64(1), int64(9), int64(0), int64(0)}, nil}, true},
		"nobody is a member":      {canned{[]any{int64(0), int64(0), int64(0), int64(1), int64(1), int64(1)}, nil}, true},
		"a million units":         {canned{[]any{int64(0), int64(0), int64(1), int64(1), int64(1), int64(1), int64(0), int64(0), int64(1e6)}, nil}, true},
		"another type":            {canned{nil, reply("WRONGTYPE Operation against a key holding the wrong kind of value")}, true},
		"a script that fails":     {canned{nil, reply("ERR user_script:1: attempt to index nil")}, true},
		"no right to the key":     {canned{nil, reply("NOPERM this user has no permissions to access one of the keys")}, true},
		"a script that is lost":   {canned{nil, reply("NOSCRIPT No matching script")}, false},
		"a server that starts":    {canned{nil, reply("LOADING Redis is loading the dataset in memory")}, false},
		"a replica":               {canned{nil, reply("READONLY You can't write against a read only replica.")}, false},
		"no memory":               {canned{nil, reply("OOM command not allowed when used memory > 'maxmemory'.")}, false},
		"no cluster":              {canned{nil, reply("CLUSTERDOWN The cluster is down")}, false},
		"a closed client":         {canned{nil, redis.ErrClosed}, false},
		"no connection":           {canned{nil, redis.ErrPoolTimeout}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lim := fleet.New(New(c.canned), "x", 100, 10, fleet.Options{Members: 2})
				q := throttle.NewQueue(lim, throttle.QueueOptions{})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				n := 0
				for q.Wait(ctx) == nil {
					n++
				}
				s := lim.Stats()
				if n < 380 || n > 401 { // 0.8 · 100/2 a second
					t.Errorf("%d calls in 10s", n)
				}
				if s.Mode != "alone" || s.Err == nil || errors.Is(s.Err, store.ErrLimit) != c.ofLimit {
					t.Errorf("%+v", s)
				}
				time.Sleep(5 * time.Second)
			})
		})
	}
}

// TestBadKeys: something else under the name of a limit concerns that limit alone; rubbish in its hash concerns nobody.
func TestBadKeys(t *testing.T) {
	srv := start(t)
	c := srv.client(t)
	ctx := t.Context()
	c.Set(ctx, Key("text"), "x", 0)
	c.HSet(ctx, Key("rubbish"), "n", "no", "p", "1e400", "s", "", "w", "-", "c", "nan", "l", "inf", "o", "-9e99", "y", "0x10", "m:a", "1 2", "m:b", "x")
	s := New(c)
	ask := func(name string) (store.Reply, error) {
		return s.Exchange(ctx, name, store.Request{Member: "a", Seq: 1, Limit: 10, Burst: 5, Validity: validity, Need: 1, Want: 1})
	}
	if _, err := ask("text"); !errors.Is(err, store.ErrLimit) || !strings.Contains(err.Error(), "WRONGTYPE") || !strings.Contains(err.Error(), `"text"`) {
		t.Errorf("a key of another type: %v", err)
	}
	if r, err := ask("rubbish"); err != nil || len(r.Runs) == 0 || r.Runs[0] != (store.Run{Count: 1}) || r.Members != 1 {
		t.Errorf("rubbish: %+v, %v", r, err)
	}
	lim := fleet.New(s, "text", 100, 1, fleet.Options{Members: 1})
	until(t, "it has tried", func() bool { lim.Take(ctx, 1); return lim.Stats().Failed > 0 })
	until(t, "its share", func() bool { lim.Take(ctx, 1); return lim.Stats().Alone > 0 })
	c.Del(ctx, Key("text"))
	until(t, "it is well", func() bool { lim.Take(ctx, 1); return lim.Stats().Mode == "shared" && lim.Stats().Granted > 0 })
}

// TestBadLimits: limits from one a day to a thousand million a second.
func TestBadLimits(t *testing.T) {
	s := New(start(t).client(t))
	ask := func(name string, limit rate.Limit, seq uint64, need, want int) (store.Reply, error) {
		return s.Exchange(t.Context(), name, store.Request{Member: "a", Seq: seq, Limit: limit, Burst: 1, Validity: validity, Need: need, Want: want})
	}
	for _, limit := range []rate.Limit{0, -1, rate.Limit(math.NaN()), rate.Inf, rate.Limit(math.Inf(1)), rate.Limit(math.Inf(-1)), 1e-10, 5e-324} {
		if _, err := ask("bad", limit, 1, 1, 0); !errors.Is(err, store.ErrLimit) {
			t.Errorf("a limit of %v: %v", limit, err)
		}
	}
	for _, limit := range []rate.Limit{1.0 / 86400, 1e-9} {
		r, err := ask("slow", limit, 1, 1, 0)
		if err != nil || len(r.Runs) != 1 {
			t.Errorf("%v/s: %+v, %v", limit, r, err)
		}
		if r, err = ask("slow", limit, 2, 1, 5); err != nil || len(r.Runs) != 0 || r.Retry < 12*time.Hour {
			t.Errorf("%v/s, the second unit: %+v, %v", limit, r, err)
		}
		srvDel(t, s, "slow")
	}
	for _, limit := range []rate.Limit{1e9, 1e12} {
		r, err := ask("fast", limit, 1, 1, 1<<20)
		units := 0
		for _, run := range r.Runs {
			units += run.Count
		}
		if err != nil || units != 1+1<<20 {
			t.Errorf("%v/s: %d units, %v", limit, units, err)
		}
		srvDel(t, s, "fast")
	}
}

func srvDel(t *testing.T, s *Store, name string) {
	t.Helper()
	if err := s.client.(*redis.Client).Del(t.Context(), Key(name)).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestBadEnds: a ctx that is over, and a client that is closed.
func TestBadEnds(t *testing.T) {
	c := start(t).client(t)
	s := New(c)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := store.Request{Member: "a", Seq: 1, Limit: 10, Burst: 5, Validity: validity, Need: 1}
	if _, err := s.Exchange(ctx, "x", r); !errors.Is(err, context.Canceled) {
		t.Errorf("a ctx that is over: %v", err)
	}
	c.Close()
	if _, err := s.Exchange(t.Context(), "x", r); !errors.Is(err, redis.ErrClosed) || errors.Is(err, store.ErrLimit) {
		t.Errorf("a closed client: %v", err)
	}
	lim := fleet.New(s, "x", 100, 1, fleet.Options{Members: 1})
	until(t, "its share", func() bool { lim.Take(t.Context(), 1); return lim.Stats().Alone > 0 })
	if err := lim.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		t.Errorf("Close: %v", err)
	}
}
