package hint

import (
	"net/http"
	"strings"
	"time"
)

// Dialect is one row of the table of dialects: how one host describes one quota in its header fields. Every
// part of it is optional. A row applies to a response that has one of the fields that Limit, Remaining,
// Used, Rate and Reset name; the name pattern then skips the fields that the row names.
//
// For an API that sends "X-Quota: 12/500" and counts by the hour, the row is
//
//	hint.Dialect{Host: "api.example.com", Used: "X-Quota", Window: time.Hour}
//
// Names of fields are looked up fastest in canonical form: "X-Quota", not "x-quota".
type Dialect struct {
	// Host is the host that responds: lower case, without a port. One * in it stands for any characters.
	// "": every host, also an unknown one.
	Host string

	// Name and Unit are those of the quota, unless a field gives them. "": unknown.
	Name, Unit string

	// Max is the quota's limit, in units, unless a field gives it. 0: unknown.
	Max int64

	// Window is the length of the quota's window. 0: unknown.
	Window time.Duration

	// Limit, Remaining and Used name the fields for the size of the quota, what is left, and what is used,
	// in units. If Limit or Remaining is missing, it is computed from the other one and Used. The value of
	// Used may also be used/limit, with or without a key before it: "api-usage=18/5000".
	Limit, Remaining, Used string

	// Index chooses the member of values that are lists, from 0.
	Index int

	// Reset and Period name the fields for the end and the length of the window. Their values have any form that
	// a time has; see Times at [Parser].
	Reset, Period string

	// Scale is the unit of plain numbers in Reset, Period and RetryAfter. 0: seconds, but in Reset the unit
	// that the size of the number suggests.
	Scale time.Duration

	// Rate names a field for the allowed rate, in units per second.
	Rate string

	// NamedBy names a field for the quota's name.
	NamedBy string

	// RetryAfter names a field for how long not to send. It is read on the same statuses as Retry-After, and
	// on Refusal, and takes precedence over Retry-After.
	RetryAfter string

	// Refusal is a further status that means throttled, if the response also shows an exhausted quota. 0:
	// none.
	Refusal int

	// Global means that a throttled response of this host that describes no quota comes from a gateway before
	// it, and is about the whole host ([Hint].Global).
	Global bool

	// Majors are segments of a path whose next one belongs to the name of the bucket in X-RateLimit-Bucket. With
	// "channels" the bucket abcd of /channels/7/messages is "abcd 7", and not that of channel 8. nil: the name
	// stands as it is. The first row of the host that has Majors counts.
	Majors []string

	// Body makes the Parser look into successes of this host too, for an API that refuses with a 200; see [Parser].
	Body bool

	// Final lists error codes that no wait cures, besides the built-in ones. A response with a status from
	// 400 on is [Hint].Final if its JSON body has one of them in error.code, error.type,
	// error.details.error_code, code or type. Final looks into bodies as Body does, those of refusals with a wait in
	// the header included.
	Final []string
}

// hostOf returns the host that responded, in lower case and without port and final dot; "" if unknown.
func hostOf(resp *http.Response) string {
	if resp.Request == nil || resp.Request.URL == nil {
		return ""
	}
	return strings.ToLower(strings.TrimSuffix(resp.Request.URL.Hostname(), "."))
}

// covers reports whether the row is about host. What stands before and behind the * must not overlap: "a*a"
// does not cover "a".
func (d *Dialect) covers(host string) bool {
	if d.Host == "" {
		return true
	}
	i := strings.IndexByte(d.Host, '*')
	if i < 0 {
		return d.Host == host
	}
	head, tail := d.Host[:i], d.Host[i+1:]
	return len(host) >= len(head)+len(tail) && strings.HasPrefix(host, head) && strings.HasSuffix(host, tail)
}

