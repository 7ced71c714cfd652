package throttleredis

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server is a redis-server of a test, on a free port of this machine and without a disk.
type server struct {
	cmd  *exec.Cmd
	port int
	args []string
}

// start starts a redis-server with more arguments than the usual ones, or skips the test if none is installed.
func start(t *testing.T, args ...string) *server {
	t.Helper()
	for range 5 {
		s := &server{port: freePort(t), args: args}
		err := s.run(t)
		if err == nil {
			t.Cleanup(s.kill)
			return s
		}
		t.Log(err)
	}
	t.Fatal("redis-server does not start")
	return nil
}

// freePort is free now, and so is the port 10,000 above it, which a server of a cluster needs too. Somebody else may take
// them before the server does, so start tries again. Ports from 32768 on are those of clients: a client that calls a
// server that is gone may get the server's own port.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 10000 + rand.IntN(12000)
		a, err1 := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		b, err2 := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+10000)))
		if err1 == nil {
			a.Close()
		}
		if err2 == nil {
			b.Close()
		}
		if err1 == nil && err2 == nil {
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// again starts it once more after kill, on the same port and empty.
func (s *server) again(t *testing.T) {
	t.Helper()
	until(t, "the server starts again", func() bool {
		err := s.run(t)
		if err != nil {
			t.Log(err)
		}
		return err == nil
	})
}

// run starts it, and returns when it is ready.
func (s *server) run(t *testing.T) error {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("THROTTLE_REQUIRE_SERVERS") != "" {
			t.Fatal("redis-server is missing")
		}
		t.Skip("skipped: no redis-server")
	}
	args := []string{"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--daemonize", "no"}
	if len(s.args) == 0 || s.args[len(s.args)-1] != "--sentinel" {
		args = append(args, "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	}
	if len(s.args) > 0 && !strings.HasPrefix(s.args[0], "-") { // a file comes first
		args = append(s.args[:1:1], append(args, s.args[1:]...)...)
	} else {
		args = append(args, s.args...)
	}
	s.cmd = exec.Command(path, args...)
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	said := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said += lines.Text() + "\n"
		if strings.Contains(said, "Ready to accept connections") || strings.Contains(said, "+monitor master") {
			go io.Copy(io.Discard, out)
			return nil
		}
	}
	s.cmd.Wait()
	return fmt.Errorf("redis-server on %s ends at once:\n%s", s.addr(), said)
}

func (s *server) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// kill ends it at once, as kill -9 does.
func (s *server) kill() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
}

// signal stops it or lets it go on.
func (s *server) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// client is one with its default settings, as a user may have it.
func (s *server) client(t *testing.T) *redis.Client {
	t.Helper()
	return closing(t, redis.NewClient(&redis.Options{Addr: s.addr()}))
}

// closing closes a client at the end of the test.
func closing[C io.Closer](t *testing.T, c C) C {
	t.Cleanup(func() { c.Close() })
	return c
}

// do sends a command that has to succeed.
func (s *server) do(t *testing.T, args ...any) any {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.addr()})
	defer c.Close()
	got, err := c.Do(context.Background(), args...).Result()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return got
}

// until waits for something that must come. How long that takes depends on the machine, so the bound is far away.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}
