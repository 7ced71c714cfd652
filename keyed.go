package throttle

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-throttle/throttle/internal/account"
	"github.com/go-throttle/throttle/internal/gate"
	"github.com/go-throttle/throttle/internal/queue"
)

const (
	maxKeys     = 65536       // keys kept beside those with calls waiting or in flight
	maxKeyLen   = 256         // bytes of a key
	idleAfter   = time.Minute // a key unused for so long may be dropped
	foreignIdle = time.Hour   // the same, where its limiter is foreign or something was learned: nobody can say whether that is as new
	evictTries  = 16          // keys that are looked at to find the one to drop
	sweepEvery  = 16          // accesses from one look at a key that may be idle to the next
	sweepMost   = 8           // idle keys dropped at one access
)

// A keyState is a queue in a Transport's table.
type keyState struct {
	used  time.Duration // when last, since Room.Base
	place int           // in table.order
	spent float64       // of the retry budget
	queue.Queue
}

// idle reports whether nothing would be lost by dropping the key.
func (k *keyState) idle(now time.Time) bool {
	unused := k.unused(now)
	if unused < idleAfter || (len(k.Own.Foreign) > 0 || k.Learned != nil) && unused < foreignIdle {
		return false
	}
	return k.AsNew(now)
}

// unused is for how long.
func (k *keyState) unused(now time.Time) time.Duration { return now.Sub(k.Room.Base) - k.used }

// worth ranks keys that are not busy by what is lost when they are dropped. An
// open one in use is worth most: a flood of hosts that refuse must not slow those
// that work.
func (k *keyState) worth(now time.Time) int {
	switch cause := k.CauseAt(now); {
	case cause == gate.Open && k.unused(now) >= idleAfter:
		return 0
	case cause == gate.Open:
		return 3
	case cause == gate.Told, cause == gate.Paused:
		return 2
	}
	return 1
}

// A table holds the queues of a Transport's keys. They share one lock, Room.Mu:
// it is held for well under a microsecond, as that of http.Transport's idle
// connections is, and makes one critical section of looking up, waiting and taking.
type table struct {
	queue.Room
	keys     map[string]*keyState
	order    []*keyState // the same, for the hand to go round
	hand     int
	recent   *keyState // that of the last call; nil if it was dropped
	accesses uint
	limits   *account.Set // of Transport.Limiter
	most     int          // maxKeys, but in tests
	budget   Budget
	dropped  queue.Dropped // what is remembered of keys that were dropped
}

func newTable(opts QueueOptions, r Retry, shared Limiter) *table {
	t := &table{keys: map[string]*keyState{}, limits: new(account.Set), most: maxKeys}
	t.Room.Opts, t.MaxPause, t.Base, t.NewError = queue.Options(opts), r.MaxPause, time.Now(), newError
	t.budget = r.Budget
	if shared != nil {
		*t.limits, _ = tryFlatten(shared) // it fails for what setup has found wrong
		t.Shared = queue.NewSharedLine(t.limits)
	}
	return t
}

// find returns the state of key at that time since Base, nil if there is none. Of its use it keeps no
// more than the moment: an order of use would cost writes to other keys.
func (t *table) find(key string, since time.Duration) *keyState {
	k := t.recent
	if k == nil || k.Key != key {
		if k = t.keys[key]; k == nil {
			return nil
		}
		t.recent = k
	}
	k.used = since
	if t.accesses++; t.accesses%sweepEvery == 0 {
		t.sweep(t.Base.Add(since))
	}
	return k
}

// next moves the hand to the next key, all the way round.
func (t *table) next() *keyState {
	if t.hand++; t.hand >= len(t.order) {
		t.hand = 0
	}
	return t.order[t.hand]
}

// sweep looks at one key and drops it if it is idle, and then a few more: where
// one is idle, others are too.
func (t *table) sweep(now time.Time) {
	for range min(sweepMost, len(t.order)) {
		k := t.next()
		if !k.idle(now) {
			return
		}
		t.drop(k)
	}
}

// evict drops, of the next keys that are not busy, the one worth least; of equals
// the least recently used.
func (t *table) evict(now time.Time) {
	var least *keyState
	for range min(evictTries, len(t.order)) {
		k := t.next()
		if !k.Busy() && (least == nil || cmp.Or(cmp.Compare(k.worth(now), least.worth(now)), cmp.Compare(k.used, least.used)) < 0) {
			least = k
		}
	}
	if least != nil {
		t.dropped.Keep(&least.Queue, t.most, now)
		t.drop(least)
	}
}

