package fleets

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled"
	"github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/go-throttle/throttle/inbound"
	"github.com/go-throttle/throttle/throttleredis"
)

// A decider says whether a request of a client may go: 20 a second, 20 at once.
type decider func(client string) (bool, error)

// deciders are the libraries, each as one server of several has it, with a client of its own.
var deciders = []struct {
	name string
	make func(c *redis.Client, alone func(func() uint64)) (decider, error)
}{
	{"throttle: inbound", func(c *redis.Client, alone func(func() uint64)) (decider, error) {
		k := inbound.NewSharedKeyed[string](inbound.Sharing{Store: throttleredis.New(c).Keys(), Name: "x", Servers: 4, Mode: inbound.Closed}, 0, "20/s burst 20")
		alone(func() uint64 { return k.StoreStats().Alone })
		return func(client string) (bool, error) { return k.Allow(client, 1), nil }, nil
	}},
	{"redis_rate", func(c *redis.Client, _ func(func() uint64)) (decider, error) {
		lim := redis_rate.NewLimiter(c)
		return func(client string) (bool, error) {
			r, err := lim.Allow(context.Background(), client, redis_rate.PerSecond(20))
			return err == nil && r.Allowed > 0, err
		}, nil
	}},
	{"throttled", func(c *redis.Client, _ func(func() uint64)) (decider, error) {
		lim, err := throttled.NewGCRARateLimiter(swaps{c}, throttled.RateQuota{MaxRate: throttled.PerSec(20), MaxBurst: 19})
		if err != nil {
			return nil, err
		}
		return func(client string) (bool, error) {
			limited, _, err := lim.RateLimit(client, 1)
			return err == nil && !limited, err
		}, nil
	}},
	{"ulule", func(c *redis.Client, _ func(func() uint64)) (decider, error) {
		store, err := ululeredis.NewStore(c)
		if err != nil {
			return nil, err
		}
		lim := limiter.New(store, limiter.Rate{Period: time.Second, Limit: 20})
		return func(client string) (bool, error) {
			r, err := lim.Get(context.Background(), client)
			return err == nil && !r.Reached, err
		}, nil
	}},
}

// BenchmarkKeys asks for decisions at four servers with 16 goroutines, as fast as they come: about so many clients that few are
// over their limits, or so few that all are. Redis' processor time and what is let in of 20·(clients) and 20/s do not depend
// much on how busy the machine is; the rest does.
func BenchmarkKeys(b *testing.B) {
	for name, clients := range map[string]int{"under": 20_000, "over": 20} {
		for _, d := range deciders {
			b.Run(name+"/"+d.name, func(b *testing.B) { benchKeys(b, clients, d.make) })
		}
	}
}

func benchKeys(b *testing.B, clients int, newDecider func(*redis.Client, func(func() uint64)) (decider, error)) {
	srv, err := startRedis()
	if err != nil {
		b.Skip(err)
	}
	defer srv.close()
	var servers []decider
	var alone []func() uint64 // decisions without the server, which a busy machine makes look lost
	for range 4 {
		c := redis.NewClient(&redis.Options{Addr: srv.addr(), MaxRetries: -1, PoolSize: 16})
		defer c.Close()
		d, err := newDecider(c, func(f func() uint64) { alone = append(alone, f) })
		if err != nil {
			b.Fatal(err)
		}
		servers = append(servers, d)
	}
	var let, failed, next atomic.Int64
	took := make([][]time.Duration, 16)
	before, from := srv.cpu(b.Context()), time.Now()
	b.ResetTimer()
	var wg sync.WaitGroup
	for g := range took {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			for next.Add(1) <= int64(b.N) {
				start := time.Now()
				ok, err := servers[r.IntN(len(servers))](strconv.Itoa(r.IntN(clients)))
				took[g] = append(took[g], time.Since(start))
				if ok {
					let.Add(1)
				}
				if err != nil {
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	lasted := time.Since(from)
	used := srv.cpu(b.Context()) - before
	all := slices.Concat(took...)
	slices.Sort(all)
	b.ReportMetric(float64(b.N)/lasted.Seconds(), "decisions/s")
	b.ReportMetric(float64(used.Microseconds())/float64(b.N), "redis-µs/op")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(100*float64(let.Load())/(float64(clients)*20*(1+lasted.Seconds())), "%let-in")
	without := uint64(0)
	for _, f := range alone {
		without += f()
	}
	b.ReportMetric(float64(failed.Load())+float64(without), "without-redis")
}
