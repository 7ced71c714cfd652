// Servers writes the table of package servers: inbound beside the middleware that people use instead.
//
//	go run ./bench/cmd/servers -out bench/results/inbound.md
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/go-throttle/throttle/bench/servers"
)

func main() {
	out := flag.String("out", "", "file to write to; none: standard output")
	flood := flag.Int("flood", 1_000_000, "keys of the flood")
	flag.Parse()
	if err := run(*out, *flood); err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		os.Exit(1)
	}
}

func run(out string, flood int) error {
	var rows []servers.Row
	for _, p := range servers.Peers {
		fmt.Fprintln(os.Stderr, p.Name)
		rows = append(rows, servers.Measure(p, servers.Options{Flood: flood}))
	}
	fmt.Fprintln(os.Stderr, "Retry-After")
	var all sync.WaitGroup
	for i, p := range servers.Peers {
		all.Go(func() { rows[i].RetryAfter(p, 10, 20*time.Second) })
	}
	all.Wait()
	if out == "" {
		return write(os.Stdout, rows, flood)
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer f.Close()
	return write(f, rows, flood)
}

// write prints the table.
func write(w io.Writer, rows []servers.Row, flood int) error {
	_, err := fmt.Fprintf(w, `# Middleware for servers

`+"`go run ./bench/cmd/servers -out bench/results/inbound.md`"+`, %s, %s/%s, %d procs. Each limits clients by their address, set up as its own
documentation recommends, in memory.

| middleware | a request, CPU ns | by 2 goroutines, CPU ns | allocations | a key, B | Retry-After after 10 at once of 10 in 20 s | a request was let in after | a flood of %d keys: B a key | let in | an established client then gets | 1,000 requests of one client that may have 100, with an invented X-Forwarded-For each: let in | behind a trusted proxy |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
`, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), flood)
	for _, r := range rows {
		if err == nil {
			_, err = fmt.Fprintf(w, "| %s | %.0f | %.0f | %d | %.0f | %s | %.1f s | %.0f | %d | %s | %s | %s |\n",
				r.Name, r.Ns, r.Ns2, r.Allocs, r.Bytes, r.Said, r.True.Seconds(), r.Flood, r.Entered, r.Own, r.Spoofed, r.Behind)
		}
	}
	if err == nil {
		_, err = io.WriteString(w, `
A request is one of 1,000 clients that is let in, and what the processor works for it; the handler does nothing and costs about 10 ns. "-": there is none. Inbound and
throttled keep 65,536 keys; the others forget keys only after a time. Throttled is v2.2.5, the last one that its path offers without a major
version; httprate reads addresses of clients behind a proxy with chi's ClientIPFromXFF.
`)
	}
	return err
}
