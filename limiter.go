package throttle

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// A Limiter says when. It never makes anybody wait itself: a [Queue] or a [Transport] does.
//
// Take consumes n units and returns 0 if they may start now. Otherwise it consumes nothing and
// returns how long to wait before it is worth asking again. It does not block on that wait; one that
// talks to a server may block on the answer and then obeys ctx. The kinds of this package never look
// at ctx. A cost of 0 takes no units. A negative cost, or one that can never be paid, is an error.
//
// A line asks again after that wait, but after at most a second if the limiter is no [Notifier].
// A Limiter must be safe for use by several goroutines at once.
type Limiter interface {
	Take(ctx context.Context, n int) (wait time.Duration, err error)
}

// An Adjuster is a Limiter whose account can be corrected after the fact: n < 0 gives units back,
// n > 0 takes more and may leave a debt, which later units wait for.
type Adjuster interface{ Adjust(n int) }

// A Notifier is a Limiter that tells sleeping lines when what it said before no longer holds. It
// calls changed after its limit was set or its account adjusted, never under a lock that Take needs.
// stop ends that; it may be called twice. A call already on its way may still arrive after stop.
type Notifier interface {
	Notify(changed func()) (stop func())
}

// All returns a Limiter that takes from all of limiters or from none, and whose wait is the longest
// of theirs. It implements [Adjuster] and [Notifier] for those that do. Nil limiters are skipped, a
// nested All counts as its parts, and one limiter of this package named twice is paid once.
//
// Each takes the same number of units. Where a call is one for one limit and many for another, wrap
// the one in a Limiter of your own that takes 1: see the example of Transport with tokens.
//
// The kinds of this package are asked first, under their locks, so that nobody sees half a taking.
// Others follow in argument order; if one refuses, what was taken is given back through Adjuster.
// One limiter may lack it and is asked last; with a second one All panics.
// The result is as safe for concurrent use as its parts.
func All(limiters ...Limiter) Limiter {
	s := flatten(limiters...)
	switch {
	case len(s.own) == 1 && len(s.foreign) == 0:
		return s.own[0]
	case len(s.own) == 0 && len(s.foreign) == 1:
		return s.foreign[0]
	}
	return &all{s}
}

// all is what All returns.
type all struct{ limits }

// Take implements [Limiter].
func (a *all) Take(ctx context.Context, n int) (time.Duration, error) {
	now := time.Now()
	m, err := a.takeBy(now, now, n)
	if err != nil || m.After(now) {
		return max(0, m.Sub(now)), err
	}
	given := false
	defer func() {
		if !given {
			a.giveBack(m, time.Now(), n)
		}
	}()
	wait, err := takeForeign(ctx, a.foreign, n)
	given = err == nil && wait == 0
	return wait, err
}

// takeForeign asks foreign limiters one after the other. If one refuses, or panics, what those
// before it gave goes back. No lock may be held.
func takeForeign(ctx context.Context, ls []Limiter, n int) (wait time.Duration, err error) {
	paid := 0
	defer func() {
		if paid < len(ls) {
			adjust(ls[:paid], -n)
		}
	}()
	for _, l := range ls {
		wait, err = l.Take(ctx, n)
		if err == nil && wait < 0 {
			err = fmt.Errorf("throttle: %T.Take returned the negative wait %v", l, wait)
		}
		if err != nil || wait > 0 {
			return max(0, wait), err
		}
		paid++
	}
	return 0, nil
}

// Adjust implements [Adjuster] for those limiters that do.
func (a *all) Adjust(n int) {
	adjust(a.own, n)
	adjust(a.foreign, n)
}

// adjust does so with those that can.
func adjust[L Limiter](ls []L, n int) {
	for _, l := range ls {
		if l, ok := any(l).(Adjuster); ok {
			l.Adjust(n)
		}
	}
}

// Notify implements [Notifier] for those limiters that do.
func (a *all) Notify(changed func()) (stop func()) {
	stopOwn, stopForeign := watch(a.own, changed), watch(a.foreign, changed)
	return func() { stopOwn(); stopForeign() }
}

