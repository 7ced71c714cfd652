package throttleredis

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/go-throttle/throttle/inbound/keys"
)

// keysScript is the law of inbound.Memory in Lua.
//
//go:embed keys.lua
var keysScript string

// Keys is a keys.Store on Redis: the limits of each client of an API, for all of its servers. Make it with [Store.Keys].
//
//	store := throttleredis.New(client).Keys()
//	api := inbound.Limit{Name: "api", Limits: []string{"20/s burst 20"}, Store: store}
//
// Each key is one string, about 100 bytes, which expires two seconds after all of its units are free. Its name is throttle:key: and a hash.
// All keys of a moment are asked for in one pipeline, if the client has pipelines, as go-redis' clients have; in a Cluster
// each goes to the server of its slot. A client that repeats a pipeline whose answer was lost takes its units
// twice, so MaxRetries should be -1. An ACL needs
//
//	~throttle:* +eval +evalsha +time +get +set
type Keys struct {
	client  Client
	sha     string
	breaker keys.Breaker
}

// Keys returns a store for inbound.Limit and inbound.NewSharedKeyed that uses the client of s. Call it once for each: those
// that use one Keys find out together that the server does not answer, and share its round trips. It does not talk to the
// server. It is safe for concurrent use, starts nothing, and need not be closed.
func (s *Store) Keys() *Keys {
	sum := sha1.Sum([]byte(keysScript))
	return &Keys{client: s.client, sha: hex.EncodeToString(sum[:])}
}

// Breaker returns what the users of this store have in common. Package inbound asks for it; programs do not.
func (k *Keys) Breaker() *keys.Breaker { return &k.breaker }

// A pipeliner is a Client that has pipelines.
type pipeliner interface {
	Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

// Ask implements keys.Store. It needs one round trip, and a second one for those keys whose server does not know the script
// yet. They are sent again in that case only: all other errors leave open whether they were executed.
func (k *Keys) Ask(ctx context.Context, rs []keys.Request) ([]keys.Reply, error) {
	all := make([]int, len(rs))
	for i := range all {
		all[i] = i
	}
	cmds := make([]*redis.Cmd, len(rs))
	k.pipeline(ctx, all, func(c Client, i int) {
		cmds[i] = c.EvalSha(ctx, k.sha, []string{keyName(rs[i].Key)}, keyArguments(&rs[i])...)
	})
	again := slices.DeleteFunc(all, func(i int) bool { return !unknownScript(cmds[i].Err()) })
	k.pipeline(ctx, again, func(c Client, i int) {
		cmds[i] = c.Eval(ctx, keysScript, []string{keyName(rs[i].Key)}, keyArguments(&rs[i])...)
	})
	return parseKeys(cmds, rs)
}

// parseKeys reads the answers. If nobody has answered, that is an error about all keys; if one server of several has not, it
// is one about its keys.
func parseKeys(cmds []*redis.Cmd, rs []keys.Request) ([]keys.Reply, error) {
	replies, answered := make([]keys.Reply, len(rs)), false
	var failed error
	for i, cmd := range cmds {
		r, err := parseKey(cmd, rs[i].Laws)
		if err == nil || errors.Is(err, keys.ErrKey) {
			answered = true
		} else {
			failed = err
			err = fmt.Errorf("%w: %w", keys.ErrKey, err)
		}
		replies[i], replies[i].Err = r, err
	}
	if !answered && failed != nil {
		return nil, fmt.Errorf("throttle: keys in Redis: %w", failed)
	}
	return replies, nil
}

// pipeline sends a command for each, together if it can. Each command has its own error afterwards.
func (k *Keys) pipeline(ctx context.Context, each []int, send func(c Client, i int)) {
	sendAll := func(c Client) {
		for _, i := range each {
			send(c, i)
		}
	}
	if p, ok := k.client.(pipeliner); ok && len(each) > 1 {
		_, _ = p.Pipelined(ctx, func(p redis.Pipeliner) error { sendAll(p); return nil })
	} else {
		sendAll(k.client)
	}
}

func unknownScript(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") }

// keyName is the name of a key's string.
func keyName(key string) string { return "throttle:key:" + key }

// keyArguments are those of the script, in its order.
func keyArguments(r *keys.Request) []any {
	forget, used, back := 0.0, r.Used, r.Back
	if r.Forget {
		forget = 1
	}
	if back > 0 && !r.Then.Fits(r.Laws) {
		used, back = used+back, 0
	}
	shape := []byte{byte(len(r.Laws))}
	numbers := appendNumbers(nil, forget, float64(r.Each), float64(r.Count), float64(r.Lease), float64(used), float64(back))
	for _, l := range r.Laws {
		shape = append(shape, byte(l.Kind), byte(l.Numbers()))
		numbers = appendNumbers(numbers, float64(l.Most), l.Rate, float64(l.Per))
	}
	if back > 0 {
		numbers = appendNumbers(numbers, float64(r.Then.Now))
		for _, c := range r.Then.Cells {
			numbers = appendNumbers(numbers, c...)
		}
	}
	return []any{shape, r.Server, numbers}
}

// appendNumbers writes numbers as the script reads them.
func appendNumbers(b []byte, numbers ...float64) []byte {
	for _, x := range numbers {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	}
	return b
}

// parseKey reads the script's answer. An error that matches keys.ErrKey is about this key alone.
func parseKey(cmd *redis.Cmd, laws []keys.Law) (r keys.Reply, err error) {
	text, err := cmd.Text()
	if err != nil {
		if ofLimit(err) {
			return r, fmt.Errorf("%w: %w", keys.ErrKey, err)
		}
		return r, err
	}
	want := 4
	for _, l := range laws {
		want += l.Numbers()
	}
	if len(text) != 8*want {
		return r, fmt.Errorf("%w: the answer of the script has %d bytes, want %d", keys.ErrKey, len(text), 8*want)
	}
	n := make([]float64, want)
	for i := range n {
		n[i] = math.Float64frombits(binary.LittleEndian.Uint64([]byte(text[8*i:])))
		if !(n[i] >= 0 && n[i] < 9e15) {
			return r, fmt.Errorf("%w: the answer of the script has the number %v", keys.ErrKey, n[i])
		}
	}
	r = keys.Reply{Granted: int64(n[0]), Leased: int64(n[1]), Alone: n[2] == 1, Mark: keys.Mark{Now: int64(n[3])}}
	n = n[4:]
	for _, l := range laws {
		r.Mark.Cells = append(r.Mark.Cells, n[:l.Numbers():l.Numbers()])
		n = n[l.Numbers():]
	}
	return r, nil
}
