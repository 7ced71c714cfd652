package sdks

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/bwmarrin/discordgo"

	"github.com/go-throttle/throttle/throttletest"
)

func newDiscord(throttled *http.Client, token string) (*discordgo.Session, error) {
	session, err := discordgo.New("Bot " + token)
	if err != nil {
		return nil, err
	}
	session.Client = throttled // its own has a timeout of 20 s, which would include the wait
	session.ShouldRetryOnRateLimit = false
	session.MaxRestRetries = 0
	return session, nil
}

// channels is how many channels the bot writes to. The SDK lets the calls of one wait for each other under a mutex, which
// stops the clock of a bubble, so each channel is written to by one worker at a time.
const channels = 20

var discord = api{
	name:   "discord",
	stream: "{",
	// 5 messages in 5 s for each channel, advertised, and 50 calls a second in all, which only a refusal shows.
	fake: func() fake {
		s := throttletest.NewServer(
			throttletest.Limit{Name: "abcd1234", Kind: throttletest.FixedFirst, N: 5, Per: 5 * time.Second, Key: func(r *http.Request) string { return r.URL.Path }},
			throttletest.Limit{Name: "global", Kind: throttletest.Fixed, N: 50},
		)
		s.Latency, s.Identify, s.RetryAfter = way, byBody, throttletest.Exact
		s.Advertise.Dialect = asJSON(func(h http.Header, states []throttletest.State, now time.Time) {
			throttletest.Discord(h, states[:1], now)
		})
		s.Handler = answer(func(r *http.Request) string { return `{"id":"1","channel_id":"7","content":"hi"}` })
		return fake{Server: s, front: discordFront(s)}
	},
	use: func(throttled *http.Client) caller {
		session, err := newDiscord(throttled, "token")
		free := make(chan string, channels)
		for i := range channels {
			free <- strconv.Itoa(1000 + i)
		}
		return func(ctx context.Context, i int) error {
			if err != nil {
				return err
			}
			channel := <-free
			defer func() { free <- channel }()
			_, err := session.ChannelMessageSend(channel, fmt.Sprint("call ", i), discordgo.WithContext(ctx))
			return err
		}
	},
	calls: 30 * channels, workers: channels, ideal: 25 * time.Second, slack: 1.3,
}

// discordFront makes of refusals what Discord makes of them: a body with the wait, and another header if it is the global
// limit that refuses.
func discordFront(s *throttletest.Server) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := s.RoundTrip(req)
		if err != nil || resp.StatusCode != http.StatusTooManyRequests {
			return resp, err
		}
		global := resp.Header.Get("X-Ratelimit-Remaining") != "0"
		if resp.Header.Set("X-Ratelimit-Scope", "user"); global {
			for _, name := range []string{"Limit", "Remaining", "Reset", "Reset-After", "Bucket"} {
				resp.Header.Del("X-Ratelimit-" + name)
			}
			resp.Header.Set("X-Ratelimit-Scope", "global")
			resp.Header.Set("X-Ratelimit-Global", "true")
		}
		body := fmt.Sprintf(`{"message":"You are being rate limited.","retry_after":%s,"global":%v}`, resp.Header.Get("Retry-After"), global)
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewBufferString(body)), int64(len(body))
		return resp, nil
	})
}