func (t *table) drop(k *keyState) {
	last := len(t.order) - 1
	t.order[k.place], t.order[last].place = t.order[last], k.place
	t.order[last] = nil
	t.order = t.order[:last]
	delete(t.keys, k.Key)
	if t.recent == k {
		t.recent = nil
	}
}

// get returns the state of key, nil if there is none. It is no use of it.
func (t *table) get(key string) *keyState {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	return t.keys[key]
}

// all returns the states of all keys.
func (t *table) all() []*keyState {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	return slices.Clone(t.order)
}

// keyLimits is what a key's calls pay: all of it, and the part that is the key's own.
type keyLimits struct{ all, own *account.Set }

// join puts the limiter that LimiterFor returned for key, nil for none, beside the shared one.
func (t *table) join(key string, lim Limiter) (*keyLimits, error) {
	switch {
	case lim == nil:
		return &keyLimits{t.limits, new(account.Set)}, nil
	case isNil(lim):
		return nil, fmt.Errorf("throttle: Transport.LimiterFor(%q) returned a nil %T", key, lim)
	}
	own, err := tryFlatten(lim)
	both := &own
	if err == nil && t.Shared != nil {
		both = new(account.Set)
		*both, err = tryFlatten(lim, &all{*t.limits})
	}
	if err != nil {
		return nil, fmt.Errorf("throttle: Transport.Limiter and LimiterFor(%q) cannot be joined: %w", key, err)
	}
	return &keyLimits{both, &own}, nil
}

// add makes the state of a key that has none.
func (t *table) add(key string, l *keyLimits, now time.Time) *keyState {
	k := &keyState{used: now.Sub(t.Base)}
	k.Key, k.Gate.Met = strings.Clone(key), k.used
	k.Init(&t.Room, l.all, l.own)
	t.dropped.Recall(&k.Queue, now)
	t.sweep(now)
	if len(t.keys) >= t.most {
		t.evict(now)
		if len(t.keys) >= t.most {
			t.evict(now) // to shrink after a rush of busy keys
		}
		k.OpenPaced(now)
	} else if len(l.all.Accounts)+len(l.all.Foreign) == 0 {
		k.Gate.Meet(now)
	}
	k.place = len(t.order)
	t.keys[k.Key], t.order, t.recent = k, append(t.order, k), k
	return k
}

// ByHost is the default of Transport.Key: the host and port of the request's URL
// in lower case, without the scheme's default port and without a final dot.
func ByHost(req *http.Request) string {
	if req.URL == nil {
		return ""
	}
	if plain(req.URL.Host) {
		return req.URL.Host
	}
	host := strings.ToLower(req.URL.Host)
	name, port := host, ""
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		name, port = host[:i], host[i+1:]
	}
	bare := strings.TrimSuffix(name, ".")
	switch {
	case port == "", port == "80" && strings.EqualFold(req.URL.Scheme, "http"), port == "443" && strings.EqualFold(req.URL.Scheme, "https"):
		return bare
	case bare == name:
		return host
	}
	return bare + ":" + port
}

// plain reports whether ByHost has nothing to change, for most hosts.
func plain(host string) bool {
	for i := range len(host) {
		if c := host[i]; c == ':' || c >= 0x80 || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return host == "" || host[len(host)-1] != '.'
}

// ByCredential is a Transport.Key for upstreams that count by API key: the host,
// and 64 bits of the HMAC-SHA-256 of the Authorization header. The HMAC's key is
// random and lives as long as the process, so the credential cannot be told from
// what observers see. A request without that header has its host for a key: the
// Transport must be the Base of the one that sets it, not the other way round.
//
// It knows no other header. Where the credential is in X-Api-Key, in a query or in
// the URL, give Transport.Key a function of your own that puts a hash of it into
// the key.
func ByCredential(req *http.Request) string {
	host := ByHost(req)
	auth := req.Header.Get("Authorization")
	if auth == "" {
		return host
	}
	mac := hmac.New(sha256.New, processKey())
	mac.Write([]byte(auth))
	return host + "#" + hex.EncodeToString(mac.Sum(nil)[:8])
}

// processKey is drawn once and never changes.
var processKey = sync.OnceValue(func() []byte {
	key := make([]byte, sha256.Size)
	rand.Read(key) // never fails, see its doc
	return key
})

// bounded cuts a key of more than maxKeyLen bytes, and puts a hash in place of
// what it cut: keys are as long as upstreams and callers like.
func bounded(key string) string {
	if len(key) <= maxKeyLen {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	tail := "#" + hex.EncodeToString(sum[:8])
	return key[:maxKeyLen-len(tail)] + tail
}
