package micro

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/bench/scenario"
	"golang.org/x/time/rate"
)

// Each of so many Transports keeps a key for so many hosts: fewer than the 65,536 that it keeps at most.
const (
	tables   = 16
	perTable = 62_500
)

// A key's limit is never reached, and never as new again after its first call.
const (
	keyRate  = rate.Limit(1.0 / 3600)
	keyBurst = 1000
)

func keys() scenario.Scenario {
	return scenario.Scenario{
		Name:  "keys",
		Title: "A million hosts, each with its own limit",
		About: "16 Transports of 62,500 hosts, none of them idle, against 16 maps of rate.Limiter, each under a mutex. Bytes are all that lives for a host, " +
			"its name included. A lookup is a RoundTrip to a host by chance over one that answers at once, less that of the latter; the ratio is " +
			"to the maps in the same run.",
		Metrics: []scenario.Metric{
			{Name: "bytes", Title: "a host", Unit: "B", Better: -1},
			{Name: "lookup_ns", Title: "lookup", Unit: "ns", Better: -1},
			{Name: "lookup_x", Title: "ratio", Better: -1, Digits: 2},
		},
		Takes: 12 * time.Second, Alone: true,
		Fits: only(reference, library),
		Run:  runKeys,
	}
}

func runKeys(ctx context.Context, c client.Client, o scenario.Options) (r scenario.Result, err error) {
	n := perTable
	if o.Short {
		n /= 10
	}
	seed := rand.New(rand.NewPCG(uint64(o.Seed), 1))
	base := answerer{}
	var stubs, maps, transports [tables]http.RoundTripper
	for i := range tables {
		stubs[i], maps[i], transports[i] = base, newHostMap(base), newTransport(base)
	}
	works := []work{lookups(seed, n, stubs), lookups(seed, n, maps)}
	bytes := fill(n, maps)
	if c.Name == library {
		works = append(works, lookups(seed, n, transports))
		bytes = fill(n, transports)
	}
	ns, err := times(ctx, o, works...)
	if err != nil {
		return r, err
	}
	stub, ref, mine := ns[0].alone(), ns[1].alone(), ns[len(ns)-1].alone()
	r.Values = map[string]float64{"bytes": bytes / float64(tables*n)}
	put(r.Values, "lookup", mine-stub, ref-stub)
	return r, nil
}

func newTransport(base http.RoundTripper) http.RoundTripper {
	return &throttle.Transport{
		Base:       base,
		LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(keyRate, keyBurst) },
	}
}

func host(table, i int) string { return fmt.Sprintf("h%d-%d.example.com", table, i) }

// fill calls each host once and returns the heap that this took. The name is made here, so that whoever keeps
// it keeps all of it.
func fill(n int, over [tables]http.RoundTripper) (bytes float64) {
	req := newRequest(false)
	before := heap()
	for i := range n {
		for table, rt := range over {
			req.URL.Host = host(table, i)
			call(rt, req)
		}
	}
	bytes = heap() - before
	runtime.KeepAlive(over)
	return bytes
}

// lookups goes through a long list of hosts, so that none is met again while the processor still has it near.
func lookups(seed *rand.Rand, n int, over [tables]http.RoundTripper) work {
	type place struct {
		table int
		host  string
	}
	list := make([]place, tables*n/4)
	for i := range list {
		table := seed.IntN(tables)
		list[i] = place{table, host(table, seed.IntN(n))}
	}
	req, next := newRequest(false), 0
	return func(times int) {
		for range times {
			p := &list[next]
			if next++; next == len(list) {
				next = 0
			}
			req.URL.Host = p.host
			call(over[p.table], req)
		}
	}
}

// A hostMap is what programs write by hand.
type hostMap struct {
	base     http.RoundTripper
	mu       sync.Mutex
	limiters map[string]*rate.Limiter
}

func newHostMap(base http.RoundTripper) http.RoundTripper {
	return &hostMap{base: base, limiters: map[string]*rate.Limiter{}}
}

func (m *hostMap) limiter(host string) *rate.Limiter {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.limiters[host]
	if l == nil {
		l = rate.NewLimiter(keyRate, keyBurst)
		m.limiters[host] = l
	}
	return l
}

func (m *hostMap) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := m.limiter(req.URL.Host).Wait(req.Context()); err != nil {
		return nil, err
	}
	return m.base.RoundTrip(req)
}
