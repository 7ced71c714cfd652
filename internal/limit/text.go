package limit

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// This file writes limits as text, in the form that throttle.ParseLimit reads. A window keeps its length, so
// its text says the same as the one that made it. A bucket keeps a rate alone: of 100 a minute, burst 20, it
// knows 1.67 a second, and looks for the unit in which that is a whole number again. Examples:
//
//	Bucket 10/s                    10/s
//	Bucket 1.6666…/s, burst 20     100/m burst 20
//	Bucket 0.3/s                   18/m burst 1
//	FixedWindow of 3 per 90 s      3/1m30s window
//	both of the first              10/s, 100/m burst 20

const day = 24 * time.Hour

// perUnits are the units of time that a text names by one letter, the longest first.
var perUnits = [...]struct {
	letter string
	length time.Duration
}{{"w", 7 * day}, {"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}

// FormatPer writes a time: one of a unit as its letter, whole days apart, and no zero parts. 90 s is 1m30s,
// an hour h, and 36 hours 1d12h.
func FormatPer(per time.Duration) string {
	for _, u := range perUnits {
		if per == u.length {
			return u.letter
		}
	}
	days, text := "", (per % day).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	if per >= day {
		days, text = fmt.Sprintf("%dd", per/day), strings.TrimPrefix(text, "0s")
	}
	return days + text
}

// formatRate writes a rate in the shortest unit in which it is a whole number, or else per second: 10/s, and
// 100/m for 1.67 a second.
func formatRate(limit rate.Limit) (text string, per time.Duration) {
	for i := range perUnits {
		u := perUnits[len(perUnits)-1-i]
		n := float64(limit) * u.length.Seconds()
		if whole := math.Round(n); whole >= 1 && whole < 1<<53 && math.Abs(n-whole) <= 1e-9*whole {
			return strconv.FormatFloat(whole, 'f', 0, 64) + "/" + u.letter, u.length
		}
	}
	return strconv.FormatFloat(float64(limit), 'f', -1, 64) + "/s", time.Second
}

// String is the bucket's limit as text.
func (b *Bucket) String() (text string) {
	b.UnderLock(func() { text = Text(b.s.limit, b.s.burst) })
	return text
}

// Even is String for a bucket that stands for even spacing.
func (b *Bucket) Even() string {
	limit := b.Limit()
	if limit == rate.Inf {
		return noLimit
	}
	text, _ := formatRate(limit)
	return text + " even"
}

// Text is a limit of units per second with a burst as text.
func Text(limit rate.Limit, burst int) string {
	if limit == rate.Inf {
		return noLimit
	}
	text, per := formatRate(limit)
	return text + burstText(burst, per)
}

// burstText is the last words of a bucket. A burst of 1 is left out where a text may end without a kind.
func burstText(burst int, per time.Duration) string {
	if burst <= 1 && per < leastKind {
		return ""
	}
	return " burst " + strconv.Itoa(max(1, burst))
}

// text is a window's limit; kind is its last word.
func (w *window) text(kind string) string {
	return strconv.FormatInt(w.n, 10) + "/" + FormatPer(w.per) + " " + kind
}

// String is the window's limit as text.
func (w *FixedWindow) String() string {
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	return w.s.text("window")
}

// String is the window's limit as text.
func (w *SlidingWindow) String() string {
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	return w.s.text("sliding")
}

// String joins the texts of all limiters, the foreign ones last. A foreign one that has no String shows its type.
func (s *Set) String() string {
	texts := []string{}
	for _, a := range s.shown() {
		texts = append(texts, fmt.Sprint(a))
	}
	for _, l := range s.foreign {
		if t, ok := l.(fmt.Stringer); ok {
			texts = append(texts, t.String())
		} else {
			texts = append(texts, fmt.Sprintf("%T", l))
		}
	}
	return strings.Join(texts, ", ")
}

// shown are the accounts in the order in which they were joined, each once; a Var is replaced by what it holds.
func (s *Set) shown() (list []Account) {
	for _, a := range s.inOrder() {
		parts := []Account{a}
		if v, holds := a.(*Var); holds {
			parts = v.held.Load().inOrder()
		}
		for _, part := range parts {
			if !slices.Contains(list, part) {
				list = append(list, part)
			}
		}
	}
	return list
}
