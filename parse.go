package throttle

import (
	"cmp"
	"fmt"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/limit"
)

// A Limit is a limit as text, for configuration files, flags and environment variables: units per time,
// then the kind. Several, separated by commas, all hold.
//
//	10/s              a Bucket of 10 units per second, burst 1
//	100/1m burst 20   a Bucket of 100 units per minute, burst 20
//	300/m even        a Leaky: one unit every 200 ms
//	5000/h sliding    a SlidingWindow: at most 5,000 units in any hour
//	100/s window      a FixedWindow: 100 units per window of one second
//	10/s, 1000/h even both
//	unlimited         no limit
//
// "10 rps", "10r/s", "10 requests / sec", "10 per second" and "100 per 5 minutes even" are read too. The time is a unit from
// ns to w(eek), or a duration such as 1m30s or 1d12h. A minute or longer needs a kind: of 1000/h people think as of a window,
// and a bucket would let one unit go every 3.6 s. Units are plain decimal numbers; windows have whole ones.
//
// A Limit is a value: two of the same limit in the same words are equal. The zero Limit limits nothing as "unlimited"
// does, and IsZero tells them apart.
type Limit struct{ text string } // in its shortest form; "": absent

// UnmarshalText implements [encoding.TextUnmarshaler], so that JSON, YAML and [flag.TextVar] read a Limit.
// An error names the part that is wrong and its value, and leaves l as it is. The empty text is an error.
func (l *Limit) UnmarshalText(text []byte) error {
	all, err := limit.ParseSpecs(string(text))
	if err != nil {
		return fmt.Errorf("throttle: Limit %.100q: %w", text, err)
	}
	*l = Limit{limit.FormatSpecs(all)}
	return nil
}

// MarshalText implements [encoding.TextMarshaler]; the error is always nil.
func (l Limit) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// IsZero reports whether no text was read. Of a Limit that was read from "unlimited" it is false. JSON with omitzero and YAML
// with omitempty leave a zero Limit out; otherwise it is written as "unlimited".
func (l Limit) IsZero() bool { return l.text == "" }

// String returns the limit in its shortest form, as in "100/m burst 20", and several in the order in which they were written.
func (l Limit) String() string { return cmp.Or(l.text, "unlimited") }

// New makes a limiter of its own at each call. That of the zero Limit lets everything go.
func (l Limit) New() Limiter {
	all, _ := limit.ParseSpecs(l.String()) // what UnmarshalText has accepted
	limiters := make([]Limiter, len(all))
	for i, one := range all {
		limiters[i] = newLimiter(one)
	}
	if len(limiters) == 0 {
		return NewBucket(rate.Inf, 0)
	}
	return All(limiters...)
}

// ParseLimit makes a limiter from the text of a [Limit]. An error names the part that is wrong and its
// value; ParseLimit never panics.
func ParseLimit(s string) (Limiter, error) {
	all, err := limit.ParseSpecs(s)
	if err != nil {
		return nil, fmt.Errorf("throttle: ParseLimit(%.100q): %w", s, err)
	}
	return Limit{limit.FormatSpecs(all)}.New(), nil
}

// newLimiter makes the limiter of one limit.
func newLimiter(l limit.Spec) Limiter {
	limit := rate.Limit(l.Units / l.Per.Seconds())
	switch l.Kind {
	case "even":
		return NewLeaky(limit)
	case "window":
		return NewFixedWindow(l.N, l.Per)
	case "sliding":
		return NewSlidingWindow(l.N, l.Per)
	}
	return NewBucket(limit, l.Burst)
}
