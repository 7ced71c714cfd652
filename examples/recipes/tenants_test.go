package recipes

import (
	"context"
	"errors"
	"math"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/throttletest"
)

// TestTenants: three tenants flood one API. In each second each of them gets its share, and so does another one
// that comes later with three calls: 1 of 8, one call in 80 ms and the first one at once.
func TestTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := throttletest.NewServer(perSecond(100))
		upstream.Identify = func(req *http.Request) (client, call string) { return req.Header.Get("Tenant"), "" }
		call := Tenants(upstream)
		ctx, cancel := context.WithCancel(t.Context())
		send := func(ctx context.Context, tenant string) {
			req := get(t, "http://api.test/").WithContext(ctx)
			req.Header.Set("Tenant", tenant)
			if err := status(call(tenant, req)); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", tenant, err)
			}
		}
		var calls sync.WaitGroup
		for tenant, n := range map[string]int{"gold": 700, "silver": 400, "iron": 400} {
			for range n {
				calls.Go(func() { send(ctx, tenant) })
			}
		}
		time.Sleep(10*time.Second + time.Millisecond)
		began := time.Now()
		all(t, 3, func(int) error { send(ctx, "zinc"); return nil })
		if took := time.Since(began); took > 180*time.Millisecond {
			t.Errorf("a tenant with three calls waited for %v", took)
		}
		cancel()
		calls.Wait()
		ledger := upstream.Ledger()
		for second := range 10 {
			from := time.Duration(second)*time.Second + time.Nanosecond
			part := ledger.Between(from, from+time.Second)
			for tenant, share := range map[string]float64{"gold": 4. / 7, "silver": 2. / 7, "iron": 1. / 7} {
				got := len(part.Where(func(a throttletest.Arrival) bool { return a.Client == tenant }))
				if want := share * 100; math.Abs(float64(got)-want) > 3 {
					t.Errorf("second %d: %s got %d calls, want %.0f", second, tenant, got, want)
				}
			}
		}
		if n := ledger.Tally().Throttled; n > 0 {
			t.Errorf("%d calls were throttled", n)
		}
	})
}
