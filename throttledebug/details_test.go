package throttledebug_test

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet"
	"github.com/go-throttle/throttle/throttledebug"
	"github.com/go-throttle/throttle/throttletest"
)

// The page says why the first call waits, with the word that Stats has, and for how long.
func TestWhy(t *testing.T) {
	limited := func(string) throttle.Limiter { return throttle.NewBucket(0.1, 1) }
	for _, c := range []struct {
		reason, says string
		transport    *throttle.Transport
		before       int // calls that come before
		busy         int // calls that come before and stay
		status       int // of the upstream's answers
		header       http.Header
	}{
		{reason: "limit", says: "for the limit of its key (limit), for 10 s more, until 00:00:10 UTC.",
			transport: &throttle.Transport{LimiterFor: limited}, before: 1},
		{reason: "limit:shared", says: "for the limit that all keys share (limit:shared), for 10 s more",
			transport: &throttle.Transport{Limiter: throttle.NewBucket(0.1, 1)}, before: 1},
		{reason: "limit:advertised", says: "for a quota that responses advertise (limit:advertised), for ",
			transport: &throttle.Transport{}, before: 1, header: http.Header{"Ratelimit": {`"a";r=0;t=30`}, "Ratelimit-Policy": {`"a";q=10;w=60`}}},
		{reason: "gate:paused", says: "for the end of a pause by hand (gate:paused), for 1 min more, until 00:01:00 UTC.",
			transport: &throttle.Transport{}},
		{reason: "gate:retry-after", says: "for the time that the upstream has asked for (gate:retry-after), for 3",
			transport: &throttle.Transport{}, status: 429, header: http.Header{"Retry-After": {"30"}}},
		{reason: "gate:first-contact", says: "for the first answer of an upstream that nothing is known of (gate:first-contact), for 1.0 s more",
			transport: &throttle.Transport{}, busy: 4},
		{reason: "slot", says: "for a call in flight to end (slot).",
			transport: &throttle.Transport{LimiterFor: limited, Queue: throttle.QueueOptions{MaxInFlight: 1}}, busy: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := new(upstream)
			up.set(c.status, c.header)
			tr, key := c.transport, "api.test"
			tr.Base, tr.Key = up, byField
			if c.reason == "gate:paused" {
				tr.Pause(key, time.Minute)
			}
			ctx, cancel := context.WithCancel(t.Context())
			call(t, tr, key, c.before)
			if c.busy > 0 {
				tr.Base = slow{}
			}
			for range c.busy {
				go try(ctx, tr, key)
			}
			synctest.Wait()
			go try(throttle.WithFlow(ctx, "tenant"), tr, key)
			synctest.Wait()
			h := throttledebug.Handler(one(tr))
			page := get(h, "/?name=api&key="+key).Body.String()
			if want := "The first call in line waits " + c.says; !strings.Contains(page, html.EscapeString(want)) {
				_, got, _ := strings.Cut(page, `<p id="why">`)
				t.Errorf("%s: %.150s, want %s", c.reason, got, want)
			}
			row := rowsOf(t, h, "")[0]
			if held, _, _ := strings.Cut(row["held"], ","); held != c.reason || row["waiting"] != "1" {
				t.Errorf("%s: the row says %q of %s", c.reason, row["held"], row["waiting"])
			}
			if state := get(h, "/state.json").Body.String(); !strings.Contains(state, `"reason":"`+c.reason+`"`) {
				t.Errorf("%s: %s", c.reason, state)
			}
			if s, _ := stats(tr, key); s.Reason != c.reason {
				t.Errorf("Stats says %s, want %s", s.Reason, c.reason)
			}
			if !strings.Contains(page, "<td>tenant</td><td>1</td>") {
				t.Errorf("%s: the flow is missing", c.reason)
			}
			cancel()
			synctest.Wait()
		})
	}
}

// Where the configured limit is too high, the page and state.json say what is accepted; elsewhere they do not speak of it.
func TestTooHigh(t *testing.T) {
	for _, c := range []struct {
		limit    throttle.Limiter
		accepted int     // per second
		want     float64 // configured; 0: none is too high
	}{
		{throttle.NewBucket(20, 1), 10, 20},
		{throttle.NewBucket(0.5, 1), 10, 0},
		{throttle.NewBucket(rate.Inf, 1), 10, 0},
		{nil, 10, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := throttletest.NewServer(throttletest.Limit{N: c.accepted, Burst: 5})
			up.Latency = throttletest.Span{Min: 10 * time.Millisecond}
			tr := newTransport()
			tr.Base, tr.Limiter = up, c.limit
			h := throttledebug.Handler(one(tr))
			found := 0.0
			for start := time.Now(); found == 0 && time.Since(start) < time.Minute; {
				call(t, tr, "api.test", 1)
				for s := range tr.Stats() {
					if len(s.Learned) > 0 {
						found = float64(s.Learned[0].Rate)
					}
				}
			}
			page := get(h, "/?name=api&key=api.test").Body.String()
			state := get(h, "/state.json").Body.String()
			_, said, _ := strings.Cut(page, `<p id="too-high"`)
			said, _, _ = strings.Cut(said, "</p>")
			if c.want == 0 {
				if said != " hidden>" || strings.Contains(state, `"configured"`) {
					t.Errorf("the page says %q, state.json %s", said, state)
				}
				return
			}
			accepted := strings.TrimSuffix(fmt.Sprintf("%.1f", found), ".0")
			if want := fmt.Sprintf(">You configured %v/s; %s/s are accepted.", c.want, accepted); found == 0 || said != want {
				t.Errorf("the page says %q, want %q", said, want)
			}
			if want := fmt.Sprintf(`"configured":%v`, c.want); !strings.Contains(state, want) || !strings.Contains(state, `"source":"throttled"`) {
				t.Errorf("%s lacks %s", state, want)
			}
			c.limit.(*throttle.Bucket).SetLimit(rate.Limit(found * (1 + 1e-6)))
			if page := get(h, "/?name=api&key=api.test").Body.String(); !strings.Contains(page, "/s; almost "+accepted+"/s are accepted.") {
				t.Errorf("the page does not say that %v/s is almost what is configured", found)
			}
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

// TestNoSuchKey: a key that nobody has is shown as text and cut, so that it takes the place of no row.
func TestNoSuchKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport()
		call(t, tr, "a", 1)
		h := throttledebug.Handler(one(tr))
		page := get(h, "/?name=x&key="+url.QueryEscape("\u202e\n<b>")).Body.String()
		if !strings.Contains(page, `<bdi id="chosen-key">\u202e\n&lt;b&gt;</bdi>`) || strings.Contains(page, "\u202e") {
			t.Errorf("the key is not shown as text in %s", page)
		}
		w := open(t, h, "name=x&key="+url.QueryEscape(strings.Repeat("\u202e", 20000)))
		some, size := w.news(t)
		if size > 32<<10 || len(some) != 1 || len(some[0].Rows) != 1 || some[0].Chosen == nil || !some[0].Chosen.Gone {
			t.Errorf("%d bytes and %d events, want at most 32 KiB and one with a row and no such key", size, len(some))
		}
		w.close()
	})
}
