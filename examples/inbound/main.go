// Inbound is a server that limits what it takes from each client, and a crowd of clients of all kinds. It prints who got
// what.
//
// Run it from the root of the repository:
//
//	go run ./examples/inbound          # a few seconds
//	go run ./examples/inbound -brief   # less than that
//	go run ./examples/inbound -for 1m  # time to call it from another terminal, with the command that it prints
//
// The server has three limits, and a request must be within all of them: for each API key by its plan, for each
// address, and for each network of 65,536 addresses. It stands behind proxies that it trusts, those of the loopback
// interface: that is how the clients here can have addresses of their own. The clients:
//
//	pro       has an API key of the plan pro, and uses throttle: it reads the limit from the answers
//	free      the same with a key of the plan free
//	hasty     has a key of the plan free too, and sends as fast as it can
//	flood     a thousand addresses in one network, a new one for each request, as fast as it can
//	spoofer   one address, with an invented one in front of it in each request
//
// Flags:
//
//	-addr   where to listen
//	-for    how long the clients send (4s, brief 1s)
//	-brief  a run of a second
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/go-throttle/throttle/examples/internal/calls"
	"github.com/go-throttle/throttle/examples/internal/console"
	"github.com/go-throttle/throttle/inbound"
)

// config is what the flags say.
type config struct {
	addr    string
	length  time.Duration
	columns int
}

func main() {
	cfg := config{columns: console.Columns()}
	p := console.New("inbound", "Inbound is a server with limits for its clients, and a crowd of clients.")
	p.Flags.StringVar(&cfg.addr, "addr", "127.0.0.1:0", "where to listen; port 0: any that is free")
	p.Flags.DurationVar(&cfg.length, "for", 0, "how long the clients send (default 4s, brief 1s)")
	brief := p.Flags.Bool("brief", false, "a run of a second")
	p.Main(func(ctx context.Context, out io.Writer) error {
		cfg.length = cmp.Or(cfg.length, length(*brief))
		return run(ctx, cfg, out)
	})
}

// length is how long the clients send.
func length(brief bool) time.Duration {
	if brief {
		return time.Second
	}
	return 4 * time.Second
}

// plans are the API keys that the server knows.
var plans = map[string]string{"key-1": "pro", "key-2": "free", "key-3": "free"}

// The limits. They are large enough to be advertised: a bucket that fills in less than a second is not.
const (
	perPro     = "100/s burst 100"
	perFree    = "20/s burst 20"
	perAddress = "200/s burst 200"
	perNetwork = "300/s burst 300"
)

// A server is the one that is called, with its limits.
type server struct {
	http.Server
	limit *inbound.Limit
	url   string
	done  chan error
}

// newLimit is what the server takes. It trusts the loopback interface, where the clients are.
func newLimit() *inbound.Limit {
	proxies := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	return &inbound.Limit{
		Limits: []string{perAddress},
		Key:    inbound.ByIP(proxies...),
		And: []*inbound.Limit{
			{
				Name:  "key",
				Key:   inbound.ByHeader("X-Api-Key", proxies...),
				Tier:  func(r *http.Request) string { return plans[r.Header.Get("X-Api-Key")] },
				Tiers: map[string][]string{"pro": {perPro}, "free": {perFree}},
			},
			{Name: "net", Limits: []string{perNetwork}, Key: inbound.ByPrefix(16, 48, proxies...)},
		},
	}
}

// hello is what the server does.
func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }

// newServer starts a server.
func newServer(addr string) (*server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	limit := newLimit()
	s := &server{limit: limit, url: "http://" + l.Addr().String() + "/", done: make(chan error, 1)}
	s.Handler = limit.Handler(http.HandlerFunc(hello))
	s.ReadHeaderTimeout = 10 * time.Second
	go func() { s.done <- s.Serve(l) }()
	return s, nil
}

// close ends the server and waits for it.
func (s *server) close() {
	_ = s.Close()
	<-s.done
}

// run lets all clients send at once and prints the table.
func run(ctx context.Context, cfg config, out io.Writer) error {
	if cfg.length <= 0 {
		return fmt.Errorf("-for %v must be above 0", cfg.length)
	}
	s, err := newServer(cfg.addr)
	if err != nil {
		return fmt.Errorf("-addr: %w", err)
	}
	defer s.close()
	fmt.Fprintln(out, console.Fill(fmt.Sprintf("Clients send for %v. Meanwhile, in another terminal:", cfg.length), cfg.columns, ""))
	fmt.Fprintf(out, "  curl -i -H 'X-Api-Key: key-2' %s\n", s.url)
	pool := calls.Pool(64)
	defer pool.CloseIdleConnections()
	crowd := newCrowd(s.url, pool)
	start := time.Now()
	crowd.send(ctx, cfg.length)
	return crowd.print(out, cfg.columns, time.Since(start), s.limit.Stats())
}
