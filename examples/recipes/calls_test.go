package recipes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttletest"
)

// TestWebhooks: for an hour each of 100 endpoints is sent an event every ten seconds. One of them answers after 15 s,
// one is down for the whole hour.
func TestWebhooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &throttletest.Server{
			Latency: throttletest.Span{Min: 20 * time.Millisecond, Max: 50 * time.Millisecond},
			Faults:  []throttletest.Fault{{Match: func(req *http.Request) bool { return req.URL.Host == "dead.test" }}},
		}
		slow := roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.URL.Host == "slow.test" {
				time.Sleep(15 * time.Second)
			}
			return upstream.RoundTrip(req)
		})
		hosts := []string{"slow.test", "dead.test"}
		for i := range 98 {
			hosts = append(hosts, fmt.Sprintf("host-%d.test", i))
		}
		deliver := Webhooks(slow)
		var deliveries sync.WaitGroup
		var lost, late, longest atomic.Int64
		for n := range 360 {
			for _, host := range hosts {
				deliveries.Go(func() {
					began := time.Now()
					err := deliver("http://"+host+"/", fmt.Sprint(host, n), []byte("{}"))
					took := time.Since(began)
					switch {
					case host == "dead.test":
						longest.Store(max(longest.Load(), int64(took)))
						if err == nil {
							t.Error("a delivery to nobody")
						}
					case err != nil:
						lost.Add(1)
					case host != "slow.test" && took > 100*time.Millisecond, took > 20*time.Second:
						late.Add(1)
					}
				})
			}
			time.Sleep(10 * time.Second)
		}
		deliveries.Wait()
		if lost.Load() > 0 || late.Load() > 0 {
			t.Errorf("%d deliveries lost and %d late, want none", lost.Load(), late.Load())
		}
		ledger := upstream.Ledger()
		dead := len(ledger.Where(func(a throttletest.Arrival) bool { return a.Host == "dead.test" }))
		t.Logf("the dead endpoint got %d attempts for 360 deliveries; the last one ended after %v", dead, time.Duration(longest.Load()))
		if dead > 360 || time.Duration(longest.Load()) > 3*time.Minute { // MaxPause, and the rest before the last attempt
			t.Errorf("the dead endpoint got %d attempts, and a delivery took %v", dead, time.Duration(longest.Load()))
		}
		if got := ledger.Tally().Admitted; got != 99*360 {
			t.Errorf("%d delivered, want %d", got, 99*360)
		}
	})
}

// roundTripper makes a RoundTripper of a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestOfOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := throttletest.NewServer()
		upstream.SetFaults(throttletest.Fault{})
		once, ten, soon := OfOneCall(upstream)
		attempts := func() int { return len(upstream.Ledger()) }

		if err := status(once(get(t, "http://api.test/"))); err == nil || attempts() != 1 {
			t.Errorf("without a retry: %v after %d attempts, want an error after 1", err, attempts())
		}
		if err := status(ten(get(t, "http://other.test/"))); err == nil || attempts() != 11 {
			t.Errorf("up to ten attempts: %v after %d, want an error after 10", err, attempts()-1)
		}
		upstream.SetFaults()
		time.Sleep(time.Minute)
		var full sync.WaitGroup
		for range 4 { // they take 300 ms
			full.Go(func() { _ = status(ten(get(t, "http://third.test/"))) })
		}
		synctest.Wait()
		began := time.Now()
		err := status(soon(get(t, "http://third.test/")))
		if !errors.Is(err, throttle.ErrWaitTooLong) || time.Since(began) > 0 {
			t.Errorf("with 200 ms in line: %v after %v, want ErrWaitTooLong at once", err, time.Since(began))
		}
		time.Sleep(200 * time.Millisecond)
		if err := status(soon(get(t, "http://third.test/"))); err != nil {
			t.Errorf("with 200 ms in line, and all of them needed: %v", err)
		}
		full.Wait()
	})
}

// TestLongWaits: of 21 calls at ten a second ten wait for more than a second. All are logged before the first of
// them goes, with the wait that it will be and what it is for.
func TestLongWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer // the handler locks it
		client := LongWaits(throttletest.NewServer(), slog.New(slog.NewTextHandler(&log, nil)))
		var calls sync.WaitGroup
		for range 21 {
			calls.Go(func() { _ = status(client.Get("http://api.test/")) })
		}
		synctest.Wait()
		text := log.String()
		if n := strings.Count(text, "\n"); n != 10 {
			t.Errorf("%d lines, want 10:\n%s", n, text)
		}
		for _, want := range []string{"level=WARN", "key=api.test wait=1.1s reason=limit", "wait=2s"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
		calls.Wait()
	})
}

func TestMail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sending, most, sent atomic.Int64
		send := func(context.Context, string) error {
			most.Store(max(most.Load(), sending.Add(1)))
			defer sending.Add(-1)
			time.Sleep(250 * time.Millisecond)
			sent.Add(1)
			return nil
		}
		began := time.Now()
		if err := Mail(t.Context(), make([]string, 141), send); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); sent.Load() != 141 || took < 10*time.Second || took > 10300*time.Millisecond {
			t.Errorf("%d mails took %v, want 141 in 10s and what the last one takes", sent.Load(), took)
		}
		if most.Load() > 4 {
			t.Errorf("%d were sent at a time, want 4", most.Load())
		}
	})
}

// TestMailFailures: of 1,400 mails 100 have a bad address. The others are sent, and the error names each of the 100. When
// ctx ends no more are sent.
func TestMailFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("no such address")
		var mails []string
		for i := range 1400 {
			mails = append(mails, fmt.Sprintf("%d@%s.test", i, map[bool]string{true: "bad", false: "good"}[i%14 == 3]))
		}
		var sent atomic.Int64
		send := func(_ context.Context, mail string) error {
			if strings.HasSuffix(mail, "@bad.test") {
				return bad
			}
			sent.Add(1)
			return nil
		}
		began := time.Now()
		err := Mail(t.Context(), mails, send)
		if took := time.Since(began).Round(time.Second); sent.Load() != 1300 || took != 100*time.Second {
			t.Errorf("%d sent in %v, want 1300 in 1m40s", sent.Load(), took)
		}
		if !errors.Is(err, bad) || strings.Count(err.Error(), "@bad.test: no such address") != 100 || strings.Contains(err.Error(), "good") {
			t.Errorf("the error is %v", err)
		}
		sent.Store(0)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
		defer cancel()
		if err := Mail(ctx, mails[4:17], send); err != nil { // no bad one among them
			t.Error(err)
		}
		if err := Mail(ctx, mails, send); !errors.Is(err, context.DeadlineExceeded) || sent.Load() >= 141 {
			t.Errorf("%d sent by the end of ctx, %v", sent.Load(), err)
		}
	})
}

func TestInteractiveFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := throttletest.NewServer(perSecond(10))
		interactive, batch := InteractiveFirst(upstream)
		var calls sync.WaitGroup
		for range 500 {
			calls.Go(func() { _ = status(batch(get(t, "http://api.test/"))) })
		}
		synctest.Wait()
		for range 20 {
			began := time.Now()
			if err := status(interactive(get(t, "http://api.test/"))); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > 200*time.Millisecond {
				t.Errorf("a user waited for %v behind 500 others, want at most two turns of 100 ms", took)
			}
			time.Sleep(time.Second)
		}
		calls.Wait()
		none(t, upstream, 520)
	})
}
