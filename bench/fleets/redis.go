package fleets

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server is a redis-server on the loopback interface, without a disk.
type server struct {
	path   string
	port   string
	cmd    *exec.Cmd
	client *redis.Client // of the parent
}

// ErrNoRedis says that there is no redis-server to run.
var ErrNoRedis = errors.New("redis-server is missing (Debian: apt-get install redis-server)")

// startRedis starts a server on a free port. Another program may take the port first, so it is tried a few times.
func startRedis() (*server, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, ErrNoRedis
	}
	for range 5 {
		var l net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, err
		}
		s := &server{path: path, port: strconv.Itoa(l.Addr().(*net.TCPAddr).Port)}
		l.Close()
		if err = s.start(); err == nil {
			s.client = redis.NewClient(&redis.Options{Addr: s.addr()})
			return s, nil
		}
	}
	return nil, err
}

func (s *server) addr() string { return net.JoinHostPort("127.0.0.1", s.port) }

// start starts the server on its port, empty.
func (s *server) start() error {
	cmd := exec.Command(s.path, "--port", s.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	cmd.Dir = os.TempDir()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			s.cmd = cmd
			return nil
		}
	}
	_ = cmd.Wait()
	return fmt.Errorf("redis-server on port %s ends at once", s.port)
}

// kill ends the server at once.
func (s *server) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
	s.cmd = nil
}

// close ends all.
func (s *server) close() {
	s.client.Close()
	s.kill()
}

// cpu is what the server has used since its start, or 0 if it does not say.
func (s *server) cpu(ctx context.Context) (used time.Duration) {
	text, err := s.client.Info(ctx, "cpu").Result()
	if err != nil {
		return 0
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if seconds, err := strconv.ParseFloat(value, 64); err == nil && (name == "used_cpu_sys" || name == "used_cpu_user") {
			used += time.Duration(seconds * 1e9)
		}
	}
	return used
}
