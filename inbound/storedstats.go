package inbound

import "time"

// StoreStats is a snapshot of what a process knows of a store that its limits are in. Counts are since the first Limit or
// Keyed used it.
type StoreStats struct {
	Up        bool          // the store answers, as far as is known; false too if there is none
	RoundTrip time.Duration // smoothed
	Trips     uint64        // round trips of all that use the store
	Asked     uint64        // keys that were asked for in them
	Failed    uint64        // round trips that failed
	Err       error         `json:"-"` // of the latest one; nil: it was answered
	Servers   int           // how many there are, see Limit.Servers; 10 if nobody knows
	Alone     uint64        // requests of this Limit or Keyed that Mode has decided
}

// StoreStats returns a snapshot, for metrics and to see why a limit goes on alone. It does not ask the store.
func (l *Limit) StoreStats() StoreStats { return l.compiled().parts[0].stored.stats() }

// StoreStats returns a snapshot, as that of a Limit does: for metrics, and when a limit goes on alone.
func (k *Keyed[K]) StoreStats() StoreStats { return k.stored.stats() }

func (s *stored) stats() (out StoreStats) {
	if s == nil {
		return out
	}
	l := s.link
	out.Up, _, _ = l.Look()
	out.RoundTrip, _ = l.Times()
	out.Servers, out.Alone = int(s.servers()), s.alone.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	out.Trips, out.Asked, out.Failed, out.Err = l.counts.trips, l.counts.asked, l.counts.failed, l.counts.err
	return out
}
