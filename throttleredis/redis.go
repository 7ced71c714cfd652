// Package throttleredis keeps the limits of a fleet in Redis, Valkey or another server that speaks their protocol
// and runs Lua scripts.
//
//	store := throttleredis.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}))
//	lim := store.Limiter("example.com", 100, 10) // a second, over all processes
//	client := &http.Client{Transport: &throttle.Transport{Limiter: lim}}
//
// What a fleet's limiter does, and what it admits at most, is said in package fleet and in docs/fleet.md. Several processes take about
// 0.03 to 0.15 round trips for each call at 1,000 calls a second, and one for each call at low rates.
//
// # The client
//
// Every client that works is right, because a request that is repeated is granted once. These settings are better
// than the defaults: a client of its own for the limits, so that its pool is not used up by other commands, and
// timeouts close to what a limiter waits for at most, 100 ms.
//
//	redis.Options{MaxRetries: -1, ContextTimeoutEnabled: true, DialTimeout: time.Second, ReadTimeout: 200 * time.Millisecond}
//
// # The server
//
// Redis 5 or later; tested with Redis 7 on one server, behind Sentinel and in a Cluster whose slots move. Each limit is one hash, whose name is in braces, so that one
// script call touches one slot. Keys expire a minute after the limit is full again. An ACL needs
//
//	~throttle:* +eval +evalsha +time +hmget +hset +hdel +hgetall +pexpire
//	&throttle:* +publish +subscribe +unsubscribe +ping
//
// The second line is for messages: while a limiter of a Store has units in hand or a line that waits, the Store is
// subscribed to the channel throttle:pauses, on one connection, if the client can subscribe. A pause that one
// process hears of is one message to all. Without messages the others hear of it with their next request, within
// W.
//
// The memory policy should be noeviction or volatile-ttl: an evicted limit starts with another burst, as far as the
// members do not carry its state.
package throttleredis

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/fleet"
	"github.com/go-throttle/throttle/fleet/store"
)

// script is the law of fleet.Memory in Lua.
//
//go:embed exchange.lua
var script string

// A Client runs scripts. *redis.Client, *redis.ClusterClient and *redis.Ring are Clients.
type Client interface {
	Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd
	EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd
}

// A Store is a store.Store on Redis. Its limiters find out together when the server does not answer. Make it with
// [New], one for each client. It is safe for concurrent use, starts nothing, and need not be closed.
type Store struct {
	client  Client
	sha     string
	breaker store.Breaker
}

// New returns a Store that uses c. It does not talk to the server. It panics if c is nil.
func New(c Client) *Store {
	if c == nil {
		panic("throttle: throttleredis.New: the client is nil")
	}
	sum := sha1.Sum([]byte(script))
	return &Store{client: c, sha: hex.EncodeToString(sum[:])}
}

// Limiter is fleet.New with default options: limit units per second, with bursts of burst units, over all processes
// that use the limit of that name.
func (s *Store) Limiter(name string, limit rate.Limit, burst int) *fleet.Limiter {
	return fleet.New(s, name, limit, burst, fleet.Options{})
}

// Breaker returns what the limiters of this Store have in common. fleet.New asks for it; programs do not.
func (s *Store) Breaker() *store.Breaker { return &s.breaker }

// Exchange implements store.Store. It needs one round trip, and a second one when the server does not know the
// script yet. A request is sent again in that case only: all other errors leave open whether it was executed.
func (s *Store) Exchange(ctx context.Context, name string, r store.Request) (store.Reply, error) {
	if err := r.Check(); err != nil {
		return store.Reply{}, err
	}
	replies, err := parseAll(s.run(ctx, []string{Key(name)}, arguments(name, &r)), 1)
	if err != nil {
		return store.Reply{}, fmt.Errorf("throttle: the limit %.80q in Redis: %w", name, err)
	}
	return replies[0], nil
}

// ExchangeAll implements the optional part of store.Store, and is of use to package fleet alone: Exchange for several
// limits in one round trip and one step. That needs a *redis.Client, because the servers of a Cluster or a Ring have
// one limit each; with other clients it returns store.ErrLimit at once, and the limits are granted one by one.
func (s *Store) ExchangeAll(ctx context.Context, names []string, rs []store.Request) ([]store.Reply, error) {
	if _, ok := s.client.(*redis.Client); !ok {
		return nil, store.ErrLimit
	}
	var keys []string
	var args []any
	for i := range rs {
		if err := rs[i].Check(); err != nil {
			return nil, err
		}
		keys = append(keys, Key(names[i]))
		args = append(args, arguments(names[i], &rs[i])...)
	}
	replies, err := parseAll(s.run(ctx, keys, args), len(keys))
	if err != nil {
		return nil, fmt.Errorf("throttle: the limits %.80q in Redis: %w", names, err)
	}
	return replies, nil
}

