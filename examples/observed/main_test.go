package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
)

// A short run makes calls of each key, and the page knows all of them.
func TestBrief(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), config{listen: "127.0.0.1:0", brief: true}, &out); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"api", "search", "mail"} {
		found := regexp.MustCompile(`(?m)^` + key + ` +(\d+) sent`).FindStringSubmatch(out.String())
		if found == nil || found[1] == "0" {
			t.Errorf("nothing is said of %s:\n%s", key, out.String())
		}
	}
}

// TestPoint: in full and in brief, what keeps a known limit is never throttled, what has to find one is throttled now and then,
// and an outage costs as many attempts as there are workers, and a probe.
func TestPoint(t *testing.T) {
	for _, brief := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := config{brief: brief}
			client := &throttle.Transport{Base: offline{newUpstream(cfg.cycle())}, Key: byPath, LimiterFor: limits}
			ctx, end := context.WithCancel(t.Context())
			defer end()
			time.AfterFunc(cfg.length(), end)
			send(ctx, &http.Client{Transport: client}, "http://upstream.test")
			for s := range client.Stats() {
				t.Logf("%s: %d sent, %d throttled", s.Key, s.Sent, s.Throttled)
				sent, most := map[string]uint64{"api": 200, "search": 40, "mail": 50}[s.Key], map[string]uint64{"search": s.Sent / 3, "mail": 3 * 5}[s.Key]
				if s.Sent < sent || s.Throttled > most || s.Key != "api" && s.Throttled == 0 {
					t.Errorf("%s: %d sent and %d throttled, want %d or more, and %d or fewer", s.Key, s.Sent, s.Throttled, sent, most)
				}
			}
		})
	}
}

// offline calls a handler without a network.
type offline struct{ http.Handler }

func (o offline) RoundTrip(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	o.ServeHTTP(w, req)
	resp := w.Result()
	resp.Request = req
	return resp, nil
}

// The page is there while the traffic runs, with its table, its events and its buttons, until the program is interrupted.
func TestPage(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out, print := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, config{listen: "127.0.0.1:0", forever: true}, print) }()
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, lines)
	url := strings.TrimSpace(strings.TrimPrefix(first, "The page: "))
	for {
		if keys, err := states(t.Context(), url+"state.json"); err != nil {
			t.Fatal(err)
		} else if len(keys) == 3 {
			break
		}
	}
	for path, want := range map[string]string{"": `action="pause"`, "?q=search": "1 to 1 of 1", "events": `"totals":"3 keys`} {
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		text := bufio.NewScanner(resp.Body)
		text.Buffer(nil, 1<<20)
		for !strings.Contains(text.Text(), want) {
			if !text.Scan() {
				t.Fatalf("%s lacks %s", path, want)
			}
		}
		resp.Body.Close()
	}
	resp, err := http.Get(strings.Replace(url, "debug/throttle/", "metrics", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	scraped, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`throttle_client_requests_total{throttle_key="mail"`, `throttle_store_trips_total{throttle_policy="observed"}`} {
		if !strings.Contains(string(scraped), want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	interrupt()
	if err := <-ended; err != context.Canceled {
		t.Errorf("it ended with %v", err)
	}
}

// An address that is taken is an error, not a page of somebody else.
func TestTaken(t *testing.T) {
	server, address, err := serve("127.0.0.1:0", http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if err := run(t.Context(), config{listen: address, brief: true}, io.Discard); err == nil {
		t.Error("no error")
	}
}
