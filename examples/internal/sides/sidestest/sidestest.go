// Package sidestest is the test of the examples that let calls run with and without throttle.
package sidestest

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-throttle/throttle/examples/internal/sides"
)

// Check runs a story, in full and in brief. With throttle all calls are delivered, few are throttled, and it takes little longer
// than it must. Without, what exceeds the limit is lost.
func Check(t *testing.T, story func(brief bool) sides.Story) {
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
			if without.Name != sides.Without || without.Delivered > s.Calls*3/4 || without.Throttled < 10 {
				t.Errorf("without: %+v", without)
			}
			if with.Delivered != s.Calls || with.Throttled > min(s.Calls/8, without.Throttled/5) || with.Wall > s.Ideal*8/5 {
				t.Errorf("with: %+v, ideal %v", with, s.Ideal)
			}
		})
	}
}
