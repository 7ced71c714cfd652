package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet/store"
	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/outage"
	"github.com/go-throttle/throttle/internal/race"
)

// newPath is where a file of limits may be made.
func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "limits") }

// openAt opens a file at a moment that does not pass.
func openAt(t testing.TB, path string, at moment) *File {
	t.Helper()
	return opened(t, path, clock{at.id, func() moment { return at }})
}

func opened(t testing.TB, path string, c clock) *File {
	t.Helper()
	f, err := openFile(path, c)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("skipped: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// fileProcess is a process with a handle of its own; in a bubble its clock is that of the bubble.
func fileProcess(t testing.TB, id int, path, name string, led *ledger, limit rate.Limit, burst int) *process {
	p := &process{id: id, led: led, lim: New(opened(t, path, wallClock()), name, limit, burst, Options{})}
	p.q = throttle.NewQueue(p.lim, throttle.QueueOptions{})
	return p
}

// TestFileOrdinary: what ordinary programs do with a limit in a file is within the bound, and uses the limit.
func TestFileOrdinary(t *testing.T) {
	for _, c := range []struct {
		name               string
		processes, callers int
		limit              rate.Limit
		burst              int
		trips              float64 // for each call, at most
	}{
		{"one caller in a loop", 1, 1, 10, 5, 1.1},
		{"four callers", 1, 4, 10, 5, 1.1},
		{"four processes with a caller each", 4, 1, 10, 5, 1.1},
		{"thirty processes", 30, 2, 20, 5, 1.5},
		{"a fast limit", 4, 4, 1000, 10, 0.05},
		{"fifty processes and a fast limit", race.Pick(16, 50), 4, 1000, 1, 0.5},
	} {
		bubble(t, func(t *testing.T) {
			path, led, start := newPath(t), new(ledger), time.Now()
			var ps []*process
			for i := range c.processes {
				p := fileProcess(t, i, path, "x", led, c.limit, c.burst)
				p.work(c.callers, nil)
				ps = append(ps, p)
			}
			time.Sleep(5 * time.Second)
			killAll(ps)
			trips := 0.0
			for _, p := range ps {
				trips += float64(p.lim.Stats().Trips)
			}
			used, want := float64(len(led.log)), 5*float64(c.limit)+float64(c.burst)
			excess := led.burst(start, time.Now(), c.limit) - float64(c.burst)
			t.Logf("%s: %.4f used, excess %.2f, %.3f trips a call", c.name, used/want, excess, trips/used)
			if used < 0.97*want-1 || excess > bound(c.limit) || trips/used > c.trips {
				t.Errorf("%s: %v units of %v, %.2f above burst + limit·L, %.3f trips a call", c.name, used, want, excess, trips/used)
			}
		})
	}
}

// TestFileRuns: a program that is started again and again, one run after the other, holds the limit over all of its runs,
// whether they end without Close or with it. A run is a newcomer each time, so its first unit may be on loan: one in all.
func TestFileRuns(t *testing.T) {
	for _, c := range []struct {
		runs, calls int
		closes      bool
	}{{60, 1, false}, {60, 1, true}, {20, 3, false}, {20, 3, true}, {1, 60, true}} {
		bubble(t, func(t *testing.T) {
			path, led, start := newPath(t), new(ledger), time.Now()
			for i := range c.runs {
				p := fileProcess(t, i, path, "x", led, 10, 5)
				for range c.calls {
					p.call(t.Context(), 1)
				}
				if c.closes {
					p.lim.Close()
				}
			}
			if got := time.Since(start); got < 5400*time.Millisecond || got > 5700*time.Millisecond {
				t.Errorf("%+v: 60 calls at 10/s, burst 5, take %v", c, got)
			}
			checkBurst(t, led, start, time.Now(), 10, 5, 1) // the loan
		})
	}
}

// TestFileBatch: a batch of calls at once goes at the pace of the limit.
func TestFileBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		led, start := new(ledger), time.Now()
		p := fileProcess(t, 0, newPath(t), "x", led, 50, 10)
		for range 110 {
			p.wg.Go(func() { p.call(t.Context(), 1) })
		}
		p.wg.Wait()
		if got := time.Since(start); got < 2*time.Second || got > 2050*time.Millisecond {
			t.Errorf("110 calls at 50/s, burst 10, take %v", got)
		}
		checkBurst(t, led, start, time.Now(), 50, 10, bound(50))
	})
}

