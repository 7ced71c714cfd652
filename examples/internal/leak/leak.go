// Package leak lets a test of the examples see whether goroutines outlive it.
package leak

import (
	"runtime"
	"testing"
	"time"
)

// Check counts the goroutines, and complains when the test is over if there are more of them. It
// is to be called first, so that whatever else the test cleans up has gone by then. Goroutines that
// are about to end are given time to do so: a slow machine is no failure.
func Check(t testing.TB) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				stacks := make([]byte, 1<<14)
				stacks = stacks[:runtime.Stack(stacks, true)]
				t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, stacks)
			}
		}
	})
}
