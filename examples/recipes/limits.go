// Package recipes holds ordinary programs, each as short as a reader would write it. Copy what you need, and
// leave Base out, which stands for the network in the tests: they run each program for seconds to hours of
// virtual time and look at what the upstream saw.
package recipes

import (
	"net/http"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/go-throttle/throttle"
)

// TenASecond keeps all calls of a client at 10 a second.
func TenASecond(base http.RoundTripper) *http.Client {
	return &http.Client{Transport: &throttle.Transport{
		Base:    base,
		Limiter: throttle.NewBucket(10, 1),
	}}
}

// TenASecondThousandAnHour keeps two limits at once. Calls go at 10 a second until the hour is used up.
func TenASecondThousandAnHour(base http.RoundTripper) *http.Client {
	return &http.Client{Transport: &throttle.Transport{
		Base:    base,
		Limiter: throttle.All(throttle.NewBucket(10, 1), throttle.NewSlidingWindow(1000, time.Hour)),
	}}
}

// FromYAML reads the limit of each host from a file:
//
//	limits:
//	  api.example.com: 10/s, 1000/h sliding
//	  www.example.com: 5/s even
//
// A host that is not in the file has no limit.
func FromYAML(base http.RoundTripper, file []byte) (*http.Client, error) {
	var config struct{ Limits map[string]throttle.Limit }
	if err := yaml.Unmarshal(file, &config); err != nil {
		return nil, err
	}
	return &http.Client{Transport: &throttle.Transport{
		Base:       base,
		LimiterFor: func(host string) throttle.Limiter { return config.Limits[host].New() },
	}}, nil
}

// EachAPIKey gives each X-Api-Key of a host 10 calls a second.
func EachAPIKey(base http.RoundTripper) *http.Client {
	return &http.Client{Transport: &throttle.Transport{
		Base:       base,
		Key:        throttle.ByHeader("X-Api-Key"),
		LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(10, 1) },
	}}
}
