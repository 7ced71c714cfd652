package body

import (
	"context"
	"io"
	"sync"
)

// Until returns a body that calls ended when it is closed, a Read fails or finds its end, or ctx ends: once, whichever is
// first. Close calls it after the body's own Close.
//
// An example: a call holds one of two slots. Its caller reads the body to the end and closes it a second later; the slot is
// free from the last Read on.
func Until(ctx context.Context, body io.ReadCloser, ended func()) io.ReadCloser {
	ended = sync.OnceFunc(ended)
	stop := context.AfterFunc(ctx, ended)
	return &until{body, func() { stop(); ended() }}
}

// An until is the body that Until returns.
type until struct {
	io.ReadCloser
	ended func() // further calls do nothing
}

// Read implements io.Reader.
func (b *until) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.ended()
	}
	return n, err
}

// Close implements io.Closer.
func (b *until) Close() error {
	defer b.ended()
	return b.ReadCloser.Close()
}
