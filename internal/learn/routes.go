package learn

import (
	"hash/maphash"
	"strings"
)

// This file tells which calls of a key fall under the same quotas.

// LaneOf returns the lane of a route: that of the longest beginning known.
func (l *Learner) LaneOf(host, path string) (id uint8) {
	if l.routes == nil {
		return uint8(len(l.Lanes) - 1)
	}
	l.beginnings(host, path, func(h uint64) {
		if known, ok := l.routes[h]; ok && known != mixedLane {
			id = known
		}
	})
	return id
}

// teach notes that a route belongs to a lane.
func (l *Learner) teach(host, path string, id uint8) {
	if l.routes == nil {
		if len(l.Lanes) <= 2 {
			return
		}
		l.routes = map[uint64]uint8{}
		l.beginnings(host, "", func(h uint64) { l.routes[h] = mixedLane })
	}
	last := uint64(0)
	l.beginnings(host, path, func(h uint64) { last = h })
	l.beginnings(host, path, func(h uint64) {
		known, ok := l.routes[h]
		switch {
		case !ok && len(l.routes) >= maxRoutes:
			for other := range l.routes { // any
				delete(l.routes, other)
				break
			}
			l.routes[h] = id
		case !ok || h == last:
			l.routes[h] = id
		case known != id:
			l.routes[h] = mixedLane
		}
	})
}

// beginnings visits the hashes of the host, then of host and path cut after each of the
// first segments.
func (l *Learner) beginnings(host, path string, visit func(uint64)) {
	var h maphash.Hash
	h.SetSeed(l.seed)
	h.WriteString(host)
	visit(h.Sum64())
	for range routeDepth {
		path = strings.TrimLeft(path, "/")
		if path == "" {
			return
		}
		segment, rest, _ := strings.Cut(path, "/")
		h.WriteByte('/')
		h.WriteString(segment)
		visit(h.Sum64())
		path = rest
	}
}
