package throttleredis

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/fleet"
	"github.com/go-throttle/throttle/fleet/store"
)

// A record is one exchange with the store in memory, of one limit or of two together.
type record struct {
	at       time.Time
	names    []string
	requests []store.Request
	replies  []store.Reply
}

// A teller makes requests of three members for a limit, at random. Their pauses are shorter than what a store forgets
// after.
type teller struct {
	r     *rand.Rand
	limit rate.Limit
	burst int
	known [3]store.Mark
	seqs  [3]uint64
	last  [3]time.Time
}

// next is what member i asks next.
func (e *teller) next(i int) store.Request {
	r := e.r
	if r.IntN(80) == 0 {
		e.limit = rate.Limit(r.Float64() * 1000)
	}
	if e.seqs[i] == 0 || r.IntN(10) > 0 || time.Since(e.last[i]) > 30*time.Second {
		e.seqs[i]++
	}
	q := store.Request{
		Member: string(rune('a' + i)), Seq: e.seqs[i] - uint64(r.IntN(20)/19)*min(1, e.seqs[i]-1),
		Limit: e.limit, Burst: e.burst, Validity: validity,
		Need: r.IntN(3) * r.IntN(4), Want: r.IntN(3) * r.IntN(100), Held: r.IntN(5), Known: e.known[i],
	}
	switch r.IntN(25) {
	case 0:
		q.Pause = time.Duration(r.IntN(3000)) * time.Millisecond
	case 1:
		q.Tighten, q.NotBefore = true, time.Duration(r.IntN(2000)-1900)*time.Millisecond
	case 2:
		q.Back = r.IntN(50)
	case 3:
		q.Unused = r.IntN(5)
	}
	e.last[i] = time.Now()
	return q
}

// remember makes a random story with the store in memory, in virtual time.
func remember(t *testing.T, seed uint64) (story []record) {
	synctest.Test(t, func(t *testing.T) {
		r, m := rand.New(rand.NewPCG(seed, 7)), new(fleet.Memory)
		tellers := map[string]*teller{}
		for _, name := range []string{"x", "y"} {
			tellers[name] = &teller{r: r, limit: rate.Limit(1 + r.IntN(2000)), burst: 1 + r.IntN(100)}
		}
		for range 300 {
			time.Sleep(time.Duration(r.ExpFloat64()*2e7) * time.Microsecond / 1000)
			if r.IntN(60) == 0 {
				time.Sleep(time.Duration(r.IntN(20)) * time.Second)
			}
			s, i := record{at: time.Now(), names: [][]string{{"x"}, {"y"}, {"x", "y"}}[r.IntN(3)]}, r.IntN(3)
			for _, name := range s.names {
				s.requests = append(s.requests, tellers[name].next(i))
			}
			var err error
			if s.replies, err = m.ExchangeAll(t.Context(), s.names, s.requests); err != nil {
				t.Fatal(err)
			}
			for k, name := range s.names {
				tellers[name].known[i] = s.replies[k].Known
			}
			story = append(story, s)
		}
	})
	return story
}

// TestSameLaw: the script and the store in memory grant the same, at the same moments. The script gets its clock
// from the test here.
func TestSameLaw(t *testing.T) {
	c := start(t).client(t)
	timed := strings.Replace(script, "redis.call('TIME')", "{ARGV[#ARGV-1], ARGV[#ARGV]}", 1)
	for seed := range uint64(20) {
		for i, s := range remember(t, seed) {
			var keys []string
			var args []any
			for k, name := range s.names {
				keys = append(keys, Key(fmt.Sprint("law", seed, name)))
				args = append(args, arguments(name, &s.requests[k])...)
			}
			us := s.at.UnixMicro()
			got, err := parseAll(c.Eval(t.Context(), timed, keys, append(args, us/1e6, us%1e6)...), len(keys))
			if err != nil || !reflect.DeepEqual(got, s.replies) {
				t.Fatalf("seed %d, exchange %d of %+v:\n got %+v, %v\nwant %+v", seed, i, s.requests, got, err, s.replies)
			}
		}
	}
}

