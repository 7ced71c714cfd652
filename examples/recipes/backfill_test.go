package recipes

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/throttletest"
)

// TestBackfill: of 5,000 calls at 50 a second and 1,000 a minute, each prediction is within 5 % of what it came to.
func TestBackfill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := throttletest.NewServer(perSecond(50), throttletest.Limit{Kind: throttletest.Sliding, N: 1000, Per: time.Minute})
		var calls []*http.Request
		for range 5000 {
			calls = append(calls, get(t, "http://api.test/"))
		}
		ends := make(map[int]time.Duration) // predicted, by how many had begun
		began := time.Now()
		if err := Backfill(upstream, calls, func(begun int, left time.Duration) { ends[begun] = time.Since(began) + left }); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		if want := 4*time.Minute + 20*time.Second; took < want-time.Second || took > want {
			t.Errorf("5,000 calls took %v, want %v", took, want)
		}
		if len(ends) != 50 {
			t.Errorf("%d predictions, want 50", len(ends))
		}
		for begun, end := range ends {
			if off := (end - took).Abs(); off > took/20 {
				t.Errorf("after %d calls the end was foreseen at %v; it came at %v", begun, end, took)
			}
		}
		none(t, upstream, 5000)
	})
}

// TestBackfillFailures: calls that fail do not stop the others, and the error names each of them.
func TestBackfillFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := throttletest.NewServer()
		upstream.Handler = http.NotFoundHandler()
		var calls []*http.Request
		for i := range 100 {
			calls = append(calls, get(t, fmt.Sprintf("http://api.test/%d", i)))
		}
		err := Backfill(upstream, calls, func(int, time.Duration) {})
		if err == nil || strings.Count(err.Error(), ": 404 Not Found") != 100 || len(upstream.Ledger()) != 100 {
			t.Errorf("%v after %d calls, want 100 errors after 100", err, len(upstream.Ledger()))
		}
	})
}

// A progress bar, drawn at each tenth of the way. The calls of a minute go in its first 20 seconds, and the prediction knows
// of the 40 in which nothing goes.
func ExampleBackfill() {
	synctest.Test(new(testing.T), func(t *testing.T) {
		var calls []*http.Request
		for range 5000 {
			calls = append(calls, get(t, "http://api.test/"))
		}
		err := Backfill(throttletest.NewServer(), calls, func(begun int, left time.Duration) {
			if done := begun * 100 / len(calls); done%10 == 0 {
				fmt.Printf("[%-20s] %2d %%, %v left\n", strings.Repeat("#", done/5), done, left.Round(10*time.Second))
			}
		})
		fmt.Println("done:", err)
	})
	// Output:
	// [                    ]  0 %, 4m20s left
	// [##                  ] 10 %, 4m10s left
	// [####                ] 20 %, 4m0s left
	// [######              ] 30 %, 3m10s left
	// [########            ] 40 %, 3m0s left
	// [##########          ] 50 %, 2m10s left
	// [############        ] 60 %, 2m0s left
	// [##############      ] 70 %, 1m10s left
	// [################    ] 80 %, 1m0s left
	// [##################  ] 90 %, 10s left
	// done: <nil>
}
