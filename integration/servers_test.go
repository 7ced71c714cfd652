package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-throttle/throttle"
)

// These tests run in real time against servers that enforce a limit of serverLimit a second in
// their own way. They assert what was refused, never how long it took: that is logged.
// Without the programs they skip, unless THROTTLE_REQUIRE_SERVERS is 1.
const (
	serverLimit   = 100
	serverCalls   = 400
	serverWorkers = 32
	nginxBurst    = 20
	mostStray     = serverCalls / 20
)

// nginxConf counts with a leaky bucket, to the millisecond; it tells no time to wait.
const nginxConf = `daemon off;
master_process off;
pid %[1]s/nginx.pid;
error_log stderr;
events { worker_connections 256; }
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	keepalive_requests 100000;
	limit_req_zone $server_name zone=all:1m rate=%[3]dr/s;
	server {
		listen 127.0.0.1:%[2]d;
		server_name all;
		root %[1]s;
		location = /ready { return 200; }
		location = /api {
			limit_req zone=all burst=%[4]d nodelay;
			limit_req_status 429;
		}
	}
}
`

// haproxyConf counts what arrived in the last second, the refused requests included.
const haproxyConf = `global
	maxconn 256
defaults
	mode http
	timeout connect 10s
	timeout client 60s
	timeout server 10s
frontend api
	bind 127.0.0.1:%[2]d
	stick-table type integer size 16 expire 1m store http_req_rate(1s)
	http-request return status 200 if { path /ready }
	http-request track-sc0 int(1)
	http-request deny deny_status 429 hdr Retry-After 1 if { sc_http_req_rate(0) gt %[3]d }
	http-request return status 200 content-type text/plain string "hello"
`

func TestNginx(t *testing.T) {
	t.Parallel()
	testServer(t, startNginx, "", throttle.NewBucket(serverLimit, nginxBurst/2))
}

func TestHAProxy(t *testing.T) {
	t.Parallel()
	testServer(t, startHAProxy, "1", throttle.NewLeaky(0.97*serverLimit))
}

// testServer first shows that the server refuses whoever does not hold back, and then that a
// throttled client is hardly ever refused, and always served in the end. The server counts arrivals, and a busy
// machine bunches calls between the grant and the wire: mostStray of them is the tolerance.
func testServer(t *testing.T, start func(testing.TB) string, wantRetryAfter string, limiter throttle.Limiter) {
	t.Run("enforces", func(t *testing.T) {
		base := newCountingBase(t)
		callers := callServer(t, base, start(t))
		t.Logf("without throttle: %d of %d calls refused", callers.refused, serverCalls)
		if callers.refused == 0 || callers.ok == 0 || callers.ok+callers.refused != serverCalls {
			t.Errorf("a client in a hurry got %d times 200 and %d times 429, want some of both, %d in all", callers.ok, callers.refused, serverCalls)
		}
		if got := base.retryAfter.Load(); got != wantRetryAfter {
			t.Errorf("a refusal says Retry-After %q, want %q", got, wantRetryAfter)
		}
	})
	t.Run("throttled", func(t *testing.T) {
		base := newCountingBase(t)
		client := &throttle.Transport{Base: base, Limiter: limiter}
		url := start(t)
		began := time.Now()
		callers := callServer(t, client, url)
		took := time.Since(began)
		t.Logf("%d calls in %v: %.1f %% of the limit; %d attempts, %d refused", serverCalls, took.Round(time.Millisecond),
			100*serverCalls/(serverLimit*took.Seconds()), base.sent.Load(), base.refused.Load())
		if callers.ok != serverCalls {
			t.Errorf("%d callers see 200 and %d see 429, want all %d to see 200", callers.ok, callers.refused, serverCalls)
		}
		if n := base.refused.Load(); n > mostStray {
			t.Errorf("the server refused %d attempts, want at most %d", n, mostStray)
		}
	})
}

// outcomes are the statuses that callers see.
type outcomes struct{ ok, refused int64 }

