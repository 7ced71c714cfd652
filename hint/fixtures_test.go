package hint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// fixture is one case of testdata/ratelimit-headers.json: a response, recorded or made up, and what Parse
// should read from it.
type fixture struct {
	Name, Class string
	SolvableBy  string `json:"solvable_by"`
	Host        string
	Source      string
	Values      string
	Status      int
	Header      map[string][]string
	Body        string
	NeedsBody   bool `json:"needs_body"`
	Now         time.Time
	NowIs       string   `json:"now_is"`
	Tolerance   *float64 `json:"tolerance_seconds"`
	Expect      map[string]any
	ExpectAny   []map[string]any `json:"expect_any"`
	Note        string
}

func loadFixtures(t testing.TB) []fixture {
	t.Helper()
	b, err := os.ReadFile("testdata/ratelimit-headers.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []fixture
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

func (f *fixture) response() *http.Response {
	resp := &http.Response{StatusCode: f.Status, Header: http.Header{}, ContentLength: -1}
	for name, lines := range f.Header {
		for _, l := range lines {
			resp.Header.Add(name, l)
		}
	}
	if f.Host != "" {
		resp.Request = &http.Request{URL: &url.URL{Scheme: "https", Host: f.Host}}
	}
	resp.Body = io.NopCloser(strings.NewReader(f.Body))
	return resp
}

// judge returns what is wrong with h; "" if nothing is.
func (f *fixture) judge(h Hint, expect map[string]any) string {
	first := unset
	if len(h.Quotas) > 0 {
		first = h.Quotas[0]
	}
	if name, ok := expect["policy"].(string); ok {
		found := false
		for _, q := range h.Quotas {
			if q.Name == name {
				first, found = q, true
				break
			}
		}
		if !found {
			return fmt.Sprintf("no quota is called %q", name)
		}
	}
	for key, want := range expect {
		bad := ""
		switch key {
		case "throttled":
			if h.Throttled != want {
				bad = fmt.Sprint(h.Throttled)
			}
		case "retry_after_seconds":
			got := any(h.RetryAfter)
			if h.RetryAfter == 0 {
				got = nil
			}
			bad = f.span(got, want)
		case "retry_after_min_seconds":
			if h.RetryAfter.Seconds() < want.(float64) {
				bad = fmt.Sprint(h.RetryAfter)
			}
		case "policies":
			for _, p := range want.([]any) {
				if miss := f.find(h.Quotas, p.(map[string]any)); miss != "" {
					bad = miss
				}
			}
		default:
			bad = f.part(first, key, want)
		}
		if bad != "" {
			return fmt.Sprintf("%s: got %s, want %v", key, bad, want)
		}
	}
	return ""
}

func (f *fixture) find(quotas []Quota, want map[string]any) string {
	for _, q := range quotas {
		bad := ""
		for key, v := range want {
			bad += f.part(q, key, v)
		}
		if bad == "" {
			return ""
		}
	}
	return fmt.Sprintf("no quota like %v", want)
}

// part returns what is wrong with one member of a quota; "" if nothing is. An unknown key is an error, so
// that no expectation is skipped.
func (f *fixture) part(q Quota, key string, want any) string {
	known := func(v any, is bool) any {
		if is {
			return v
		}
		return nil
	}
	var got any
	switch key {
	case "policy":
		got = known(q.Name, q.Name != "")
	case "unit":
		got = known(q.Unit, q.Unit != "")
	case "limit":
		got = known(float64(q.Limit), q.Limit >= 0)
	case "remaining":
		got = known(float64(q.Remaining), q.Remaining >= 0)
	case "reset_after_seconds":
		return f.span(known(q.Reset, q.Reset >= 0), want)
	case "window_seconds":
		return f.span(known(q.Window, q.Window > 0), want)
	default:
		return "unknown key " + key
	}
	if got != want {
		return fmt.Sprintf("%v", got)
	}
	return ""
}

// span returns got unless it is as long as want seconds, or up to the tolerance longer.
func (f *fixture) span(got, want any) string {
	tolerance := 1.0
	if f.Tolerance != nil {
		tolerance = *f.Tolerance
	}
	d, known := got.(time.Duration)
	w, wanted := want.(float64)
	if known != wanted || known && (d.Seconds() < w-0.001 || d.Seconds() > w+tolerance) {
		return fmt.Sprint(got)
	}
	return ""
}

// keys are the names of what a case may expect.
const keys = " throttled policies policy unit limit remaining reset_after_seconds window_seconds retry_after_seconds retry_after_min_seconds "

func TestFixtures(t *testing.T) {
	all := loadFixtures(t)
	if len(all) != 71 {
		t.Errorf("%d cases, want 71", len(all))
	}
	bodies := 0
	for _, f := range all {
		t.Run(f.Name, func(t *testing.T) {
			parse := Parse
			if f.SolvableBy == "body" {
				bodies++
				parse = (&Parser{Dialects: []Dialect{{Host: f.Host, Body: true}}}).Parse
			}
			var resp *http.Response
			var h Hint
			synctest.Test(t, func(*testing.T) { // the time for a body passes there only if nothing else can be done
				resp = f.response()
				h = parse(resp, f.Now)
			})
			expects := f.ExpectAny
			if expects == nil {
				expects = []map[string]any{f.Expect}
			}
			var bad []string
			for _, e := range expects {
				if why := f.judge(h, e); why != "" {
					bad = append(bad, why)
				}
			}
			if want, ok := f.Expect["throttled"]; ok && h.Throttled != want { // even if there are alternatives
				t.Errorf("throttled: got %v, want %v", h.Throttled, want)
			}
			for _, e := range append(expects, f.Expect) {
				for key := range e {
					if !strings.Contains(keys, " "+key+" ") {
						t.Errorf("nobody judges %q", key)
					}
				}
			}
			if len(bad) == len(expects) {
				t.Errorf("%s\n%+v", strings.Join(bad, "\n"), h)
			}
			if b, err := io.ReadAll(resp.Body); err != nil || string(b) != f.Body {
				t.Errorf("the body became %q, %v", b, err)
			}
		})
	}
	if bodies != 4 {
		t.Errorf("%d cases need a body, want 4", bodies)
	}
}