// TestServer: round trips, NOSCRIPT, the life of a key, and a client that is closed.
func TestServer(t *testing.T) {
	c := start(t).client(t)
	ctx, s := t.Context(), New(c)
	ask := func(name string, seq uint64) (store.Reply, error) {
		return s.Exchange(ctx, name, store.Request{Member: "a", Seq: seq, Limit: 10, Burst: 5, Validity: 250 * time.Millisecond, Need: 1})
	}
	for seq := range uint64(3) {
		if seq == 2 {
			c.ScriptFlush(ctx)
		}
		if r, err := ask("x", seq+1); err != nil || len(r.Runs) != 1 || r.Runs[0] != (store.Run{Count: 1}) || r.Members != 1 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if ttl := c.PTTL(ctx, Key("x")).Val(); ttl < 50*time.Second || ttl > 2*time.Minute {
		t.Errorf("the key lives for %v", ttl)
	}
	for _, name := range []string{"", "{", "a}b", "two\nlines", strings.Repeat("x", 1<<20)} {
		if _, err := ask(name, 1); err != nil {
			t.Errorf("%.20q: %v", name, err)
		}
	}
	if _, err := s.Exchange(ctx, "x", store.Request{Limit: rate.Inf, Burst: 1}); err == nil {
		t.Error("an infinite limit is no error")
	}
	c.Close()
	if _, err := ask("x", 9); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("a closed client: %v", err)
	}
}

// TestKeys: the keys of running fleets, letter by letter, and names that are written like a hash.
func TestKeys(t *testing.T) {
	for name, want := range map[string]string{
		"a": "throttle:{a}", "a b/c": "throttle:{a b/c}", "api.test:443": "throttle:{api.test:443}", "müll": "throttle:{müll}",
		"sha256-": "throttle:{sha256-}", "sha256-limits": "throttle:{sha256-limits}", "\xff": "throttle:{\xff}",
		"sha256-0123456789abcdef0123456789abcdeF":  "throttle:{sha256-0123456789abcdef0123456789abcdeF}",
		"sha256-0123456789abcdef0123456789abcdef0": "throttle:{sha256-0123456789abcdef0123456789abcdef0}",
		"xsha256-0123456789abcdef0123456789abcdef": "throttle:{xsha256-0123456789abcdef0123456789abcdef}",
		"":                       "throttle:{sha256-e3b0c44298fc1c149afbf4c8996fb924}",
		"a}b":                    "throttle:{sha256-538c54fe17b56e2f2b4753732e0de804}",
		strings.Repeat("x", 200): "throttle:{" + strings.Repeat("x", 200) + "}",
	} {
		if got := Key(name); got != want {
			t.Errorf("Key(%q) = %q, want %q", name, got, want)
		}
	}
	seen := map[string]string{}
	for _, name := range []string{"", "a", "a}b", "{a", "a\n", strings.Repeat("x", 201), "sha256-"} {
		for range 5 { // the name, one written like its hash, one like the hash of that, ...
			key := Key(name)
			if other, ok := seen[key]; ok {
				t.Errorf("%q and %q are one key, %s", other, name, key)
			}
			seen[key] = name
			name = strings.TrimSuffix(strings.TrimPrefix(key, "throttle:{"), "}")
			if name == seen[key] {
				break // it stands for itself
			}
		}
	}
}

// FuzzKey: two names have two keys, and so have what is between the braces of the one and the other.
func FuzzKey(f *testing.F) {
	for _, name := range []string{"", "a", "a}b", "{", "\x7f", "sha256-e3b0c44298fc1c149afbf4c8996fb924", "sha256-", "throttle:{a}", "\xff", "\ufffd"} {
		f.Add(name, strings.TrimSuffix(strings.TrimPrefix(Key(name), "throttle:{"), "}"))
		f.Add(name, "a")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		inner := strings.TrimSuffix(strings.TrimPrefix(Key(a), "throttle:{"), "}")
		for _, other := range []string{b, inner} {
			if a != other && Key(a) == Key(other) {
				t.Errorf("%q and %q are one key, %s", a, other, Key(a))
			}
		}
		if key := "throttle:{" + inner + "}"; key != Key(a) || inner == "" || strings.ContainsAny(inner, "{}\r\n") || len(key) > 220 {
			t.Errorf("the key of %q is %q", a, Key(a))
		}
	})
}

// TestAnswers: what no script of ours answers is an error.
func TestAnswers(t *testing.T) {
	for _, n := range [][]int64{nil, {1}, {0, 0, 1, 0, 0, 0, 1}, {-1, 0, 1, 0, 0, 0}, {0, 1 << 62, 1, 0, 0, 0}, {0, 0, 1, 0, 0, 0, 1 << 62, 0, 1}, make([]int64, 18)} {
		if r, err := parse(n); err == nil {
			t.Errorf("%v: %+v", n, r)
		}
	}
}
