package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-throttle/throttle/examples/internal/leak"
	"github.com/go-throttle/throttle/throttletest"
)

// TestMain: a run that a test starts is the test binary again. With the race detector it would take a second to end.
func TestMain(m *testing.M) {
	if serve() {
		return
	}
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
	os.Exit(m.Run())
}

// needsFile skips a test where there is no fleet.File.
func needsFile(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("skipped: fleet.File needs Linux or macOS")
	}
}

// TestRun: each call of each run is answered, and the upstream throttles runs that know nothing of each other. How long that
// takes is not judged.
func TestRun(t *testing.T) {
	needsFile(t)
	leak.Check(t)
	cfg := config{runs: 6, parallel: 3, limit: 100}
	var out bytes.Buffer
	if err := run(t.Context(), cfg, &out); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &out)
	for _, want := range []string{"6 runs of 4 calls", "a limiter of its own", "the limit in a file"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output does not say %q", want)
		}
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > 81 {
			t.Errorf("wider than 80 columns: %s", line)
		}
	}
}

// TestPoint: runs that hold the limit by a file keep to it over all of them, those after a while too; a limiter of each run's own
// holds nobody. The upstream admits everything here, so that the limiters alone decide when calls arrive.
func TestPoint(t *testing.T) {
	needsFile(t)
	leak.Check(t)
	upstream := throttletest.NewServer()
	if err := upstream.Start(); err != nil {
		t.Fatal(err)
	}
	defer upstream.Close()
	const limit, runs = 20, 6
	j := job{Upstream: upstream.URL(), File: filepath.Join(t.TempDir(), "limits"), Limit: limit}
	began := time.Now()
	for range runs {
		if n, err := j.start(t.Context()); n != callsEach || err != nil {
			t.Fatalf("%d calls of %d were answered, %v", n, callsEach, err)
		}
	}
	// One run after the other, each with one call under way: nothing is late by more than that call.
	if took, least := time.Since(began), time.Duration(runs*callsEach-burst-1-limit/4-1)*time.Second/limit; took < least {
		t.Errorf("%d calls at %d/s, burst %d, took %v, want %v or more", runs*callsEach, limit, burst, took, least)
	}
	j.File = ""
	if n, err := j.start(t.Context()); n != callsEach || err != nil {
		t.Errorf("with a limiter of its own %d calls of %d were answered, %v", n, callsEach, err)
	}
	if n := upstream.Ledger().Tally().Admitted; n != (runs+1)*callsEach {
		t.Errorf("the upstream saw %d calls", n)
	}
}

// TestFails: a run that cannot have its file says why, and the example ends.
func TestFails(t *testing.T) {
	leak.Check(t)
	var out bytes.Buffer
	err := run(t.Context(), config{runs: 3, parallel: 2, limit: 1000, file: t.TempDir()}, &out)
	if err == nil || !strings.Contains(err.Error(), "fleet.OpenFile") {
		t.Errorf("a directory as the file: %v", err)
	}
}

// TestInterrupted: what there is until Ctrl-C is shown, in a narrow terminal too.
func TestInterrupted(t *testing.T) {
	leak.Check(t)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(200*time.Millisecond, cancel)
	var out bytes.Buffer
	if err := run(ctx, config{runs: 500, parallel: 2, limit: 5, columns: 40}, &out); !errors.Is(err, context.Canceled) {
		t.Errorf("run after an interrupt: %v", err)
	}
	if !strings.Contains(out.String(), "of its own") {
		t.Errorf("nothing is shown:\n%s", &out)
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > 41 {
			t.Errorf("wider than 40 columns: %s", line)
		}
	}
}

func TestNonsense(t *testing.T) {
	for _, cfg := range []config{{parallel: 1, limit: 1}, {runs: 1, limit: 1}, {runs: 1, parallel: 100, limit: 1}, {runs: 1, parallel: 1}} {
		if err := run(t.Context(), cfg, &bytes.Buffer{}); err == nil {
			t.Errorf("run with %+v did not complain", cfg)
		}
	}
}
