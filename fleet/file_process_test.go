package fleet

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
)

// A job is what a process is made for: this test binary once more. It uses all units that it can get, and writes the moment of
// each use to its standard output, by the clock that all processes of the machine have in common. It is killed, or ends with
// its parent.
type job struct {
	Path      string
	Limit     rate.Limit
	Burst     int
	Exchanges int // 0: use units; otherwise make so many exchanges when there is something to read
}

const jobVariable = "THROTTLE_FLEET_JOB"

func TestMain(m *testing.M) {
	if text := os.Getenv(jobVariable); text != "" {
		var j job
		if err := json.Unmarshal([]byte(text), &j); err != nil {
			panic(err)
		}
		j.run()
	}
	os.Exit(m.Run())
}

func (j *job) run() {
	f, err := OpenFile(j.Path)
	if err != nil {
		panic(err)
	}
	if j.Exchanges > 0 {
		j.exchange(f)
	}
	q := throttle.NewQueue(New(f, "x", j.Limit, j.Burst, Options{Mode: Closed}), throttle.QueueOptions{})
	for {
		if err := q.Wait(context.Background()); err != nil {
			panic(err)
		}
		us := uint64(f.clock.now().now)
		if _, err := os.Stdout.Write(binary.LittleEndian.AppendUint64(nil, us)); err != nil {
			os.Exit(0) // the parent is gone
		}
	}
}

// exchange makes exchanges as fast as it can, for a benchmark.
func (j *job) exchange(f *File) {
	os.Stdout.Write(make([]byte, 8)) // it is ready
	os.Stdin.Read(make([]byte, 1))
	member := fmt.Sprint(os.Getpid())
	for i := range j.Exchanges {
		if _, err := f.Exchange(context.Background(), "x", ask(member, uint64(i+1), 1000, 10, 1, 5)); err != nil {
			panic(err)
		}
	}
	os.Exit(0)
}

// A child is a process as its parent sees it.
type child struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	uses chan struct{} // one, if it has used a unit since somebody looked
	done chan struct{}
}

// children are processes at one file, and the ledger of all of them.
type children struct {
	t   testing.TB
	job job
	all []*child

	mu  sync.Mutex
	led ledger
}

// start starts a process.
func (c *children) start() *child {
	c.t.Helper()
	text, err := json.Marshal(c.job)
	if err != nil {
		c.t.Fatal(err)
	}
	p := &child{cmd: exec.Command(os.Args[0], "-test.run=^$"), uses: make(chan struct{}, 1), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.in, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	go c.read(p, out)
	c.t.Cleanup(p.kill)
	return p
}

func (c *children) read(p *child, out io.Reader) {
	defer close(p.done)
	for b := make([]byte, 8); ; {
		if _, err := io.ReadFull(out, b); err != nil {
			return
		}
		c.mu.Lock()
		c.led.log = append(c.led.log, use{at: time.UnixMicro(int64(binary.LittleEndian.Uint64(b))), n: 1})
		c.mu.Unlock()
		select {
		case p.uses <- struct{}{}:
		default:
		}
	}
}

// kill is kill -9. What the process has written is read.
func (p *child) kill() {
	p.cmd.Process.Kill()
	<-p.done
	p.cmd.Wait()
}

// works waits until a process has used a unit since the last look. How long that takes depends on the machine.
func (c *children) works(p *child) {
	c.t.Helper()
	select {
	case <-p.uses:
	case <-time.After(5 * time.Minute):
		c.t.Fatal("a process has used nothing for five minutes")
	}
}

// check compares the ledger with the bound. Each process may have one unit taken and not noted yet, for however long the
// machine makes it wait.
func (c *children) check(processes int) {
	c.t.Helper()
	c.mu.Lock()
	log := slices.Clone(c.led.log)
	c.mu.Unlock()
	slices.SortFunc(log, func(a, b use) int { return a.at.Compare(b.at) })
	all := &ledger{log: log}
	first, last := log[0].at, log[len(log)-1].at
	got := all.burst(first, last.Add(1), c.job.Limit)
	most := float64(c.job.Burst) + bound(c.job.Limit) + float64(processes)
	c.t.Logf("%d processes used %d units in %v; a window of L has %.1f + %v·L, and may have %.1f", processes, len(log), last.Sub(first), got, c.job.Limit, most)
	if got > most {
		c.t.Errorf("a window of L has %.1f + %v·L, want at most %.1f", got, c.job.Limit, most)
	}
}

// TestFileKilled: processes share 1,000/s, and random ones are killed and replaced all the time. No window is above the bound, who
// lives gets units, and the file is readable in the end. THROTTLE_FULL does it for ten minutes.
func TestFileKilled(t *testing.T) {
	if _, err := systemClock(); err != nil {
		t.Skip("skipped: ", err)
	}
	processes, kills, run := race.Pick(4, 50), race.Pick(6, 100), time.Duration(0)
	if os.Getenv("THROTTLE_FULL") != "" {
		run = 10 * time.Minute
	}
	c := &children{t: t, job: job{Path: newPath(t), Limit: 1000, Burst: 10}}
	for range processes {
		c.all = append(c.all, c.start())
	}
	for _, p := range c.all {
		c.works(p)
	}
	for begun := time.Now(); kills > 0 || time.Since(begun) < run; kills-- {
		i := rand.IntN(processes)
		c.all[i].kill()
		c.all[i] = c.start()
		c.works(c.all[rand.IntN(processes)])
		time.Sleep(rand.N(100 * time.Millisecond))
	}
	for _, p := range c.all { // since the look before
		c.works(p)
	}
	for _, p := range c.all {
		p.kill()
	}
	c.check(processes)
	f, err := OpenFile(c.job.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if reply := take(t, f, "x", ask("after", 1, 1000, 10, 1, 0)); len(reply.Runs) != 1 || reply.Runs[0].First > time.Second {
		t.Errorf("after all are dead: %+v", reply)
	}
}
