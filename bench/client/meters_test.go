package client

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/usage"
)

// Six calls that may cost 100 each come at once, a second after the client, to a limit of 600 a minute. Answers take a second, and
// the second one is a 429. When each attempt starts follows from how the clients work.
func TestMetered(t *testing.T) {
	for name, want := range map[string]struct {
		starts []int // seconds
		again  int   // which attempt is the second call's other one
	}{
		// Its share is 450, and 7.5 a second come back: four go. From the 429 on all pause until 16 s. By then 170 are there, for
		// who has waited since then. The one that was throttled is next, when 100 are there again, and the last is 13 s later.
		"openai-cookbook": {[]int{0, 0, 0, 0, 16, 20, 33}, 5},
		// All go, and 10 a second come back for the one that was throttled.
		"x/time/rate: bound": {[]int{0, 0, 0, 0, 0, 0, 10}, 6},
		// By an average of 50 half of the limit is left, so it only waits for the second that a 429 without Retry-After is taken for.
		"x/time/rate: average known": {[]int{0, 0, 0, 0, 0, 0, 2}, 6},
		// The 429 gives its 100 back, and pauses all for a round trip.
		"throttle: meters": {[]int{0, 0, 0, 0, 0, 0, 2}, 6},
	} {
		synctest.Test(t, func(t *testing.T) {
			all := Metered()
			c := all[slices.IndexFunc(all, func(c Client) bool { return c.Name == name })]
			base := &stub{answer: func(n int) (int, error) {
				if time.Sleep(time.Second); n == 2 {
					return http.StatusTooManyRequests, nil
				}
				return http.StatusOK, nil
			}}
			law := usage.Law{Name: "tokens", Holds: usage.HoldsSum, Counts: usage.Weights{Input: 1, Output: 1}}
			doer, err := c.Start(Job{Base: base, Meter: &Meter{Law: law, N: 600, Mean: 50}})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			begin := time.Now()
			var calls sync.WaitGroup
			for i := range 6 {
				calls.Go(func() {
					body := `{"max_tokens":90,"input":"` + strings.Repeat(strconv.Itoa(i), 12) + `"}` // 40 bytes
					req, _ := http.NewRequest("POST", "http://api.test/", strings.NewReader(body))
					resp, err := doer.Do(req)
					if err != nil || resp.StatusCode != http.StatusOK {
						t.Error(resp, err)
						return
					}
					discard(resp)
				})
			}
			calls.Wait()
			var got []int
			for _, at := range base.starts {
				got = append(got, int(at.Sub(begin).Round(time.Second)/time.Second))
			}
			if again := 2 + slices.Index(base.bodies[2:], base.bodies[1]); !slices.Equal(got, want.starts) || again != want.again {
				t.Errorf("%s: starts after %v s, the throttled one's again as number %d; want %v", name, got, again, want)
			}
		})
	}
}
