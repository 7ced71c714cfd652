//go:build !race

// The race detector would have both SDKs compiled again, which takes longer than all other tests of the examples.

package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRun: with throttle every call is delivered, at most one is throttled, and hardly anything of the limit is left
// unused, with either SDK. Alone they are throttled, and lose calls.
func TestRun(t *testing.T) {
	check(t, config{calls: 1000, pool: 60_000, minute: time.Minute}, func(alone, with result) bool {
		return alone.delivered <= 900 && with.throttled <= 1 && with.used > 0.95
	})
}

// TestSizes: what the program runs shows the same in full and in brief. The SDKs give calls up, so they are done sooner.
func TestSizes(t *testing.T) {
	for _, brief := range []bool{false, true} {
		cfg := size(brief)
		check(t, cfg, func(alone, with result) bool {
			return alone.throttled >= cfg.calls/2 && alone.delivered < cfg.calls && with.throttled <= 1 && with.used > 0.65 && with.wall < 5*alone.wall/2
		})
	}
}

// check lets all rows run, and asks for each SDK whether they show what they should.
func check(t *testing.T, cfg config, shows func(alone, with result) bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		results, err := run(t.Context(), cfg, &out)
		if err != nil || len(results) != 4 {
			t.Fatalf("%v\n%s", err, &out)
		}
		t.Logf("\n%s", &out)
		for ; len(results) > 0; results = results[2:] {
			alone, with := results[0], results[1]
			if alone.throttle || !with.throttle || with.delivered != cfg.calls || with.used > 1 || !shows(alone, with) {
				t.Errorf("%+v\n%+v", alone, with)
			}
		}
	})
}
