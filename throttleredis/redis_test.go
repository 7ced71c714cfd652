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
)

// A record is one exchange with the store in memory.
type record struct {
	at      time.Time
	request fleet.Request
	reply   fleet.Reply
}

// remember makes a random story of three members with the store in memory, in virtual time. Its pauses are shorter
// than what a store forgets after.
func remember(t *testing.T, seed uint64) (story []record) {
	synctest.Test(t, func(t *testing.T) {
		r, m := rand.New(rand.NewPCG(seed, 7)), new(fleet.Memory)
		limit, burst := rate.Limit(1+r.IntN(2000)), 1+r.IntN(100)
		known, seqs, last := [3]fleet.Mark{}, [3]uint64{}, [3]time.Time{}
		for range 300 {
			time.Sleep(time.Duration(r.ExpFloat64()*2e7) * time.Microsecond / 1000)
			if r.IntN(60) == 0 {
				time.Sleep(time.Duration(r.IntN(20)) * time.Second)
			}
			if r.IntN(80) == 0 {
				limit = rate.Limit(r.Float64() * 1000)
			}
			i := r.IntN(3)
			if seqs[i] == 0 || r.IntN(10) > 0 || time.Since(last[i]) > 30*time.Second {
				seqs[i]++
			}
			q := fleet.Request{
				Member: string(rune('a' + i)), Seq: seqs[i] - uint64(r.IntN(20)/19)*min(1, seqs[i]-1),
				Limit: limit, Burst: burst, Validity: 250 * time.Millisecond,
				Need: r.IntN(3) * r.IntN(4), Want: r.IntN(3) * r.IntN(100), Held: r.IntN(5), Known: known[i],
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
			last[i] = time.Now()
			reply, err := m.Exchange(t.Context(), "x", q)
			if err != nil {
				t.Fatal(err)
			}
			known[i] = reply.Known
			story = append(story, record{time.Now(), q, reply})
		}
	})
	return story
}

// TestSameLaw: the script and the store in memory grant the same, at the same moments. The script gets its clock
// from the test here.
func TestSameLaw(t *testing.T) {
	c := start(t).client(t)
	timed := strings.Replace(script, "redis.call('TIME')", "{ARGV[18], ARGV[19]}", 1)
	for seed := range uint64(20) {
		for i, s := range remember(t, seed) {
			us := s.at.UnixMicro()
			args := append(arguments("x", &s.request), us/1e6, us%1e6)
			numbers, err := c.Eval(t.Context(), timed, []string{Key(fmt.Sprint("law", seed))}, args...).Int64Slice()
			if err != nil {
				t.Fatal(err)
			}
			got, err := parse(numbers)
			if err != nil || !reflect.DeepEqual(got, s.reply) {
				t.Fatalf("seed %d, exchange %d of %+v:\n got %+v, %v\nwant %+v", seed, i, s.request, got, err, s.reply)
			}
		}
	}
}

// TestServer: round trips, NOSCRIPT, the life of a key, and a client that is closed.
func TestServer(t *testing.T) {
	c := start(t).client(t)
	ctx, s := t.Context(), New(c)
	ask := func(name string, seq uint64) (fleet.Reply, error) {
		return s.Exchange(ctx, name, fleet.Request{Member: "a", Seq: seq, Limit: 10, Burst: 5, Validity: 250 * time.Millisecond, Need: 1})
	}
	for seq := range uint64(3) {
		if seq == 2 {
			c.ScriptFlush(ctx)
		}
		if r, err := ask("x", seq+1); err != nil || len(r.Runs) != 1 || r.Runs[0] != (fleet.Run{Count: 1}) || r.Members != 1 {
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
	if _, err := s.Exchange(ctx, "x", fleet.Request{Limit: rate.Inf, Burst: 1}); err == nil {
		t.Error("an infinite limit is no error")
	}
	c.Close()
	if _, err := ask("x", 9); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("a closed client: %v", err)
	}
}

// TestAnswers: what no script of ours answers is an error.
func TestAnswers(t *testing.T) {
	for _, n := range [][]int64{nil, {1}, {0, 0, 1, 0, 0, 0, 1}, {-1, 0, 1, 0, 0, 0}, {0, 1 << 62, 1, 0, 0, 0}, {0, 0, 1, 0, 0, 0, 1 << 62, 0, 1}, make([]int64, 18)} {
		if r, err := parse(n); err == nil {
			t.Errorf("%v: %+v", n, r)
		}
	}
	for name, want := range map[string]string{"a": "throttle:{a}", "a b/c": "throttle:{a b/c}"} {
		if got := Key(name); got != want {
			t.Errorf("Key(%q) = %q", name, got)
		}
	}
	if Key("{a") == Key("a") || strings.Count(Key("}{"), "{") != 1 {
		t.Error("a name with braces")
	}
}
