package hint

import (
	"net/http"
	"strings"
	"time"
)

// Dialect is one row of the table of dialects: how one host describes one quota
// in its header fields. Everything but Host may be left out. A row applies to a
// response that has one of the fields that Limit, Remaining, Used, Rate and Reset name;
// the fields that it names are then read by rows alone.
//
// An API that tells "X-Quota: 12/500" for each hour needs
//
//	hint.Dialect{Host: "api.example.com", Used: "X-Quota", Window: time.Hour}
//
// Names of fields are cheapest to look up in canonical form: "X-Quota", not
// "x-quota".
type Dialect struct {
	// Host is the host that answered: lower case, without a port. One * in it stands
	// for any characters. "": every host, also one that is not known.
	Host string

	// Name and Unit are the quota's, where no field tells them. "": not told.
	Name, Unit string

	// Max is the quota's limit where no field tells it. 0: not told.
	Max int64

	// Window is the length of the quota's window. 0: not told.
	Window time.Duration

	// Limit, Remaining and Used name the fields that tell the size of the quota, what
	// is left and what is used. A value of Used may also be used/limit, also behind a
	// key: "api-usage=18/5000". What is not told follows from the other two.
	Limit, Remaining, Used string

	// Index chooses a member of values that are lists, from 0.
	Index int

	// Reset and Period name the fields that tell when the window ends and how long it
	// is, as dates, Go durations or plain numbers.
	Reset, Period string

	// Scale is the unit of plain numbers in Reset, Period and RetryAfter. 0: seconds,
	// and in Reset whatever the size of the number suggests.
	Scale time.Duration

	// Rate names a field that tells how many units per second are allowed.
	Rate string

	// NamedBy names the field that tells the name of the quota.
	NamedBy string

	// RetryAfter names a field that tells how long not to send. It is read where
	// Retry-After would be, and wins over it.
	RetryAfter string

	// Refusal is a status that means a refusal, beside those that always do, if the
	// response tells of a quota of which nothing remains. 0: none.
	Refusal int

	// Body turns on the look into JSON bodies for this host. See [Parser].
	Body bool

	// Final lists the codes of errors that no wait cures, beside the built-in ones. An
	// answer with a status of 400 or more whose JSON body names one of them, in
	// error.code, error.type, error.details.error_code, code or type, is
	// [Hint].Final. A row with Final turns on the look into bodies as Body does.
	Final []string
}

// hostOf returns the host that answered, in lower case and without a port.
func hostOf(resp *http.Response) string {
	if resp.Request == nil || resp.Request.URL == nil {
		return ""
	}
	return strings.ToLower(strings.TrimSuffix(resp.Request.URL.Hostname(), "."))
}

// covers tells whether the row is about host.
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

// row reads the quota that d describes, and takes its fields.
func (r *reader) row(d *Dialect, l *fields) {
	q := untold
	q.Name, q.Unit, q.Window = d.Name, d.Unit, max(0, d.Window)
	used := int64(-1)
	if v := r.line(d.Used); v != "" {
		if u, lim, ok := parseShare(v); ok {
			used, q.Limit, q.Source = u, lim, d.Used
		} else if it, ok := r.nth(d.Used, d.Index); ok {
			used, q.Source = it.n, d.Used
		}
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
		if r.times(d, &q); q.Reset >= 0 { // nothing but the reset, whose unit the pattern does not know
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

// times reads the end and the length of the window that d describes.
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

// line returns the first line of the field of that name, "" if there is none.
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

// nth returns the member of a list of numbers that stands at index.
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

// parseShare reads used/limit, also behind a key. Of several the first counts.
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

// take marks the fields that d names as read.
func (l *fields) take(d *Dialect) {
	for i := range l.n {
		f := &l.all[i]
		for _, name := range [...]string{d.Limit, d.Remaining, d.Used, d.Reset, d.Period, d.Rate, d.NamedBy} {
			f.taken = f.taken || fold(f.key, name)
		}
	}
}
