package inbound

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// This file writes what clients hear. The fields are those of draft-ietf-httpapi-ratelimit-headers, versions 08 to
// 11, which hint.Parse reads:
//
//	RateLimit-Policy: "m";q=100;w=60, "d";q=5000;w=86400
//	RateLimit: "m";r=12;t=3, "d";r=4210;t=51000
//
// q is the burst of a bucket or the size of a window, w the time in which a bucket fills or the length of the window,
// r how many units are left, and t the time until the bucket is full or the window ends. The tightest comes first: the
// one with the smallest share left. Times are in whole seconds, rounded up. A limit whose w would be below a second, such
// as 10/s, is left out: rounded up it would tell clients to go ten times slower than they may.

// The canonical names, as net/http has them.
const (
	rateLimit  = "Ratelimit"
	ratePolicy = "Ratelimit-Policy"
	xLimit     = "X-Ratelimit-Limit"
	xRemaining = "X-Ratelimit-Remaining"
	xReset     = "X-Ratelimit-Reset"
)

// policies are the RateLimit-Policy lines that a core can send, made in advance, since most have one part and a few
// tiers: by tier of the first part. Requests under further parts have a line for each. They are never changed, and made anew for the
// first request that was judged by other laws.
type policies struct {
	laws  [maxParts][][]law           // by part and tier: what they were made of
	names [maxParts][][maxLaws]string // by part and tier: the quoted names
	lines [maxParts][][]string        // by part and tier: the values of the field; nil: there is none
}

// policiesFor are those of the laws that a visit was judged by. A part whose laws it did not note has refused nothing, and is not
// shown.
func (c *core) policiesFor(v *visit) *policies {
	p := c.policies.Load()
	for i := range c.parts {
		if a := &v.asked[i]; a.verdict.laws != nil && (a.tier >= len(p.laws[i]) || !sameLaws(p.laws[i][a.tier], *a.verdict.laws)) {
			p = newPolicies(c.parts, p, v)
			c.policies.Store(p)
			break
		}
	}
	return p
}

// sameLaws reports whether laws are the same and not only equal.
func sameLaws(a, b []law) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// newPolicies names the laws of all parts, those of a visit in place of those that hold now, so that no name stands for two of
// them. What was made of the same laws before serves again where no other part has a say, since Plan may have many.
func newPolicies(parts []*part, before *policies, v *visit) *policies {
	p, taken := new(policies), map[string]bool{} // by the parts before
	for i, part := range parts {
		p.laws[i] = slices.Clone(part.table.current())
		if v != nil && v.asked[i].verdict.laws != nil {
			p.laws[i][v.asked[i].tier] = *v.asked[i].verdict.laws
		}
		own := map[string]bool{}
		for t, laws := range p.laws[i] {
			if len(parts) == 1 && t < len(before.laws[0]) && sameLaws(laws, before.laws[0][t]) {
				p.names[0], p.lines[0] = append(p.names[0], before.names[0][t]), append(p.lines[0], before.lines[0][t])
				continue
			}
			var names [maxLaws]string
			used := map[string]bool{}
			for k, l := range laws {
				name := unique(part.name, l.name, taken, used)
				names[k], used[name], own[name] = strconv.Quote(name), true, true
			}
			p.names[i] = append(p.names[i], names)
			p.lines[i] = append(p.lines[i], policyLine(laws, names))
		}
		for name := range own {
			taken[name] = true
		}
	}
	return p
}

// policyLine is the RateLimit-Policy of some laws; nil if none of them can be advertised. Example: {100/m burst 20, 30/s
// burst 20, 5000/d window} give "m";q=20;w=12, "d";q=5000;w=86400. The second fills in two thirds of a second.
func policyLine(laws []law, names [maxLaws]string) []string {
	line := ""
	for k, l := range laws {
		if l.span == 0 {
			continue
		}
		if line != "" {
			line += ", "
		}
		line += names[k] + ";q=" + strconv.FormatInt(min(l.most, mostField), 10) + ";w=" + strconv.FormatInt(l.span, 10)
	}
	if line == "" {
		return nil
	}
	return []string{line}
}

// mostField is the largest integer of a structured field (RFC 9651): 15 digits.
const mostField = 1e15 - 1

// unique is the name of a law that neither another part nor an earlier law of its tier has.
func unique(prefix, name string, taken, used map[string]bool) string {
	if prefix != "" {
		name = prefix + "-" + name
	}
	for n, base := 2, name; taken[name] || used[name]; n++ {
		name = base + "-" + strconv.Itoa(n)
	}
	return name
}

// A quota is one law as the fields show it.
type quota struct {
	name              string
	most, rest, reset int64
}

// tighter reports whether a smaller share of q is left than of o: 19 of 20 is tighter than 4,900 of 5,000. Products are
// compared, as floats, since both factors may be large. Of two with the same share, such as none, the one that comes back
// later is tighter: who waits for its reset is let in by both.
func (q *quota) tighter(o *quota) bool {
	left, other := float64(q.rest)*float64(o.most), float64(o.rest)*float64(q.most)
	return left < other || left == other && q.reset > o.reset
}

