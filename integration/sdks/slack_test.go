package sdks

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/slack-go/slack"

	"github.com/go-throttle/throttle/throttletest"
)

func newSlack(throttled *http.Client, token string) *slack.Client {
	return slack.New(token, slack.OptionHTTPClient(throttled)) // and no slack.OptionRetry
}

var slackAPI = api{
	name:   "slack",
	stream: "{",
	// 50 calls in any minute; a refusal says after how many whole seconds to come again, and nothing else does.
	fake: func() fake {
		s := throttletest.NewServer(throttletest.Limit{Kind: throttletest.Sliding, N: 50, Per: time.Minute})
		s.Latency, s.Identify, s.RetryAfter = way, byBody, throttletest.Exact
		s.Body = `{"ok":false,"error":"ratelimited"}`
		s.Handler = answer(func(r *http.Request) string { return `{"ok":true,"channel":"C1","ts":"1.2"}` })
		return fake{Server: s}
	},
	use: func(throttled *http.Client) caller {
		client := newSlack(throttled, "xoxb-token")
		return func(ctx context.Context, i int) error {
			_, _, err := client.PostMessageContext(ctx, "C1", slack.MsgOptionText(fmt.Sprintf("call %d", i), false))
			return err
		}
	},
	calls: 325, workers: 8, ideal: 6 * time.Minute, slack: 1.5,
}
