package inbound

import (
	"math"

	"github.com/go-throttle/throttle/inbound/keys"
)

// This file turns laws and cells into what engines keep, and back. Engines count in microseconds, which are whole numbers
// in a float64 until the year 2255; the laws count in nanoseconds. So a moment of an engine is a thousand times as much here.

// sent is a law as engines have it.
func (l *law) sent() keys.Law {
	return keys.Law{Kind: keys.Kind(l.kind), Most: l.most, Rate: l.perNs, Per: l.per / 1000}
}

// lawOf is sent, the other way round.
func lawOf(s keys.Law) law {
	l := law{kind: kind(s.Kind), words: 2, most: s.Most, perNs: s.Rate, per: s.Per * 1000}
	if l.kind == logged {
		l.words = int(l.most)
	}
	return l
}

// numbers is a cell as engines have it.
func (l *law) numbers(c cell) []float64 {
	switch l.kind {
	case bucket:
		return []float64{float64(c[0] / 1000), math.Float64frombits(c[1])}
	case window:
		return []float64{float64(c[0] / 1000), float64(c[1])}
	case sliding:
		return []float64{float64(c[0] / 1000), float64(c[1] >> 32), float64(c[1] & math.MaxUint32)}
	}
	all := make([]float64, l.most)
	for i := range all {
		all[i] = float64(c[i] / 1000)
	}
	return all
}

// read is numbers, the other way round. It reports whether they can be a cell of this law.
func (l *law) read(c cell, numbers []float64) bool {
	if len(numbers) != l.sent().Numbers() {
		return false
	}
	for _, x := range numbers {
		if !(x >= 0 && x < 9e15) {
			return false
		}
	}
	c[0] = uint64(numbers[0]) * 1000
	switch l.kind {
	case bucket:
		c[1] = math.Float64bits(numbers[1])
	case window:
		c[1] = uint64(numbers[1])
	case sliding:
		c[1] = uint64(numbers[1])<<32 | uint64(min(numbers[2], math.MaxUint32))
	case logged:
		for i, x := range numbers {
			c[i] = uint64(x) * 1000
		}
	}
	return true
}

// then is what back needs to know of a take: the mark of the reply that granted the units.
func (l *law) then(m *keys.Mark, i int) cell {
	c := make(cell, l.words)
	if l.kind == logged || !l.read(c, m.Cells[i]) {
		c[0] = uint64(m.Now) * 1000
	}
	return c
}

// over is the moment at which nothing of a cell is used any more.
func (l *law) over(c cell) int64 {
	at := int64(c[0])
	switch l.kind {
	case bucket:
		return at + l.spanOf(math.Float64frombits(c[1]))
	case window:
		return at + ceilDiv(int64(c[1]), l.most)*l.per
	case sliding:
		return at + (1+ceilDiv(int64(c[1]&math.MaxUint32), l.most))*l.per
	}
	return int64(c[l.most-1])
}

// shift moves a cell to an earlier time.
func (l *law) shift(c cell, ns int64) {
	n := 1
	if l.kind == logged {
		n = int(l.most)
	}
	for i := range n {
		c[i] = uint64(max(0, int64(c[i])-ns))
	}
}
