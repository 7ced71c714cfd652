package recipes

import (
	"bufio"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/throttletest"
)

// TestStreams: while four streams are read, which takes an hour, 200 ordinary calls go at the limit. A fifth stream waits
// until one of the four ends. The API is never called more often than it allows.
func TestStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := throttletest.NewServer(perSecond(10))
		call, stream := Streams(roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := upstream.RoundTrip(req)
			if err == nil && req.URL.Path == "/events" {
				resp.Body, resp.ContentLength = events(), -1
			}
			return resp, err
		}))
		read := make(chan time.Duration, 5) // how long after the start each stream has ended
		start := time.Now()
		for range 5 {
			go func() {
				resp, err := stream(get(t, "http://api.test/events"))
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				n := 0
				for lines := bufio.NewScanner(resp.Body); lines.Scan(); n++ {
				}
				if n != 60 {
					t.Errorf("%d events, want 60", n)
				}
				read <- time.Since(start)
			}()
		}
		time.Sleep(time.Second)
		if took := all(t, 200, func(int) error { return status(call(get(t, "http://api.test/"))) }); took > 20*time.Second {
			t.Errorf("200 ordinary calls beside the streams took %v, want 20s", took)
		}
		for i := range 5 {
			if ended, want := (<-read).Truncate(time.Hour), []time.Duration{1, 1, 1, 1, 2}[i]*time.Hour; ended != want {
				t.Errorf("stream %d ended after %v, want %v", i, ended, want)
			}
		}
		none(t, upstream, 205)
	})
}

// events is a body of one event a minute, for an hour.
func events() io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		for range 60 {
			time.Sleep(time.Minute)
			io.WriteString(w, "data: {}\n") // an error: the reader has gone
		}
		w.Close()
	}()
	return r
}
