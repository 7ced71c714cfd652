package queue

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-throttle/throttle/internal/limit"
)

// TestTotalsWhileKeysAreDropped: a table that drops a key for nearly each call, and somebody who looks all the time. No attempt
// is missed and none is seen twice, at no moment.
func TestTotalsWhileKeysAreDropped(t *testing.T) {
	const workers, calls = 4, 500
	config := testConfig(Options{})
	config.Shared = setOf(bucket(1e9, 1e9))
	c := newClient(config, nil)
	c.own = func(string) *limit.Set { return setOf(bucket(1e9, 1e9)) }
	c.table.most = 8
	var begun, ended atomic.Int64
	var work sync.WaitGroup
	for w := range workers {
		work.Go(func() {
			for n := range calls {
				begun.Add(1)
				if _, err := c.get(t.Context(), fmt.Sprint((w*calls+n*7)%64)); err != nil {
					t.Error(err)
				}
				ended.Add(1)
			}
		})
	}
	done := make(chan struct{})
	go func() { work.Wait(); close(done) }()
	for looks, last := 0, int64(0); ; looks++ {
		least := ended.Load()
		sent := int64(c.table.Totals().Sent)
		if most := begun.Load(); sent < least || sent > most || sent < last {
			t.Fatalf("look %d: %d sent, after %d; at least %d and at most %d were", looks, sent, last, least, most)
		}
		last = sent
		for _, q := range c.table.All() {
			q.Look(nil)
		}
		select {
		case <-done:
			if sent := c.table.Totals().Sent; sent != workers*calls || len(c.table.All()) > 20 {
				t.Errorf("%d of %d calls are in the totals, %d keys in the table", sent, workers*calls, len(c.table.All()))
			}
			t.Logf("%d looks", looks)
			return
		default:
		}
	}
}
