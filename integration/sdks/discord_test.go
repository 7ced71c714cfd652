package sdks

import (
	"context"
	"fmt"
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
		s.Advertise.Dialect, s.Body = asJSON(throttletest.Discord), `{"message":"You are being rate limited."}`
		s.Handler = answer(func(r *http.Request) string { return `{"id":"1","channel_id":"7","content":"hi"}` })
		return fake{Server: s}
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
