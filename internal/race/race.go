// Package race is for tests alone.
package race

import "testing"

// Long skips a test that takes more than a second of processor time, if the race detector is on: it makes that a quarter of a
// minute, and shorter tests take the same ways through the code. CI runs the long ones without it.
func Long(t testing.TB) {
	t.Helper()
	if Enabled {
		t.Skip("skipped: too long for the race detector")
	}
}
