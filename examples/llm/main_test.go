//go:build !race

// The race detector would have both SDKs compiled again, which takes longer than all other tests of the examples.

package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// With throttle every call is delivered, at most one is throttled, and hardly anything of the limit is left unused, with
// either SDK. Alone they lose calls.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		var out strings.Builder
		results, err := run(t.Context(), config{calls: n, minute: time.Minute}, &out)
		if err != nil || len(results) != 4 {
			t.Fatalf("%v\n%s", err, &out)
		}
		t.Logf("\n%s", &out)
		for _, r := range results {
			if r.throttle && (r.delivered != n || r.throttled > 1 || r.used < 0.95 || r.used > 1) || !r.throttle && r.delivered > n*9/10 {
				t.Errorf("%+v", r)
			}
		}
	})
}
