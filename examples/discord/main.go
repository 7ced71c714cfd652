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
	"net/http"
	"time"

	"github.com/go-throttle/throttle/examples/internal/sides"
	"github.com/go-throttle/throttle/throttletest"
)

// How many channels the bot writes to, how many messages one takes in a window, and how many all take in a second.
const channels, each, window, global = 12, 5, 2 * time.Second, 50

func main() {
	sides.Main("discord", "Discord writes messages to many channels, with and without throttle.", story)
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

// fake is Discord: a Server with both limits. Its answers say of them what Discord says.
func fake() sides.Fake {
	s := throttletest.NewServer(
		throttletest.Limit{Name: "80c17d2f203122d936070c88c8d10f33", Kind: throttletest.FixedFirst, N: each, Per: window,
			Key: func(r *http.Request) string { return r.URL.Path }},
		throttletest.Limit{Name: "global", Kind: throttletest.Fixed, N: global},
	)
	s.Latency = throttletest.Span{Min: 5 * time.Millisecond, Max: 15 * time.Millisecond}
	s.RetryAfter = throttletest.Exact
	s.Advertise.Dialect, s.Body = throttletest.Discord, `{"message": "You are being rate limited."}`
	return sides.Fake{Server: s}
}
