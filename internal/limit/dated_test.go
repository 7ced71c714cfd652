package limit

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// A stub is a Supply that notes what it is asked.
type stub struct {
	short, taken, back, lost int
	gives                    bool
	again                    time.Duration
	err                      error
}

func (s *stub) Check() error { return s.err }
func (s *stub) Short(from time.Time, n int) time.Time {
	if s.short = n; s.gives {
		return from
	}
	return from.Add(s.again)
}
func (s *stub) Spend(time.Time, int) bool   { return s.gives }
func (s *stub) Taken(_ time.Time, n, _ int) { s.taken += n }
func (s *stub) Returned(n, kept int)        { s.lost += n - kept }
func (s *stub) Beyond(from time.Time, units float64) time.Time {
	return from.Add(time.Duration(units * float64(time.Second)))
}
func (s *stub) Back(n int)                { s.back += n }
func (s *stub) Idle() bool                { return true }
func (s *stub) Later(time.Time) time.Time { return time.Time{} }
func (s *stub) Awaited() bool             { return false }

// dateds runs f with an account of 10/s, burst 5, whose supply says to ask again after 70 ms.
func dateds(t *testing.T, f func(d *Dated, s *stub, start time.Time)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d, s := new(Dated), &stub{again: 70 * time.Millisecond}
		d.Init("test", d, 10, 5, s)
		f(d, s, time.Now())
	})
}

func (d *Dated) give(first, until time.Time, every time.Duration, n int) {
	d.Update(func(time.Time) { d.Add(Run{First: first, Until: until, Every: every, Count: n}) })
}

// TestDatedTakes: units go at their dates and not after their time; without any, the supply is asked.
func TestDatedTakes(t *testing.T) {
	const ms = time.Millisecond
	dateds(t, func(d *Dated, s *stub, start time.Time) {
		d.give(start.Add(10*ms), start.Add(100*ms), 50*ms, 3) // 10, 60, 110 ms; until 100, 150, 200
		d.give(start.Add(20*ms), start.Add(120*ms), 0, 1)
		for _, c := range []struct {
			at, want time.Duration
			n, short int
		}{
			{0, 10 * ms, 1, 0},
			{0, 20 * ms, 2, 0},
			{0, 70 * ms, 5, 5},
			{10 * ms, 0, 1, 0},
			{10 * ms, 10 * ms, 1, 0},
			{30 * ms, 30 * ms, 2, 0},
			{120 * ms, 0, 1, 0}, // that of 20 ms has expired; that of 60 ms goes
			{120 * ms, 0, 1, 0}, // and that of 110 ms
			{120 * ms, 70 * ms, 1, 1},
		} {
			time.Sleep(time.Until(start.Add(c.at)))
			s.short = 0
			if wait, err := TakeNow(d, c.n); wait != c.want || err != nil || s.short != c.short {
				t.Errorf("%v: Take(%d) = %v, %v and asks for %d; want %v and %d", c.at, c.n, wait, err, s.short, c.want, c.short)
			}
		}
		held, debt, expired := 0, 0, uint64(0)
		d.UnderLock(func() { held, debt, expired = d.Held(time.Now()) })
		if held != 0 || debt != 0 || expired != 1 || s.taken != 3 {
			t.Errorf("held %d, debt %d, expired %d, taken %d", held, debt, expired, s.taken)
		}
	})
}

// TestDatedTogether: several units go at once only if the first has not expired when the last is ripe.
func TestDatedTogether(t *testing.T) {
	const ms = time.Millisecond
	dateds(t, func(d *Dated, s *stub, start time.Time) {
		d.give(start, start.Add(40*ms), 30*ms, 3) // 0, 30, 60 ms; until 40, 70, 100
		if wait, _ := TakeNow(d, 2); wait != 30*ms {
			t.Errorf("two units after %v", wait)
		}
		if wait, _ := TakeNow(d, 3); wait != 70*ms || s.short != 3 {
			t.Errorf("three units that never are there together: %v, %d asked for", wait, s.short)
		}
		d.give(start.Add(80*ms), start.Add(180*ms), 0, 3) // dated together
		if wait, _ := TakeNow(d, 3); wait != 80*ms {
			t.Errorf("three units after %v", wait)
		}
	})
}

// TestDatedDebt: what was not there is paid by the next units; what comes back pays it first.
func TestDatedDebt(t *testing.T) {
	dateds(t, func(d *Dated, s *stub, start time.Time) {
		d.Adjust(4)
		d.Adjust(-1)
		if TakeNow(d, 1); s.short != 4 {
			t.Errorf("asks for %d, want 3 owed and 1", s.short)
		}
		d.give(start, start.Add(time.Second), 0, 5)
		if wait, _ := TakeNow(d, 2); wait != 0 {
			t.Errorf("wait %v with 2 left", wait)
		}
		if d.Adjust(-3); s.back != 3 {
			t.Errorf("%d units are back, want 3", s.back)
		}
	})
}