// run runs the script.
func (s *Store) run(ctx context.Context, keys []string, args []any) *redis.Cmd {
	cmd := s.client.EvalSha(ctx, s.sha, keys, args...)
	if err := cmd.Err(); err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		return s.client.Eval(ctx, script, keys, args...)
	}
	return cmd
}

// ofLimit reports whether an error that the server has answered is about one limit: its key has another type, the script
// stumbles over what is in it, this user may not touch it, or there is no answer at all. What else a server says (LOADING, READONLY, OOM, CLUSTERDOWN)
// is about the server.
func ofLimit(err error) bool {
	var answered redis.Error
	if !errors.As(err, &answered) {
		return false
	}
	word, _, _ := strings.Cut(answered.Error(), " ")
	return word == "WRONGTYPE" || word == "ERR" || word == "NOPERM" || err == redis.Nil
}

// Key is the name of the hash that holds a limit, for those who want to look at it or delete it. No two names have one. A
// name that is long, empty, has braces or control characters, or is written like such a hash, is replaced by a hash.
func Key(name string) string {
	bad := func(c rune) bool { return c == '{' || c == '}' || c < ' ' || c == 0x7f }
	if name == "" || len(name) > 200 || strings.ContainsFunc(name, bad) || hashed.MatchString(name) {
		sum := sha256.Sum256([]byte(name))
		name = "sha256-" + hex.EncodeToString(sum[:16])
	}
	return "throttle:{" + name + "}"
}

// hashed is what names are replaced by.
var hashed = regexp.MustCompile("^sha256-[0-9a-f]{32}$")

// arguments are those of the script, in its order. Times are in whole microseconds, and numbers are written in full.
// The name goes along only if the others are to hear of a pause.
func arguments(name string, r *store.Request) []any {
	tighten, about := 0, ""
	if r.Pause > 0 {
		about = name
	}
	if r.Tighten {
		tighten = 1
	}
	return []any{
		r.Member, r.Seq, strconv.FormatFloat(float64(r.Limit), 'g', 17, 64), r.Burst, r.Validity.Microseconds(),
		r.Need, r.Want, r.Held, r.Known.Now, r.Known.Next, r.Known.Pause,
		r.Pause.Microseconds(), tighten, r.NotBefore.Microseconds(), r.Back, r.Unused, about,
	}
}

// parseAll reads the script's answer for so many limits: one list of numbers, or a list of such lists.
func parseAll(cmd *redis.Cmd, limits int) (replies []store.Reply, err error) {
	if err := cmd.Err(); err != nil {
		if ofLimit(err) {
			return nil, fmt.Errorf("%w: %w", store.ErrLimit, err)
		}
		return nil, err
	}
	lists := []any{cmd.Val()}
	if limits > 1 {
		lists, _ = cmd.Val().([]any)
	}
	if len(lists) != limits {
		return nil, fmt.Errorf("%w: the answer of the script is for %d limits", store.ErrLimit, len(lists))
	}
	for _, list := range lists {
		numbers, err := redis.NewCmdResult(list, nil).Int64Slice()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", store.ErrLimit, err)
		}
		r, err := parse(numbers)
		if err != nil {
			return nil, err
		}
		replies = append(replies, r)
	}
	return replies, nil
}

// parse reads the script's answer. Another script's answer, or another hand's, is an error.
func parse(n []int64) (r store.Reply, err error) {
	if len(n) < 6 || len(n)%3 != 0 || len(n) > 6+3*3 {
		return r, fmt.Errorf("%w: the answer of the script has %d numbers", store.ErrLimit, len(n))
	}
	for _, x := range n[:3] {
		if x < 0 || x > math.MaxInt64/1000 {
			return r, fmt.Errorf("%w: the answer of the script has the number %d", store.ErrLimit, x)
		}
	}
	r = store.Reply{
		Retry: micro(n[0]), Pause: micro(n[1]), Members: int(n[2]),
		Known: store.Mark{Now: n[3], Next: n[4], Pause: n[5]},
	}
	for n = n[6:]; len(n) > 0; n = n[3:] {
		if n[0] > math.MaxInt64/1000 {
			return r, fmt.Errorf("%w: the answer of the script has the number %d", store.ErrLimit, n[0])
		}
		r.Runs = append(r.Runs, store.Run{First: micro(n[0]), Every: time.Duration(n[1]), Count: int(n[2])})
	}
	return r, nil
}

func micro(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
