package fleet

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/go-throttle/throttle/fleet/store"
)

// This file is what a limit looks like in the file of a File: a list of whole numbers (encoding/binary, varint). Moments
// count from the limit's latest exchange, which alone is written as a moment of a clock.
//
// # The clock
//
// Processes of one machine have a clock in common that nobody sets: the time since it was started. A clock has an id, by which
// a later start, and a container with a clock of its own, are told from it. A limit that was written by another clock is
// as old as the wall clock says, but not younger than nothing:
//
//	at 100 s after the start a limit is closed for 10 s; the machine restarts, and 4 s later by the wall clock
//	    a process finds it, closed for 6 s
//	the same, but the wall clock was set back meanwhile: closed for 10 s
//	    set forward by an hour: open, with a full bucket
//
// # Content by another hand
//
// Numbers are cut to what can be (see cut), so that whatever is written a limit is closed for a day and the time that it takes
// to fill at most, and lends no more than it may. The worst that one wrong content does else is what lost state does: one
// more burst.

const (
	memberSize = 8
	maxElapsed = 20 * 366 * 86400 * second // between two starts of the machine
	clockStart = 1 << 50                   // µs, what a clock shows when the machine starts; no moment is negative
)

// A clock is what the processes of a machine measure time by.
type clock struct {
	id  uint64
	now func() moment
}

// A moment is one of a clock, in microseconds.
type moment struct {
	id   uint64 // the clock's
	now  int64
	wall int64 // µs since 1970
}

// wallClock is a clock where there is no other one; it may be set.
func wallClock() clock {
	return clock{now: func() moment {
		wall := time.Now().UnixMicro()
		return moment{now: wall, wall: wall}
	}}
}

var errCut = errors.New("throttle: the state of a limit is cut")

// A coder writes the numbers of a state, or reads them: code calls the same methods for both.
type coder struct {
	b       []byte
	reading bool
	failed  bool
	seen    int64 // what moments count from
}

// number is v, or the next number of what is read, cut to least and most.
func (c *coder) number(v, least, most int64) int64 {
	if !c.reading {
		c.b = binary.AppendVarint(c.b, v)
		return v
	}
	v, n := binary.Varint(c.b)
	if n <= 0 {
		c.failed = true
		return least
	}
	c.b = c.b[n:]
	return min(max(v, least), most)
}

// moment is a moment. 0, which is none, stays 0.
func (c *coder) moment(v int64) int64 {
	rel := int64(0)
	if v != 0 {
		rel = (v-c.seen)<<1 | 1
	}
	if rel = c.number(rel, -1<<53, 1<<53); rel == 0 {
		return 0
	}
	return c.seen + rel>>1
}

func (c *coder) duration(v time.Duration) time.Duration {
	return time.Duration(c.number(int64(v), 0, int64(24*time.Hour)))
}

func (c *coder) count(v int) int { return int(c.number(int64(v), 0, math.MaxInt32)) }

// code is a state, written or read.
func (c *coder) code(s *state) {
	s.next, s.pause = c.moment(s.next), c.moment(s.pause)
	s.healed, s.repaid = c.moment(s.healed), c.moment(s.repaid)
	s.limit = math.Float64frombits(uint64(c.number(int64(math.Float64bits(s.limit)), 0, math.MaxInt64)))
	s.burst, s.loaned = c.count(s.burst), c.count(s.loaned)
	s.count, s.before = c.count(s.count), c.count(s.before)
	for id, m := range s.members {
		c.b = append(c.b, id...)
		c.record(m)
	}
}

// record is that of a member. Its window is that of the moment when it asked.
func (c *coder) record(m *record) {
	m.seq = uint64(c.number(int64(m.seq), math.MinInt64, math.MaxInt64))
	m.at, m.last = min(c.moment(m.at), c.seen), c.moment(m.last)
	m.win = m.at / window
	r := &m.reply
	r.Retry, r.Pause, r.Members = c.duration(r.Retry), c.duration(r.Pause), c.count(r.Members)
	r.Known = store.Mark{Now: c.moment(r.Known.Now), Next: c.moment(r.Known.Next), Pause: c.moment(r.Known.Pause)}
	n := int(c.number(int64(len(r.Runs)), 0, 3))
	for i := range n {
		if c.reading {
			r.Runs = append(r.Runs, store.Run{})
		}
		run := &r.Runs[i]
		*run = store.Run{First: c.duration(run.First), Every: c.duration(run.Every), Count: c.count(run.Count)}
	}
}

// cut makes moments those that can be. Before the limit changes to that of the request, units ahead count by the old one;
// after it they may take a day and the time that the bucket takes to fill.
func (s *state) cut(now int64, r *store.Request) {
	ahead, rescaled := float64(r.Burst)*1e6/float64(r.Limit)+float64(maxPause), 1.0
	if s.limit > 0 {
		rescaled = float64(r.Limit) / s.limit
	}
	s.next = min(s.next, now+int64(min(ahead*rescaled, 1<<53)))
	s.repaid = min(s.repaid, now+int64(min(ahead, 1<<53)))
	s.pause = min(s.pause, now+maxPause)
}

// encode is the state, in b if that has room for it. If the members are too many, an eighth is forgotten: those who asked first.
func (s *state) encode(b []byte, at moment) []byte {
	for {
		c := coder{seen: s.seen, b: b}
		c.b = binary.LittleEndian.AppendUint64(c.b, at.id)
		c.number(s.seen, 0, 0)
		c.number(at.wall, 0, 0)
		if c.code(s); len(c.b) <= stateSize {
			return c.b
		}
		var asked []int64
		for _, m := range s.members {
			asked = append(asked, m.at)
		}
		slices.SortFunc(asked, cmp.Compare[int64])
		for id, m := range s.members {
			if m.at <= asked[len(asked)/8] {
				delete(s.members, id)
			}
		}
	}
}

// decode is the state in b, in the time of this clock.
func decode(b []byte, at moment) (*state, error) {
	if len(b) < 8 {
		return nil, errCut
	}
	c := coder{b: b[8:], reading: true}
	seen := c.number(0, 1, 1<<60)
	if wall := c.number(0, 0, 1<<60); binary.LittleEndian.Uint64(b) != at.id {
		seen = at.now - min(max(0, at.wall-wall), maxElapsed)
	}
	c.seen = seen
	s := &state{seen: seen, win: seen / window, members: map[string]*record{}}
	c.code(s)
	for !c.failed && len(c.b) > memberSize {
		m := new(record)
		id := string(c.b[:memberSize])
		c.b = c.b[memberSize:]
		if c.record(m); m.seq > 0 {
			s.members[id] = m
		}
	}
	if c.failed || len(c.b) > 0 || !(s.limit > 0 && s.limit < math.MaxFloat64) {
		return nil, errCut
	}
	return s, nil
}

// timeval reads a struct timeval of a 64-bit system, whose last byte, of its padding, may be cut: seconds in 8 bytes, µs in 4.
func timeval(b string) (us int64) {
	if len(b) < 12 {
		return 0
	}
	return int64(binary.LittleEndian.Uint64([]byte(b[:8])))*second + int64(binary.LittleEndian.Uint32([]byte(b[8:12])))
}
