package recipes

import (
	"context"
	"net/http"

	"github.com/go-throttle/throttle"
)

// A streamed call is one with this in its context.
type streamed struct{}

// Streams returns two ways to call one API: for ordinary calls, and for answers that take minutes or hours to read, such
// as server-sent events, long polls or a language model's streams. An answer holds one of four slots until its body
// is closed, so streams have a key of their own, with four slots of its own. The limit is one for both.
func Streams(base http.RoundTripper) (call, stream func(*http.Request) (*http.Response, error)) {
	key := func(req *http.Request) string {
		if req.Context().Value(streamed{}) != nil {
			return throttle.ByHost(req) + " streams"
		}
		return throttle.ByHost(req)
	}
	client := &http.Client{Transport: &throttle.Transport{
		Base: base, Key: key, Limiter: throttle.NewBucket(10, 1), Queue: throttle.QueueOptions{MaxInFlight: 4},
	}} // no Timeout: it would end the streams
	return client.Do, func(req *http.Request) (*http.Response, error) {
		return client.Do(req.WithContext(context.WithValue(req.Context(), streamed{}, true)))
	}
}