// callServer sends serverCalls requests from serverWorkers goroutines.
func callServer(t testing.TB, rt http.RoundTripper, url string) outcomes {
	t.Helper()
	client := &http.Client{Transport: rt}
	var next, ok, refused atomic.Int64
	var wg sync.WaitGroup
	for range serverWorkers {
		wg.Go(func() {
			for next.Add(1) <= serverCalls {
				switch status := getStatus(t, client, url); status {
				case http.StatusOK:
					ok.Add(1)
				case http.StatusTooManyRequests:
					refused.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return outcomes{ok.Load(), refused.Load()}
}

// getStatus is 0, and the test fails, if there is no answer.
func getStatus(t testing.TB, client *http.Client, url string) int {
	resp, err := client.Get(url)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Error(err)
	}
	return resp.StatusCode
}

// countingBase sees what goes over the wire: every attempt, and its answer.
type countingBase struct {
	base          *http.Transport
	sent, refused atomic.Int64
	retryAfter    atomic.Value // string: that of the last refusal
}

func newCountingBase(t testing.TB) *countingBase {
	c := &countingBase{base: &http.Transport{MaxIdleConnsPerHost: serverWorkers}}
	c.retryAfter.Store("")
	t.Cleanup(c.base.CloseIdleConnections)
	return c
}

func (c *countingBase) RoundTrip(req *http.Request) (*http.Response, error) {
	c.sent.Add(1)
	resp, err := c.base.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusTooManyRequests {
		c.refused.Add(1)
		c.retryAfter.Store(resp.Header.Get("Retry-After"))
	}
	return resp, err
}

func startNginx(t testing.TB) (url string) {
	bin := serverProgram(t, "nginx")
	return startServer(t, func(ctx context.Context, dir string, port int) *exec.Cmd {
		conf := writeServerFile(t, dir, "nginx.conf", fmt.Sprintf(nginxConf, dir, port, serverLimit, nginxBurst))
		writeServerFile(t, dir, "api", "hello")
		return exec.CommandContext(ctx, bin, "-p", dir, "-e", "stderr", "-c", conf)
	})
}

func startHAProxy(t testing.TB) (url string) {
	bin := serverProgram(t, "haproxy")
	return startServer(t, func(ctx context.Context, dir string, port int) *exec.Cmd {
		conf := writeServerFile(t, dir, "haproxy.cfg", fmt.Sprintf(haproxyConf, dir, port, serverLimit))
		return exec.CommandContext(ctx, bin, "-db", "-q", "-f", conf)
	})
}

// serverProgram finds a server; Debian keeps them where only root's PATH looks.
func serverProgram(t testing.TB, name string) string {
	t.Helper()
	if bin, err := exec.LookPath(name); err == nil {
		return bin
	}
	if bin, err := exec.LookPath(filepath.Join("/usr/sbin", name)); err == nil {
		return bin
	}
	if os.Getenv("THROTTLE_REQUIRE_SERVERS") == "1" {
		t.Fatalf("%s is not installed and THROTTLE_REQUIRE_SERVERS=1", name)
	}
	t.Skipf("skipped: no %s", name)
	return ""
}

// startServer runs a server in the foreground until the test ends. Another program may take the
// free port first: then it tries a few more.
func startServer(t testing.TB, command func(ctx context.Context, dir string, port int) *exec.Cmd) (url string) {
	t.Helper()
	for range 3 {
		dir, port := t.TempDir(), freePort(t)
		ctx, stop := context.WithCancel(context.Background())
		output := new(bytes.Buffer) // the process's alone until it has ended
		cmd := command(ctx, dir, port)
		cmd.Stdout, cmd.Stderr = output, output
		if err := cmd.Start(); err != nil {
			stop()
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = cmd.Wait() // killed by stop, or output says why
		}()
		address := fmt.Sprintf("http://127.0.0.1:%d", port)
		ready := awaitServer(address+"/ready", ended)
		if ready {
			t.Cleanup(func() { stop(); <-ended })
			return address + "/api"
		}
		stop()
		<-ended
		t.Logf("%s on port %d did not start: %s", cmd.Path, port, strings.TrimSpace(output.String()))
	}
	t.Fatal("the server does not start")
	return ""
}

func awaitServer(url string, ended <-chan struct{}) (ready bool) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if resp, err := client.Get(url); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return true
			}
		}
		select {
		case <-ended:
			return false
		case <-poll.C:
		}
	}
	return false
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func writeServerFile(t testing.TB, dir, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
