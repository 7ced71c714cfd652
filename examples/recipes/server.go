package recipes

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/go-throttle/throttle"
)

// Serve serves what handler makes of a throttled client until ctx ends, say because of a signal, and then ends both within
// ten seconds. The server goes first: no new requests come, and the handlers that run may still call. One after the other would
// not do, because the handlers wait in the Transport's line for as long as they are let. So after nine seconds the Transport
// is shut down beside it, and the contexts of requests end: calls in line fail at once, calls under way that were made
// with the request's context are cancelled, and each handler has a second to answer.
func Serve(ctx context.Context, l net.Listener, t *throttle.Transport, handler func(*http.Client) http.Handler) error {
	requests, stop := context.WithCancel(context.Background())
	defer stop()
	server := &http.Server{Handler: handler(&http.Client{Transport: t}), BaseContext: func(net.Listener) context.Context { return requests }}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	return end(server, t, stop)
}

// end shuts both down.
func end(server *http.Server, t *throttle.Transport, stop func()) error {
	within, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	line, cancelLine := context.WithTimeout(within, 9*time.Second)
	defer cancelLine()
	answered := make(chan error, 1)
	go func() { answered <- server.Shutdown(within) }()
	select {
	case err := <-answered:
		return errors.Join(err, t.Shutdown(line)) // of calls that no request has asked for
	case <-line.Done():
		err := t.Shutdown(line)
		stop()
		return errors.Join(<-answered, err)
	}
}
