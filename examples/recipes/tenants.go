package recipes

import (
	"net/http"
	"strings"

	"github.com/go-throttle/throttle"
)

// Tenants returns a function that makes a tenant's calls to an API with one limit for all of them. Tenants that
// wait share it by weight: gold gets four times as much as those who are not named. One that floods the line
// delays itself alone.
func Tenants(base http.RoundTripper) (call func(tenant string, req *http.Request) (*http.Response, error)) {
	weights := map[string]float64{"gold": 4, "silver": 2} // others have 1
	client := &http.Client{Transport: &throttle.Transport{
		Base:    base,
		Limiter: throttle.NewBucket(100, 1),
		Queue:   throttle.QueueOptions{Weight: func(tenant string) float64 { return weights[tenant] }},
	}}
	return func(tenant string, req *http.Request) (*http.Response, error) {
		return client.Do(req.WithContext(throttle.WithFlow(req.Context(), tenant)))
	}
}

// Plans gives each tenant a limit of its own by its plan, as in "pro: 50/s burst 100". LimiterFor sees a key alone, so the key
// says the plan too: a tenant whose plan changes gets another key, and the new limit at once. plan says whose request it
// is; a plan that has no limit in plans counts as "free".
func Plans(base http.RoundTripper, plans map[string]throttle.Limit, plan func(*http.Request) (plan, tenant string)) *http.Client {
	return &http.Client{Transport: &throttle.Transport{
		Base: base,
		Key: func(req *http.Request) string {
			plan, tenant := plan(req)
			if plans[plan].IsZero() {
				plan = "free"
			}
			return plan + "/" + tenant
		},
		LimiterFor: func(key string) throttle.Limiter {
			plan, _, _ := strings.Cut(key, "/")
			return plans[plan].New()
		},
	}}
}