// TestDatedGiveBack: the units of the latest take come back with their date, others are lost.
func TestDatedGiveBack(t *testing.T) {
	dateds(t, func(d *Dated, s *stub, start time.Time) {
		d.give(start, start.Add(100*time.Millisecond), 0, 3)
		var set Set
		set.Join(d)
		at, _ := set.TakeBy(start, start, 2)
		set.GiveBack(at, start, 2)
		if got := set.Available(start); got != 3 || s.lost != 0 {
			t.Errorf("%v units there, %d lost", got, s.lost)
		}
		at, _ = set.TakeBy(start, start, 1)
		time.Sleep(50 * time.Millisecond)
		set.TakeBy(time.Now(), time.Now(), 1)
		set.GiveBack(at, time.Now(), 1)
		if got := set.Available(time.Now()); got != 1 || s.lost != 1 {
			t.Errorf("%v units there, %d lost", got, s.lost)
		}
		time.Sleep(50 * time.Millisecond)
		if got := set.Available(time.Now()); got != 0 {
			t.Errorf("%v units there after their time", got)
		}
	})
}

// TestDatedPause: what is dated before the end of a pause is dropped, also if it comes later.
func TestDatedPause(t *testing.T) {
	const ms = time.Millisecond
	dateds(t, func(d *Dated, s *stub, start time.Time) {
		d.give(start, start.Add(time.Second), 100*ms, 5)
		d.Update(func(now time.Time) {
			if n := d.Pause(now.Add(250 * ms)); n != 3 {
				t.Errorf("%d units dropped, want those of 0, 100 and 200 ms", n)
			}
		})
		d.give(start, start.Add(time.Second), 240*ms, 3) // of 0, 240 and 480 ms
		if wait, _ := TakeNow(d, 1); wait != 300*ms {
			t.Errorf("wait %v", wait)
		}
		if wait, _ := TakeNow(d, 4); wait != 250*ms || s.short != 0 {
			t.Errorf("wait %v, %d asked for: nothing is sent for in a pause", wait, s.short)
		}
		time.Sleep(300 * ms)
		if wait, err := TakeNow(d, 1); wait != 0 || err != nil {
			t.Errorf("after the pause: %v, %v", wait, err)
		}
	})
}

// TestDatedPredicts: by the dates in hand, and by the supply's guess for what is not there. A prediction takes and
// drops nothing.
func TestDatedPredicts(t *testing.T) {
	const ms = time.Millisecond
	dateds(t, func(d *Dated, s *stub, start time.Time) {
		d.give(start, start.Add(200*ms), 100*ms, 3)
		var set Set
		set.Join(d)
		if got := set.After(start, 2, 1).Sub(start); got != 200*ms {
			t.Errorf("the third unit after %v", got)
		}
		if got := set.After(start, 4, 1).Sub(start); got != 2*time.Second || s.short != 0 {
			t.Errorf("the fifth unit after %v, %d asked for", got, s.short)
		}
		set.After(start.Add(time.Hour), 0, 1)
		if got := set.Available(start); got != 1 {
			t.Errorf("%v units there after a forecast", got)
		}
		if set.Rate() != 10 || set.Fresh(start) {
			t.Errorf("rate %v, fresh %v", set.Rate(), set.Fresh(start))
		}
	})
}

// TestDatedSupplyGives: without the hand the supply may give units itself; it may also be over.
func TestDatedSupplyGives(t *testing.T) {
	dateds(t, func(d *Dated, s *stub, start time.Time) {
		s.gives = true
		if wait, err := TakeNow(d, 2); wait != 0 || err != nil || s.taken != 0 {
			t.Errorf("%v, %v, %d from the hand", wait, err, s.taken)
		}
		s.err = errors.New("over")
		d.give(start, start.Add(time.Second), 0, 1)
		if _, err := TakeNow(d, 1); err != s.err {
			t.Errorf("error %v", err)
		}
		if OwnerOf(d) != any(d) || OwnerOf(new(Bucket)) != nil || d.String() != "10/s burst 5 shared" {
			t.Errorf("owner %v, text %q", OwnerOf(d), d)
		}
		d.Update(func(time.Time) { s.err = nil; d.SetLimit(rate.Inf) })
		if wait, err := TakeNow(d, 1000); wait != 0 || err != nil || d.s.held != 1 {
			t.Errorf("without a limit: %v, %v, %d in hand", wait, err, d.s.held)
		}
	})
}
