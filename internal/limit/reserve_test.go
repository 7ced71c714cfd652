package limit

import (
	"testing"
	"testing/synctest"
	"time"
)

// What is held and what is there are never more than there can be: of each kind that has a size.
func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, a := range []Account{bucket(10, 1000), fixed(1000, time.Minute), sliding(1000, time.Minute)} {
			set := set(a)
			set.TakeBy(time.Now(), time.Now(), 900)
			set.Reserve(time.Now(), 900)
			if n := set.Available(time.Now()); n != 100 {
				t.Errorf("%T: %v are there, want 100", a, n)
			}
			time.Sleep(2 * time.Minute)
			set.Reserve(time.Now(), 900)
			if n := set.Available(time.Now()); n != 100 {
				t.Errorf("%T: %v are there after two minutes, want 100", a, n)
			}
			set.Reserve(time.Now(), 0)
			set.Reserve(time.Now(), -5)
			if n := set.Available(time.Now()); n != 100 {
				t.Errorf("%T: %v are there, want 100", a, n)
			}
		}
	})
}
