package browser

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/go-throttle/throttle"
)

// patience is how long a test waits for something that must come. It comes within a second or two on an idle machine.
const patience = 3 * time.Minute

// find returns the browser's program.
func find(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("THROTTLE_REQUIRE_SERVERS") == "1" {
		t.Fatal("Chromium is missing")
	}
	t.Skip("skipped: no chromium")
	return ""
}

// open starts a browser with one tab, in which nothing may go wrong: an exception, or an error in the log such as a
// violation of the Content-Security-Policy, fails the test unless it contains one of the allowed texts.
func open(t *testing.T, allowed ...string) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(find(t)), chromedp.NoSandbox,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(patience))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 2*patience)
	t.Cleanup(cancel)
	quietly := func(string, ...any) {} // the driver knows not all events of a newer browser
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithErrorf(quietly), chromedp.WithLogf(quietly))
	t.Cleanup(cancel)
	wrong := func(text string) {
		for _, a := range allowed {
			if strings.Contains(text, a) {
				return
			}
		}
		t.Errorf("the browser says: %s", text)
	}
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			wrong(e.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError {
				wrong(e.Entry.Text + " " + e.Entry.URL)
			}
		}
	})
	do(t, ctx, log.Enable())
	return ctx
}

// do runs actions in the tab.
func do(t *testing.T, tab context.Context, actions ...chromedp.Action) {
	t.Helper()
	if err := chromedp.Run(tab, actions...); err != nil {
		t.Fatal(err)
	}
}

// eval returns the value of an expression.
func eval[T any](t *testing.T, tab context.Context, expression string) (v T) {
	t.Helper()
	do(t, tab, chromedp.Evaluate(expression, &v))
	return v
}

// until waits until an expression is true. While a page is being left or made there is nothing to ask, which is not an
// error.
func until(t *testing.T, tab context.Context, expression string) {
	t.Helper()
	var ok bool
	var err error
	for start := time.Now(); time.Since(start) < patience && tab.Err() == nil; time.Sleep(50 * time.Millisecond) {
		if err = chromedp.Run(tab, chromedp.Evaluate("Boolean("+expression+")", &ok)); err == nil && ok {
			return
		}
	}
	var text string
	chromedp.Run(tab, chromedp.Evaluate(`document.body.innerText`, &text))
	t.Fatalf("waited for %s: %v; the page says:\n%s", expression, err, text)
}

// visit opens an address and waits for the first event.
func visit(t *testing.T, tab context.Context, url string) {
	t.Helper()
	do(t, tab, chromedp.Navigate(url))
	until(t, tab, `Number(document.documentElement.dataset.ticks) >= 1`)
}

// an upstream answers without a socket. Its status can be changed.
type upstream struct {
	mu     sync.Mutex
	status int
	header http.Header
}

func (u *upstream) set(status int, header http.Header) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.status, u.header = status, header
}

func (u *upstream) RoundTrip(req *http.Request) (*http.Response, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	status := u.status
	if status == 0 {
		status = http.StatusOK
	}
	return &http.Response{StatusCode: status, Header: u.header.Clone(), Body: http.NoBody, Request: req}, nil
}

// byHeader is the key of a request: whatever stands in its header.
func byHeader(req *http.Request) string { return req.Header.Get("Key") }

// call makes n calls of a key, one after the other.
func call(t *testing.T, tr *throttle.Transport, key string, n int) {
	t.Helper()
	for range n {
		if err := try(t.Context(), tr, key); err != nil {
			t.Error(err)
		}
	}
}

// try makes one call.
func try(ctx context.Context, tr *throttle.Transport, key string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/", nil)
	if err != nil {
		return err
	}
	req.Header["Key"] = []string{key}
	resp, err := tr.RoundTrip(req)
	if err == nil {
		resp.Body.Close()
	}
	return err
}

// stats returns what a Transport says of a key.
func stats(tr *throttle.Transport, key string) (found throttle.KeyStats) {
	for s := range tr.Stats() {
		if s.Key == key {
			found = s
		}
	}
	return found
}

// serve mounts a handler below a prefix, as programs do, and returns the address of the page.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/debug/throttle/", http.StripPrefix("/debug/throttle", h))
	s := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL + "/debug/throttle/"
}

// awaited lets an expression be a promise.
func awaited(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
