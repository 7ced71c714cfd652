package inbound_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/inbound"
	"github.com/go-throttle/throttle/internal/race"
)

// A use is a number of units used at a moment. What was given back was never used.
type use struct {
	at    time.Time
	units int
}

// A bank is several servers with one Keyed each, whose users reserve, settle, cancel and take.
type bank struct {
	k []*inbound.Keyed[string]

	mu   sync.Mutex
	uses map[string][]use
}

func newBank(servers int, delay time.Duration, limit string) *bank {
	b, memory := &bank{uses: map[string][]use{}}, new(inbound.Memory)
	for range servers {
		w := &storeWire{to: memory, delay: delay}
		b.k = append(b.k, inbound.NewSharedKeyed[string](inbound.Sharing{Store: w, Name: "x"}, 0, limit))
	}
	return b
}

func (b *bank) note(key string, at time.Time, units int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uses[key] = append(b.uses[key], use{at, units})
}

// work is what one user does. It returns how long the longest call took.
func (b *bank) work(key string, r *rand.Rand, most int, pause time.Duration, end time.Time) (longest time.Duration) {
	for time.Now().Before(end) {
		k, n := b.k[r.IntN(len(b.k))], 1+r.IntN(most)
		from := time.Now()
		res := k.Reserve(key, n)
		longest = max(longest, time.Since(from))
		if res.OK() {
			at := time.Now()
			switch time.Sleep(time.Duration(r.Float64() * float64(r.IntN(3)) * float64(pause))); r.IntN(3) {
			case 0:
				res.Cancel()
			case 1:
				used := r.IntN(n + 1)
				res.Settle(used)
				b.note(key, at, used)
			default:
				b.note(key, at, n)
			}
		}
		time.Sleep(time.Duration(r.ExpFloat64() * float64(pause)))
	}
	return longest
}

// most is how many units of a key any window of a length has seen.
func (b *bank) most(key string, per time.Duration) (most int) {
	for _, from := range b.uses[key] {
		sum := 0
		for _, u := range b.uses[key] {
			if d := u.at.Sub(from.at); d >= 0 && d < per {
				sum += u.units
			}
		}
		most = max(most, sum)
	}
	return most
}

// TestStoreReservations: whatever users of several servers reserve, settle and cancel, no window holds more than the bound,
// nobody waits longer than the soft timeout, and in the end all is there again.
func TestStoreReservations(t *testing.T) {
	for seed := range uint64(race.Pick(12, 60)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 77))
			n := 10 + r.IntN(50)
			per := time.Duration(1+r.IntN(5)) * time.Second
			delay := time.Duration(r.IntN(5000)) * time.Microsecond
			if r.IntN(2) == 0 {
				n = 1 + r.IntN(20) // a log; the estimate of larger ones has no bound
			}
			limit, bound := fmt.Sprintf("%d/%v sliding", n, per), 0
			lent := (n + int(2*float64(n)/per.Seconds())) / 10
			if n > 20 {
				limit, bound = fmt.Sprintf("%d/%v burst %d", n, per, n), n
				lent *= 2
			}
			bound += n + lent
			b := newBank(3, delay, limit)
			end := time.Now().Add(20 * time.Second)
			var wg sync.WaitGroup
			for i := range uint64(6) {
				wg.Go(func() {
					key := strconv.Itoa(int(i % 2))
					if took := b.work(key, rand.New(rand.NewPCG(seed, i)), 1+n/5, per/20, end); took > 100*time.Millisecond {
						t.Errorf("seed %d: a call takes %v", seed, took)
					}
				})
			}
			wg.Wait()
			time.Sleep(3 * per)
			// Units are used up to a round trip after the store has counted them.
			for _, key := range []string{"0", "1"} {
				if got := b.most(key, per-delay-2*time.Millisecond); got > bound {
					t.Errorf("seed %d, %s: %d units in a window, want at most %d", seed, limit, got, bound)
				}
				if left := b.k[0].Tokens(key); left != n {
					t.Errorf("seed %d, %s: %d left in the end, want %d", seed, limit, left, n)
				}
			}
			time.Sleep(3 * time.Second)
		})
	}
}
