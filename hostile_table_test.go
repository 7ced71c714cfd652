package throttle

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A full table, hosts with hourly quotas, and a limiter that LimiterFor returns for several hosts of one
// tenant, which the docs allow. Each new host of the tenant makes their common limiter pay what
// somebody else owes: the hosts that work are stalled by it.
func TestHostileDebtOfOthersInSharedLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		common := NewBucket(100, 10)
		tr, _ := fullTable(64, nil)
		tr.LimiterFor = func(key string) Limiter {
			if strings.HasPrefix(key, "tenant") {
				return common
			}
			return NewFixedWindow(1e6, time.Hour)
		}
		status(tr, t.Context(), "http://tenant-0/")
		for i := range 3000 {
			status(tr, WithCost(t.Context(), 500), fmt.Sprintf("http://h%d/", i))
		}
		served := 0
		for i := range 60 { // a new host of the tenant each second, and ten calls to one that is used all the time
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			status(tr, ctx, fmt.Sprintf("http://tenant-%d/", i+1))
			for range 10 {
				if code, _ := status(tr, ctx, "http://tenant-0/"); code == 200 {
					served++
				}
			}
			<-ctx.Done()
			cancel()
		}
		if served < 590 {
			t.Errorf("%d of 600 calls served to a host in use, at 11/s of 100/s", served)
		}
	})
}

// What is given back while a key is not in the table is lost again when the key comes back: the account
// is the very one that was dropped, and is changed.
func TestHostileGivenBackIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBucket(0.01, 10)
		tr, _ := fullTable(2, nil)
		tr.LimiterFor = func(key string) Limiter {
			if key == "mine" {
				return b
			}
			return NewBucket(1, 10)
		}
		status(tr, WithCost(t.Context(), 10), "http://mine/")
		for i := range 10 {
			time.Sleep(time.Second)
			status(tr, t.Context(), fmt.Sprintf("http://h%d/", i))
		}
		b.Adjust(-10) // the batch was not charged
		before := b.Tokens()
		status(tr, WithCost(t.Context(), 0), "http://mine/")
		if after := b.Tokens(); after < before-0.01 {
			t.Errorf("%.1f units before the key came back, %.1f after, none was taken", before, after)
		}
	})
}
