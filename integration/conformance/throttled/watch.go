package throttled

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"github.com/go-throttle/throttle"
)

// below stands between the Transport and its base. It reports a response body that is closed
// twice, whether the Transport has handed the response out or dropped it.
type below struct{ base http.RoundTripper }

func (b below) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.base.RoundTrip(req)
	if resp == nil {
		return resp, err
	}
	what := fmt.Sprintf("%s %s: %s", req.Method, req.URL, resp.Status)
	var closed atomic.Int32
	onClose(resp, func(next func() error) error {
		if closed.Add(1) == 2 {
			report("a response body was closed twice: " + what)
		}
		return next()
	})
	return resp, err
}

// above stands between the suite's code and the Transport. It passes on only the first
// Close of a response body, so that a second one that below sees is the Transport's.
type above struct {
	http.RoundTripper
	t *throttle.Transport
}

func (a *above) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := a.RoundTripper.RoundTrip(req)
	if resp == nil {
		return resp, err
	}
	var once sync.Once
	onClose(resp, func(next func() error) (err error) {
		once.Do(func() { err = next() })
		return err
	})
	return resp, err
}

// CloseIdleConnections is there for http.Client.CloseIdleConnections.
func (a *above) CloseIdleConnections() { a.t.CloseIdleConnections() }

// closer is a body that is closed through close.
type closer struct {
	io.ReadCloser
	close func(next func() error) error
}

func (c *closer) Close() error { return c.close(c.ReadCloser.Close) }

// onClose makes close be called in place of the Close of resp's body, which is its argument.
// The body of a 101 response stays as it is: it is a connection, with methods of its own.
func onClose(resp *http.Response, close func(next func() error) error) {
	if resp.Body == nil || resp.Body == http.NoBody || resp.StatusCode == http.StatusSwitchingProtocols {
		return
	}
	resp.Body = &closer{resp.Body, close}
}

var reporting sync.Mutex

// report appends a line to the file that EnvReport names.
func report(line string) {
	reporting.Lock()
	defer reporting.Unlock()
	f, err := os.OpenFile(os.Getenv(EnvReport), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, line); err != nil {
		panic(err)
	}
}