// TestFilePause: a pause that one run hears of holds the next run, and only for that limit.
func TestFilePause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		path, start := newPath(t), time.Now()
		names := []string{"closed", "open", "also open"}
		leds := map[string]*ledger{}
		for _, name := range names {
			leds[name] = new(ledger)
		}
		first := fileProcess(t, 0, path, "closed", leds["closed"], 10, 5)
		first.call(t.Context(), 1)
		first.lim.Observe(hint.Hint{Throttled: true, RetryAfter: 20 * time.Second}, time.Now())
		if err := first.lim.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		var ps []*process
		for i, name := range names {
			p := fileProcess(t, i+1, path, name, leds[name], 10, 5)
			p.work(1, nil)
			ps = append(ps, p)
		}
		time.Sleep(20 * time.Second)
		killAll(ps)
		end := start.Add(20 * time.Second)
		if n := leds["closed"].units(1, start, end); n > 0 {
			t.Errorf("%d units in the pause of another run", n)
		}
		if n := leds["closed"].units(1, end, start.Add(25*time.Second)); n < 49 || n > 52 {
			t.Errorf("%d units in 5s after the pause, at 10/s without a burst", n)
		}
		for _, name := range names[1:] {
			if n := leds[name].units(-1, start, end); n < 150 || n > 156 {
				t.Errorf("%s: %d units of 155", name, n)
			}
		}
	})
}

// TestFilePauseOutlivesTheRun: a run that ends as soon as it hears of a pause, as by os.Exit, has passed it on, also if another
// request was out. If the file cannot be had it waits for no longer than the soft timeout.
func TestFilePauseOutlivesTheRun(t *testing.T) {
	for _, busy := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			path := newPath(t)
			f := opened(t, path, wallClock())
			lim := New(f, "x", 10, 5, Options{})
			if busy {
				lim.Take(t.Context(), 1)
			}
			lim.Observe(hint.Hint{Throttled: true, RetryAfter: 20 * time.Second}, time.Now())
			f.Close()
			next := opened(t, path, wallClock())
			if got := take(t, next, "x", ask("next run", 1, 10, 5, 1, 0)).Pause; got < 19*time.Second {
				t.Errorf("busy %v: the next run hears of a pause of %v", busy, got)
			}
			if err := next.enter(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer next.leave()
			begun := time.Now()
			New(opened(t, path, wallClock()), "x", 10, 5, Options{}).Observe(hint.Hint{Throttled: true, RetryAfter: time.Minute}, begun)
			if took := time.Since(begun); took > outage.MostSoft {
				t.Errorf("while another process has the lock Observe takes %v", took)
			}
		})
	}
}

// TestFileIsMemory: any script of requests of several limits, one by one and together, is answered as by Memory, though the
// file is opened again and again.
func TestFileIsMemory(t *testing.T) {
	for seed := range race.Pick(uint64(10), 60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		path, seqs := newPath(t), map[string]uint64{}
		now, memory := int64(1<<50), map[string]*state{"a": {}, "b": {}, "c": {}}
		known := map[string]store.Mark{}
		for range 300 {
			now += int64(rnd.ExpFloat64() * math.Pow(10, 1+6*rnd.Float64()))
			var names []string
			var rs []store.Request
			member := string(rune('p' + rnd.IntN(8)))
			for _, name := range []string{"a", "b", "c"} {
				if rnd.IntN(2) == 0 {
					id := member + name
					names, rs = append(names, name), append(rs, randomRequest(rnd, member, seqs[id], known[id]))
					seqs[id] = max(seqs[id], rs[len(rs)-1].Seq)
				}
			}
			f := openAt(t, path, moment{1, now, rnd.Int64N(1 << 50)})
			got, err := f.ExchangeAll(t.Context(), names, rs)
			f.Close()
			want := together(memory, now, names, rs)
			for i := range got { // a limit that changes may be full since the Stone Age, of which the file keeps a part
				got[i].Known.Next, want[i].Known.Next = max(got[i].Known.Next, now-1<<40), max(want[i].Known.Next, now-1<<40)
			}
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: %+v:\nin the file %+v, %v\nin memory   %+v", seed, rs, got, err, want)
			}
			for i, name := range names {
				known[member+name] = got[i].Known
			}
		}
	}
}

// together is what Memory does.
func together(limits map[string]*state, now int64, names []string, rs []store.Request) (replies []store.Reply) {
	grants, latest := make([]grant, len(rs)), 0.0
	for i := range rs {
		grants[i] = limits[names[i]].begin(now, &rs[i])
		latest = max(latest, grants[i].wait)
	}
	for i := range rs {
		replies = append(replies, grants[i].end(&rs[i], latest))
	}
	return replies
}

// randomRequest is any that a limiter may send, and now and then one again.
func randomRequest(rnd *rand.Rand, member string, seq uint64, known store.Mark) store.Request {
	r := store.Request{
		Member: member, Seq: seq + 1, Limit: []rate.Limit{0.5, 7, 100, 1000}[rnd.IntN(4)], Burst: 1 + rnd.IntN(20),
		Validity: validity250, Need: rnd.IntN(4), Want: rnd.IntN(50), Held: rnd.IntN(5), Known: known,
	}
	switch rnd.IntN(12) {
	case 0:
		r.Pause = time.Duration(rnd.IntN(5000)) * time.Millisecond
	case 1:
		r.Tighten, r.NotBefore = true, time.Duration(rnd.IntN(3000)-2000)*time.Millisecond
	case 2:
		r.Back = rnd.IntN(10)
	case 3:
		r.Unused = rnd.IntN(10)
	case 4:
		r.Seq = max(1, seq)
	}
	return r
}

