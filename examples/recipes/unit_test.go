package recipes

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttletest"
)

// What follows until the next comment is the README's example of a unit test that does not sleep.

func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := throttletest.NewServer() // a Base that answers 200 at once; it can have limits, faults and delays
		client := &http.Client{Transport: &throttle.Transport{Base: upstream, Limiter: throttle.NewBucket(10, 1)}}
		start := time.Now()
		for range 11 {
			client.Get(upstream.URL())
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
