// Github looks up the stars of many repositories with go-github, with and without throttle, against a fake of
// GitHub's API, and prints a table of both.
//
// Run it from the root of the repository:
//
//	go run ./examples/github
//
// The fake admits 200 calls an hour, where an hour lasts two seconds, and says in every answer what remains and
// when it resets, as GitHub does. What exceeds that gets a 403. Without throttle, go-github finds out after the first refusal
// and refuses all calls itself until the reset: the caller has to come again. With throttle calls wait.
//
// Flags:
//
//	-brief  fewer calls
package main

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-throttle/throttle/examples/internal/sides"
	"github.com/go-throttle/throttle/throttletest"
)

// hour is how long an hour of the fake lasts, and perHour how many calls it admits in one.
const hour, perHour = 2 * time.Second, 200

func main() {
	sides.Main("github", "Github looks up repositories with go-github, with and without throttle.", story)
}

// story is the run: calls of four hours and a half, or with brief of two and a half.
func story(brief bool) sides.Story {
	hours := 4
	if brief {
		hours = 2
	}
	return sides.Story{Calls: hours*perHour + perHour/2, Workers: 16, Ideal: time.Duration(hours) * hour, Fake: fake, User: stars}
}

func repository(i int) string { return fmt.Sprint("hello-", i) }

// fake is GitHub: a limit that counts by hours, and its words about it.
func fake() sides.Fake {
	s := throttletest.NewServer(throttletest.Limit{Name: "core", Kind: throttletest.Fixed, N: perHour, Per: hour})
	s.Latency = throttletest.Span{Min: 5 * time.Millisecond, Max: 15 * time.Millisecond}
	s.Advertise.Dialect = throttletest.GitHub
	s.Status, s.Body = http.StatusForbidden, `{"message":"API rate limit exceeded","documentation_url":"https://docs.github.com/rest"}`
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"full_name":"octocat/hello","stargazers_count":80}`)
	})
	return sides.Fake{Server: s}
}
