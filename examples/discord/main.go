// Discord writes messages to many channels, as a bot does, with and without throttle, against a fake of Discord's API, and
// prints a table of both.
//
// Run it from the root of the repository:
//
//	go run ./examples/discord
//
// The fake has two limits. Each channel takes 5 messages in 2 s: a bucket that answers name and describe. All channels together
// take 50 a second, which only a refusal shows, with X-RateLimit-Scope: global. With the zero throttle.Transport each channel
// waits for its own bucket alone, and all of them wait when the global limit has refused.
//
// Flags:
//
//	-brief  fewer calls
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-throttle/throttle/examples/internal/console"
	"github.com/go-throttle/throttle/examples/internal/sides"
	"github.com/go-throttle/throttle/throttletest"
)

// How many channels the bot writes to, how many messages one takes in a window, and how many all take in a second.
const channels, each, window, global = 12, 5, 2 * time.Second, 50

func main() {
	p := console.New("discord", "Discord writes messages to many channels, with and without throttle.")
	brief := p.Flags.Bool("brief", false, "fewer calls")
	p.Main(func(ctx context.Context, out io.Writer) error {
		s := story(*brief)
		s.Columns = console.Columns()
		_, err := s.Run(ctx, out)
		return err
	})
}

// story is the run: as many messages as fit into five windows of each channel, or with brief into three.
func story(brief bool) sides.Story {
	windows := 5
	if brief {
		windows = 3
	}
	ideal := time.Duration(windows-1) * window
	return sides.Story{Calls: windows * each * channels, Workers: channels, Ideal: ideal, Fake: fake, User: messages}
}

// fake is Discord: a Server with both limits, and front before it, which writes its refusals.
func fake() sides.Fake {
	s := throttletest.NewServer(
		throttletest.Limit{Name: "80c17d2f203122d936070c88c8d10f33", Kind: throttletest.FixedFirst, N: each, Per: window,
			Key: func(r *http.Request) string { return r.URL.Path }},
		throttletest.Limit{Name: "global", Kind: throttletest.Fixed, N: global},
	)
	s.Latency = throttletest.Span{Min: 5 * time.Millisecond, Max: 15 * time.Millisecond}
	s.RetryAfter = throttletest.Exact
	s.Advertise.Dialect = func(h http.Header, states []throttletest.State, now time.Time) {
		throttletest.Discord(h, states[:1], now) // of the global limit answers say nothing
	}
	return sides.Fake{Server: s, Front: front}
}

// front gives a refusal its scope and its body. One of a bucket that has something left is the global limit's.
func front(base http.RoundTripper, req *http.Request) (*http.Response, error) {
	resp, err := base.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusTooManyRequests {
		return resp, err
	}
	ofAll := resp.Header.Get("X-RateLimit-Remaining") != "0"
	if resp.Header.Set("X-RateLimit-Scope", "user"); ofAll {
		for _, name := range []string{"Limit", "Remaining", "Reset", "Reset-After", "Bucket"} {
			resp.Header.Del("X-RateLimit-" + name)
		}
		resp.Header.Set("X-RateLimit-Scope", "global")
		resp.Header.Set("X-RateLimit-Global", "true")
	}
	body := fmt.Sprintf(`{"message": "You are being rate limited.", "retry_after": %s, "global": %v}`, resp.Header.Get("Retry-After"), ofAll)
	resp.Header.Set("Content-Type", "application/json")
	resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	return resp, nil
}
