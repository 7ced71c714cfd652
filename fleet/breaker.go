package fleet

import (
	"github.com/go-throttle/throttle/fleet/store"
	"github.com/go-throttle/throttle/internal/outage"
)

// A breaker is what the limiters of one store know together: whether it answers, how fast, and what it says by message.
type breaker struct {
	outage.Breaker
	hearers hearers // has a lock of its own
}

// breakerOf is the breaker of a store: the one that its limiters have in common, or a new one.
func breakerOf(s store.Store) *breaker {
	made := func() any { return new(breaker) }
	if s, ok := s.(interface{ Breaker() *store.Breaker }); ok {
		if b := s.Breaker(); b != nil {
			return b.Of(made).(*breaker)
		}
	}
	return new(breaker)
}
