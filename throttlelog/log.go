// Package throttlelog logs what a throttle.Transport does with a slog.Logger.
//
//	t := &throttle.Transport{Limiter: limit, Hooks: throttlelog.Hooks(slog.Default())}
//
// At the level Warn it logs when the gate of a key closes, when a probe opens it again, when a call is refused, and when a
// configured limit is too high. At the level Debug it logs when a call begins to wait, for what, and when it goes. The attributes are those
// of throttle.Event, and of its Learned: configured and accepted are in units per second.
//
//	level=WARN msg="throttle: gate closed" key=api.test reason=gate:retry-after wait=2s status=429 attempt=1
//	level=WARN msg="throttle: call refused" key=api.test reason=limit wait=12s error="throttle: \"api.test\": queue full ..." count=118
//	level=WARN msg="throttle: configured limit too high" key=api.test status=429 attempt=1 configured=10 accepted=9.6
//
// # How much
//
// Closings and refusals are logged at most once a second for each key. What comes in between is counted, and count in
// the next line says how many events it stands for; 1 is left out. If no next line comes, they are not logged. An
// opening is logged if a closing was since the opening before: several closings may come before one opening. A closing
// that ends with its time has no opening: its line has said how long it lasts. Waits are not limited, because whoever
// turns Debug on wants to see them all.
//
// That a configured limit is too high is logged at first, and again if what is accepted has changed by more than 5 %: after a minute
// at the earliest if that is less, and if it is more when it has lasted for ten minutes. So does "configured limit accepted", when
// nothing lower holds any more. Other limits that are learned, as quotas, are not logged.
//
// # What is never logged
//
// The request: no header, no path and no query, so no credential. Keys hold none, as throttle.Transport says, and errors
// are those of this side, not those of Base. The text of a limiter of your own, and that of your context's cause, are logged.
//
// What the upstream throttles is in the closings; for a line about each attempt join Hooks of your own.
package throttlelog

import (
	"context"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/go-throttle/throttle"
)

const (
	// each is the shortest time between two lines of a kind about a key.
	each = time.Second
	// maxKeys is how many keys are kept apart. Those that come while as many were logged in the last second share a count.
	maxKeys = 1024
)

// Hooks returns hooks that log with l; nil: slog.Default(), as it is at each event. Use them as Transport.Hooks, or join
// them to others with Hooks.Join. They are safe for concurrent use, and may serve several Transports, whose keys then
// share their counts.
func Hooks(l *slog.Logger) throttle.Hooks {
	h := &logger{to: l, keys: map[string]*lines{}}
	return throttle.Hooks{
		Closed:  h.closed,
		Opened:  h.opened,
		Refused: h.refused,
		Learned: h.learned,
		Waiting: func(ctx context.Context, e throttle.Event) {
			h.log(ctx, slog.LevelDebug, "throttle: call waits", &e, 1, nil)
		},
		Waited: func(ctx context.Context, e throttle.Event) {
			h.log(ctx, slog.LevelDebug, "throttle: call goes", &e, 1, nil)
		},
	}
}

// A logger remembers for each key what was logged in the last second.
type logger struct {
	to *slog.Logger // nil: the default one

	mu    sync.Mutex
	keys  map[string]*lines
	rest  lines     // of the keys beyond maxKeys
	swept time.Time // when silent keys were last looked for
}

// lines is what is remembered of one key.
type lines struct {
	closings, refusals line
	announced          bool // a closing was logged since the last opening, so the next one will be
}

// A line is one kind of line about a key.
type line struct {
	last  time.Time // when it was logged
	count int       // events since
}

// event counts an event and returns for how many a line is due; 0: none is.
//
// An example: refusals at 0, 0.1, 0.2 and 1.3 s. The first is logged, the second and third are counted, and the fourth is
// logged with a count of 3. If no fourth one comes, the two are not logged at all: that needs a timer, and what matters has
// been said.
func (l *line) event(now time.Time) (count int) {
	l.count++
	if now.Sub(l.last) < each {
		return 0
	}
	count, l.last, l.count = l.count, now, 0
	return count
}

// silent reports whether nothing of the key has to be remembered.
func (l *lines) silent(now time.Time) bool {
	return !l.announced && now.Sub(l.closings.last) >= each && now.Sub(l.refusals.last) >= each
}

// with calls f with what is remembered of a key, under the lock.
func (h *logger) with(key string, f func(l *lines, now time.Time)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	f(h.ofLocked(key, now), now)
}

