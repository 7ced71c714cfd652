// Overload sets inbound.Overload beside other limits by which a server adapts itself, in real time: what is served in time when more
// comes than the process can do, and what is turned away when nothing is wrong. It is a module of its own because of what its
// peers need. In this directory, on a machine that does nothing else:
//
//	GOWORK=off go run . -out ../results/overload.md   # a quarter of an hour
//	GOWORK=off go run . -cases 'CPU*' -length 10s
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"runtime"
	"slices"
	"time"
)

func main() {
	out := flag.String("out", "", "`file` to write to; none: standard output")
	length := flag.Duration("length", 20*time.Second, "how long requests come, of each case and peer")
	cases := flag.String("cases", "*", "which cases, as a `pattern`")
	one := flag.String("one", "", "measure this `peer` in the first of the cases, in this process, and print it as JSON")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *out, *cases, *one, *length); err != nil {
		fmt.Fprintln(os.Stderr, "overload:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, pattern, one string, length time.Duration) error {
	picked := slices.DeleteFunc(Cases(), func(c Case) bool {
		ok, err := path.Match(pattern, c.Name)
		return err != nil || !ok && c.Name != pattern
	})
	if len(picked) == 0 {
		return fmt.Errorf("there is no case %q", pattern)
	}
	if one != "" {
		i := slices.IndexFunc(Peers, func(p Peer) bool { return p.Name == one })
		if i < 0 {
			return fmt.Errorf("there is no peer %q", one)
		}
		return json.NewEncoder(os.Stdout).Encode(Measure(picked[0], Peers[i], length))
	}
	fmt.Fprintf(os.Stderr, "%v\n", time.Duration(len(picked)*len(Peers))*length)
	rows := make(map[[2]string]Row)
	for _, c := range picked {
		for _, p := range Peers {
			fmt.Fprintf(os.Stderr, "%s, %s\n", c.Name, p.Name)
			row, err := alone(ctx, c.Name, p.Name, length)
			if err != nil {
				return err
			}
			rows[[2]string{c.Name, p.Name}] = row
		}
	}
	if out == "" {
		return write(os.Stdout, picked, rows, length)
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer f.Close()
	return write(f, picked, rows, length)
}

// alone measures in a process of its own, which ends whatever is still under way.
func alone(ctx context.Context, name, peer string, length time.Duration) (row Row, err error) {
	self, err := os.Executable()
	if err != nil {
		return row, err
	}
	cmd := exec.CommandContext(ctx, self, "-one", peer, "-cases", name, "-length", length.String())
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return row, fmt.Errorf("%s, %s: %w", name, peer, err)
	}
	return row, json.Unmarshal(text, &row)
}

// write prints the table.
func write(w io.Writer, cases []Case, rows map[[2]string]Row, length time.Duration) error {
	_, err := fmt.Fprintf(w, `# Servers that are overloaded

`+"`(cd bench/overload && GOWORK=off go run . -out ../results/overload.md)`"+`, %s, %s/%s, %d procs, %v each. Requests come evenly and leave after a second. They go to the handler in
the process itself. Each cell: served in time, of what can be / refused, of all / 99th percentile of what was served in time.

CPU: 5 ms of work each, at so many times what the cores can do. Pool: 20 ms with one of 10 connections, while the CPU is idle. I/O: 300 ms of waiting for something
else, 60 requests a second and 600 in turns of 3 s: nothing is wrong, so nobody should be refused.

| peer |`, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), length)
	line := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, format, args...)
		}
	}
	for _, c := range cases {
		line(" %s |", c.Name)
	}
	line("\n|---|")
	for range cases {
		line("---:|")
	}
	for _, p := range Peers {
		line("\n| %s |", p.Name)
		for _, c := range cases {
			r := rows[[2]string{c.Name, p.Name}]
			line(" %.0f %% / %.0f %% / %.2f s |", r.InTime, r.Refused, r.P99.Seconds())
		}
	}
	line("\n")
	return err
}
