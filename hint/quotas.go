package hint

import (
	"strings"
	"time"
)

// This file reads the values of the fields and makes quotas of them, one family after the other (see
// names.go). Several families may describe the same quota. Then the first one adds it, and the others fill
// in what it left open:
//
//	Ratelimit-Limit: 100            a quota of 100
//	X-Ratelimit-Limit: 100          the same quota again
//	X-Ratelimit-Remaining: 40       and what is left of it

// reader gathers the quotas of one response.
type reader struct {
	clock  clock
	quotas [maxQuotas]Quota
	n      int
	end    time.Duration // until the first end of a window for which no field says what remains; 0: none
	bytes  int           // of values, read so far
	bucket string        // the quota that this request fell under; "": unknown
	global bool          // if the request was throttled, then not by a single quota
}

// unset is a quota about which nothing is known.
var unset = Quota{Limit: -1, Remaining: -1, Reset: -1}

// pay reports whether lines may still be read within maxBytes, and counts them if so. Lines that are too
// long are skipped and not counted, so what follows them can still be read.
func (r *reader) pay(lines []string) bool {
	cost := 0
	for _, l := range lines {
		if cost += len(l) + 1; r.bytes+cost > maxBytes {
			return false
		}
	}
	r.bytes += cost
	return cost > 0
}

// read reads the fields, family by family.
func (r *reader) read(l *fields) {
	for from := 0; from < l.n; {
		to := from + 1
		for to < l.n && l.all[from].family(&l.all[to]) {
			to++
		}
		r.family(l.all[from:to])
		from = to
	}
}

// draft is a family that is being read.
type draft struct {
	q        Quota         // the one that limit, remaining and reset are about
	used     int64         // units of it; -1: unknown
	end      string        // the value that its Reset was read from; "": a member of RateLimit
	unit     time.Duration // of end; 0: by the size of the number
	none     bool          // there is no limit
	minus    bool          // what remains is said to be -1
	policies items         // further quotas of the family
	source   string        // the field that lists the policies
}

// family reads the fields of one family. They describe one quota, and may list the policies of others:
//
//	Ratelimit-Policy: 10;w=1, 1000;w=3600
//	Ratelimit-Limit: 10
//	Ratelimit-Remaining: 9
//
// is the quota of 10 per second with 9 left, and the quota of 1000 per hour.
func (r *reader) family(fs []field) {
	d := draft{q: unset, used: -1}
	d.q.Window = fs[0].window
	for i := range fs {
		if f := &fs[i]; !f.taken && r.pay(f.lines) {
			r.field(&d, f)
		}
	}
	if d.minus && d.q.Limit < 0 || d.none {
		d.q.Limit, d.q.Remaining, d.used = -1, -1, -1
	}
	d.q.derive(d.used)
	if d.join(); d.none {
		d.q.Limit = -1
	}
	r.ends(&d.q, d.end, d.unit)
	if d.q.Limit >= 0 || d.q.Remaining >= 0 {
		d.q.Unit = unitName(fs[0].unit)
		r.add(&d.q)
	}
	// The policy of d.q itself is among them. It is the same quota as one that is there already, so add
	// adds nothing.
	for i := range d.policies.n {
		r.policy(&d.policies.all[i], nil, d.source)
	}
}

// field reads one field into d. The fields come in the order of their kinds, so a more precise one finds
// what a less precise one has said, and overwrites it. Of a field that should have one line but has
// several, the first counts.
func (r *reader) field(d *draft, f *field) {
	switch f.kind {
	case policy:
		d.policies.read(f.lines, false)
		d.source = f.key
	case whole, info:
		r.whole(d, f)
	default:
		r.part(d, f)
	}
}

// part reads a field that says one thing of a quota.
func (r *reader) part(d *draft, f *field) {
	first := f.lines[0]
	switch f.kind {
	case limit:
		if d.none = d.none || unlimited(first); !d.none {
			r.limit(d, f)
		}
	case remaining, used:
		d.minus = d.minus || f.kind == remaining && trim(first) == "-1"
		r.count(d, f)
	case reset:
		if d.q.Reset >= 0 {
			return // RateLimit has said it
		}
		fallthrough
	case resetAfter:
		if t, ok := r.clock.reset(first, f.scale); ok {
			d.q.Reset, d.end, d.unit = t, first, f.scale
		}
	case window:
		t := windowOf(trim(first))
		if t == 0 || f.scale > 0 {
			t, _ = r.clock.reset(first, orElse(f.scale, time.Second, 0))
		}
		if d.q.Window == 0 {
			d.q.Window = t
		}
	case name, bucket:
		d.q.Name = short(trim(first))
		if f.kind == bucket {
			r.bucket = d.q.Name
		}
	case scope:
		v := trim(first)
		r.global = r.global || strings.EqualFold(v, "global") || strings.EqualFold(v, "true")
	}
}

// limit reads the size of a quota, and the policies behind it: until draft 03 both stood in one field, as in
// "10, 10;w=1, 1000;w=3600".
func (r *reader) limit(d *draft, f *field) {
	var l items
	if !l.read(f.lines, true) || l.all[0].form != number {
		return
	}
	first := &l.all[0]
	d.q.Limit = first.size()
	if d.q.Source == "" {
		d.q.Source = f.key
	}
	if first.w > 0 && d.q.Window == 0 {
		d.q.Window = seconds(first.w)
	}
	if d.policies.n == 0 && l.n > 1 {
		d.policies.n = copy(d.policies.all[:], l.all[1:l.n])
		d.source = f.key
	}
}

