package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-throttle/throttle/examples/internal/console"
)

// kinds are the clients, with addresses that are for documentation alone [RFC 5737].
var kinds = []struct {
	name, address, does string
	run                 func(ctx context.Context, c *client)
}{
	{"reader", "192.0.2.1", "a link each 0.5 s", func(ctx context.Context, c *client) {
		for pause(ctx, 500*time.Millisecond) {
			c.send(ctx, http.MethodGet)
		}
	}},
	{"page", "192.0.2.2", "6 links each 2 s", func(ctx context.Context, c *client) {
		for pause(ctx, 2*time.Second) {
			var wg sync.WaitGroup
			for range 6 {
				wg.Go(func() { c.send(ctx, http.MethodGet) })
			}
			wg.Wait()
		}
	}},
	{"polite", "192.0.2.3", "obeys Retry-After", func(ctx context.Context, c *client) {
		for wait := time.Duration(0); pause(ctx, wait); {
			wait = c.send(ctx, http.MethodPost)
		}
	}},
	{"script", "192.0.2.4", "a loop, each 2 ms", func(ctx context.Context, c *client) {
		for pause(ctx, 2*time.Millisecond) {
			c.send(ctx, http.MethodPost)
		}
	}},
}

// pause waits, and reports whether there is still time.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// A client sends requests to both servers in turn, and counts the answers.
type client struct {
	address string
	pool    *http.Client
	servers []*server

	mu      sync.Mutex
	sent    int
	ok      int
	refused int
	err     error
}

// newClients makes one of each kind.
func newClients(servers []*server) (all []*client) {
	database.add("https://example.com/")
	for _, k := range kinds {
		pool := &http.Client{
			Transport:     &http.Transport{MaxIdleConnsPerHost: 8},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		all = append(all, &client{address: k.address, pool: pool, servers: servers})
	}
	return all
}

// next is the server of the next request.
func (c *client) next() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent++
	return c.servers[c.sent%len(c.servers)].url
}

// send makes a link, or follows the first one. It returns how long the server says to wait.
func (c *client) send(ctx context.Context, method string) (wait time.Duration) {
	url, body := c.next()+"/", io.Reader(http.NoBody)
	if method == http.MethodGet {
		url += "0"
	} else {
		body = strings.NewReader("https://example.com/a/long/path")
	}
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return 0
	}
	r.Header.Set("X-Forwarded-For", c.address)
	resp, err := c.pool.Do(r)
	if err == nil {
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case ctx.Err() != nil: // the run is over
		c.sent--
	case err != nil:
		c.err = err
	case resp.StatusCode == http.StatusTooManyRequests:
		c.refused++
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return time.Duration(seconds) * time.Second
	default:
		c.ok++
	}
	return 0
}

// A table shows the clients.
type table struct {
	clients []*client
	servers []*server
	screen  console.Screen
	took    time.Duration
}

// follow runs the clients until ctx ends, and draws the table meanwhile.
func (t *table) follow(ctx context.Context, live bool) {
	var wg sync.WaitGroup
	from := time.Now()
	for i, k := range kinds {
		wg.Go(func() {
			k.run(ctx, t.clients[i])
			t.clients[i].pool.CloseIdleConnections()
		})
	}
	for pause(ctx, 200*time.Millisecond) {
		if t.took = time.Since(from); live {
			t.screen.Draw(func(out io.Writer, columns int) { _ = console.Print(out, columns, true, t.rows()) })
		}
	}
	wg.Wait()
	t.took = time.Since(from)
	t.screen.Erase()
}

// rows are the lines of the table.
func (t *table) rows() [][]string {
	rows := [][]string{{"client", "does", "sent", "answered", "a second", "429", "tokens"}}
	for i, k := range kinds {
		c := t.clients[i]
		tokens := t.servers[0].look(c.address)
		c.mu.Lock()
		rows = append(rows, []string{k.name, k.does, strconv.Itoa(c.sent), strconv.Itoa(c.ok), fmt.Sprintf("%.1f", float64(c.ok)/max(t.took.Seconds(), 0.2)), strconv.Itoa(c.refused), strconv.Itoa(tokens)})
		c.mu.Unlock()
	}
	return rows
}

// print writes the table of a run that is over.
func (t *table) print(out io.Writer, columns int) error {
	if err := console.Print(out, columns, true, t.rows()); err != nil {
		return err
	}
	trips, sent := uint64(0), 0
	for _, s := range t.servers {
		trips += s.limit.StoreStats().Trips
	}
	for _, c := range t.clients {
		sent += c.sent
	}
	_, err := fmt.Fprintln(out, "\n"+console.Fill(fmt.Sprintf("Each client may have %s over both servers. %.2f round trips to the store for each of %d requests: "+
		"who is far over its limit is refused without asking.", limits, float64(trips)/float64(max(1, sent)), sent), columns, ""))
	return err
}

// failed is the error of a request that had no answer.
func (t *table) failed() error {
	for _, c := range t.clients {
		if c.err != nil {
			return c.err
		}
	}
	return nil
}