// watch has changed called by those that can.
func watch[L Limiter](ls []L, changed func()) (stop func()) {
	var stops []func()
	for _, l := range ls {
		if l, ok := any(l).(Notifier); ok {
			if stop := l.Notify(changed); stop != nil {
				stops = append(stops, stop)
			}
		}
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// ParseLimit reads a limit as people write it in configuration: units per time, then its kind.
//
//	10/s              a Bucket of 10 units per second, burst 1
//	100/1m burst 20   a Bucket of 100 units per minute, burst 20
//	5/s even          a Leaky: one unit every 200 ms
//	5000/h sliding    a SlidingWindow: at most 5,000 in any hour
//	100/s window      a FixedWindow: 100 per window of one second
//
// The time is a unit (ns, us, ms, s, m, h, d; not sec or min) or a [time.ParseDuration] text, which
// may begin with whole days: 1d12h. A number is plain decimal, fractions for buckets and even spacing
// only. Join several limits with [All]; note that 300/m is one every 200 ms, and "300/m sliding" lets
// all 300 go at once.
// An error names the part that is wrong and its value; ParseLimit never panics.
func ParseLimit(s string) (Limiter, error) {
	l, err := parseLimit(strings.Fields(s))
	if err != nil {
		return nil, fmt.Errorf("throttle: ParseLimit(%q): %w", s, err)
	}
	return l, nil
}

func parseLimit(words []string) (Limiter, error) {
	units, unit, ok := strings.Cut(strings.Join(words[:min(1, len(words))], ""), "/")
	if !ok {
		return nil, fmt.Errorf("%q is not units/time, as in 10/s", units)
	}
	per, err := parsePer(unit)
	if err != nil {
		return nil, err
	}
	switch kind := words[1:]; {
	case len(kind) == 0, len(kind) == 2 && kind[0] == "burst", len(kind) == 1 && kind[0] == "even":
		limit, err := parseRate(units, per)
		burst := 1
		if err == nil && len(kind) == 2 {
			burst, err = parseCount("burst", kind[1])
		}
		if err != nil {
			return nil, err
		}
		if len(kind) == 1 {
			return NewLeaky(limit), nil
		}
		return NewBucket(limit, burst), nil
	case len(kind) == 1 && (kind[0] == "window" || kind[0] == "sliding"):
		n, err := parseCount("units", units)
		if err != nil {
			return nil, err
		}
		if kind[0] == "window" {
			return NewFixedWindow(n, per), nil
		}
		return NewSlidingWindow(n, per), nil
	}
	return nil, fmt.Errorf("kind %q is none of: burst N, even, sliding, window", strings.Join(words[1:], " "))
}

// parseCount reads a whole number from 1 up.
func parseCount(field, s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || strings.Trim(s, "0123456789") != "" {
		return 0, fmt.Errorf("%s %q is not a whole number from 1 to %d", field, s, math.MaxInt)
	}
	return n, nil
}

// parseRate reads a plain decimal: no sign, exponent, hexadecimal, Inf or NaN.
func parseRate(s string, per time.Duration) (rate.Limit, error) {
	units, err := strconv.ParseFloat(s, 64)
	if err != nil || units <= 0 || strings.Trim(s, "0123456789.") != "" {
		return 0, fmt.Errorf("units %q is not a plain number above 0", s)
	}
	limit := rate.Limit(units / per.Seconds())
	if limit == 0 || limit >= rate.Inf {
		return 0, fmt.Errorf("units %q in %v is beyond what can be reckoned", s, per)
	}
	return limit, nil
}

// parsePer reads the time after the slash.
func parsePer(s string) (time.Duration, error) {
	text := s
	if s != "" && (s[0] < '0' || s[0] > '9') && s[0] != '.' {
		text = "1" + s // a bare unit
	}
	var days int64
	var err error
	if before, rest, ok := strings.Cut(text, "d"); ok {
		text = "0s" + rest
		if days, err = strconv.ParseInt(before, 10, 64); err != nil || days > int64(forever/(24*time.Hour)) {
			return 0, fmt.Errorf("time %q has no whole number of days within 146 years", s)
		}
	}
	per, err := time.ParseDuration(text)
	if per += time.Duration(days) * 24 * time.Hour; err != nil || per <= 0 {
		return 0, fmt.Errorf("time %q is not a unit (ns, us, ms, s, m, h, d) or a duration above 0", s)
	}
	return per, nil
}
