package recipes

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
)

// What follows until the next comment is the README's example of a unit test that does not sleep.

type upstream struct{}

func (upstream) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
}

func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: &throttle.Transport{Base: upstream{}, Limiter: throttle.NewBucket(10, 1)}}
		start := time.Now()
		for range 11 {
			client.Get("http://api.test/")
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("11 calls at 10 a second took %v, want 1s", took)
		}
	})
}

// TestReadme: the example above is that of the README, so the README's works.
func TestReadme(t *testing.T) {
	own, err := os.ReadFile("unit_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(own), "does not sleep.\n\n")
	text, _, _ = strings.Cut(text, "\n// TestReadme")
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```go\n"+text+"```\n") {
		t.Errorf("README.md does not have this example:\n%s", text)
	}
}
