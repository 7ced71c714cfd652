package fleets

import (
	"context"
	"errors"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled"
	"github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/throttleredis"
)

// A rival makes one process keep its part of a limit that several share.
type rival struct {
	name string
	wait func(terms, redis.UniversalClient) (waiter, error)
}

// terms are what a process knows of the limit.
type terms struct {
	Limit, Burst int // units per second, and at once
	Members      int // processes that share it
}

// A waiter returns nil when one unit may be used, or the error of ctx.
type waiter func(ctx context.Context) error

const key = "bench" // the name of the limit in Redis

// rivals are those that are compared. What only says no is asked again when it has said, in a loop, as programs do
// that have calls to make and none to refuse.
func rivals() []rival {
	return []rival{
		{"divided limit", divided},
		{"redis_rate", redisRate},
		{"throttled", throttledRate},
		{"ulule/limiter", ulule},
		{"throttle: fleet", shared},
	}
}

// Clients are the rivals by name, for the comparison's tables. They run in scenarios of this package alone.
func Clients() (all []client.Client) {
	for _, r := range rivals() {
		all = append(all, client.Client{Name: r.name, Fleet: true, Start: func(client.Job) (client.Doer, error) {
			return nil, errors.New("it shares a limit among processes, and sends nothing")
		}})
	}
	return all
}

// divided gives each process an even part of the limit, for good. It needs no Redis.
func divided(t terms, _ redis.UniversalClient) (waiter, error) {
	return rate.NewLimiter(rate.Limit(t.Limit)/rate.Limit(t.Members), max(1, t.Burst/t.Members)).Wait, nil
}

// shared is this library's: a fleet's limiter with a line before it.
func shared(t terms, c redis.UniversalClient) (waiter, error) {
	lim := throttleredis.New(c).Limiter(key, rate.Limit(t.Limit), t.Burst)
	return throttle.NewQueue(lim, throttle.QueueOptions{}).Wait, nil
}

func redisRate(t terms, c redis.UniversalClient) (waiter, error) {
	lim := redis_rate.NewLimiter(c)
	limit := redis_rate.Limit{Rate: t.Limit, Burst: t.Burst, Period: time.Second}
	return loop(func(ctx context.Context) (time.Duration, error) {
		r, err := lim.Allow(ctx, key, limit)
		if err != nil || r.Allowed > 0 {
			return 0, err
		}
		return r.RetryAfter, nil
	}), nil
}

// throttledRate is the GCRA of throttled, on a store for go-redis v9: the one that comes with it is for another
// version of go-redis. Its steps are the same, TIME and GET in one round trip, then a swap in another one.
func throttledRate(t terms, c redis.UniversalClient) (waiter, error) {
	lim, err := throttled.NewGCRARateLimiter(swaps{c}, throttled.RateQuota{MaxRate: throttled.PerSec(t.Limit), MaxBurst: t.Burst - 1})
	if err != nil {
		return nil, err
	}
	return loop(func(context.Context) (time.Duration, error) {
		limited, r, err := lim.RateLimit(key, 1)
		if err != nil || !limited {
			return 0, err
		}
		return r.RetryAfter, nil
	}), nil
}

// ulule counts fixed windows of a second. It says when the window ends in whole seconds, which may be over by then.
func ulule(t terms, c redis.UniversalClient) (waiter, error) {
	store, err := ululeredis.NewStore(c)
	if err != nil {
		return nil, err
	}
	lim := limiter.New(store, limiter.Rate{Period: time.Second, Limit: int64(t.Limit)})
	return loop(func(ctx context.Context) (time.Duration, error) {
		r, err := lim.Get(ctx, key)
		if err != nil || !r.Reached {
			return 0, err
		}
		return max(time.Until(time.Unix(r.Reset, 0)), 10*time.Millisecond), nil
	}), nil
}

// loop asks until it may go: it sleeps as long as ask says, and after an error for 10 ms, because nobody has said
// that the limit need not be kept. A wait of nearly nothing is a wait of a tenth of a millisecond.
func loop(ask func(context.Context) (time.Duration, error)) waiter {
	return func(ctx context.Context) error {
		for {
			wait, err := ask(ctx)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err == nil && wait == 0 {
				return nil
			}
			if err != nil {
				wait = 10 * time.Millisecond
			}
			if err := sleep(ctx, max(wait, 100*time.Microsecond)); err != nil {
				return err
			}
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// swaps is a throttled.GCRAStore on go-redis v9.
type swaps struct{ c redis.UniversalClient }

var swap = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1`)

func (s swaps) GetWithTime(key string) (int64, time.Time, error) {
	ctx := context.Background()
	pipe := s.c.Pipeline()
	now, value := pipe.Time(ctx), pipe.Get(ctx, key)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return 0, time.Time{}, err
	}
	v, err := value.Int64()
	if errors.Is(err, redis.Nil) {
		return -1, now.Val(), nil
	}
	return v, now.Val(), err
}

func (s swaps) SetIfNotExistsWithTTL(key string, value int64, ttl time.Duration) (bool, error) {
	return s.c.SetNX(context.Background(), key, value, max(ttl, time.Millisecond)).Result()
}

func (s swaps) CompareAndSwapWithTTL(key string, old, value int64, ttl time.Duration) (bool, error) {
	return swap.Run(context.Background(), s.c, []string{key}, old, value, max(ttl, time.Millisecond).Milliseconds()).Bool()
}