// row reads the quota that d describes, and marks its fields in l as read. Of Used, Limit, Remaining and
// Rate, in this order, the last that is there becomes the Source; without any, d says nothing but when a
// window ends. For example, a row with Used "X-Quota" and an hour's Window reads "X-Quota: 12/500" as a quota
// of 500 per hour with 488 left.
func (r *reader) row(d *Dialect, l *fields) {
	q := unset
	q.Name, q.Unit, q.Window = d.Name, d.Unit, max(0, d.Window)
	used := int64(-1)
	if v := r.line(d.Used); v != "" {
		if u, lim, ok := parseShare(v); ok {
			used, q.Limit, q.Source = u, lim, d.Used
		} else if it, ok := r.nth(d.Used, d.Index); ok {
			used, q.Source = it.n, d.Used
		}
	}
	if unlimited(r.line(d.Limit)) {
		l.take(d)
		return
	}
	if it, ok := r.nth(d.Limit, d.Index); ok {
		q.Limit, q.Source = it.size(), d.Limit
		if q.Window == 0 && it.w > 0 {
			q.Window = seconds(it.w)
		}
	}
	if it, ok := r.nth(d.Remaining, d.Index); ok {
		q.Remaining, q.Source = it.n, d.Remaining
	}
	if rate, ok := parseRate(r.line(d.Rate)); ok {
		q.Rate, q.Source = rate, d.Rate
	}
	if q.Source == "" {
		if r.times(d, &q); q.Reset >= 0 { // the row knows the unit of the reset, the pattern would not
			r.ends(&q, r.line(d.Reset), d.Scale)
			l.take(d)
		}
		return
	}
	if q.Limit < 0 && d.Max > 0 {
		q.Limit = d.Max
	}
	q.derive(used)
	r.times(d, &q)
	r.ends(&q, r.line(d.Reset), d.Scale)
	if v := r.line(d.NamedBy); v != "" {
		q.Name = short(v)
	}
	l.take(d)
	r.add(&q)
}

// times reads the end and the length of the window that d describes. A length in plain numbers is in seconds
// unless d has a Scale: its size says nothing.
func (r *reader) times(d *Dialect, q *Quota) {
	if t, ok := r.clock.reset(r.line(d.Reset), d.Scale); ok {
		q.Reset = t
	}
	if v := r.line(d.Period); v != "" {
		if t, ok := r.clock.reset(v, orElse(max(0, d.Scale), time.Second, 0)); ok {
			q.Window = t
		}
	}
}

// line returns the first line of the field of that name; "" if there is none, or no more may be read.
func (r *reader) line(name string) string {
	if name == "" {
		return ""
	}
	lines := r.clock.header.Values(name)
	if len(lines) == 0 || !r.pay(lines[:1]) {
		return ""
	}
	return trim(lines[0])
}

// nth returns the member at index of a list of numbers, if it is a number and not negative.
func (r *reader) nth(name string, index int) (it item, ok bool) {
	v := r.line(name)
	if v == "" {
		return it, false
	}
	var l items
	if !l.read([]string{v}, true) || index < 0 || index >= l.n {
		return it, false
	}
	it = l.all[index]
	return it, it.form == number && it.n >= 0
}

// parseShare reads used/limit, with or without a key before it, as in "api-usage=18/5000". Of a list it
// reads the first member.
func parseShare(s string) (used, limit int64, ok bool) {
	if i := strings.IndexAny(s, ",;"); i >= 0 {
		s = s[:i]
	}
	if _, v, found := strings.Cut(s, "="); found {
		s = v
	}
	u, l, _ := strings.Cut(s, "/")
	if u, l = trim(u), trim(l); !allDigits(u) || !allDigits(l) {
		return 0, 0, false
	}
	return amount(u), amount(l), true
}

// take marks the fields that d names as read, so that the pattern does not read them as another quota.
func (l *fields) take(d *Dialect) {
	for i := range l.n {
		f := &l.all[i]
		for _, name := range [...]string{d.Limit, d.Remaining, d.Used, d.Reset, d.Period, d.Rate, d.NamedBy} {
			f.taken = f.taken || fold(f.key, name)
		}
	}
}
