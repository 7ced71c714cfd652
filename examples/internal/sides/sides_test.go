package sides

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/throttletest"
)

// A side that loses calls says so in the table, and the first reason below it.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Story{Calls: 30, Workers: 4, Ideal: 2 * time.Second,
			Fake: func() Fake {
				s := throttletest.NewServer(throttletest.Limit{N: 10})
				s.Latency, s.RetryAfter = throttletest.Span{Min: 10 * time.Millisecond}, throttletest.Exact
				return Fake{Server: s}
			},
			User: func(client *http.Client, _ string) Call {
				return func(ctx context.Context, i int) error {
					resp, err := client.Get("https://api.example.com/")
					if err != nil {
						return err
					}
					if resp.Body.Close(); resp.StatusCode != http.StatusOK {
						return aging{resp.Status, time.Now()}
					}
					return nil
				}
			},
		}
		var out strings.Builder
		done, err := s.Run(t.Context(), &out)
		if err != nil || len(done) != 2 || done[0].Delivered == 30 || done[0].Failure == "" || done[1].Delivered != 30 || done[1].Failure != "" {
			t.Errorf("%+v, %v", done, err)
		}
		if text := out.String(); !strings.Contains(text, "without, the first failure: 429 Too Many Requests, 0s ago") || !strings.Contains(text, "with throttle      30          30") {
			t.Errorf("\n%s", text)
		}
	})
}

// An aging error says how long ago it was, as some of go-github do.
type aging struct {
	text string
	when time.Time
}

func (e aging) Error() string { return fmt.Sprintf("%s, %v ago", e.text, time.Since(e.when)) }

// What a user writes, in user.go of each example, is at most 25 lines of code.
func TestUserCode(t *testing.T) {
	for _, name := range []string{"github", "graphql", "discord"} {
		text, err := os.ReadFile("../../" + name + "/user.go")
		if err != nil {
			t.Fatal(err)
		}
		_, code, _ := strings.Cut(string(text), "\n)\n")
		n := 0
		for line := range strings.Lines(code) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				n++
			}
		}
		if n < 5 || n > 25 {
			t.Errorf("%s has %d lines of user code", name, n)
		}
	}
}
