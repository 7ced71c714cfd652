// Package localredis starts a redis-server for the programs of the examples.
package localredis

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

// ErrNone says that no redis-server is installed.
var ErrNone = errors.New("no redis-server is installed (Debian: apt-get install redis-server; macOS: brew install redis)")

// Start starts a redis-server on a free port of the loopback interface, which keeps nothing on disk. A port
// that is free now may be taken by somebody else before the server has it, so it is tried a few times.
func Start() (url string, stop func(), err error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", nil, ErrNone
	}
	for range 5 {
		if url, stop, err = startOnce(path); err == nil {
			return url, stop, nil
		}
	}
	return "", nil, err
}

func startOnce(path string) (url string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	cmd := exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	cmd.Dir = os.TempDir()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			var read sync.WaitGroup
			read.Go(func() { _, _ = io.Copy(io.Discard, out) })
			return "redis://127.0.0.1:" + port, func() {
				_ = cmd.Process.Kill()
				read.Wait()
				_ = cmd.Wait()
			}, nil
		}
	}
	_ = cmd.Wait()
	return "", nil, fmt.Errorf("redis-server on port %s ends at once", port)
}
