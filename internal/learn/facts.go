package learn

import (
	"time"

	"golang.org/x/time/rate"
)

// A Known is one limit that a key has learned of; throttle.Learned has the words.
type Known struct {
	Name, Unit string
	Source     string
	Limit      int64
	Remaining  int64
	Reset      time.Duration
	Window     time.Duration
	Rate       rate.Limit
}

// A Place is where and when an attempt was made, what it was counted as, and whether it was refused.
type Place struct {
	Paid       uint8 // 1 + the lane that its start was counted in; 0: none
	Cost       int
	Host, Path string
	Sent       time.Time
	Refused    bool
}

// Before is the units that go before a call: all in its own line, those of them that
// fall under the same told quotas, and in all lines at the shared limiter.
type Before struct{ All, Lane, Shared int64 }
