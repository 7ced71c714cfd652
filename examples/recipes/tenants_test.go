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

	"github.com/go-throttle/throttle"
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

// TestPlans: tenants of two plans, an unknown one and one without a limit keep to what their plan says, each by itself. One
// that is moved to another plan has its limit from the next call on.
func TestPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := throttletest.NewServer()
		plans := make(map[string]throttle.Limit)
		for plan, text := range map[string]string{"free": "1/s", "pro": "10/s", "own": "unlimited"} {
			var l throttle.Limit
			if err := l.UnmarshalText([]byte(text)); err != nil {
				t.Fatal(err)
			}
			plans[plan] = l
		}
		of := map[string]string{"ann": "free", "bob": "free", "cy": "pro", "di": "own", "ed": "beta"}
		client := Plans(upstream, plans, func(req *http.Request) (plan, tenant string) {
			tenant = req.Header.Get("Tenant")
			return of[tenant], tenant
		})
		twentyOne := func(tenant string) time.Duration {
			return all(t, 21, func(int) error {
				req := get(t, "http://api.test/")
				req.Header.Set("Tenant", tenant)
				return status(client.Do(req))
			})
		}
		want := map[string]time.Duration{"ann": 20 * time.Second, "bob": 20 * time.Second, "cy": 2 * time.Second, "di": 0, "ed": 20 * time.Second}
		var calls sync.WaitGroup
		for tenant, want := range want {
			calls.Go(func() {
				if took := twentyOne(tenant); took != want {
					t.Errorf("21 calls of %s took %v, want %v", tenant, took, want)
				}
			})
		}
		calls.Wait()
		of["ann"] = "pro"
		if took := twentyOne("ann"); took != 2*time.Second {
			t.Errorf("21 calls took %v after a change to pro, want 2s", took)
		}
	})
}
