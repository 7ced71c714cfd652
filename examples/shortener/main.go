// Shortener is a URL shortener on two servers, with a limit for each client address that both hold together in Redis. It sends
// them the requests of a few clients, and shows what each was answered and how many tokens it has.
//
// Run it from the root of the repository:
//
//	go run ./examples/shortener          # some fifteen seconds
//	go run ./examples/shortener -brief   # three seconds
//	go run ./examples/shortener -redis redis://:secret@localhost:6379/0
//
// POST / with a URL as its body makes a link, GET /{link} follows it, and GET /tokens on either server is a page that shows the
// tokens of the clients while the program runs: each client address may make 10 requests at once, and 5 a second after that.
//
// The clients send to both servers in turn. What they do:
//
//	reader     follows a link every half a second
//	page       follows 6 links at once, every two seconds
//	polite     makes links as fast as it may: it waits as long as Retry-After says
//	script     makes links in a loop, and reads no answer
//
// A limit in each server's own memory would let each client have twice as much. Behind a proxy the address comes from
// X-Forwarded-For, which is believed of the loopback interface alone; here it is how the clients have addresses of their own.
//
// It starts a redis-server on the loopback interface; if none is installed the store is in memory.
//
// Flags:
//
//	-redis  the URL of a Redis that is there; empty: start one
//	-for    how long it takes (15s, brief 3s)
//	-brief  a run of three seconds
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-throttle/throttle/examples/internal/console"
	"github.com/go-throttle/throttle/examples/internal/localredis"
	"github.com/go-throttle/throttle/inbound"
	"github.com/go-throttle/throttle/inbound/keys"
	"github.com/go-throttle/throttle/throttleredis"
)

// config is what the flags say.
type config struct {
	redis    string
	length   time.Duration
	columns  int
	live     bool // draw while it runs
	inMemory bool // do not look for a Redis
}

func main() {
	cfg := config{columns: console.Columns(), live: console.Terminal()}
	p := console.New("shortener", "Shortener limits each client address over two servers of a URL shortener.")
	p.Flags.StringVar(&cfg.redis, "redis", "", "the `URL` of a Redis that is there, as redis://user:password@host:port/db; empty: start one")
	p.Flags.DurationVar(&cfg.length, "for", 0, "how long it takes (default 15s, brief 3s)")
	brief := p.Flags.Bool("brief", false, "a run of three seconds")
	p.Main(func(ctx context.Context, out io.Writer) error {
		if cfg.length == 0 {
			cfg.length = 15 * time.Second
			if *brief {
				cfg.length = 3 * time.Second
			}
		}
		if cfg.length < 0 {
			return fmt.Errorf("-for %v must be above 0", cfg.length)
		}
		return run(ctx, cfg, out)
	})
}

// A place is where the limits are. Each server has a client of its own, as if it were another process.
type place struct {
	text  string
	store func() keys.Store
	close func()
}

// newPlace uses the Redis that is given, starts one, or has the limits in memory.
func newPlace(cfg config) (place, error) {
	url, stop := cfg.redis, func() {}
	if url == "" {
		var err error
		if url, stop, err = localredis.Start(); cfg.inMemory || errors.Is(err, localredis.ErrNone) {
			if err == nil {
				stop()
			}
			memory := new(inbound.Memory)
			return place{"memory", func() keys.Store { return memory }, func() {}}, nil
		} else if err != nil {
			return place{}, err
		}
	}
	o, err := redis.ParseURL(url)
	if err != nil {
		stop()
		return place{}, fmt.Errorf("-redis: %w", err)
	}
	o.MaxRetries, o.ContextTimeoutEnabled = -1, true
	var clients []*redis.Client
	return place{
		text: "Redis at " + o.Addr,
		store: func() keys.Store {
			clients = append(clients, redis.NewClient(o))
			return throttleredis.New(clients[len(clients)-1]).Keys()
		},
		close: func() {
			for _, c := range clients {
				_ = c.Close()
			}
			stop()
		},
	}, nil
}

// run starts two servers, sends them the clients' requests, and prints what has become of them.
func run(ctx context.Context, cfg config, out io.Writer) error {
	p, err := newPlace(cfg)
	if err != nil {
		return err
	}
	defer p.close()
	name := fmt.Sprintf("shortener-%x", rand.Uint32())
	var servers []*server
	for range 2 {
		s, err := newServer(name, p.store())
		if err != nil {
			return err
		}
		defer s.close()
		servers = append(servers, s)
	}
	fmt.Fprintln(out, console.Fill(fmt.Sprintf("Two servers, the limits in %s. A page of the tokens: %s/tokens", p.text, servers[0].url), cfg.columns, "  "))
	t := table{clients: newClients(servers), servers: servers, screen: console.Screen{Out: out, Width: console.Columns}}
	ctxFor, cancel := context.WithTimeout(ctx, cfg.length)
	defer cancel()
	t.follow(ctxFor, cfg.live)
	if err := t.print(out, cfg.columns); err != nil {
		return err
	}
	return cmp.Or(ctx.Err(), t.failed())
}
