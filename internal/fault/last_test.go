package fault

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"
)

// TestLast: it explains an error by the newest of its kind, as long as no call has begun or ended otherwise since.
func TestLast(t *testing.T) {
	ours := &net.OpError{Op: "wait", Err: errors.New("no turn")}
	mute := errors.New("canceled")
	for name, c := range map[string]struct {
		noted []error
		err   error
		want  string
	}{
		"nothing was noted":     {nil, mute, "canceled"},
		"ours":                  {[]error{ours}, mute, "canceled: wait: no turn"},
		"ours, wrapped":         {[]error{&url.Error{Op: "Get", URL: "x", Err: ours}}, mute, "canceled: wait: no turn"},
		"a call has begun":      {[]error{ours, nil}, mute, "canceled"},
		"another kind":          {[]error{ours, mute}, mute, "canceled"},
		"it has one":            {[]error{ours}, fmt.Errorf("sdk: %w", ours), "sdk: wait: no turn"},
		"it has another of one": {[]error{ours}, &net.OpError{Op: "read", Err: mute}, "read: canceled"},
		"no error":              {[]error{ours}, nil, "<nil>"},
	} {
		l := new(Last[*net.OpError])
		for _, err := range c.noted {
			if got := l.Note(err); got != err {
				t.Errorf("%s: Note returned %v", name, got)
			}
		}
		if got := l.Explain(c.err); fmt.Sprint(got) != c.want || !errors.Is(got, c.err) {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
	if got := (*Last[*net.OpError])(nil).Note(mute); got != mute {
		t.Errorf("a nil Last returned %v", got)
	}
}
