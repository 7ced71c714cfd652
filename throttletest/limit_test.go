package throttletest

import (
	"math/rand/v2"
	"testing"
	"time"
)

const ms = time.Millisecond

// What many draws of each kind of time have in common: their least, their greatest and their mean.
func TestSpan(t *testing.T) {
	for name, c := range map[string]struct {
		span              Span
		least, most, mean time.Duration
	}{
		"nothing":            {Span{}, 0, 0, 0},
		"always the same":    {Span{Min: 20 * ms}, 20 * ms, 20 * ms, 20 * ms},
		"uniform":            {Span{Min: 10 * ms, Max: 30 * ms}, 10 * ms, 30 * ms, 20 * ms},
		"exponential":        {Span{Mean: 20 * ms}, 0, time.Hour, 20 * ms},
		"exponential, later": {Span{Min: 10 * ms, Mean: 20 * ms}, 10 * ms, time.Hour, 30 * ms},
		"exponential, cut":   {Span{Mean: 20 * ms, Max: 40 * ms}, 0, 40 * ms, 17300 * time.Microsecond}, // 20 × (1 − e⁻²)
	} {
		r := rand.New(rand.NewPCG(1, 2))
		const n = 20000
		var sum, least, most time.Duration
		least = time.Hour
		for range n {
			d := c.span.draw(r)
			sum, least, most = sum+d, min(least, d), max(most, d)
		}
		if mean := sum / n; least < c.least || most > c.most || mean < c.mean*97/100 || mean > c.mean*103/100 {
			t.Errorf("%s: %v to %v, %v on average; want %v to %v, %v", name, least, most, mean, c.least, c.most, c.mean)
		}
	}
}
