package throttledebug_test

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet"
	"github.com/go-throttle/throttle/throttledebug"
)

// The page says why the first call waits, with the word that Stats has, and for how long.
func TestWhy(t *testing.T) {
	limited := func(string) throttle.Limiter { return throttle.NewBucket(0.1, 1) }
	for _, c := range []struct {
		reason, says string
		transport    *throttle.Transport
		busy         int // calls that come first and keep their slots
	}{
		{"limit", "for the limit of its key (limit), for 10 s more, until 00:00:10 UTC.", &throttle.Transport{LimiterFor: limited}, 0},
		{"limit:shared", "for the limit that all keys share (limit:shared), for 10 s more", &throttle.Transport{Limiter: throttle.NewBucket(0.1, 1)}, 0},
		{"gate:paused", "for the end of a pause by hand (gate:paused), for 1 min more, until 00:01:00 UTC.", &throttle.Transport{}, 0},
		{"slot", "for a call in flight to end (slot).", &throttle.Transport{LimiterFor: limited, Queue: throttle.QueueOptions{MaxInFlight: 1}}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := c.transport
			up := new(upstream)
			tr.Base, tr.Key = up, byField
			if c.reason == "gate:paused" {
				tr.Pause("api.test", time.Minute)
			} else if c.busy == 0 {
				call(t, tr, "api.test", 1)
			}
			ctx, cancel := context.WithCancel(t.Context())
			if c.busy > 0 {
				tr.Base = slow{}
				go try(ctx, tr, "api.test")
				synctest.Wait()
			}
			go try(throttle.WithFlow(ctx, "tenant"), tr, "api.test")
			synctest.Wait()
			h := throttledebug.Handler(one(tr))
			page := get(h, "/?name=api&key=api.test").Body.String()
			if want := "The first call in line waits " + c.says; !strings.Contains(page, html.EscapeString(want)) {
				_, got, _ := strings.Cut(page, `<p id="why">`)
				t.Errorf("%s: %.150s, want %s", c.reason, got, want)
			}
			row := rowsOf(t, h, "")[0]
			if held, _, _ := strings.Cut(row["held"], ","); held != c.reason || row["waiting"] != "1" {
				t.Errorf("%s: the row says %q of %s", c.reason, row["held"], row["waiting"])
			}
			if !strings.Contains(page, "<td>tenant</td><td>1</td>") {
				t.Errorf("%s: the flow is missing", c.reason)
			}
			cancel()
			synctest.Wait()
		})
	}
}

// Times in the table are until and since its moment. Of many flows those with the most waiting calls are shown.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport()
		tr.LimiterFor = func(string) throttle.Limiter { return throttle.NewBucket(0.05, 1) }
		call(t, tr, "api.test", 1)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 20 {
			for range 1 + i {
				go try(throttle.WithFlow(ctx, fmt.Sprintf("flow-%02d", i)), tr, "api.test")
			}
		}
		time.Sleep(8 * time.Second)
		h := throttledebug.Handler(one(tr))
		row := rowsOf(t, h, "")[0]
		if row["waiting"] != "210" || row["oldest"] != "8.0 s" || row["held"] != "limit, 12 s" {
			t.Errorf("%q", row)
		}
		page := get(h, "/?name=api&key=api.test").Body.String()
		for _, want := range []string{"<td>flow-19</td><td>20</td>", "<td>flow-08</td><td>9</td>", "<td>all others</td><td>36</td>"} {
			if !strings.Contains(page, want) {
				t.Errorf("the page lacks %s", want)
			}
		}
		if strings.Contains(page, "flow-07") {
			t.Error("more flows than twelve are shown")
		}
		cancel()
		synctest.Wait()
	})
}

// slow answers when the ctx is over.
type slow struct{}

func (slow) RoundTrip(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// A limit that several processes share is shown with the key, if it is the Transport's Limiter.
func TestFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := fleet.New(&fleet.Memory{}, "api", rate.Limit(100), 10, fleet.Options{})
		defer lim.Close()
		tr := newTransport()
		tr.Limiter = lim
		call(t, tr, "api.test", 3)
		h := throttledebug.Handler(one(tr))
		page := get(h, "/?name=api&key=api.test").Body.String()
		for _, want := range []string{"<dt>Mode</dt><dd>shared</dd>", "<dt>Members</dt><dd>1</dd>", "<dt>Used</dt><dd>3</dd>"} {
			if !strings.Contains(page, want) {
				t.Errorf("the page lacks %s", want)
			}
		}
		if state := get(h, "/state.json").Body.String(); !strings.Contains(state, `"fleet":{"Mode":"shared","Members":1`) {
			t.Error(state)
		}
	})
}
