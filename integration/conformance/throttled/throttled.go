// Package throttled puts a throttle.Transport under the code of another project while the
// tests of that project run. The environment says how the Transport is configured.
package throttled

import (
	"fmt"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"sync"

	"github.com/go-throttle/throttle"
)

// The environment of a test binary. An unset number is 0.
const (
	EnvInFlight = "THROTTLED_MAX_IN_FLIGHT" // Queue.MaxInFlight
	EnvReport   = "THROTTLED_REPORT"        // file for response bodies that are closed twice; unset: they are not looked for
	EnvPlant    = "THROTTLED_PLANT"         // the defect to add, one of the Plant constants; unset: none
)

// made holds the Transport of each base, so that all calls over one base share it.
var made sync.Map

// Over returns a Transport whose Base is base; nil means http.DefaultTransport. The same
// base always gets the same Transport, unless its type is not comparable. A base that Over
// has returned is returned as it is. Safe for concurrent use.
func Over(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	switch base.(type) {
	case *throttle.Transport, *above:
		return base
	}
	if !reflect.TypeOf(base).Comparable() {
		return over(base)
	}
	t, ok := made.Load(base)
	if !ok {
		t, _ = made.LoadOrStore(base, over(base))
	}
	return t.(http.RoundTripper)
}

// Client returns a copy of c that sends through Over(c.Transport).
func Client(c *http.Client) *http.Client {
	copied := *c
	copied.Transport = Over(c.Transport)
	return &copied
}

func over(base http.RoundTripper) http.RoundTripper {
	plant, watch := os.Getenv(EnvPlant), os.Getenv(EnvReport) != ""
	if watch {
		base = below{base}
	}
	t := &throttle.Transport{Base: plantBelow(plant, base), Retry: throttle.Retry{MaxAttempts: 4}}
	t.Queue.MaxInFlight = number(EnvInFlight)
	if !watch && plant == "" {
		return t
	}
	return &above{plantAbove(plant, t), t}
}

func number(name string) int {
	s := os.Getenv(name)
	if s == "" {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", name, err))
	}
	return n
}