// ofLocked finds or makes what is remembered of a key. If there are too many keys, those of the last second stay, and the new
// one shares its counts with other new ones.
func (h *logger) ofLocked(key string, now time.Time) *lines {
	l := h.keys[key]
	if l != nil {
		return l
	}
	if len(h.keys) >= maxKeys && now.Sub(h.swept) >= each {
		h.sweepLocked(now)
	}
	if len(h.keys) >= maxKeys {
		return &h.rest
	}
	l = new(lines)
	h.keys[key] = l
	return l
}

// sweepLocked forgets the keys that are silent. If there is none it forgets which closings were logged, because their
// openings may never come, and looks again. It is done once a second at most: it looks at maxKeys keys.
func (h *logger) sweepLocked(now time.Time) {
	h.swept = now
	for _, patient := range []bool{true, false} {
		for key, l := range h.keys {
			if l.announced = l.announced && patient; l.silent(now) {
				delete(h.keys, key)
			}
		}
		if len(h.keys) < maxKeys {
			return
		}
	}
}

// closed logs a closing.
func (h *logger) closed(ctx context.Context, e throttle.Event) {
	count := 0
	h.with(e.Key, func(l *lines, now time.Time) {
		count = l.closings.event(now)
		l.announced = l.announced || count > 0
	})
	h.log(ctx, slog.LevelWarn, "throttle: gate closed", &e, count, nil)
}

// opened logs an opening if the closing was logged, or one of several: the word after "closed" must be "opened". Example: 429
// at 0, 0.1 and 0.2 s, the latter two by probes, and a 200 at 0.6 s. The first closing is logged, and the opening.
func (h *logger) opened(ctx context.Context, e throttle.Event) {
	count := 0
	h.with(e.Key, func(l *lines, _ time.Time) {
		if l.announced {
			l.announced, count = false, 1
		}
	})
	h.log(ctx, slog.LevelWarn, "throttle: gate opened", &e, count, nil)
}

// refused logs a refusal.
func (h *logger) refused(ctx context.Context, e throttle.Event) {
	count := 0
	h.with(e.Key, func(l *lines, now time.Time) { count = l.refusals.event(now) })
	h.log(ctx, slog.LevelWarn, "throttle: call refused", &e, count, e.Err)
}

// learned logs that a configured limit is too high, or is not any more. How often is up to the Transport: see throttle.Learned.
func (h *logger) learned(ctx context.Context, e throttle.Event) {
	switch l := &e.Learned; {
	case l.Configured == 0:
	case l.Rate < math.MaxFloat64:
		h.log(ctx, slog.LevelWarn, "throttle: configured limit too high", &e, 1, nil)
	default:
		h.log(ctx, slog.LevelWarn, "throttle: configured limit accepted", &e, 1, nil)
	}
}

// accepted is what is logged of a found rate: with three digits, or as many more as show that it is below the configured limit. 9.5887/s
// is 9.59, and 9.9987/s of 10/s is 9.999.
func accepted(l *throttle.Learned) float64 {
	for digits := 3; ; digits++ {
		x, _ := strconv.ParseFloat(strconv.FormatFloat(float64(l.Rate), 'g', digits, 64), 64)
		if x < float64(l.Configured) || digits == 17 {
			return x
		}
	}
}

// log writes a line for so many events; 0: none. No lock is held, because a handler may be slow. Of errors only err is
// written: that of an attempt, in e, may name what was asked for.
func (h *logger) log(ctx context.Context, level slog.Level, msg string, e *throttle.Event, count int, err error) {
	to := h.to
	if to == nil {
		to = slog.Default()
	}
	if count == 0 || !to.Enabled(ctx, level) {
		return
	}
	attrs := append(make([]slog.Attr, 0, 8), slog.String("key", e.Key))
	if e.Reason != "" {
		attrs = append(attrs, slog.String("reason", e.Reason))
	}
	if e.Wait > 0 {
		attrs = append(attrs, slog.Duration("wait", e.Wait))
	}
	if e.Status != 0 {
		attrs = append(attrs, slog.Int("status", e.Status))
	}
	if e.Attempt > 0 {
		attrs = append(attrs, slog.Int("attempt", e.Attempt))
	}
	if l := &e.Learned; l.Configured > 0 {
		if attrs = append(attrs, slog.Float64("configured", float64(l.Configured))); l.Rate < math.MaxFloat64 {
			attrs = append(attrs, slog.Float64("accepted", accepted(l)))
		}
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	if count > 1 {
		attrs = append(attrs, slog.Int("count", count))
	}
	to.LogAttrs(ctx, level, msg, attrs...)
}
