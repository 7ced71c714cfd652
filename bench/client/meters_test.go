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

// Six calls that may cost 150 each come at once, a second after the client, to a limit of 600 a minute. Answers take a second, and
// the second one is a 429. When each attempt starts follows from how the clients work.
func TestMetered(t *testing.T) {
	for name, want := range map[string]struct {
		starts []int // seconds
		again  int   // which attempt is the second call's other one
	}{
		// Its share is 450, and 7.5 a second come back: three go. From the 429 on all pause until 16 s. By then 120 have come
		// back, so the next one goes at 20 s, and the others 20 s apart. First is who has waited for capacity since then, before
		// the one that was throttled.
		"openai-cookbook": {[]int{0, 0, 0, 20, 40, 60, 80}, 4},
		// Of 600 four go, then one each 15 s, the one that was throttled behind those that have booked.
		"x/time/rate: bound": {[]int{0, 0, 0, 0, 15, 30, 45}, 6},
		// The same by an average of 100: all go, and 10 a second come back for the one that was throttled.
		"x/time/rate: average known": {[]int{0, 0, 0, 0, 0, 0, 10}, 6},
		// The 429 gives its 150 back and pauses all for a round trip.
		"throttle: meters": {[]int{0, 0, 0, 0, 2, 15, 30}, 4},
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
			doer, err := c.Start(Job{Base: base, Meter: &Meter{Law: law, N: 600, Mean: 100}})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			begin := time.Now()
			var calls sync.WaitGroup
			for i := range 6 {
				calls.Go(func() {
					body := `{"max_tokens":140,"input":"` + strings.Repeat(strconv.Itoa(i), 11) + `"}` // 40 bytes
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