// count reads what is left of a quota, or what is used of it. Docker Hub gives the window here too:
// "98;w=21600".
func (r *reader) count(d *draft, f *field) {
	var l items
	if !l.read(f.lines, true) || l.all[0].form != number {
		return
	}
	if f.kind == used {
		d.used = l.all[0].n
		return
	}
	if l.all[0].n >= 0 {
		d.q.Remaining, d.q.Source = l.all[0].n, f.key
	}
	if w := l.all[0].w; w > 0 && d.q.Window == 0 {
		d.q.Window = seconds(w)
	}
}

// derive computes Remaining or Limit, if it is unknown, from the other one and used; -1: unknown.
func (q *Quota) derive(used int64) {
	switch {
	case used < 0:
	case q.Remaining < 0 && q.Limit >= 0:
		q.Remaining = max(0, q.Limit-used)
	case q.Limit < 0 && q.Remaining >= 0 && used <= maxCount-q.Remaining:
		q.Limit = q.Remaining + used
	}
}

const maxCount = 1<<63 - 1

// find returns the policy of that name, or nil.
func (l *items) find(name string) *item {
	for i := range l.n {
		if it := &l.all[i]; it.form == text && it.name == name {
			return it
		}
	}
	return nil
}

// join gives the quota the window and the name of its policy: the policy of the same size, or the only one
// if the quota's size is unknown. With "Ratelimit-Limit: 10" and "Ratelimit-Policy: 10;w=1, 1000;w=3600",
// the window is one second.
func (d *draft) join() {
	if d.q.Limit < 0 && d.q.Remaining < 0 {
		return
	}
	for i := range d.policies.n {
		p := &d.policies.all[i]
		if p.form != number || p.n != d.q.Limit && (d.q.Limit >= 0 || d.policies.n > 1) {
			continue
		}
		d.q.Limit = p.n
		if d.q.Window == 0 && p.w > 0 {
			d.q.Window = seconds(p.w)
		}
		if d.q.Name == "" {
			d.q.Name = short(p.name)
		}
		return
	}
}

// policy adds the quota that p, a member of RateLimit-Policy, describes, with what it, the RateLimit member
// of the same name, says about it. Either may be nil.
func (r *reader) policy(p, it *item, key string) {
	q := unset
	q.Source = key
	if p != nil {
		switch p.form {
		case number:
			q.Limit = p.size()
		case text:
			q.Limit, q.Unit = p.q, "requests"
		default:
			return
		}
		q.Name = short(p.name)
		q.Window = seconds(max(0, p.w))
		if p.unit != "" {
			q.Unit = short(p.unit)
		}
	}
	if it != nil {
		q.Name, q.Remaining = short(it.name), it.r
		if it.t >= 0 {
			q.Reset = r.clock.seconds(it.t)
			r.ends(&q, "", 0)
		}
	}
	r.add(&q)
}

// seconds returns n seconds, or the longest Duration if they are more.
func seconds(n int64) time.Duration {
	if n > int64(maxWait/time.Second) {
		return maxWait
	}
	return time.Duration(n) * time.Second
}

// add adds q to the quotas. If one of them is the same quota, q only fills in what that one lacks.
func (r *reader) add(q *Quota) {
	if q.Limit < 0 && q.Remaining < 0 && q.Rate == 0 {
		return // a window, but of what?
	}
	for i := range r.n {
		if r.quotas[i].same(q) {
			r.quotas[i].fill(q)
			return
		}
	}
	if r.n < maxQuotas {
		r.quotas[r.n] = *q
		r.n++
	}
}

// same reports whether two descriptions are of one quota. Nothing that both know may differ. But two
// descriptions that merely do not contradict each other may be of two quotas: so both must know the size, or
// both must know what is left and when the window ends. The ends may differ by 2 s, because one server often
// sends one in whole seconds and the other as a moment.
func (q *Quota) same(p *Quota) bool {
	switch {
	case differ(q.Name, p.Name, ""), differ(q.Unit, p.Unit, ""), differ(q.Window, p.Window, 0),
		differ(q.Limit, p.Limit, -1), differ(q.Remaining, p.Remaining, -1), differ(q.Rate, p.Rate, 0):
		return false
	case q.Reset >= 0 && p.Reset >= 0 && !near(q.Reset, p.Reset, 2*time.Second):
		return false
	}
	return q.Limit >= 0 && p.Limit >= 0 ||
		q.Remaining >= 0 && p.Remaining >= 0 && q.Reset >= 0 && p.Reset >= 0
}

// differ reports whether a and b are both known, and not equal.
func differ[T comparable](a, b, unknown T) bool { return a != unknown && b != unknown && a != b }

// fill adds to q what only p knows. Unknown numbers are -1 or 0, and numbers that both know are equal, so the
// greater of the two is the known one.
func (q *Quota) fill(p *Quota) {
	if q.Remaining < 0 && p.Remaining >= 0 {
		q.Remaining, q.Source = p.Remaining, p.Source
	}
	q.Limit, q.Reset = max(q.Limit, p.Limit), orElse(q.Reset, p.Reset, -1) // two resets may differ a little
	q.Window, q.Rate = max(q.Window, p.Window), max(q.Rate, p.Rate)
	q.Name, q.Unit = orElse(q.Name, p.Name, ""), orElse(q.Unit, p.Unit, "")
}

// orElse returns a, or b if a is unknown.
func orElse[T comparable](a, b, unknown T) T {
	if a != unknown {
		return a
	}
	return b
}
