package throttledebug

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet"
)

const (
	maxStreams = 8           // open at once
	interval   = time.Second // from one event of a stream to the next
)

// A board reads the Transports. The states of its one lock, and who changes them:
//
//   - names, transports: nobody, after newBoard.
//   - streams: a stream adds itself when it opens and takes itself away when it ends.
//   - last: the newest sample of a tick, made by the first stream that wakes; dropped with the last stream, so that
//     10,000 keys are not kept in memory for nobody.
//   - marks: what was taken of all limits at two earlier samples; dropped as last is.
//
// There is no goroutine that samples. All streams wake at the same moments, at whole intervals of the clock; the first
// one that gets the lock reads all keys, and the others find its sample, which is younger than half an interval.
// An example: five streams wake at 12:00:01. One reads 10,000 keys in 4 ms, four wait for that and take the same rows.
//
// If a stream opens while others tick, its first event has a sample of its own, so that it shows what is true now. If a
// stream ends while another samples, the order does not matter: each holds the sample that it shows.
type board struct {
	// names are those of the map, in order. Neither they nor the map change.
	names      []string
	transports map[string]*throttle.Transport

	// mu is held while keys are read, so readers of the page wait for each other, never calls for them.
	mu      sync.Mutex
	streams int
	last    *sample
	marks   marks
	size    int // keys of the newest sample, to make the next one in one piece
}

// newBoard copies the map: the program may go on changing its own. The Transports are not touched before somebody looks.
func newBoard(transports map[string]*throttle.Transport) *board {
	return &board{names: slices.Sorted(maps.Keys(transports)), transports: maps.Clone(transports)}
}

// join counts a stream in, unless there are enough. Eight are more than a team looks at, and few enough that a script
// which opens streams and forgets them cannot use up the connections of the program.
func (b *board) join() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.streams >= maxStreams {
		return false
	}
	b.streams++
	return true
}

// leave counts a stream out.
func (b *board) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.streams--; b.streams == 0 {
		b.last, b.marks = nil, marks{}
	}
}

// now returns a sample of this moment, for one reader: a page, state.json, or the first event of a stream. It is not kept,
// so a stream's next tick may read all keys again a moment later.
func (b *board) now() *sample {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.readLocked()
}

// tick returns the sample that the streams share: the last one if it is of this tick, otherwise a new one.
func (b *board) tick() *sample {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil || time.Since(b.last.at) > interval/2 {
		b.last = b.readLocked()
	}
	return b.last
}

// A row is one key at one moment. It has some 250 bytes, and 10,000 of them are made each second that somebody looks;
// they are made in one piece, as large as it was the last time and an eighth more.
//
// name is the Transport's. A key of two Transports is two rows.
type row struct {
	name string
	throttle.KeyStats
	since *mark         // what limits are compared with; nil: nothing
	ago   time.Duration // when that was
}

// found is the rate that was found because the upstream throttles, in units per second; 0: none was.
func (r *row) found() float64 { return r.pace(true) }

// advertised is the slowest pace of the quotas that the upstream advertises; 0: none, or none that spaces calls.
func (r *row) advertised() float64 { return r.pace(false) }

// pace is the slowest of one or the other kind. Two quotas at 5/s and 20/s make a pace of 5/s: calls pay both.
func (r *row) pace(found bool) (slowest float64) {
	for _, l := range r.Learned {
		pace := float64(l.Rate)
		if (l.Source == "throttled") == found && pace < math.MaxFloat64 && (slowest == 0 || pace < slowest) {
			slowest = pace
		}
	}
	return slowest
}

// limit is the configured one, and false if there is none.
func (r *row) limit() (float64, bool) {
	l := float64(r.Limit)
	return l, l < math.MaxFloat64
}

// tokens are the units ready now, and false if no limiter counts any.
func (r *row) tokens() (float64, bool) { return r.Tokens, r.Tokens < math.MaxFloat64 }

// closed reports whether the gate is.
func (r *row) closed() bool {
	return r.ClosedFor > 0 || strings.HasPrefix(r.Reason, "gate:") && r.Reason != "gate:reopening" && r.Reason != "gate:first-contact"
}

// waited is for how long the oldest call of the line has waited; 0 if nobody waits. A call that came while the keys were
// read, after the sample's moment, has not waited yet.
func (r *row) waited(at time.Time) time.Duration {
	if r.Oldest.IsZero() {
		return 0
	}
	return max(0, at.Sub(r.Oldest))
}

// A sample is all keys of all Transports at about one moment. It is not changed once it is made, so that several
// streams can read it at once.
type sample struct {
	// at is when reading began; 10,000 keys later it is 3 ms later, which nobody sees.
	at     time.Time
	names  []string
	rows   []row
	totals totals

	// fleets are of those Transports whose Limiter is a fleet's, by name; nils are the names without a Transport.
	fleets map[string]fleet.Stats
	nils   []string
}

// totals are sums over all keys of a sample.
type totals struct{ keys, waiting, inFlight, closed int }

// readLocked reads all keys. The lock is that of the board alone: each Transport is locked for about 0.2 µs a key, one
// after the other, so calls pass in between.
func (b *board) readLocked() *sample {
	s := &sample{at: time.Now(), names: b.names, rows: make([]row, 0, b.size+b.size/8), fleets: map[string]fleet.Stats{}}
	since, now := b.marks.since(s.at), &mark{at: s.at, taken: map[limitID]int64{}}
	for _, name := range b.names {
		t := b.transports[name]
		if t == nil {
			s.nils = append(s.nils, name)
			continue
		}
		for stats := range t.Stats() {
			r := row{name: name, KeyStats: stats}
			if since != nil {
				r.since, r.ago = since, s.at.Sub(since.at)
			}
			now.note(&r)
			s.add(r)
		}
		if l, ok := t.Limiter.(*fleet.Limiter); ok && l != nil {
			s.fleets[name] = l.Stats()
		}
	}
	b.size = len(s.rows)
	if b.streams > 0 {
		b.marks.add(now)
	}
	return s
}

// add adds a row to the sample and its totals. Totals are of all keys, so they are summed here and not for each view.
func (s *sample) add(r row) {
	s.rows = append(s.rows, r)
	s.totals.keys++
	s.totals.waiting += r.Waiting
	s.totals.inFlight += r.InFlight
	if r.closed() {
		s.totals.closed++
	}
}
