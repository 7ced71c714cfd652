package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-throttle/throttle/examples/internal/calls"
	"github.com/go-throttle/throttle/examples/internal/console"
)

// Clients ask a server evenly, whatever it answers, and count.
type clients struct {
	name string
	url  string
	can  float64 // requests a second
	load float64
	pool *http.Transport

	mu      sync.Mutex
	took    time.Duration
	sent    int
	refused int
	left    int             // after patience
	failed  int             // no connection, for example
	times   []time.Duration // of answers
}

// patience is when a client leaves.
const patience = time.Second

// mostOpen bounds the requests under way: each has a connection.
const mostOpen = 2000

func newClients(name string, s *process, load float64) *clients {
	return &clients{name: name, url: s.URL, can: s.Can, load: load, pool: calls.Pool(mostOpen)}
}

// send sends requests for so long, and waits for all answers.
func (c *clients) send(ctx context.Context, length time.Duration) {
	defer c.pool.CloseIdleConnections()
	every := time.Duration(float64(time.Second) / (c.can * c.load))
	open := make(chan struct{}, mostOpen)
	var all sync.WaitGroup
	start := time.Now()
	for at := time.Duration(0); at < length && ctx.Err() == nil; at += every {
		time.Sleep(at - time.Since(start))
		c.count(func() { c.sent, c.took = c.sent+1, max(every, time.Since(start)) })
		select {
		case open <- struct{}{}:
			all.Go(func() {
				defer func() { <-open }()
				c.ask(ctx)
			})
		default:
			c.count(func() { c.failed++ })
		}
	}
	all.Wait()
}

func (c *clients) count(add func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add()
}

// ask sends one request.
func (c *clients) ask(ctx context.Context) {
	begun := time.Now()
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(within, http.MethodGet, c.url, nil)
	if err != nil {
		return // the URL is ours
	}
	status := 0
	resp, err := c.pool.RoundTrip(req)
	if err == nil {
		status = resp.StatusCode
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	c.count(func() {
		switch {
		case within.Err() != nil:
			c.left++
		case err != nil:
			c.failed++
		case status == http.StatusOK:
			c.times = append(c.times, time.Since(begun))
		default:
			c.refused++
		}
	})
}

// A table is what both servers have answered.
type table struct {
	cfg    config
	out    io.Writer
	screen console.Screen
	runs   []*clients
}

// ask has clients send, and draws the table meanwhile.
func (t *table) ask(ctx context.Context, c *clients) {
	var drawing sync.WaitGroup
	over := make(chan struct{})
	if t.cfg.live {
		drawing.Go(func() {
			tick := time.NewTicker(500 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					t.screen.Draw(func(out io.Writer, columns int) { _ = t.print(out, columns) })
				case <-over:
					t.screen.Erase()
					return
				}
			}
		})
	}
	c.send(ctx, t.cfg.length)
	close(over)
	drawing.Wait()
}

// print writes the table.
func (t *table) print(out io.Writer, columns int) error {
	rows := [][]string{{"inbound.Overload", "asked/s", "in time/s", "of what it can", "refused/s", "left/s", "p50", "p99"}}
	for _, c := range t.runs {
		rows = append(rows, c.row())
	}
	return console.Print(out, columns, true, rows)
}

func (c *clients) row() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	took := max(c.took, time.Millisecond).Seconds()
	rate := func(n int) string { return fmt.Sprintf("%.0f", float64(n)/took) }
	p50, p99 := "", ""
	if n := len(c.times); n > 0 {
		times := slices.Sorted(slices.Values(c.times))
		p50, p99 = times[n/2].Round(time.Millisecond).String(), times[n*99/100].Round(time.Millisecond).String()
	}
	return []string{
		c.name, rate(c.sent), rate(len(c.times)), fmt.Sprintf("%.0f %%", 100*float64(len(c.times))/(c.can*took)),
		rate(c.refused), rate(c.left + c.failed), p50, p99,
	}
}
