// Package race is for tests alone.
package race

import (
	"os"
	"testing"
)

// Long skips a test that takes more than a second of processor time, or ten with the race detector, unless THROTTLE_LONG or
// THROTTLE_FULL is set. CI sets THROTTLE_LONG in a run without the race detector.
func Long(t testing.TB) {
	t.Helper()
	if !long() {
		t.Skip("skipped: long; THROTTLE_LONG=1 runs it")
	}
}

// Full skips a test that takes more than half a minute of processor time, unless THROTTLE_FULL is set.
func Full(t testing.TB) {
	t.Helper()
	if os.Getenv("THROTTLE_FULL") == "" {
		t.Skip("skipped: very long; THROTTLE_FULL=1 runs it")
	}
}

// Pick returns the size of a test: short, or full where Long skips nothing.
func Pick[T any](short, full T) T {
	if long() {
		return full
	}
	return short
}

func long() bool { return os.Getenv("THROTTLE_LONG") != "" || os.Getenv("THROTTLE_FULL") != "" }
