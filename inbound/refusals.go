package inbound

import (
	"net/http"
	"slices"
	"strings"
	"sync"
)

// LimitStats is what one limit of a Limit has refused, for metrics. Counts are since the Limit was made.
type LimitStats struct {
	Name        string // as in the fields: "m" of 100/1m, or "ip-m" of a Limit with the Name "ip"; "at-once"; "shared" for Shared
	Refused     uint64 // requests that it has refused; one that several have refused counts for each
	WouldRefuse uint64 // requests let in by Shadow that it would have refused
}

// LimitStats returns what each limit has refused, for metrics, those of And among them, by name; a limit that has refused nothing is not there.
// There are at most 100 names; what further ones refuse is that of "_other".
func (l *Limit) LimitStats() []LimitStats { return l.compiled().refusals.list() }

// refusals count by name. Only requests that are refused take the lock.
type refusals struct {
	mu  sync.Mutex
	all map[string]*LimitStats
}

// mostNames bounds the names: those of Plan are what a database says.
const mostNames = 100

// of returns the counts of a name.
func (r *refusals) ofLocked(name string) *LimitStats {
	s := r.all[name]
	if s == nil && len(r.all) >= mostNames && name != "_other" {
		return r.ofLocked("_other")
	}
	if s == nil {
		if r.all == nil {
			r.all = map[string]*LimitStats{}
		}
		s = &LimitStats{Name: name}
		r.all[name] = s
	}
	return s
}

// add counts one request for each name.
func (r *refusals) add(names []string, refused, would uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		s := r.ofLocked(name)
		s.Refused += refused
		s.WouldRefuse += would
	}
}

// list returns the counts in the order of their names.
func (r *refusals) list() (all []LimitStats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.all {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b LimitStats) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// refusing is the names of the limits that have refused a visit, or of shadows those that would have.
func (c *core) refusing(v *visit, shadow bool) (names []string) {
	policies := c.policiesFor(v)
	for i, p := range c.parts {
		if a := &v.asked[i]; !a.skip && p.shadow == shadow && a.verdict.wait > 0 {
			names = append(names, policies.violated(i, a)...)
		}
	}
	return names
}

// countRefused counts a request that is refused, unless its client has left.
func (c *core) countRefused(r *http.Request, v *visit) {
	names := c.refusing(v, false)
	if len(names) == 0 && len(c.Shared) > 0 && r.Context().Err() == nil {
		names = []string{"shared"}
	}
	c.refusals.add(names, 1, 0)
}

// countShadowed counts a request that is let in for what shadows would have said.
func (c *core) countShadowed(r *http.Request, v *visit) {
	names := c.refusing(v, true)
	if len(names) > 0 {
		c.refusals.add(names, 0, 1)
	}
	if wait := v.asked[0].verdict.wait; c.parts[0].shadow && wait > 0 && c.OnRefusal != nil {
		v.guard(func() { c.OnRefusal(r, waitOf(wait)) })
	}
}
