package hint

import (
	"net/http"
	"reflect"
	"testing"
	"time"
)

// Whatever the fields are, Silent promises that Parse has nothing to say.
func TestSilent(t *testing.T) {
	for _, c := range []struct {
		status int
		field  string
		want   bool
	}{
		{200, "", true},
		{204, "Content-Type", true},
		{200, "Retry-After", true}, // it orders nobody to wait here
		{200, "X-Ratelimit-Remaining", false},
		{200, "Ratelimit", false},
		{302, "", false},
		{429, "", false},
		{500, "", false},
	} {
		resp := &http.Response{StatusCode: c.status, Header: http.Header{}}
		if c.field != "" {
			resp.Header.Set(c.field, "5")
		}
		if got := Silent(resp); got != c.want {
			t.Errorf("%d with %q: %v, want %v", c.status, c.field, got, c.want)
		}
		if Silent(resp) && !reflect.DeepEqual(Parse(resp, time.Now()), Hint{}) {
			t.Errorf("%d with %q: silent, but Parse says %+v", c.status, c.field, Parse(resp, time.Now()))
		}
	}
}
