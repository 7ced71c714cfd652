package throttle_test

import (
	"cmp"
	"math"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
)

// A kind is how an upstream counts, and what it means by a reset.
type kind string

const (
	gcra        kind = "gcra"         // n per window evenly, up to burst at once
	fixed       kind = "fixed"        // n per window; windows begin at phase, phase + per, ...
	fixedFirst  kind = "fixed-first"  // a window begins with the first request after the last one's end
	sliding     kind = "sliding"      // a log; reset: when the oldest request leaves it
	slidingFull kind = "sliding-full" // a log; reset: when the quota would be whole again
	bucket      kind = "bucket"       // gcra; reset: when the bucket would be full
	bucketNext  kind = "bucket-next"  // gcra; reset: when the next token comes
)

// A limit is one quota of an upstream.
type limit struct {
	kind   kind
	n      int
	per    time.Duration
	burst  int           // gcra and buckets; 0: n
	phase  time.Duration // fixed
	counts bool          // windows: refused requests count too, as HAProxy has it
	name   string
}

// rate is the units per second.
func (l limit) rate() float64 { return float64(l.n) / l.per.Seconds() }

func (l limit) model() model {
	switch l.kind {
	case fixed, fixedFirst:
		return &fixedModel{limit: l}
	case sliding, slidingFull:
		return &slidingModel{limit: l}
	}
	b := &bucketModel{limit: l}
	b.burst = cmp.Or(l.burst, l.n)
	b.set(l.n)
	return b
}

// oracle is the limiter of a client that knows the limit and the spread j of its way there. It is
// what a configured client can do, not the best that can be done: it does not know where fixed
// windows begin. Without room for the spread a gcra of burst 1 is paced so that 1.5 % are refused
// (algorithms.md, 18), another so that hardly any are.
func (l limit) oracle(j time.Duration) throttle.Limiter {
	switch l.kind {
	case fixed, fixedFirst, sliding, slidingFull:
		return throttle.NewSlidingWindow(l.n, l.per+j)
	}
	t := float64(l.per) / float64(l.n)
	switch room := float64(cmp.Or(l.burst, l.n)); {
	case room == 1:
		t += 0.85 * float64(j)
	case room < 1+float64(j)/t:
		t /= 0.88
	}
	return throttle.NewLeaky(rate.Every(time.Duration(t)))
}

// A model decides. It is asked in order of time.
type model interface {
	take(at time.Duration) (admitted bool)
	tell(at time.Duration) told // right after take
	set(n int)                  // from now on n per window
}

// told is what a quota knows of itself, exactly.
type told struct {
	limit, remaining int
	reset, window    time.Duration
}

type fixedModel struct {
	limit
	used int
	end  time.Duration
}

func (m *fixedModel) set(n int) { m.n = n }

func (m *fixedModel) take(at time.Duration) bool {
	if at >= m.end {
		m.used = 0
		if m.kind == fixedFirst {
			m.end = at + m.per
		} else {
			m.end = m.phase + ((at-m.phase+m.per)/m.per)*m.per
		}
	}
	ok := m.used < m.n
	if ok || m.counts {
		m.used++
	}
	return ok
}

func (m *fixedModel) tell(at time.Duration) told {
	return told{m.n, max(0, m.n-m.used), m.end - at, m.per}
}

type slidingModel struct {
	limit
	log  []time.Duration // that of the last window begins at head
	head int
}

func (m *slidingModel) set(n int) { m.n = n }

func (m *slidingModel) take(at time.Duration) bool {
	for m.head < len(m.log) && m.log[m.head] <= at-m.per {
		m.head++
	}
	if m.head > len(m.log)/2 {
		m.log, m.head = m.log[:copy(m.log, m.log[m.head:])], 0
	}
	ok := len(m.log)-m.head < m.n
	if ok || m.counts {
		m.log = append(m.log, at)
	}
	return ok
}

func (m *slidingModel) tell(at time.Duration) told {
	log := m.log[m.head:]
	var reset time.Duration
	switch {
	case len(log) == 0:
	case m.kind == slidingFull:
		reset = log[len(log)-1] + m.per - at
	default:
		reset = log[0] + m.per - at
	}
	return told{m.n, max(0, m.n-len(log)), reset, m.per}
}

// bucketModel is GCRA: tat is when all that was taken will be paid.
type bucketModel struct {
	limit
	t   float64 // ns a unit
	tat float64
}

func (m *bucketModel) set(n int) { m.n, m.t = n, float64(m.per)/float64(n) }

