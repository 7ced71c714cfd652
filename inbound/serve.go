package inbound

import (
	"net/http"
	"time"
)

// This file is the way of a request. Nothing is deferred and nothing is wrapped: once next is called, the middleware has
// nothing left to do, whatever next does with the connection. Only for Settle and for limits such as "4 at once" it has, see answer.go.

// serve is the middleware: ask, perhaps wait, then let in or refuse.
func (c *core) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if c.Allow != nil && c.Allow(r) {
		next.ServeHTTP(w, r)
		return
	}
	var v visit
	v.begin(c, r)
	if !c.admit(r, &v) {
		c.refuse(w, r, &v)
		return
	}
	if c.shadows {
		c.countShadowed(r, &v)
	}
	if !c.NoFields || c.XRateLimit {
		c.advertise(w.Header(), &v)
	}
	if c.settles || v.gens&withAtOnce != 0 {
		c.serveAndLand(w, r, &v, next)
		return
	}
	next.ServeHTTP(w, r)
}

// admit reports whether a request goes, after a wait if it may. Where others of its key wait it joins them, although
// there might be a unit at this moment: that one is for the first in line. A request that costs nothing takes it from
// nobody, so it passes the line.
func (c *core) admit(r *http.Request, v *visit) bool {
	if v.asked[0].cost == 0 || !c.lines.busy(v.asked[0].hash) {
		if v.try(r.Context()) {
			return true
		}
		if v.wait > int64(c.lines.most) {
			return false
		}
	}
	return c.lines.join(r.Context(), v)
}

// refuse answers a request that does not go.
func (c *core) refuse(w http.ResponseWriter, r *http.Request, v *visit) {
	if v.full() {
		v.wait = max(v.wait, int64(time.Second))
	}
	c.countRefused(r, v)
	if c.OnRefusal != nil {
		c.OnRefusal(r, waitOf(v.wait))
	}
	h := w.Header()
	if !c.NoFields || c.XRateLimit {
		c.advertise(h, v)
	}
	if v.wait != never {
		setRetryAfter(h, v.wait)
	}
	if c.Refused != nil {
		c.Refused.ServeHTTP(w, r)
		return
	}
	c.problem(w, v)
}

// waitOf is a wait as users see it.
func waitOf(ns int64) time.Duration {
	if ns == never {
		return -1
	}
	return time.Duration(ns)
}
