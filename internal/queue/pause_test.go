package queue

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A key that is paused by hand stays in a full table while others are in use, and a pause of all keys holds those
// that are made again.
func TestFullTableKeepsPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(testConfig(Options{}), nil)
		c.table.most = 8
		c.table.Pause("paused", time.Hour)
		if c.table.Pause("unknown", 0); c.table.Get("unknown") != nil {
			t.Error("a key is made for a pause of no time")
		}
		for i := range 100 {
			c.get(t.Context(), fmt.Sprint(i))
			time.Sleep(time.Second)
		}
		if q := c.table.Get("paused"); q == nil || q.Stats().Reason != "gate:paused" {
			t.Error("the pause is forgotten")
		}
		c.table.Resume("paused")
		c.table.Pause("", time.Hour)
		for i := range 100 {
			c.table.Resume(fmt.Sprint(i))
			c.get(t.Context(), fmt.Sprint(i))
			c.table.add(fmt.Sprint("new", i))
			if q := c.table.Get(fmt.Sprint("new", i)); q.Stats().Reason != "gate:paused" {
				t.Error("a key made in a pause of all is not paused")
			}
		}
		time.Sleep(time.Hour)
		c.get(t.Context(), "later")
		locked(&c.table.common, func() {
			if c.table.common.pause != nil {
				t.Error("a pause that is over is kept")
			}
		})
	})
}
