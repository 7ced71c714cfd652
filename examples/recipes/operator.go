package recipes

import (
	"context"
	"net/http"
	"time"

	"github.com/go-throttle/throttle"
)

// Work makes calls until ctx ends, say because of a signal. Those in line then have ten seconds; what is left
// after that fails with ErrClosed.
func Work(ctx context.Context, base http.RoundTripper, calls []*http.Request, done func(*http.Response, error)) error {
	t := &throttle.Transport{Base: base, Limiter: throttle.NewBucket(10, 1)}
	client := &http.Client{Transport: t}
	for _, req := range calls {
		go func() { done(client.Do(req)) }()
	}
	<-ctx.Done()
	end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return t.Shutdown(end)
}

// Admin returns a client, and a handler for whoever runs the program: PUT /limit?limit=20/s, POST /pause?for=1m
// and POST /resume. Calls that wait feel each of them at once.
func Admin(base http.RoundTripper, limit *throttle.LimiterVar) (*http.Client, http.Handler) {
	t := &throttle.Transport{Base: base, Limiter: limit}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /limit", func(w http.ResponseWriter, r *http.Request) {
		if l, err := throttle.ParseLimit(r.FormValue("limit")); fine(w, err) {
			limit.Set(l)
		}
	})
	mux.HandleFunc("POST /pause", func(w http.ResponseWriter, r *http.Request) {
		if d, err := time.ParseDuration(r.FormValue("for")); fine(w, err) {
			t.Pause("", d)
		}
	})
	mux.HandleFunc("POST /resume", func(http.ResponseWriter, *http.Request) { t.Resume("") })
	return &http.Client{Transport: t}, mux
}

// fine reports whether there is no error, and answers with one otherwise.
func fine(w http.ResponseWriter, err error) bool {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return err == nil
}
