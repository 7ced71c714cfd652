package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A short run makes its calls, and the page knows all of them.
func TestBrief(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), config{listen: "127.0.0.1:0", brief: true}, &out); err != nil {
		t.Fatal(err)
	}
	for key, calls := range map[string]int{"api": 40, "search": 10, "mail": 5} {
		found := regexp.MustCompile(`(?m)^` + key + ` +(\d+) sent`).FindStringSubmatch(out.String())
		if found == nil {
			t.Errorf("nothing is said of %s:\n%s", key, out.String())
			continue
		}
		if sent, _ := strconv.Atoi(found[1]); sent < calls {
			t.Errorf("%s: %d sent, want %d or more", key, sent, calls)
		}
	}
}

// The page is there while the traffic runs, with its table, its events and its buttons, until the program is interrupted.
func TestPage(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out, print := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, config{listen: "127.0.0.1:0", forever: true}, print) }()
	first, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
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
