package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet/store"
)

// lying is a store whose answers make no sense.
type lying struct{ reply store.Reply }

func (l lying) Exchange(context.Context, string, store.Request) (store.Reply, error) {
	return l.reply, nil
}

func TestStoreLies(t *testing.T) {
	for _, r := range []store.Reply{
		{},
		{Members: 1, Runs: []store.Run{{Count: 1000}}},
		{Members: 1, Runs: []store.Run{{Count: -1}}},
		{Members: 1, Runs: []store.Run{{Count: 1, First: -time.Second}}},
		{Members: 1, Runs: []store.Run{{Count: 1, First: 1 << 62}}},
		{Members: 1, Pause: -1},
	} {
		bubble(t, func(t *testing.T) {
			l := New(lying{r}, "x", 100, 1, Options{})
			if wait, err := l.Take(context.Background(), 1); wait == 0 || err != nil {
				t.Errorf("%+v: Take: %v, %v", r, wait, err)
			}
			synctest.Wait()
			if s := l.Stats(); s.Mode != "alone" || s.Failed != 1 || s.Granted != 0 {
				t.Errorf("%+v: %+v", r, s)
			}
			time.Sleep(time.Second)
			if wait, err := l.Take(context.Background(), 1); wait != 0 || err != nil {
				t.Errorf("%+v: Take after a second of the share: %v, %v", r, wait, err)
			}
			synctest.Wait()
		})
	}
}

// picky is a store that cannot serve one limit.
type picky struct {
	*link
	bad string
}

func (p *picky) Exchange(ctx context.Context, name string, r store.Request) (store.Reply, error) {
	bad := ""
	if p.link.set(func() { bad = p.bad }); name == bad {
		time.Sleep(time.Millisecond)
		return store.Reply{}, fmt.Errorf("a text: %w", store.ErrLimit)
	}
	return p.link.Exchange(ctx, name, r)
}

// TestOneLimitFails: a limit that the store cannot serve goes on with its share, and others notice nothing. When the store
// can serve it again all is as before.
func TestOneLimitFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		picked, led := &picky{&link{m: new(Memory)}, "bad"}, new(ledger)
		worker := func(id int, name string) *process {
			p := &process{id: id, lim: New(picked, name, 100, 1, Options{Members: 2}), link: picked.link, led: led}
			p.q = throttle.NewQueue(p.lim, throttle.QueueOptions{})
			p.work(2, nil)
			return p
		}
		good, bad := worker(0, "good"), worker(1, "bad")
		start := time.Now()
		time.Sleep(10 * time.Second)
		if s := bad.lim.Stats(); s.Mode != "alone" || !errors.Is(s.Err, store.ErrLimit) {
			t.Errorf("the bad one: %+v", s)
		}
		if s := good.lim.Stats(); s.Mode != "shared" || s.Err != nil || s.Alone > 0 || s.Failed > 0 {
			t.Errorf("the good one: %+v", s)
		}
		g, b := led.units(0, start, time.Now()), led.units(1, start, time.Now())
		if g < 995 || g > 1002 || b < 380 || b > 401 {
			t.Errorf("%d units of 1000, and %d of 0.8 · 1000/2", g, b)
		}
		picked.link.set(func() { picked.bad = "" })
		time.Sleep(2 * time.Second)
		if s := bad.lim.Stats(); s.Mode != "shared" || s.Err != nil {
			t.Errorf("after it is well: %+v", s)
		}
		picked.link.set(func() { picked.link.hang = time.Now().Add(10 * time.Second) })
		time.Sleep(time.Second)
		if g, b := good.lim.Stats(), bad.lim.Stats(); g.Mode != "alone" || b.Mode != "alone" {
			t.Errorf("both are lost: %+v, %+v", g, b)
		}
		time.Sleep(12 * time.Second)
		if g, b := good.lim.Stats(), bad.lim.Stats(); g.Mode != "shared" || b.Mode != "shared" {
			t.Errorf("both are back: %+v, %+v", g, b)
		}
		killAll([]*process{good, bad})
	})
}

// TestNonsense: what cannot be is said at once.
func TestNonsense(t *testing.T) {
	for name, f := range map[string]func(){
		"store":    func() { New(nil, "x", 1, 1, Options{}) },
		"limit":    func() { New(new(Memory), "x", -1, 1, Options{}) },
		"nan":      func() { New(new(Memory), "x", rate.Limit(math.NaN()), 1, Options{}) },
		"inf":      func() { New(new(Memory), "x", rate.Inf, -1, Options{}) },
		"change":   func() { New(new(Memory), "x", 1, 1, Options{}).SetLimit(-1) },
		"burst":    func() { New(new(Memory), "x", 1, 0, Options{}) },
		"mode":     func() { New(new(Memory), "x", 1, 1, Options{Mode: 7}) },
		"members":  func() { New(new(Memory), "x", 1, 1, Options{Members: -1}) },
		"validity": func() { New(new(Memory), "x", 1, 1, Options{Validity: time.Millisecond}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
	ctx := context.Background()
	if _, err := New(new(Memory), "x", 0, 1, Options{}).Take(ctx, 1); err == nil {
		t.Error("a limit of 0 lets units go")
	}
	if wait, err := New(new(Memory), "x", rate.Inf, 0, Options{}).Take(ctx, 1000); wait != 0 || err != nil {
		t.Errorf("without a limit: %v, %v", wait, err)
	}
	if _, err := New(new(Memory), "x", 1, 1, Options{}).Take(ctx, -1); err == nil {
		t.Error("a negative cost")
	}
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "nil *fleet.Limiter") {
			t.Errorf("All of a nil Limiter: %s", got)
		}
	}()
	throttle.All((*Limiter)(nil))
}