// TestFileHandles: goroutines, handles and limits at one file come one after the other, also while it is removed and made
// again: nobody fails, and while nobody removes it no unit is granted twice.
func TestFileHandles(t *testing.T) {
	for _, removes := range []bool{false, true} {
		path := newPath(t)
		handles := []*File{openAt(t, path, moment{1, 1 << 50, 0}), openAt(t, path, moment{1, 1 << 50, 0})}
		var wg sync.WaitGroup
		var mu sync.Mutex
		dates := map[time.Duration]int{}
		for id := range 8 {
			wg.Go(func() {
				for seq := range uint64(race.Pick(40, 400)) {
					reply, err := handles[id%2].Exchange(context.Background(), "x", ask(fmt.Sprint(id), seq+1, 1000, 1, 1, 0))
					if err != nil {
						t.Error(err)
						return
					}
					if removes && rand.IntN(10) == 0 {
						os.Remove(path)
					}
					mu.Lock()
					for _, r := range reply.Runs {
						dates[r.First]++
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		for date, n := range dates {
			if n > 1 && !removes && date > 0 { // one on loan is dated now, like the first
				t.Errorf("%d units are dated %v; the limit is 1000/s", n, date)
			}
		}
	}
}

// TestFileRemoved: when the file is removed, or another one takes its place, processes go on together, and the limit with
// them.
func TestFileRemoved(t *testing.T) {
	for _, fault := range []string{"removed", "emptied", "replaced"} {
		bubble(t, func(t *testing.T) {
			path, led, start := newPath(t), new(ledger), time.Now()
			var ps []*process
			for i := range 4 {
				p := fileProcess(t, i, path, "x", led, 1000, 100)
				p.work(2, nil)
				ps = append(ps, p)
			}
			time.Sleep(2 * time.Second)
			at := time.Now()
			switch fault {
			case "removed":
				os.Remove(path)
			case "emptied":
				os.Truncate(path, 0)
			case "replaced":
				opened(t, path+"2", wallClock())
				os.Rename(path+"2", path)
			}
			time.Sleep(2 * time.Second)
			killAll(ps)
			checkBurst(t, led, start, time.Now(), 1000, 100, bound(1000))
			used := usedOf(led, at, at.Add(2*time.Second), 1000)
			if mode := ps[0].lim.Stats().Mode; used < 0.98 || mode != "shared" {
				t.Errorf("%s: %.3f used, %s", fault, used, mode)
			}
			opened(t, path, wallClock())
		})
	}
}

// TestFileClosed: Exchange after Close is an error, and a stopped holder of the lock one too, when ctx ends.
func TestFileClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		path := newPath(t)
		f, other := opened(t, path, wallClock()), opened(t, path, wallClock())
		if err := other.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		_, err := f.Exchange(ctx, "x", ask("a", 1, 10, 1, 1, 0))
		if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took < time.Second || took > 1010*time.Millisecond {
			t.Errorf("while another one has the lock: %v after %v", err, took)
		}
		opened(t, path, wallClock()) // which does not wait
		other.leave()
		if _, err := f.Exchange(t.Context(), "x", ask("a", 2, 10, 1, 1, 0)); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := f.Exchange(t.Context(), "x", ask("a", 3, 10, 1, 1, 0)); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		lim := New(f, "x", 10, 1, Options{})
		lim.Take(t.Context(), 1)
		time.Sleep(time.Second)
		if wait, err := lim.Take(t.Context(), 1); wait > 0 || err != nil { // of its share, a tenth
			t.Errorf("a limiter of a closed file: %v, %v", wait, err)
		}
		if s := lim.Stats(); s.Mode != "alone" || !errors.Is(s.Err, fs.ErrClosed) {
			t.Errorf("a limiter of a closed file: %+v", s)
		}
	})
}

// TestOpenFile: what cannot be a file of limits is said at once, and never written to.
func TestOpenFile(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"notes": "something else", "later": strings.Replace(firstLine, "1\n", "2\n", 1), "empty line": "\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := OpenFile(path)
		if got, _ := os.ReadFile(path); err == nil || string(got) != content || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, and %q is in it", name, err, got)
		}
	}
	for _, path := range []string{dir, filepath.Join(dir, "none", "limits"), "/dev/null"} {
		if _, err := OpenFile(path); err == nil {
			t.Errorf("%s: no error", path)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "nothing"), link); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFile(link); err == nil || !strings.Contains(err.Error(), "link to a file that does not exist") {
		t.Errorf("a link that leads to nothing: %v", err)
	}
	for n := range len(firstLine) { // killed while it was made
		path := filepath.Join(dir, "cut")
		if err := os.WriteFile(path, []byte(firstLine[:n]), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := OpenFile(path)
		if err != nil {
			t.Fatalf("cut after %d bytes: %v", n, err)
		}
		f.Close()
		if got, _ := os.ReadFile(path); string(got) != firstLine {
			t.Fatalf("cut after %d bytes: %q", n, got)
		}
	}
}
