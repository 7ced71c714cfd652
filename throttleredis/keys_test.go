package throttleredis

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-throttle/throttle/inbound"
	"github.com/go-throttle/throttle/inbound/keys"
)

// A keyRecord is one request to the store in memory.
type keyRecord struct {
	at      time.Time
	request keys.Request
	reply   keys.Reply
}

// keyLaws are limits at random.
func keyLaws(r *rand.Rand) (laws []keys.Law) {
	for range 1 + r.IntN(3) {
		l := keys.Law{Kind: keys.Kind(r.IntN(4)), Most: 1 + r.Int64N(60)}
		if l.Kind == keys.Log {
			l.Most = 1 + r.Int64N(20)
		}
		if l.Kind == keys.Bucket {
			l.Rate = (0.1 + r.Float64()*50) / 1e9
		} else {
			l.Per = 1 + r.Int64N(20_000_000)
		}
		laws = append(laws, l)
	}
	return laws
}

// rememberKeys makes a random story of one key, with what three servers may do.
func rememberKeys(t *testing.T, seed uint64) (story []keyRecord) {
	synctest.Test(t, func(t *testing.T) {
		r, m := rand.New(rand.NewPCG(seed, 8)), new(inbound.Memory)
		laws := keyLaws(r)
		var last [3]keys.Reply
		var held [3]int64
		for range 150 {
			switch r.IntN(40) {
			case 0:
				laws = keyLaws(r) // while the key is there: what it has used counts by the new ones
			case 1:
				time.Sleep(time.Duration(r.IntN(30)) * time.Second)
			default:
				time.Sleep(time.Duration(r.ExpFloat64()*2e5) * time.Microsecond)
			}
			i := r.IntN(3)
			q := keys.Request{
				Key: "k", Server: fmt.Sprintf("%08x", i), Laws: laws, Each: 1 + r.Int64N(3)*r.Int64N(3), Count: r.Int64N(4),
				Lease: r.Int64N(2) * r.Int64N(20), Forget: r.IntN(80) == 0,
			}
			if r.IntN(20) == 0 {
				q.Each = r.Int64N(100)
			}
			if held[i] > 0 {
				q.Used = r.Int64N(held[i] + 1)
				q.Back, q.Then = held[i]-q.Used, last[i].Mark
				if r.IntN(4) == 0 {
					q.Used = -q.Back // never lent
				}
			}
			replies, err := m.Ask(t.Context(), []keys.Request{q})
			if err != nil {
				t.Fatal(err)
			}
			last[i], held[i] = replies[0], replies[0].Leased
			story = append(story, keyRecord{time.Now(), q, replies[0]})
		}
	})
	return story
}

// bare has zeros for what is free: the store in memory forgets it at its own time.
func bare(laws []keys.Law, m *keys.Mark) {
	for i, l := range laws {
		c, over := m.Cells[i], 0.0
		switch l.Kind {
		case keys.Bucket:
			over = c[0] + math.Ceil(c[1]/l.Rate/1000)
		case keys.Window:
			over = c[0] + math.Ceil(c[1]/float64(l.Most))*float64(l.Per)
		case keys.Sliding:
			over = c[0] + (1+math.Ceil(c[2]/float64(l.Most)))*float64(l.Per)
		case keys.Log:
			for j := range c {
				if over = float64(m.Now) + 1; c[j] <= float64(m.Now) {
					c[j] = 0
				}
			}
		}
		if over <= float64(m.Now) {
			clear(c)
		}
	}
}

// TestKeysSameLaw: the script and the store in memory answer the same, at the same moments. The script gets its clock from the
// test here.
func TestKeysSameLaw(t *testing.T) {
	c := start(t).client(t)
	timed := strings.Replace(keysScript, "redis.call('TIME')", "{ARGV[#ARGV-1], ARGV[#ARGV]}", 1)
	for seed := range uint64(20) {
		for i, s := range rememberKeys(t, seed) {
			us := s.at.UnixMicro()
			args := append(keyArguments(&s.request), us/1e6, us%1e6)
			got, err := parseKey(c.Eval(t.Context(), timed, []string{keyName(fmt.Sprint("law", seed))}, args...), s.request.Laws)
			if err == nil {
				bare(s.request.Laws, &got.Mark)
				bare(s.request.Laws, &s.reply.Mark)
			}
			if err != nil || !reflect.DeepEqual(got, s.reply) {
				t.Fatalf("seed %d, request %d, %+v:\n got %+v, %v\nwant %+v", seed, i, s.request, got, err, s.reply)
			}
		}
	}
}

// TestKeysServer: round trips, NOSCRIPT, the life of a key, a key of another type, and a client that is closed.
func TestKeysServer(t *testing.T) {
	c := start(t).client(t)
	ctx, k := t.Context(), New(c).Keys()
	ask := func(names ...string) ([]keys.Reply, error) {
		var rs []keys.Request
		for _, name := range names {
			rs = append(rs, keys.Request{Key: name, Server: "00000001", Laws: []keys.Law{{Kind: keys.Window, Most: 5, Per: 60e6}}, Each: 1, Count: 1})
		}
		return k.Ask(ctx, rs)
	}
	for i := range 3 {
		if i == 1 {
			c.ScriptFlush(ctx)
		}
		replies, err := ask("a", "b")
		if err != nil || len(replies) != 2 || replies[0].Granted != 1 || replies[1].Granted != 1 || !replies[0].Alone {
			t.Errorf("%d: %+v, %v", i, replies, err)
		}
	}
	if ttl := c.PTTL(ctx, keyName("a")).Val(); ttl < 55*time.Second || ttl > 63*time.Second {
		t.Errorf("the key lives for %v", ttl)
	}
	c.Del(ctx, keyName("a"))
	c.HSet(ctx, keyName("a"), "x", 1)
	c.Set(ctx, keyName("b"), "\x01\x01\x02 what somebody else has written"+strings.Repeat("\xff", 24), 0)
	replies, err := ask("a", "b")
	if err != nil || replies[0].Err == nil || replies[1].Err != nil || replies[1].Granted != 1 {
		t.Errorf("a hash and a text: %+v, %v", replies, err)
	}
	c.Close()
	if _, err := ask("a", "b"); err == nil {
		t.Error("a closed client has no error")
	}
}

// TestKeysAnswers: what no script of ours answers is an error of that key.
func TestKeysAnswers(t *testing.T) {
	numbers := func(n ...float64) string { return string(appendNumbers(nil, n...)) }
	for _, answer := range []any{nil, int64(1), "", "1 0 1 5 6 0", numbers(1, 0, 1, 5, 6), numbers(1, 0, 1, 5, 6, 7, 8), numbers(1, 0, 1, 5, 6, math.NaN()), numbers(1, 0, 1, 5, -1, 0)} {
		if r, err := parseKey(redis.NewCmdResult(answer, nil), []keys.Law{{Most: 5, Rate: 1}}); err == nil {
			t.Errorf("%v: %+v", answer, r)
		}
	}
}
