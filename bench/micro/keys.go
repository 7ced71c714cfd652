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
		About: "16 Transports of 62,500 hosts, none of them idle, against one map of rate.Limiter under a mutex. Bytes are all that lives for a host, " +
			"its name included. A lookup is a RoundTrip to a host by chance over one that answers at once, less that of the latter; the ratio is " +
			"to the map in the same run.",
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
	base := answerer{headers: true}
	plain := &hostMap{base: base, limiters: map[string]*rate.Limiter{}}
	works := []work{lookups(seed, n, func(int) http.RoundTripper { return base })}

	before := heap()
	fill(n, func(int) http.RoundTripper { return plain })
	bytes := heap() - before
	works = append(works, lookups(seed, n, func(int) http.RoundTripper { return plain }))

	if c.Name == library {
		before := heap()
		all := newTransports(base)
		of := func(table int) http.RoundTripper { return all[table] }
		fill(n, of)
		bytes = heap() - before
		works = append(works, lookups(seed, n, of))
		defer runtime.KeepAlive(all)
	}
	defer runtime.KeepAlive(plain)

	ns, err := times(ctx, o, works...)
	if err != nil {
		return r, err
	}
	stub, ref, mine := ns[0], ns[1], ns[len(ns)-1]
	r.Values = map[string]float64{
		"bytes": bytes / float64(tables*n), "lookup_ns": mine - stub, "lookup_x": (mine - stub) / (ref - stub),
	}
	return r, nil
}

func newTransports(base http.RoundTripper) (all [tables]*throttle.Transport) {
	for i := range all {
		all[i] = &throttle.Transport{
			Base:       base,
			LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(keyRate, keyBurst) },
		}
	}
	return all
}

func host(table, i int) string { return fmt.Sprintf("h%d-%d.example.com", table, i) }

// fill calls each host once. The name is made here, so that whoever keeps it keeps all of it.
func fill(n int, of func(table int) http.RoundTripper) {
	req := newRequest(true)
	for i := range n {
		for table := range tables {
			req.URL.Host = host(table, i)
			call(of(table), req)
		}
	}
}

// lookups goes through a long list of hosts, so that none is met again while the processor still has it near.
func lookups(seed *rand.Rand, n int, of func(table int) http.RoundTripper) work {
	type place struct {
		table int
		host  string
	}
	list := make([]place, tables*n/4)
	for i := range list {
		table := seed.IntN(tables)
		list[i] = place{table, host(table, seed.IntN(n))}
	}
	req, next := newRequest(true), 0
	return func(times int) {
		for range times {
			p := &list[next]
			if next++; next == len(list) {
				next = 0
			}
			req.URL.Host = p.host
			call(of(p.table), req)
		}
	}
}

// A hostMap is what programs write by hand.
type hostMap struct {
	base     http.RoundTripper
	mu       sync.Mutex
	limiters map[string]*rate.Limiter
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
