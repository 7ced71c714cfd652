// Observed sends traffic through a throttled client and shows it live in a browser: open the address that it prints.
// Beside the page are metrics for Prometheus. At the end it prints what the page says of each key.
//
// Run it from the root of the repository:
//
//	go run ./examples/observed
//
// The page is that of package throttledebug, on the loopback interface, with buttons that pause and resume. The traffic
// has three keys, for an upstream of its own:
//
//	api     quickstart's calls, 400 by 32 workers again and again, under a limit of 100/s that the client knows
//	search  a limit of 20/s that the client has to find, because only 429s show it
//	mail    an upstream that is down for 4 of every 20 seconds, and says so by 503 with Retry-After
//
// All of them share 150/s, a limit of a fleet that has one member here. The metrics are at /metrics of the same address;
// docs/grafana.json is a dashboard for them, and docs/grafana.svg a picture of it:
//
//	go run ./examples/observed -forever &
//	go run ./bench/cmd/dashboard
//
// Flags:
//
//	-listen   where the page is served
//	-forever  until it is interrupted, not for a minute
//	-brief    for four seconds, with one outage of mail
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/examples/internal/calls"
	"github.com/go-throttle/throttle/examples/internal/console"
	"github.com/go-throttle/throttle/fleet"
	"github.com/go-throttle/throttle/throttledebug"
)

// config is what the flags say.
type config struct {
	listen  string
	forever bool
	brief   bool
}

func main() {
	var cfg config
	p := console.New("observed", "Observed sends traffic through a throttled client and shows it in a browser.")
	p.Flags.StringVar(&cfg.listen, "listen", "127.0.0.1:8089", "where the page is served; port 0: any that is free")
	p.Flags.BoolVar(&cfg.forever, "forever", false, "run until it is interrupted, not for a minute")
	p.Flags.BoolVar(&cfg.brief, "brief", false, "run for four seconds, with one outage")
	p.Main(func(ctx context.Context, out io.Writer) error { return run(ctx, cfg, out) })
}

// run starts the upstream, the page and the traffic, and ends them after a while.
func run(ctx context.Context, cfg config, out io.Writer) error {
	upstream, _, err := serve("127.0.0.1:0", newUpstream(cfg.cycle()))
	if err != nil {
		return err
	}
	defer upstream.Close()

	pool := calls.Pool(64)
	defer pool.CloseIdleConnections()
	shared := fleet.New(new(fleet.Memory), "observed", 150, 20, fleet.Options{})
	defer shared.Close()
	client := &throttle.Transport{Base: pool, Key: byPath, Limiter: shared, LimiterFor: limits}
	scraped, err := metrics(client, shared)
	if err != nil {
		return err
	}

	mux := http.NewServeMux()
	page := throttledebug.Controls(map[string]*throttle.Transport{"observed": client})
	mux.Handle("/debug/throttle/", http.StripPrefix("/debug/throttle", page))
	mux.Handle("GET /metrics", scraped)
	server, address, err := serve(cfg.listen, mux)
	if err != nil {
		return err
	}
	defer server.Close() // ends the streams of open pages, too
	url := "http://" + address + "/debug/throttle/"
	fmt.Fprintf(out, "The page: %s\nMetrics:  http://%s/metrics\n", url, address)

	until, end := context.WithCancel(ctx)
	defer end()
	if !cfg.forever { // without a deadline, before which calls would be refused
		defer time.AfterFunc(cfg.length(), end).Stop()
	}
	send(until, &http.Client{Transport: client}, "http://"+upstream.Addr)
	if err := report(context.WithoutCancel(ctx), out, url); err != nil {
		return err
	}
	return ctx.Err()
}

// cycle is how long it takes from one outage of mail to the next.
func (c config) cycle() time.Duration {
	if c.brief {
		return 4 * time.Second
	}
	return 20 * time.Second
}

// length is how long a run takes that ends by itself.
func (c config) length() time.Duration {
	if c.brief {
		return c.cycle()
	}
	return 3 * c.cycle()
}

// byPath is the key of a request: the first word of its path. All keys have the same host here.
func byPath(req *http.Request) string { return req.URL.Path[1:] }

// limits are what the client knows of the upstream.
func limits(key string) throttle.Limiter {
	if key == "api" {
		return throttle.NewBucket(100, 10)
	}
	return nil
}

// serve listens and answers in a goroutine, until Close. It returns the address too, whose port may have been 0.
func serve(address string, h http.Handler) (*http.Server, string, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, "", err
	}
	s := &http.Server{Addr: l.Addr().String(), Handler: h}
	go func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			fmt.Println("observed:", err)
		}
	}()
	return s, s.Addr, nil
}

// report prints what the page says of each key.
func report(ctx context.Context, out io.Writer, url string) error {
	keys, err := states(ctx, url+"state.json")
	if err != nil {
		return err
	}
	for _, k := range keys {
		fmt.Fprintf(out, "%-7s %4d sent, %3d throttled, %3d waiting\n", k.Key, k.Sent, k.Throttled, k.Waiting)
	}
	return nil
}
