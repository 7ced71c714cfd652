package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// A server is a Prometheus that this program has started.
type server struct {
	url  string
	stop func()
}

// conf scrapes one program each second.
const conf = `global:
  scrape_interval: 1s
scrape_configs:
  - job_name: throttle
    static_configs:
      - targets: [%q]
`

// start runs a Prometheus that scrapes an address, until stop.
func start(ctx context.Context, scrape string) (*server, error) {
	dir, err := os.MkdirTemp("", "dashboard")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, fmt.Appendf(nil, conf, scrape), 0o644); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	l.Close()
	cmd := exec.CommandContext(ctx, "prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{url: "http://" + address, stop: func() {
		cmd.Process.Kill()
		cmd.Wait()
		os.RemoveAll(dir)
	}}
	for range 300 {
		if resp, err := http.Get(s.url + "/-/ready"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return s, nil
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.stop()
	return nil, fmt.Errorf("prometheus is not ready at %s", address)
}

// A series is one answer to a query: a value each second from the beginning, NaN where there is none.
type series struct {
	labels map[string]string
	name   string // in the legend
	right  bool   // it has an axis of its own
	values []float64
}

// ask makes a query over a time.
func (s *server) ask(ctx context.Context, query string, from, to time.Time) ([]series, error) {
	form := url.Values{
		"query": {query}, "step": {"1"},
		"start": {strconv.FormatInt(from.Unix(), 10)}, "end": {strconv.FormatInt(to.Unix(), 10)},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api/v1/query_range?"+form.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("%s: %s", query, answer.Error)
	}
	var found []series
	for _, r := range answer.Data.Result {
		one := series{labels: r.Metric, values: make([]float64, to.Unix()-from.Unix()+1)}
		for i := range one.values {
			one.values[i] = math.NaN()
		}
		for _, v := range r.Values {
			at, _ := v[0].(float64)
			text, _ := v[1].(string)
			if x, err := strconv.ParseFloat(text, 64); err == nil && !math.IsInf(x, 0) {
				one.values[int64(at)-from.Unix()] = x
			}
		}
		found = append(found, one)
	}
	return found, nil
}
