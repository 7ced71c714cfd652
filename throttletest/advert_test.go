package throttletest_test

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/throttletest"
)

// What each dialect writes of two limits. The first has the smaller share left, and its reset is at 12:00:03.1.
func TestDialects(t *testing.T) {
	at := time.Date(2026, 1, 10, 12, 0, 0, 300e6, time.UTC)
	states := []throttletest.State{
		{Limit: 100, Remaining: 7, Reset: 2800 * ms, Window: 10 * time.Second},
		{Name: "slow", Unit: "tokens", Limit: 1000, Remaining: 900, Reset: 50 * time.Second, Window: time.Minute},
	}
	for name, c := range map[string]struct {
		dialect throttletest.Dialect
		want    map[string]string
	}{
		"draft-03": {throttletest.Draft03, map[string]string{"RateLimit-Limit": "100, 100;w=10", "RateLimit-Remaining": "7", "RateLimit-Reset": "3"}},
		"draft-06": {throttletest.Draft06, map[string]string{"RateLimit-Limit": "100", "RateLimit-Policy": "100;w=10", "RateLimit-Remaining": "7", "RateLimit-Reset": "3"}},
		"draft-07": {throttletest.Draft07, map[string]string{"RateLimit": "limit=100, remaining=7, reset=3", "RateLimit-Policy": "100;w=10"}},
		"draft-08": {throttletest.Draft08, map[string]string{
			"RateLimit": `"default";r=7;t=3, "slow";r=900;t=50`, "RateLimit-Policy": `"default";q=100;w=10, "slow";q=1000;w=60;qu="tokens"`}},
		"x-epoch": {throttletest.XEpoch, map[string]string{"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "7", "X-RateLimit-Reset": "1768046404"}},
		"x-delta": {throttletest.XDelta, map[string]string{"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "7", "X-RateLimit-Reset": "3"}},
		"github": {throttletest.GitHub, map[string]string{"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "7", "X-RateLimit-Used": "93",
			"X-RateLimit-Reset": "1768046404", "X-RateLimit-Resource": ""}},
		"discord": {throttletest.Discord, map[string]string{"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "7", "X-RateLimit-Reset": "1768046403.100",
			"X-RateLimit-Reset-After": "2.800", "X-RateLimit-Bucket": ""}},
		"openai": {throttletest.OpenAI, map[string]string{"X-RateLimit-Limit-Requests": "100", "X-RateLimit-Remaining-Requests": "7", "X-RateLimit-Reset-Requests": "2.8s",
			"X-RateLimit-Limit-Slow": "1000", "X-RateLimit-Remaining-Slow": "900", "X-RateLimit-Reset-Slow": "50s"}},
		"anthropic": {throttletest.Anthropic, map[string]string{"Anthropic-RateLimit-Requests-Limit": "100", "Anthropic-RateLimit-Requests-Remaining": "7",
			"Anthropic-RateLimit-Requests-Reset": "2026-01-10T12:00:04Z", "Anthropic-RateLimit-Slow-Limit": "1000", "Anthropic-RateLimit-Slow-Remaining": "900",
			"Anthropic-RateLimit-Slow-Reset": "2026-01-10T12:00:51Z"}},
	} {
		for _, order := range [][]throttletest.State{states, {states[1], states[0]}} {
			h := http.Header{}
			c.dialect(h, slices.Clone(order), at)
			for field, value := range c.want {
				if got := h.Get(field); got != value && order[0] == states[0] {
					t.Errorf("%s: %s: %s, want %s", name, field, got, value)
				}
			}
			if len(h) != len(c.want) {
				t.Errorf("%s: %v", name, h)
			}
			// The library reads what it says.
			parsed := hint.Parse(&http.Response{StatusCode: 200, Header: h}, at)
			if i := slices.IndexFunc(parsed.Quotas, func(q hint.Quota) bool { return q.Limit == 100 && q.Remaining == 7 }); i < 0 ||
				parsed.Quotas[i].Reset < 2800*ms || parsed.Quotas[i].Reset > 4*time.Second {
				t.Errorf("%s is read as %+v", name, parsed.Quotas)
			}
		}
	}
}

// Answers advertise always, only if throttled, now and then, something else, or nothing.
func TestWhatIsAdvertised(t *testing.T) {
	lie := func(s throttletest.State) throttletest.State {
		s.Remaining = 999
		return s
	}
	for name, c := range map[string]struct {
		advert throttletest.Advert
		want   []string // X-RateLimit-Remaining, of four requests
	}{
		"nothing":   {throttletest.Advert{Every: 1, Throttled: true, Edit: lie}, []string{"", "", "", ""}},
		"always":    {throttletest.Advert{Dialect: throttletest.XDelta}, []string{"1", "0", "0", "0"}},
		"throttled": {throttletest.Advert{Dialect: throttletest.XDelta, Throttled: true}, []string{"", "", "0", "0"}},
		"each 2nd":  {throttletest.Advert{Dialect: throttletest.XDelta, Every: 2}, []string{"1", "", "0", ""}},
		"each 3rd":  {throttletest.Advert{Dialect: throttletest.XDelta, Every: 3}, []string{"1", "", "", "0"}},
		"lies":      {throttletest.Advert{Dialect: throttletest.XDelta, Edit: lie}, []string{"999", "999", "999", "999"}},
	} {
		s := throttletest.NewServer(throttletest.Limit{N: 2, Per: time.Hour}, throttletest.Limit{Kind: throttletest.InFlight, N: 1})
		s.Advertise = c.advert
		var got []string
		for range c.want {
			_, h := get(t, s, s.URL())
			got = append(got, h.Get("X-RateLimit-Remaining"))
		}
		want(t, name, got, c.want)
	}
}

// A limit of Discord's that is called global shows only in its own refusals, which say nothing else.
func TestDiscordGlobal(t *testing.T) {
	const bucket, remaining, scope, all = "X-RateLimit-Bucket", "X-RateLimit-Remaining", "X-RateLimit-Scope", "X-RateLimit-Global"
	s := throttletest.NewServer(
		throttletest.Limit{Name: "b", Kind: throttletest.Fixed, N: 2, Per: time.Hour, Key: func(r *http.Request) string { return r.URL.Path }},
		throttletest.Limit{Name: "global", Kind: throttletest.Fixed, N: 4, Per: time.Hour},
	)
	s.Advertise.Dialect, s.RetryAfter = throttletest.Discord, throttletest.Exact
	for _, c := range []struct {
		path   string
		status int
		want   map[string]string
	}{
		{"/1", 200, map[string]string{bucket: "b", remaining: "1"}},
		{"/1", 200, map[string]string{bucket: "b", remaining: "0"}},
		{"/1", 429, map[string]string{bucket: "b", remaining: "0", scope: "user"}},
		{"/2", 200, map[string]string{bucket: "b", remaining: "1"}},
		{"/3", 200, map[string]string{bucket: "b", remaining: "1"}},
		{"/4", 429, map[string]string{scope: "global", all: "true"}},
	} {
		status, h := get(t, s, s.URL()+c.path)
		for _, field := range []string{bucket, remaining, scope, all} {
			if h.Get(field) != c.want[field] || status != c.status {
				t.Errorf("%s: %d, %s is %q, want %+v", c.path, status, field, h.Get(field), c)
			}
		}
	}
	s = throttletest.NewServer(throttletest.Limit{Name: "global", Kind: throttletest.Fixed, N: 1})
	s.Advertise.Dialect = throttletest.Discord
	if _, h := get(t, s, s.URL()); h.Get(bucket)+h.Get(remaining) != "" {
		t.Errorf("a global limit alone says %v", h)
	}
}

// A request hears of the limits that it falls under, by the Server's clock at its arrival.
func TestAdvertisedLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := func(p string) func(*http.Request) bool { return func(r *http.Request) bool { return r.URL.Path == p } }
		s := throttletest.NewServer(
			throttletest.Limit{Name: "core", Kind: throttletest.Fixed, N: 50, Per: time.Hour, Match: path("/core")},
			throttletest.Limit{Name: "search", Kind: throttletest.Fixed, N: 1, Per: time.Minute, Match: path("/search")},
			throttletest.Limit{Kind: throttletest.InFlight, N: 1},
		)
		s.Status, s.Advertise.Dialect, s.Skew, s.Latency = 403, throttletest.GitHub, time.Minute, throttletest.Span{Min: time.Second}
		for _, c := range []struct {
			path                         string
			status                       int
			resource, remaining, resetAt string
		}{
			{"/core", 200, "core", "49", "946688460"}, // 2000-01-01 01:00:00, by a clock that is a minute ahead
			{"/search", 200, "search", "0", "946684920"},
			{"/search", 403, "search", "0", "946684920"},
			{"/other", 200, "", "", ""},
		} {
			status, h := get(t, s, s.URL()+c.path)
			if status != c.status || h.Get("X-RateLimit-Resource") != c.resource || h.Get("X-RateLimit-Remaining") != c.remaining || h.Get("X-RateLimit-Reset") != c.resetAt {
				t.Errorf("%+v: %d %v", c, status, h)
			}
		}
	})
}