// sendX writes X-RateLimit, unless another Limit further out has written a tighter one.
func (q *quota) sendX(h http.Header) {
	outer := quota{most: sent(h, xLimit), rest: sent(h, xRemaining), reset: sent(h, xReset)}
	if min(outer.most, outer.rest, outer.reset) >= 0 && outer.tighter(q) {
		return
	}
	h[xLimit] = []string{strconv.FormatInt(q.most, 10)}
	h[xRemaining] = []string{strconv.FormatInt(q.rest, 10)}
	h[xReset] = []string{strconv.FormatInt(q.reset, 10)}
}

// sent reads a field that was written as a number; -1: it was not.
func sent(h http.Header, name string) int64 {
	if lines := h[name]; len(lines) == 1 {
		if n, err := strconv.ParseInt(lines[0], 10, 64); err == nil {
			return n
		}
	}
	return -1
}

// quotas gathers the laws that can be advertised, the tightest first, by insertion: there are a few. Clients that read
// only one quota read the first.
func (c *core) quotas(v *visit, p *policies, all *[maxParts * maxLaws]quota) []quota {
	n := 0
	for i, part := range c.parts {
		a := &v.asked[i]
		if a.skip || part.shadow {
			continue
		}
		laws := a.verdict.judged()
		for k := range laws {
			if laws[k].span == 0 {
				continue
			}
			q := quota{p.names[i][a.tier][k], laws[k].most, a.verdict.rest[k], int64(a.verdict.reset[k])}
			at := n
			for ; at > 0 && q.tighter(&all[at-1]); at-- {
				all[at] = all[at-1]
			}
			all[at] = q
			n++
		}
	}
	return all[:n]
}

// advertise writes the fields. It is on the way of each request, so it makes one string and one slice, and no more. Lines
// that are there already, of another Limit further out, stay: both fields are lists. The line of a policy is shared by all
// answers; net/http and handlers replace or append values and do not write into them.
func (c *core) advertise(h http.Header, v *visit) {
	var all [maxParts * maxLaws]quota
	policies := c.policiesFor(v)
	quotas := c.quotas(v, policies, &all)
	if len(quotas) == 0 {
		return
	}
	if c.XRateLimit {
		quotas[0].sendX(h)
	}
	if c.NoFields {
		return
	}
	var buf [256]byte
	line := buf[:0]
	for i := range quotas {
		if i > 0 {
			line = append(line, ", "...)
		}
		line = append(line, quotas[i].name...)
		line = append(line, ";r="...)
		line = strconv.AppendInt(line, min(quotas[i].rest, mostField), 10)
		line = append(line, ";t="...)
		line = strconv.AppendInt(line, quotas[i].reset, 10)
	}
	h[rateLimit] = append(h[rateLimit], string(line))
	for i, p := range c.parts {
		if a := &v.asked[i]; !a.skip && !p.shadow {
			addLine(h, ratePolicy, policies.lines[i][a.tier])
		}
	}
}

// addLine adds a line that is shared to a field, without a copy if it is the only one.
func addLine(h http.Header, name string, line []string) {
	if before := h[name]; len(before) > 0 && len(line) > 0 {
		h[name] = append(before[:len(before):len(before)], line...)
	} else if len(line) > 0 {
		h[name] = line[:1:1]
	}
}

// setRetryAfter writes a wait in whole seconds, rounded up: who waits that long is let in. A wait of 10 ms is a second
// then. It cannot be more exact: a date has seconds too, and fractions are not in RFC 9110.
func setRetryAfter(h http.Header, ns int64) {
	h["Retry-After"] = []string{strconv.FormatInt(max(1, (ns-1)/int64(time.Second)+1), 10)}
}

// A document is the answer to a refused request: RFC 9457, with the type and member that the draft of the fields
// defines.
type document struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Violated []string `json:"violated-policies,omitempty"`
}

// problem answers with a document. It names the limits that have refused, not the key.
func (c *core) problem(w http.ResponseWriter, v *visit) {
	d := document{
		Type:   "https://iana.org/assignments/http-problem-types#quota-exceeded",
		Title:  "Request cannot be satisfied as assigned quota has been exceeded",
		Status: http.StatusTooManyRequests,
		Detail: "This request cannot be let in, however long it waits.",
	}
	if v.wait != never {
		d.Detail = "Try again in " + roundUp(time.Duration(v.wait)).String() + "."
	}
	d.Violated = c.refusing(v, false)
	body, _ := json.Marshal(&d) // strings and numbers: it cannot fail
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = w.Write(body) // fails only if the client has left
}

// roundUp is a wait in whole milliseconds, never too short: 100 µs are 1 ms, and not "0s".
func roundUp(d time.Duration) time.Duration {
	whole := d.Truncate(time.Millisecond)
	if whole < d {
		whole += time.Millisecond
	}
	return whole
}

// violated is the names of those that have refused, as far as the units that are left say it: the laws of a part that have
// less left than the request costs, or that can never pay it.
func (p *policies) violated(i int, a *asked) (names []string) {
	var unused [maxLogged]uint64
	for k := range a.verdict.judged() {
		law := &a.verdict.judged()[k]
		if a.verdict.rest[k] < min(a.cost, law.most) || a.verdict.wait == never && law.wait(unused[:], 0, a.cost) == never {
			name := p.names[i][a.tier][k] // in quotation marks, with nothing escaped
			names = append(names, name[1:len(name)-1])
		}
	}
	return names
}
