package throttleredis

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet"
)

// A worker is a process of its own: this test binary once more. It sends each unit that it uses to the parent, over one
// connection for each of its goroutines, and waits for the answer. So the parent has the only ledger, and each
// goroutine has at most one unit under way. It obeys lines on its standard input, and ends with it.

// A job is what a worker is made for.
type job struct {
	ID              int
	Redis, Upstream string
	Limit           rate.Limit
	Burst, Members  int
	Mode            fleet.Mode
	Workers         int
}

const jobEnv = "THROTTLEREDIS_JOB"

func TestMain(m *testing.M) {
	if text := os.Getenv(jobEnv); text != "" {
		var j job
		if err := json.Unmarshal([]byte(text), &j); err != nil {
			panic(err)
		}
		j.run()
		return
	}
	redis.SetLogger(quiet{})
	os.Exit(m.Run())
}

// quiet keeps the client from writing about the faults that the tests make.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// run is the worker's main.
func (j *job) run() {
	lim := fleet.New(New(redis.NewClient(&redis.Options{Addr: j.Redis})), "x", j.Limit, j.Burst, fleet.Options{Mode: j.Mode, Members: j.Members})
	q := throttle.NewQueue(lim, throttle.QueueOptions{})
	out := json.NewEncoder(os.Stdout)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "work":
			for range j.Workers {
				go j.send(q)
			}
		case "take": // one unit, if it is there at once
			wait, err := lim.Take(context.Background(), 1)
			out.Encode(wait == 0 && err == nil)
		case "stats":
			out.Encode(lim.Stats())
		}
	}
}

// send uses units for ever.
func (j *job) send(q *throttle.Queue) {
	c, err := net.Dial("tcp", j.Upstream)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(c, j.ID)
	for b := []byte{0}; ; {
		if err := q.Wait(context.Background()); err != nil {
			panic(err)
		}
		c.Write(b)
		if _, err := io.ReadFull(c, b); err != nil {
			os.Exit(0) // the parent is gone
		}
	}
}

// An upstream is the parent's side.
type upstream struct {
	ledger
	l net.Listener
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{l: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go u.serve(c)
		}
	}()
	return u
}

func (u *upstream) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	line, _ := in.ReadString('\n')
	id, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return
	}
	for {
		b, err := in.ReadByte()
		if err != nil {
			return
		}
		u.add(id)
		c.Write([]byte{b})
	}
}

// A worker as its parent sees it.
type worker struct {
	t   *testing.T
	cmd *exec.Cmd
	mu  sync.Mutex
	in  io.Writer
	out *json.Decoder
}

func newWorker(t *testing.T, j job) *worker {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{t: t, cmd: exec.Command(os.Args[0], "-test.run=^$")}
	w.cmd.Env = append(os.Environ(), jobEnv+"="+string(text))
	w.cmd.Stderr = os.Stderr
	in, err1 := w.cmd.StdinPipe()
	out, err2 := w.cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	w.in, w.out = in, json.NewDecoder(out)
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.kill)
	return w
}

// say sends a line, and reads the answer if there is one.
func (w *worker) say(line string, answer any) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintln(w.in, line)
	if answer == nil {
		return
	}
	if err := w.out.Decode(answer); err != nil {
		w.t.Fatalf("%s: %v", line, err)
	}
}

func (w *worker) stats() (s fleet.Stats) {
	w.t.Helper()
	w.say("stats", &s)
	return s
}

func (w *worker) take() (taken bool) {
	w.t.Helper()
	w.say("take", &taken)
	return taken
}

// kill is kill -9.
func (w *worker) kill() {
	w.cmd.Process.Kill()
	w.cmd.Wait()
}

// startWorkers starts n processes that want all they can get.
func startWorkers(t *testing.T, n int, j job) (*upstream, []*worker) {
	t.Helper()
	u := newUpstream(t)
	j.Upstream, j.Members = u.l.Addr().String(), n
	var ws []*worker
	for i := range n {
		j.ID = i
		w := newWorker(t, j)
		w.say("work", nil)
		ws = append(ws, w)
	}
	return u, ws
}

// TestWorkerDies: of four processes one is killed, and one is stopped for a while. The others go on, and no window is
// above the bound: what the dead one held is used by nobody, and the stopped one sends nothing stale but the unit
// that each of its goroutines was about to send.
func TestWorkerDies(t *testing.T) {
	const limit, burst, workers = 1000, 5, 4
	u, ws := startWorkers(t, 4, job{Redis: start(t).addr(), Limit: limit, Burst: burst, Mode: fleet.Closed, Workers: workers})
	more := func(n int, ids ...int) {
		t.Helper()
		for _, id := range ids {
			n := n + u.count(id)
			until(t, fmt.Sprint("process ", id, " uses units"), func() bool { return u.count(id) >= n })
		}
	}
	more(50, 0, 1, 2, 3)
	ws[0].kill()
	more(50, 1, 2, 3)
	ws[1].cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(time.Second) // its units expire meanwhile
	more(50, 2, 3)
	ws[1].cmd.Process.Signal(syscall.SIGCONT)
	more(50, 1, 2, 3)
	for _, w := range ws {
		w.kill()
	}
	got, most := u.burst(limit), burst+limit*validity.Seconds()+1+4*workers
	t.Logf("%d units; a window of L admits %.1f + %v·L, and may %.1f", u.count(-1), got, limit, most)
	if got > most {
		t.Errorf("a window of L admits %.1f + %v·L, want at most %.1f", got, limit, most)
	}
}

// TestWorkerStops: units that a process held when it was stopped are stale when it goes on.
func TestWorkerStops(t *testing.T) {
	w := newWorker(t, job{Redis: start(t).addr(), Limit: 1000, Burst: 1, Mode: fleet.Closed})
	until(t, "it holds units", func() bool { w.take(); return w.stats().Held > 0 })
	w.cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(2 * time.Second)
	w.cmd.Process.Signal(syscall.SIGCONT)
	if w.take() {
		t.Error("it has used a unit that was granted 2s ago")
	}
	if s := w.stats(); s.Expired == 0 || s.Held > 0 && s.Trips < 2 {
		t.Errorf("%+v", s)
	}
	until(t, "it uses units again", w.take)
}
