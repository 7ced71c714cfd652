package upstream

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Told is what an answer says of a limit.
type Told struct {
	Name        string
	Limit, Left int
	Reset       time.Duration
	Window      time.Duration // 0: none, as of a cap on calls in flight; such a limit is not told
}

// A Dialect is the generation of header fields that tells of limits with every answer.
type Dialect string

const (
	Silent  Dialect = ""         // nothing is told
	Draft03 Dialect = "draft-03" // RateLimit-Limit (with its window), -Remaining, -Reset
	Draft06 Dialect = "draft-06" // the same, the window in RateLimit-Policy
	Draft07 Dialect = "draft-07" // RateLimit: limit=, remaining=, reset=; RateLimit-Policy
	Draft08 Dialect = "draft-08" // RateLimit: "name";r=;t=, RateLimit-Policy: "name";q=;w=
	XEpoch  Dialect = "x-epoch"  // X-RateLimit-*, reset in seconds since 1970
	XDelta  Dialect = "x-delta"  // X-RateLimit-*, reset in seconds from now
)

// Dialects are all that tell something, the oldest first.
var Dialects = []Dialect{Draft03, Draft06, Draft07, Draft08, XEpoch, XDelta}

// A RetryAfter is what a refusal says of the time to wait.
type RetryAfter struct {
	Told   bool
	Fixed  time.Duration // told whatever the truth is; 0: the time until the limit admits one, rounded up
	AsDate bool          // an HTTP date in place of seconds
}

// seconds rounds up, as an upstream does that does not want to be asked too early.
func seconds(d time.Duration) int { return int((max(0, d) + time.Second - 1) / time.Second) }

// write puts what the limits say into h. Dialects that have room for one limit tell of the one with
// the smallest share left.
func (d Dialect) write(h http.Header, all []Told, now time.Time) {
	if d == Silent || len(all) == 0 {
		return
	}
	q := all[0]
	for _, t := range all[1:] {
		if t.Left*q.Limit < q.Left*t.Limit {
			q = t
		}
	}
	limit, left, reset := strconv.Itoa(q.Limit), strconv.Itoa(q.Left), strconv.Itoa(seconds(q.Reset))
	trio := func(prefix, limit, reset string) {
		h.Set(prefix+"Limit", limit)
		h.Set(prefix+"Remaining", left)
		h.Set(prefix+"Reset", reset)
	}
	policy := fmt.Sprintf("%d;w=%d", q.Limit, seconds(q.Window))
	switch d {
	case Draft03:
		trio("RateLimit-", limit+", "+policy, reset)
	case Draft06:
		trio("RateLimit-", limit, reset)
		h.Set("RateLimit-Policy", policy)
	case Draft07:
		h.Set("RateLimit", "limit="+limit+", remaining="+left+", reset="+reset)
		h.Set("RateLimit-Policy", policy)
	case Draft08:
		var limits, policies []string
		for _, t := range all {
			name := strconv.Quote(t.Name)
			if t.Name == "" {
				name = `"default"`
			}
			limits = append(limits, fmt.Sprintf("%s;r=%d;t=%d", name, t.Left, seconds(t.Reset)))
			policies = append(policies, fmt.Sprintf("%s;q=%d;w=%d", name, t.Limit, seconds(t.Window)))
		}
		h.Set("RateLimit", strings.Join(limits, ", "))
		h.Set("RateLimit-Policy", strings.Join(policies, ", "))
	case XEpoch:
		trio("X-RateLimit-", limit, strconv.FormatInt(now.Add(q.Reset+time.Second-1).Unix(), 10))
	case XDelta:
		trio("X-RateLimit-", limit, reset)
	}
}

func (r RetryAfter) write(h http.Header, wait time.Duration, now time.Time) {
	if !r.Told {
		return
	}
	if r.Fixed != 0 {
		wait = r.Fixed
	}
	if r.AsDate {
		h.Set("Retry-After", now.Add(wait+time.Second-1).UTC().Format(http.TimeFormat))
		return
	}
	h.Set("Retry-After", strconv.Itoa(seconds(wait)))
}
