package fleet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/fleet/store"
	"github.com/go-throttle/throttle/internal/race"
)

// take asks for one unit of a limit.
func take(t testing.TB, f *File, name string, r store.Request) store.Reply {
	t.Helper()
	reply, err := f.Exchange(context.Background(), name, r)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// TestTornWrites: whoever is killed in the middle of a write, after any of its bytes, leaves a file that says what it said
// before, or all of the new. That is so for the write that makes a limit, for the second one, and for a later one.
func TestTornWrites(t *testing.T) {
	name := inFirstSlot(1)[0] // a short file
	for writes := range 4 {
		path := newPath(t)
		for i := range writes {
			f := openAt(t, path, moment{1, 1 << 50, 0})
			take(t, f, name, ask("a", uint64(i+1), 10, 3, 1, 0))
			f.Close()
		}
		before, err := os.ReadFile(path)
		if err != nil && writes > 0 {
			t.Fatal(err)
		}
		f := openAt(t, path, moment{1, 1 << 50, 0})
		take(t, f, name, ask("a", uint64(writes+1), 10, 3, 1, 0))
		f.Close()
		after, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		first, last := changed(before, after)
		for end := first; end <= last; end++ {
			if end > 0 && end < last && after[end-1] == 0 && end%1000 > 0 { // what is not there reads as zeros
				continue
			}
			torn := append([]byte{}, after[:end]...)
			torn = append(torn, before[min(end, len(before)):]...)
			if err := os.WriteFile(path, torn, 0o600); err != nil {
				t.Fatal(err)
			}
			f := openAt(t, path, moment{1, 1 << 50, 0})
			got := take(t, f, name, ask("b", 1, 10, 3, 1, 0)).Known.Next - 1<<50
			f.Close()
			want := []int64{int64(writes) + 1, int64(writes) + 2} // units that are used, of a burst of 3
			if used := got/1e5 + 2; used != want[0] && used != want[1] && !(writes == 0 && used == 3) {
				t.Fatalf("write %d, cut after byte %d of %d: %d units are used, want one of %d", writes+1, end-first, last-first, used, want)
			}
		}
	}
}

// changed is where the first and the last difference are.
func changed(before, after []byte) (first, last int) {
	same := func(i int) bool { return i < len(before) && before[i] == after[i] }
	for first < len(after) && same(first) {
		first++
	}
	for last = len(after); last > first && same(last-1); last-- {
	}
	return first, last
}

// TestLostCopy: a copy that is damaged counts for nothing. If both are the limit starts with an empty bucket, and what
// members carry heals it.
func TestLostCopy(t *testing.T) {
	at := moment{1, 1 << 50, 0}
	path := newPath(t)
	f := openAt(t, path, at)
	mark := store.Mark{}
	for seq := range uint64(5) {
		mark = take(t, f, "x", ask("a", seq+1, 10, 5, 1, 0)).Known
	}
	s, err := f.find(keyOf("x"), at, nil)
	if err != nil {
		t.Fatal(err)
	}
	damage := func(half int) {
		if _, err := f.file.WriteAt([]byte{1, 2, 3}, s.offset(half)+40); err != nil {
			t.Fatal(err)
		}
	}
	damage(s.half)
	if got := take(t, f, "x", ask("b", 1, 10, 5, 1, 0)); got.Known.Next != mark.Next {
		t.Errorf("one copy damaged: the next unit %d µs off", got.Known.Next-mark.Next)
	}
	damage(0)
	damage(1)
	if got := take(t, f, "x", ask("b", 2, 10, 5, 3, 0)); len(got.Runs) != 1 || got.Runs[0].First != 200*time.Millisecond {
		t.Errorf("both damaged: %+v, want the third unit of an empty bucket", got)
	}
	damage(0)
	damage(1)
	r := ask("a", 6, 10, 5, 1, 0)
	r.Known = store.Mark{Now: at.now, Next: at.now + 5*second}
	if got := take(t, f, "x", r); got.Known.Next < at.now+5*second {
		t.Errorf("a member's mark is not believed: %+v", got)
	}
}

// TestZeros: a file that begins with zeros, as a power cut may leave it, is opened, and its limits count.
func TestZeros(t *testing.T) {
	path := newPath(t)
	at := moment{1, 1 << 50, 0}
	take(t, openAt(t, path, at), "x", ask("a", 1, 10, 5, 5, 0))
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clear(content[:headSize])
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := take(t, openAt(t, path, at), "x", ask("a", 2, 10, 5, 1, 0)); len(got.Runs) != 1 || got.Runs[0].First == 0 {
		t.Errorf("a limit whose bucket is empty: %+v", got)
	}
	if got, _ := os.ReadFile(path); !strings.HasPrefix(string(got), firstLine) {
		t.Errorf("the file begins with %q", got[:len(firstLine)])
	}
}

// TestPlaces: limits take room when they come, not more than there is, and give it back when they have been full for a
// minute. One that finds no place is refused, and the others are not concerned.
func TestPlaces(t *testing.T) {
	path, at := newPath(t), moment{1, 1 << 50, 0}
	f := opened(t, path, clock{1, func() moment { return at }})
	var in []string
	refused := 0
	for i := range race.Pick(1100, 3000) {
		name := fmt.Sprint("tenant ", i)
		_, err := f.Exchange(t.Context(), name, ask("a", 1, 10, 1, 1, 0))
		switch {
		case err == nil:
			in = append(in, name)
		case errors.Is(err, store.ErrLimit):
			refused++
		default:
			t.Fatal(err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > headSize+mostLimits*slotSize || len(in) < 800 {
		t.Errorf("%d limits in %d bytes, %v", len(in), info.Size(), err)
	}
	t.Logf("%d limits are in, %d are not, %d bytes", len(in), refused, info.Size())
	for _, name := range in {
		if got := take(t, f, name, ask("a", 2, 10, 1, 1, 0)); got.Known.Next != at.now+2e5 {
			t.Fatalf("%s: %+v", name, got)
		}
	}
	at.now += forget + second
	for i := range 100 {
		take(t, f, fmt.Sprint("newcomer ", i), ask("a", 1, 10, 1, 1, 0))
	}
}

// inFirstSlot are n names whose place is the first slot.
func inFirstSlot(n int) (names []string) {
	for i := 0; len(names) < n; i++ {
		if k := keyOf(fmt.Sprint(i)); binary.LittleEndian.Uint16(k[:])%mostLimits == 0 {
			names = append(names, fmt.Sprint(i))
		}
	}
	return names
}

// TestTwoNewLimits: limits that come in one exchange get places of their own, also when they would have the same.
func TestTwoNewLimits(t *testing.T) {
	names := inFirstSlot(ways + 1)
	f := openAt(t, newPath(t), moment{1, 1 << 50, 0})
	rs := make([]store.Request, ways)
	for seq := range uint64(3) {
		for i := range rs {
			rs[i] = ask("a", seq+1, rate.Limit(10*(i+1)), 1, 1, 0)
		}
		got, err := f.ExchangeAll(t.Context(), names[:ways], rs)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range got {
			if want := int64(seq+1) * int64(math.Ceil(1e5/float64(i+1)-1e-6)); r.Known.Next-1<<50 < want || r.Known.Next-1<<50 > want+3 {
				t.Errorf("limit %d, exchange %d: the next unit in %d µs, want %d", i, seq, r.Known.Next-1<<50, want)
			}
		}
	}
	if _, err := f.Exchange(t.Context(), names[ways], rs[0]); !errors.Is(err, store.ErrLimit) {
		t.Errorf("the ninth limit of eight places: %v", err)
	}
}

// FuzzFile: whatever another hand writes into the file, with a checksum that is right, a program neither panics nor waits for
// ever, and is granted one burst and what the limit allows at most.
func FuzzFile(f *testing.F) {
	at := moment{1, 1 << 50, 1 << 51}
	s := new(state)
	s.exchange(at.now-second, ask("somebody", 1, 100, 10, 3, 20))
	s.exchange(at.now-second, ask("a", 1, 7, 10, 1, 0))
	good := s.encode(nil, at)
	f.Add(good, uint64(1), uint64(0))
	f.Add(good[:40], uint64(math.MaxUint64), uint64(3))
	f.Add([]byte(strings.Repeat("\xff", 200)), uint64(5), uint64(6))
	f.Add(append(good[:8:8], make([]byte, 80)...), uint64(1<<63), uint64(1<<63-1))
	f.Fuzz(func(t *testing.T, content []byte, number, other uint64) {
		if len(content) <= stateSize {
			checkContent(t, content, number, other)
		}
	})
}

// TestAnyContent is FuzzFile with lists of numbers that can be read, small ones and huge ones.
func TestAnyContent(t *testing.T) {
	for seed := range race.Pick(uint64(50), 500) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		number := func() int64 {
			v := rnd.Uint64() >> rnd.IntN(64)
			if rnd.IntN(4) == 0 {
				v = -v
			}
			return int64(v)
		}
		content := binary.LittleEndian.AppendUint64(nil, 1+uint64(rnd.IntN(2)))
		for range 6 { // seen, wall, next, pause, healed, repaid
			content = binary.AppendVarint(content, number())
		}
		limit := []float64{7, 100, 1e-300, 1e300, math.Abs(math.Float64frombits(rnd.Uint64()))}[rnd.IntN(5)]
		content = binary.AppendVarint(content, int64(math.Float64bits(limit)))
		for range 4 { // burst, loaned, count, before
			content = binary.AppendVarint(content, number())
		}
		for range rnd.IntN(3) {
			content = append(content, memberOf([]string{"new", "old"}[rnd.IntN(2)])...)
			content = binary.AppendVarint(content, rnd.Int64N(2)) // a member is not stopped for ever by the number of a request
			for range 8 {
				content = binary.AppendVarint(content, number())
			}
			content = binary.AppendVarint(content, 0)
		}
		if _, err := decode(content, moment{id: 1, now: 1 << 50}); err != nil && limit < math.MaxFloat64 {
			t.Fatalf("seed %d: %v", seed, err)
		}
		checkContent(t, content, rnd.Uint64(), rnd.Uint64())
	}
}

// checkContent writes both copies of a limit, with numbers of their writes, and then uses it.
func checkContent(t *testing.T, content []byte, number, other uint64) {
	t.Helper()
	at := moment{1, 1 << 50, 1 << 51}
	file := opened(t, newPath(t), clock{1, func() moment { return at }})
	defer file.Close()
	first, err := file.find(keyOf("x"), at, nil)
	if err != nil {
		t.Fatal(err)
	}
	for half, number := range []uint64{number, other} {
		k := keyOf("x")
		b := make([]byte, copyHead, copyHead+len(content))
		binary.LittleEndian.PutUint32(b[4:], uint32(len(content)))
		binary.LittleEndian.PutUint64(b[8:], number)
		copy(b[16:], k[:])
		b = append(b, content...)
		binary.LittleEndian.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
		if _, err := file.file.WriteAt(b, first.offset(half)); err != nil {
			t.Fatal(err)
		}
	}
	// A process asks for units for four seconds, and once more a day later. The first answer may be one by another hand, for a
	// request of that number: a limiter uses no more units of it than it has asked for.
	const limit, burst = 10, 4
	var dates []time.Duration
	for seq := range uint64(40) {
		got := take(t, file, "x", ask("new", seq+1, limit, burst, 1, 3))
		err := check(&got, &store.Request{Need: 1, Want: 3})
		if seq > 0 && (got.Pause > 24*time.Hour || err != nil) {
			t.Fatalf("%+v, %v", got, err)
		}
		for i := range got.Runs {
			for k := range got.Runs[i].Count {
				if err == nil && seq > 0 {
					run := got.Runs[i]
					dates = append(dates, time.Duration(seq)*100*time.Millisecond+run.First+time.Duration(k)*run.Every)
				}
			}
		}
		at.now += 1e5
	}
	slices.Sort(dates)
	for i, date := range dates {
		if most := burst + limit*(date+validity250).Seconds() + 1; float64(i+1) > most {
			t.Fatalf("%d units are dated within %v; at most %.1f", i+1, date, most)
		}
	}
	at.now += maxPause + 40*second
	if got := take(t, file, "x", ask("new", 100, limit, burst, 1, 0)); len(got.Runs) == 0 {
		t.Fatalf("a day later nothing is granted: %+v", got)
	}
}
