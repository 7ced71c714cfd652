package micro

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/bench/scenario"
)

// TestShort: each scenario measures what it says, of each client that fits.
func TestShort(t *testing.T) {
	for _, s := range All() {
		t.Run(s.Name, func(t *testing.T) {
			for _, c := range client.All() {
				if s.Fits != nil && !s.Fits(c) || s.Name == "waiters" && c.Name != library {
					continue // the other waiters would take half a minute
				}
				r, err := s.Run(t.Context(), c, scenario.Options{Seed: 1, Short: true})
				if err != nil || r.Failed != "" {
					t.Errorf("%s: %v %s", c.Name, err, r.Failed)
				}
				for name := range r.Values {
					if !slices.ContainsFunc(s.Metrics, func(m scenario.Metric) bool { return m.Name == name }) {
						t.Errorf("%s: no metric %q", c.Name, name)
					}
				}
				if len(r.Values) == 0 {
					t.Errorf("%s: nothing was measured", c.Name)
				}
				t.Log(c.Name, r.Values)
			}
		})
	}
}

// TestNames: the clients that are spoken of here are there.
func TestNames(t *testing.T) {
	for _, name := range []string{nothing, reference, uber, failsafe, resty, library} {
		if _, ok := client.Find(name); !ok {
			t.Errorf("no client is named %q", name)
		}
	}
}

// TestOnce keeps the tables honest: each client sends each request once.
func TestOnce(t *testing.T) {
	for _, c := range client.All() {
		base := &counter{RoundTripper: answerer{headers: true}}
		rt, err := tripper(c, base)
		if err != nil {
			t.Error(err)
			continue
		}
		if twice(rt, true)(100); base.n.Load() != 100 {
			t.Errorf("%s: %d requests reached the base, want 100", c.Name, base.n.Load())
		}
	}
}

type counter struct {
	http.RoundTripper
	n atomic.Int64
}

func (c *counter) RoundTrip(req *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.RoundTripper.RoundTrip(req)
}
