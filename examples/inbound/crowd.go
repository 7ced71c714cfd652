package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/examples/internal/console"
	"github.com/go-throttle/throttle/inbound"
)

// A client is one kind of client.
type client struct {
	name    string
	key     string
	allowed string             // what it may have at most
	address func(n int) string // of its n-th request, as its proxy forwards it
	polite  bool               // it uses throttle
	workers int

	http   *http.Client
	sent   atomic.Int64
	served atomic.Int64
}

// atMost is how many requests of a client may be served in that time: the rate's, the burst and one that the end cuts off.
func (c *client) atMost(took time.Duration) int {
	limit, err := throttle.ParseLimit(c.allowed)
	if err != nil {
		panic(err) // a constant of this program
	}
	bucket := limit.(*throttle.Bucket)
	return bucket.Burst() + int(float64(bucket.Limit())*took.Seconds()) + 1
}

// A crowd is all of them, over one pool of connections.
type crowd struct {
	url     string
	clients []*client
}

// always is the address of a client that has one.
func always(addr string) func(int) string { return func(int) string { return addr } }

// newCrowd makes the clients.
func newCrowd(url string, pool http.RoundTripper) *crowd {
	c := &crowd{url: url, clients: []*client{
		{name: "pro", key: "key-1", allowed: perPro, address: always("192.0.2.1"), polite: true, workers: 8},
		{name: "free", key: "key-2", allowed: perFree, address: always("192.0.2.2"), polite: true, workers: 8},
		{name: "hasty", key: "key-3", allowed: perFree, address: always("192.0.2.3"), workers: 1},
		{name: "flood", allowed: perNetwork, address: func(n int) string { return fmt.Sprintf("198.18.%d.%d", n/250%4, n%250) }, workers: 1},
		{name: "spoofer", allowed: perAddress, address: func(n int) string { return fmt.Sprintf("10.0.%d.%d, 203.0.113.9", n/250%250, n%250) }, workers: 1},
	}}
	for _, one := range c.clients {
		base := counted{pool, one}
		one.http = &http.Client{Transport: base}
		if one.polite {
			one.http.Transport = &throttle.Transport{Base: base}
		}
	}
	return c
}

// counted is a client's way to its proxy, which writes down who has sent a request and what became of it.
type counted struct {
	pool   http.RoundTripper
	client *client
}

func (c counted) RoundTrip(req *http.Request) (*http.Response, error) {
	n := c.client.sent.Add(1)
	req = req.Clone(req.Context())
	req.Header.Set("X-Forwarded-For", c.client.address(int(n)))
	if c.client.key != "" {
		req.Header.Set("X-Api-Key", c.client.key)
	}
	resp, err := c.pool.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusOK {
		c.client.served.Add(1)
	}
	return resp, err
}

// send lets all clients send for that long, or until ctx ends. They do not know the end: a call that throttle cannot make before
// a deadline would be refused at once, and again.
func (c *crowd) send(ctx context.Context, length time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(length, cancel).Stop()
	var all sync.WaitGroup
	for _, one := range c.clients {
		for range one.workers {
			all.Go(func() {
				for ctx.Err() == nil {
					get(ctx, one.http, c.url)
				}
			})
		}
	}
	all.Wait()
}

// get makes one call. What comes of it is counted below; an error is the end of the run.
func get(ctx context.Context, client *http.Client, url string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
}

// print says who got what.
func (c *crowd) print(out io.Writer, columns int, took time.Duration, s inbound.Stats) error {
	rows := [][]string{{"client", "may have", "at most", "sent", "served"}}
	for _, one := range c.clients {
		rows = append(rows, []string{
			one.name, one.allowed, strconv.Itoa(one.atMost(took)),
			strconv.FormatInt(one.sent.Load(), 10), strconv.FormatInt(one.served.Load(), 10),
		})
	}
	fmt.Fprintln(out)
	if err := console.Print(out, columns, true, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, console.Fill(fmt.Sprintf(
		"At most: the limit's rate for the time of the run, and its burst, which comes once. "+
			"The server has let %d requests in and refused %d. Its table has %d addresses.", s.Admitted, s.Refused, s.Keys), columns, ""))
	return err
}
