package scenario

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-throttle/throttle/bench/client"
)

func TestMain(m *testing.M) {
	ServeVirtual()
	os.Exit(m.Run())
}

// A process of its own brings home the same result as a bubble in this one.
func TestVirtualProcess(t *testing.T) {
	s := All()[0]
	o := Options{Seed: 1, Short: true}
	r, err := Virtual(t.Context(), s, Oracle(), o)
	if err != nil {
		t.Fatal(err)
	}
	here, err := InBubble(t, s, Oracle(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Values["delivered"] != 100 || r.Values["time"] != here.Values["time"] || !slices.Equal(r.Traffic.Accepted, here.Traffic.Accepted) {
		t.Errorf("%v\n%v", r, here)
	}
	if _, err := Virtual(t.Context(), s, client.Client{Name: "nobody", Bubble: true}, o); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Error("no error of an unknown client:", err)
	}
}
