package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/go-throttle/throttle/inbound"
)

// A greeting is what the server says first, on its standard output: where it listens, and how many requests a second it
// can do if nobody else uses its cores.
type greeting struct {
	URL string
	Can float64
}

// A page does what a request needs.
type page struct{ rounds int }

const (
	waits = 20 * time.Millisecond
	works = 10 * time.Millisecond
)

func (p page) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	time.Sleep(waits)
	p.work()
	fmt.Fprintln(w, "hello")
}

func (p page) work() {
	var sum [32]byte
	for range p.rounds {
		sum = sha256.Sum256(sum[:])
	}
	runtime.KeepAlive(sum)
}

// newPage finds out how many rounds take 10 ms: the shortest of some tries, because others use the machine too.
func newPage() page {
	const some = 20_000
	least := time.Hour
	for range 10 {
		start := time.Now()
		page{some}.work()
		least = min(least, time.Since(start))
	}
	return page{int(some * works / least)}
}

// handler is the page, behind an Overload or not.
func handler(p page, with bool) http.Handler {
	if !with {
		return p
	}
	var busy inbound.Overload
	return busy.Handler(p)
}

// beServer is the server, on two cores at most, until in ends.
func beServer(ctx context.Context, with bool, in io.Reader, out io.Writer) error {
	runtime.GOMAXPROCS(min(2, runtime.GOMAXPROCS(0)))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	p := newPage()
	s := &http.Server{Handler: handler(p, with), ReadHeaderTimeout: 10 * time.Second}
	over := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer over()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		_ = s.Close()
	}()
	if err := json.NewEncoder(out).Encode(greeting{URL: "http://" + l.Addr().String() + "/", Can: float64(runtime.GOMAXPROCS(0)) / works.Seconds()}); err != nil {
		return err
	}
	if err := s.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// A process is a server that the program has started.
type process struct {
	greeting
	cmd *exec.Cmd
	in  io.Closer
}

// start starts this program as the server, and waits until it listens.
func start(ctx context.Context, name string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self, "-serve", name)}
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &p.greeting)
	}
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("the server has not started: %w", err)
	}
	return p, nil
}

// stop ends the server, and waits for it.
func (p *process) stop() {
	_ = p.in.Close()
	_ = p.cmd.Wait() // it may have been killed
}