func (m *bucketModel) take(at time.Duration) bool {
	if float64(at) < m.tat-float64(m.burst-1)*m.t-0.5 { // half a nanosecond: sums of fractions err
		return false
	}
	m.tat = max(m.tat, float64(at)) + m.t
	return true
}

func (m *bucketModel) tell(at time.Duration) told {
	debt := max(0, m.tat-float64(at))
	tokens := max(0, float64(m.burst)-debt/m.t)
	whole := math.Floor(tokens + 1e-9)
	reset := time.Duration(debt)
	if m.kind == bucketNext {
		reset = time.Duration(math.Round((whole + 1 - tokens) * m.t))
		if whole >= float64(m.burst) {
			reset = 0
		}
	}
	return told{m.burst, int(whole), reset, m.per}
}

// A dialect writes what is told into a header; reset is in whole seconds, epoch the same as a Unix
// time. Field names are canonical, as net/http delivers them.
type dialect func(h http.Header, q told, name string, reset int, epoch int64)

// dialects are the generations of header fields.
var dialects = []struct {
	name string
	tell dialect
}{
	{"draft-03", func(h http.Header, q told, _ string, reset int, _ int64) {
		n := strconv.Itoa(q.limit)
		trio(h, "Ratelimit-", n+", "+policy(q), q, reset)
	}},
	{"draft-06", func(h http.Header, q told, _ string, reset int, _ int64) {
		trio(h, "Ratelimit-", strconv.Itoa(q.limit), q, reset)
		h["Ratelimit-Policy"] = []string{policy(q)}
	}},
	{"draft-07", func(h http.Header, q told, _ string, reset int, _ int64) {
		h["Ratelimit"] = []string{"limit=" + strconv.Itoa(q.limit) + ", remaining=" + strconv.Itoa(q.remaining) + ", reset=" + strconv.Itoa(reset)}
		h["Ratelimit-Policy"] = []string{policy(q)}
	}},
	{"draft-08", func(h http.Header, q told, name string, reset int, _ int64) {
		if name == "" {
			name = "default"
		}
		h["Ratelimit"] = []string{`"` + name + `";r=` + strconv.Itoa(q.remaining) + ";t=" + strconv.Itoa(reset)}
		h["Ratelimit-Policy"] = []string{`"` + name + `";q=` + strconv.Itoa(q.limit) + ";w=" + strconv.Itoa(int(q.window/time.Second))}
	}},
	{"x-epoch", func(h http.Header, q told, name string, _ int, epoch int64) {
		trio(h, "X-Ratelimit-", strconv.Itoa(q.limit), q, int(epoch))
		if name != "" {
			h["X-Ratelimit-Resource"] = []string{name}
		}
	}},
	{"x-delta", func(h http.Header, q told, name string, reset int, _ int64) {
		trio(h, "X-Ratelimit-", strconv.Itoa(q.limit), q, reset)
	}},
}

func dialectOf(name string) dialect {
	for _, d := range dialects {
		if d.name == name {
			return d.tell
		}
	}
	panic(name)
}

func trio(h http.Header, prefix, limit string, q told, reset int) {
	v := []string{limit, strconv.Itoa(q.remaining), strconv.Itoa(reset)} // one allocation for three
	h[prefix+"Limit"], h[prefix+"Remaining"], h[prefix+"Reset"] = v[:1:1], v[1:2:2], v[2:]
}

func policy(q told) string {
	return strconv.Itoa(q.limit) + ";w=" + strconv.Itoa(int(q.window/time.Second))
}

// A clock says how an upstream tells the time: resets are whole seconds, rounded up unless floor.
type clock struct {
	floor  bool
	noDate bool
	skew   time.Duration // how far its clock is ahead of ours

	second int64    // of date
	date   []string // the field, made once a second
}

func (c *clock) header(tell dialect, q told, name string, now time.Time) http.Header {
	h := make(http.Header, 5)
	now = now.Add(c.skew)
	var up time.Duration
	if !c.floor {
		up = time.Second - 1
	}
	tell(h, q, name, int((q.reset+up)/time.Second), now.Add(q.reset+up).Unix())
	if !c.noDate {
		if c.date == nil || now.Unix() != c.second {
			c.second, c.date = now.Unix(), []string{now.UTC().Format(http.TimeFormat)}
		}
		h["Date"] = c.date
	}
	return h
}

var noHeader = http.Header{}

func withRetryAfter(h http.Header, seconds int) http.Header {
	if len(h) == 0 {
		h = make(http.Header, 1)
	}
	h["Retry-After"] = []string{strconv.Itoa(seconds)}
	return h
}
