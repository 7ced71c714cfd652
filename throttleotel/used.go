package throttleotel

import "time"

// This file is what was taken of limits when somebody collected earlier: two looks show how much of a limit is used in between. With a
// second reader looks may be close together, so a look gives way once the next one is markSpan old.

// Looks that lie less than leastSpan apart show single calls.
const leastSpan, markSpan = time.Second, 10 * time.Second

// A look is what was taken of all limits at a moment.
type look struct {
	at    time.Time
	taken map[limitID]int64
}

// A limitID is a limit of a key; "": of all keys.
type limitID struct{ key, reason string }

// looks are two of them, the newer one less than markSpan old at the last look; nil: nobody has looked.
type looks struct{ older, newer *look }

// since is what a look is compared with; nil: nothing.
func (m *looks) since(now time.Time) *look {
	from := m.older
	if m.newer != nil && now.Sub(m.newer.at) >= markSpan {
		from = m.newer
	}
	if from == nil || now.Sub(from.at) < leastSpan {
		return nil
	}
	return from
}

// add takes in a look.
func (m *looks) add(now *look) {
	switch {
	case m.older == nil:
		m.older, m.newer = now, now
	case now.at.Sub(m.newer.at) >= markSpan:
		m.older, m.newer = m.newer, now
	}
}
