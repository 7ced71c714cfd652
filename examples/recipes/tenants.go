package recipes

import (
	"net/http"

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
