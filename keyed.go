package throttle

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	maxKeys     = 65536       // keys kept beside those with calls waiting or in flight
	maxKeyLen   = 256         // bytes of a key
	idleAfter   = time.Minute // a key unused for so long may be dropped
	foreignIdle = time.Hour   // the same, where its limiter is foreign: nobody can say whether that is as new
	evictTries  = 16          // busy keys passed by in looking for one to drop
	sweepEvery  = 16          // accesses from one look at the oldest key to the next
)

// A keyState is a Queue in a Transport's table, and its place there.
type keyState struct {
	Queue
	prev, next *keyState
	class      class
	used       time.Duration // when last, since the room's base
	born       time.Duration // when it was made
}

// class sorts keys by what is lost when they are dropped.
type class uint8

const (
	classOpen class = iota
	classUntold
	classTold
	classes
)

func (k *keyState) classAt(now time.Time) class {
	g := &k.gate
	switch {
	case g.trouble == nil, g.cause == open, !g.probing && !now.Before(g.until):
		return classOpen
	case g.cause == told, g.cause == paused:
		return classTold
	}
	return classUntold
}

// busy reports whether calls of the key wait, are under way or rest.
func (k *keyState) busy() bool {
	return k.line != nil || k.slots > 0 || k.calls != k.ended.Load()
}

// idle reports whether nothing would be lost by dropping the key.
func (k *keyState) idle(now time.Time) bool {
	unused := now.Sub(k.room.base) - k.used
	if k.busy() || unused < idleAfter || (len(k.own.foreign) > 0 || k.learned != nil) && unused < foreignIdle {
		return false
	}
	g := &k.gate
	if g.closed(now, k.pace()) {
		return false
	}
	g.lineEmpty(now)
	return (g.trouble == nil || g.mode != paced && g.flying == 0) && k.own.fresh(now)
}

// A table holds the queues of a Transport's keys. They share one lock, room.mu:
// it is held for well under a microsecond, as that of http.Transport's idle
// connections is, and makes one critical section of looking up, waiting and taking.
type table struct {
	room
	keys     map[string]*keyState
	lists    [classes]keyState // heads of rings, most recently used first
	accesses uint
	sweeps   uint
	hands    [classes]*keyState // where sweep looks next in each ring
	limits   *limits            // of Transport.Limiter
	most     int                // maxKeys, but in tests
}

func newTable(opts QueueOptions, r Retry, shared Limiter) *table {
	t := &table{keys: map[string]*keyState{}, limits: new(limits), most: maxKeys}
	t.room.opts, t.maxPause, t.budget, t.base = opts, r.MaxPause, r.Budget, time.Now()
	for i := range t.lists {
		l := &t.lists[i]
		l.prev, l.next = l, l
		t.hands[i] = l
	}
	if !none(shared) {
		*t.limits = flatten(shared)
		t.shared = newSharedLine(t.limits)
	}
	return t
}

func (t *table) unlink(k *keyState) {
	for i := range t.hands {
		if t.hands[i] == k {
			t.hands[i] = k.prev
		}
	}
	k.prev.next, k.next.prev = k.next, k.prev
}

// touch notes that k is used, and puts it where its state of now belongs.
func (t *table) touch(k *keyState, now time.Time) {
	k.used = now.Sub(t.base)
	t.place(k, now)
}

// place puts k at the front of the ring of its class.
func (t *table) place(k *keyState, now time.Time) {
	if k.gate.trouble != nil || k.class != classOpen {
		k.class = k.classAt(now)
	}
	l := &t.lists[k.class]
	if l.next == k {
		return
	}
	if k.prev != nil {
		t.unlink(k)
	}
	k.prev, k.next = l, l.next
	k.prev.next, k.next.prev = k, k
}

// find returns the state of key, nil if there is none.
func (t *table) find(key string, now time.Time) *keyState {
	l := &t.lists[classOpen]
	k := l.next
	if k == l || k.key != key { // not the one of last time
		if k = t.keys[key]; k == nil {
			return nil
		}
	}
	t.touch(k, now)
	if t.accesses++; t.accesses%sweepEvery == 0 {
		t.sweep(k, now)
	}
	return k
}

// sweep looks at one key, of each class in its turn, from the oldest on, and
// drops it if it is idle. It has a hand of its own in each ring, so that the
// order of use stays as it is.
func (t *table) sweep(but *keyState, now time.Time) {
	t.sweeps++
	i := t.sweeps % uint(classes)
	k := t.hands[i]
	if k == &t.lists[i] { // all the way round
		k = k.prev
	}
	t.hands[i] = k.prev
	switch {
	case k == &t.lists[i] || k == but:
	case k.idle(now):
		t.drop(k)
	case k.classAt(now) != k.class:
		t.place(k, now)
	}
}

// all returns the states of all keys.
func (t *table) all() []*keyState {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.keys))
}

func (t *table) drop(k *keyState) {
	t.unlink(k)
	delete(t.keys, k.key)
}

// keyLimits is what a key's calls pay: all of it, and the part that is the key's own.
type keyLimits struct{ all, own *limits }

// join puts a key's limiter, nil for none, beside the shared one.
func (t *table) join(lim Limiter) (*keyLimits, error) {
	if none(lim) {
		return &keyLimits{t.limits, new(limits)}, nil
	}
	own, err := tryFlatten(lim)
	if err != nil || t.shared == nil {
		return &keyLimits{&own, &own}, err
	}
	both, err := tryFlatten(lim, &all{*t.limits})
	return &keyLimits{&both, &own}, err
}

// add makes the state of a key that has none.
func (t *table) add(key string, l *keyLimits, now time.Time) *keyState {
	k := new(keyState)
	k.key = strings.Clone(key)
	k.init(&t.room, l.all, l.own)
	t.sweep(nil, now)
	if len(t.keys) >= t.most {
		for range 2 { // one to make room, one to shrink after a rush of busy keys
			if len(t.keys) >= t.most {
				t.evict(now)
			}
		}
		// Its past may have been dropped, a burst just spent with it.
		pace := k.rate()
		k.gate.trouble = new(trouble)
		k.gate.openPaced(now.Add(unitTime(1, pace)), pace)
	} else if len(l.all.own)+len(l.all.foreign) == 0 {
		k.gate.meet(now)
	}
	k.born = now.Sub(t.base)
	t.keys[k.key] = k
	t.touch(k, now)
	return k
}

// evict drops the least recently used key that is not busy: one with an open
// gate and unused for idleAfter, else one closed for an untold time, else for a
// told one, else any. An open one in use goes last: a flood of hosts that refuse
// must not slow those that work.
func (t *table) evict(now time.Time) {
	stale := now.Sub(t.base) - idleAfter
	for _, try := range []struct {
		class class
		used  time.Duration
	}{{classOpen, stale}, {classUntold, forever}, {classTold, forever}, {classOpen, forever}} {
		l := &t.lists[try.class]
		for range evictTries {
			k := l.prev
			if k == l || k.used > try.used {
				break
			}
			if !k.busy() && k.classAt(now) == try.class {
				t.drop(k)
				return
			}
			if k.busy() {
				k.used = now.Sub(t.base)
			}
			t.place(k, now) // it goes on from here the next time
		}
	}
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
