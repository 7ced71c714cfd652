//go:build !throttle_invariants

package queue

import "sync"

// What invariants.go needs, in builds without it: nothing is left of these calls.

// A mutex is the lock of a table or of a bare queue. In builds with the tag throttle_invariants it
// checks what it guards before it is unlocked.
type mutex = sync.Mutex

func guardTable(*Table) {}
func guardQueue(*Queue) {}
func tableSize() int    { return maxKeys }

func (l *lineup) ending(stop func()) func() { return stop }
