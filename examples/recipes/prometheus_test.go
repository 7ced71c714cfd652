package recipes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// prometheusConf scrapes one address so often that a test need not wait.
const prometheusConf = `global:
  scrape_interval: 200ms
scrape_configs:
  - job_name: throttle
    static_configs:
      - targets: [%q]
`

// TestPrometheus: a real Prometheus scrapes the metrics, and each query of the dashboard finds something there. It skips
// where there is no program prometheus, unless THROTTLE_REQUIRE_SERVERS is 1.
func TestPrometheus(t *testing.T) {
	program, err := exec.LookPath("prometheus")
	if err != nil && os.Getenv("THROTTLE_REQUIRE_SERVERS") != "1" {
		t.Skip("skipped: no prometheus")
	} else if err != nil {
		t.Fatal(err)
	}
	metrics, traffic := everything(t)
	target := httptest.NewServer(metrics)
	defer target.Close()
	ask := startPrometheus(t, program, strings.TrimPrefix(target.URL, "http://"))
	traffic()

	// What is counted while nobody scrapes is not lost, so each query has an answer at last.
	variables := strings.NewReplacer("$__rate_interval", "5m", "$policy", "api", "$key", ".*")
	for title, exprs := range queries(t) {
		for _, expr := range exprs {
			if title == "variables" { // label_values(metric, label) is Grafana's, not a query
				continue
			}
			expr = variables.Replace(expr)
			series, err := ask(expr)
			for tries := 0; series == 0 && err == nil && tries < 600; tries++ { // two minutes and more
				time.Sleep(200 * time.Millisecond)
				series, err = ask(expr)
			}
			if t.Logf("%s: %d series of %s", title, series, expr); series == 0 || err != nil {
				t.Errorf("%s: %d series, %v", title, series, err)
			}
		}
	}
}

// startPrometheus runs a Prometheus until the test ends, and returns what asks it: how many series a query has. If
// somebody else takes its port first it tries another one.
func startPrometheus(t *testing.T, program, target string) (ask func(query string) (series int, err error)) {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "prometheus.yml")
	if err := os.WriteFile(conf, fmt.Appendf(nil, prometheusConf, target), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		address, dir := freeAddress(t), t.TempDir()
		ctx, stop := context.WithCancel(context.Background())
		cmd := exec.CommandContext(ctx, program, "--config.file="+conf, "--storage.tsdb.path="+dir, "--web.listen-address="+address)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { cmd.Wait(); close(ended) }()
		t.Cleanup(func() { // before the directory is removed
			stop()
			<-ended
		})
		if ready("http://"+address+"/-/ready", ended) {
			return func(query string) (int, error) { return count("http://"+address+"/api/v1/query", query) }
		}
		t.Logf("prometheus has ended:\n%s", out.String())
	}
	t.Fatal("prometheus does not start")
	return nil
}

// ready waits until a server answers 200, and reports whether it did so before it ended.
func ready(url string, ended chan struct{}) bool {
	for {
		if resp, err := http.Get(url); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return true
			}
		}
		select {
		case <-ended:
			return false
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// freeAddress is one of the loopback interface that nobody listens on, a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// count makes a query, and returns how many series its answer has.
func count(api, query string) (series int, err error) {
	resp, err := http.PostForm(api, url.Values{"query": {query}})
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return 0, err
	}
	if answer.Status != "success" {
		return 0, fmt.Errorf("%s: %s", answer.Status, answer.Error)
	}
	return len(answer.Data.Result), nil
}
