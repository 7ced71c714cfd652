package main

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-throttle/throttle/examples/internal/sides"
)

// With throttle all calls are delivered, few are throttled, and it takes little longer than it must. Without, what exceeds the
// limit is lost.
func TestRun(t *testing.T) {
	for _, brief := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := story(brief)
			var out strings.Builder
			done, err := s.Run(t.Context(), &out)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("\n%s", &out)
			without, with := done[0], done[1]
			if without.Name != sides.Without || without.Delivered > s.Calls*3/4 {
				t.Errorf("without: %+v", without)
			}
			if with.Delivered != s.Calls || with.Throttled > s.Calls/8 || with.Wall > s.Ideal*8/5 {
				t.Errorf("with: %+v, ideal %v", with, s.Ideal)
			}
		})
	}
}
