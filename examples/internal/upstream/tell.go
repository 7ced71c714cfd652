package upstream

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
)

// Tell names the header fields in which a Server tells its limit. They say that Burst requests may
// be made in the time in which so many come back, how many are left, and when all are back.
type Tell string

const (
	TellNothing    Tell = "none"        // as does the zero Tell
	TellRateLimit  Tell = "draft-8"     // RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-08)
	TellXRateLimit Tell = "x-ratelimit" // X-RateLimit-Limit, -Remaining and -Reset, in seconds since 1970
)

func (t Tell) check(l Limit) error {
	switch t {
	case "", TellNothing, TellXRateLimit:
		return nil
	case TellRateLimit:
		if w := l.window(); w < 1 || w != math.Trunc(w) {
			return fmt.Errorf("upstream: a window of %v s (Burst / Rate) cannot be told by %s: it has whole seconds only", w, t)
		}
		return nil
	}
	return fmt.Errorf("upstream: Limit.Tell %q is none of %q, %q, %q", t, TellNothing, TellRateLimit, TellXRateLimit)
}

// window is how many seconds it takes until a burst has come back.
func (l Limit) window() float64 { return float64(l.Burst) / l.Rate }

// tell puts the state of the limit into header.
func (l Limit) tell(header http.Header, g *gcra, now time.Time) {
	left, whole := g.left(now)
	switch l.Tell {
	case TellRateLimit:
		header.Set("RateLimit-Policy", fmt.Sprintf(`"default";q=%d;w=%.0f`, l.Burst, l.window()))
		header.Set("RateLimit", fmt.Sprintf(`"default";r=%d;t=%.0f`, left, math.Ceil(whole.Seconds())))
	case TellXRateLimit:
		reset := now.Add(whole + time.Second - 1).Unix() // rounded up
		header.Set("X-RateLimit-Limit", strconv.Itoa(l.Burst))
		header.Set("X-RateLimit-Remaining", strconv.Itoa(left))
		header.Set("X-RateLimit-Reset", strconv.FormatInt(reset, 10))
	}
}
