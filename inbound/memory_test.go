package inbound

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/inbound/keys"
)

// one asks for a unit of a key.
func one(t *testing.T, m *Memory, laws ...keys.Law) keys.Reply {
	t.Helper()
	r, err := m.Ask(t.Context(), []keys.Request{{Key: "k", Server: "00000001", Laws: laws, Each: 1, Count: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return r[0]
}

// TestMemoryClock: a clock that jumps costs a burst at most, and nobody is locked out.
func TestMemoryClock(t *testing.T) {
	for _, law := range []keys.Law{
		{Kind: keys.Bucket, Most: 5, Rate: 0.5e-9}, {Kind: keys.Window, Most: 5, Per: 10e6}, {Kind: keys.Sliding, Most: 5, Per: 10e6}, {Kind: keys.Log, Most: 5, Per: 10e6},
	} {
		for _, jump := range []time.Duration{-time.Hour, -30 * time.Second, 30 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				m, n := new(Memory), int64(0)
				for range 40 {
					n += one(t, m, law).Granted
					time.Sleep(100 * time.Millisecond)
				}
				m.skew = jump
				for range 40 {
					n += one(t, m, law).Granted
					time.Sleep(100 * time.Millisecond)
				}
				if most := int64(5 + 5 + 8*0.5 + 1); n > most || n < 5 {
					t.Errorf("kind %d, clock %v: %d units in 8 s, want 5 to %d", law.Kind, jump, n, most)
				}
				if time.Sleep(20 * time.Second); one(t, m, law).Granted != 1 {
					t.Errorf("kind %d, clock %v: refused 20 s later", law.Kind, jump)
				}
			})
		}
	}
}

// TestMemoryForgets: what is free takes no memory.
func TestMemoryForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, laws := new(Memory), []keys.Law{{Most: 5, Rate: 1e-9}}
		for i := range 1000 {
			if _, err := m.Ask(t.Context(), []keys.Request{{Key: fmt.Sprint(i), Laws: laws, Each: 1, Count: 1}}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		if one(t, m, laws...); len(m.keys) != 1 {
			t.Errorf("%d keys are kept", len(m.keys))
		}
	})
}

// rubbish is a store that answers nonsense.
type rubbish struct{ r *rand.Rand }

func (s rubbish) Ask(_ context.Context, rs []keys.Request) ([]keys.Reply, error) {
	replies := make([]keys.Reply, len(rs))
	number := func() float64 {
		return []float64{-1, 0, 1, 1e300, math.NaN(), math.Inf(1), 5e15}[s.r.IntN(7)]
	}
	for i := range replies {
		replies[i] = keys.Reply{Granted: s.r.Int64N(5) - 2, Leased: s.r.Int64N(5) - 2, Mark: keys.Mark{Now: s.r.Int64N(3) - 1}}
		for range s.r.IntN(3) {
			replies[i].Mark.Cells = append(replies[i].Mark.Cells, []float64{number(), number(), number()}[:s.r.IntN(4)])
		}
	}
	switch s.r.IntN(6) {
	case 0:
		return replies[:len(replies)-1], nil
	case 1:
		return nil, errors.New("down")
	}
	return replies, nil
}

// TestStoreNonsense: a store that answers nonsense, or another one's answers, lets nobody in for good and breaks nothing.
func TestStoreNonsense(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			k := NewSharedKeyed[string](Sharing{Store: rubbish{rand.New(rand.NewPCG(seed, 1))}, Name: "x", Servers: 1}, 0, "5/1m burst 5", "10/1h window")
			n := 0
			for range 500 {
				if k.Allow("a", 1) {
					n++
				}
				k.Tokens("a")
				time.Sleep(10 * time.Millisecond)
			}
			if n > 250 {
				t.Errorf("seed %d: %d of 500 let in", seed, n)
			}
			time.Sleep(3 * time.Second)
		})
	}
}
