package limit

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// TestAppendStats: each kind of limit, half used and in debt, the slowest first; what limits nothing is left out.
func TestAppendStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b, inf Bucket
		var f, zero FixedWindow
		var w SlidingWindow
		var v Var
		b.Init("", 10, 20)
		inf.Init("", rate.Inf, 0)
		f.Init("", 100, time.Minute)
		w.Init("", 60, 2*time.Second)
		all, held := new(Set), new(Set)
		for _, a := range []Account{&b, &inf, &w, &v} {
			all.Join(a)
		}
		held.Join(&f)
		if err := v.Set(held); err != nil {
			t.Fatal(err)
		}
		check := func(want ...Stats) {
			t.Helper()
			other := Stats{Reason: "other"}
			got := all.AppendStats([]Stats{other}, "limit", 7, time.Now())
			for i := range want {
				want[i].Reason = "limit"
			}
			if !slices.Equal(got, append([]Stats{other}, want...)) {
				t.Errorf("%+v,\nwant %+v", got, want)
			}
		}
		minute := rate.Limit(100.0 / 60)
		check(Stats{"", minute, 100, time.Minute, 100, 7}, Stats{"", 10, 20, 0, 20, 7}, Stats{"", 30, 60, 2 * time.Second, 60, 7})
		b.Adjust(10)
		f.Adjust(150)
		w.Adjust(30)
		check(Stats{"", minute, 100, time.Minute, -50, 7}, Stats{"", 10, 20, 0, 10, 7}, Stats{"", 30, 60, 2 * time.Second, 30, 7})

		none := new(Set)
		none.Join(&zero) // lets nothing go
		if got := none.AppendStats(nil, "limit", 1, time.Now()); !slices.Equal(got, []Stats{{Reason: "limit", Taken: 1}}) {
			t.Errorf("%+v", got)
		}
	})
}
