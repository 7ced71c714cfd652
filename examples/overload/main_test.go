package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-throttle/throttle/examples/internal/leak"
)

// TestMain lets the test binary be the server, as the program does.
func TestMain(m *testing.M) {
	for i, arg := range os.Args {
		if arg == "-serve" {
			if err := beServer(context.Background(), os.Args[i+1] == "with", os.Stdin, os.Stdout); err != nil {
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// TestRun: each request is counted once, and both servers are in the table.
func TestRun(t *testing.T) {
	leak.Check(t)
	var out bytes.Buffer
	tab := table{cfg: config{load: 2, length: 300 * time.Millisecond, columns: 80}, out: &out}
	for _, name := range []string{"without", "with"} {
		s, err := start(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		c := newClients(name, s, tab.cfg.load)
		tab.runs = append(tab.runs, c)
		tab.ask(t.Context(), c)
		s.stop()
		if n := len(c.times) + c.refused + c.left + c.failed; n != c.sent || n == 0 {
			t.Errorf("%s: %d of %d counted", name, n, c.sent)
		}
	}
	if err := tab.print(&out, 80); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "without") || !strings.Contains(out.String(), "of what it can") {
		t.Error(out.String())
	}
}

// TestServer: it says where it listens, serves with and without, and ends with its input.
func TestServer(t *testing.T) {
	leak.Check(t)
	for _, with := range []bool{false, true} {
		in, stop := io.Pipe()
		said, out := io.Pipe()
		done := make(chan error, 1)
		go func() { done <- beServer(t.Context(), with, in, out) }()
		var g greeting
		if err := json.NewDecoder(said).Decode(&g); err != nil || g.Can <= 0 {
			t.Fatal(g, err)
		}
		pool := &http.Transport{}
		resp, err := (&http.Client{Transport: pool}).Get(g.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Error(resp.Status)
		}
		pool.CloseIdleConnections()
		_ = stop.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
