package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-throttle/throttle/examples/internal/leak"
)

// TestRun: nobody gets more than the limits allow.
func TestRun(t *testing.T) {
	leak.Check(t)
	s, err := newServer("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	crowd := newCrowd(s.url)
	defer crowd.close()
	start := time.Now()
	crowd.send(t.Context(), 500*time.Millisecond)
	took := time.Since(start).Seconds()
	var out bytes.Buffer
	if err := crowd.print(&out, 80, time.Second, s.limit.Stats()); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &out)
	rates := map[string]float64{"pro": 100, "free": 20, "hasty": 20, "flood": 300, "spoofer": 200}
	for _, c := range crowd.clients {
		sent, served := c.sent.Load(), c.served.Load()
		if most := int64(rates[c.name]*(1+took)) + 1; served > most {
			t.Errorf("%s: %d of %d were served, want at most %d", c.name, served, sent, most)
		}
	}
}

func TestOutput(t *testing.T) {
	leak.Check(t)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	var out bytes.Buffer
	if err := run(ctx, config{addr: "127.0.0.1:0", length: time.Hour, columns: 60}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"curl", "pro", "spoofer", "100/s burst 100", "has let"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output does not say %q:\n%s", want, &out)
		}
	}
}

func TestNonsense(t *testing.T) {
	for _, cfg := range []config{{addr: "127.0.0.1:0", length: -1}, {addr: "nowhere", length: time.Second}} {
		if err := run(t.Context(), cfg, &bytes.Buffer{}); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
