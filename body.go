package throttle

import (
	"bytes"
	"io"
	"sync"
	"time"
)

const (
	keepBytes = 16 << 10               // the most that keep reads of a body
	keepTime  = 100 * time.Millisecond // the longest that keep waits for it
)

// A slotBody is a body that holds an in-flight slot until it is closed, or a Read fails or finds its end.
type slotBody struct {
	io.ReadCloser
	ended func() // gives the slot back; further calls do nothing
}

// Read implements io.Reader.
func (b *slotBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.ended()
	}
	return n, err
}

// Close implements io.Closer. It gives the slot back after the body's own Close.
func (b *slotBody) Close() error {
	defer b.ended()
	return b.ReadCloser.Close()
}

// A keptBody is a body whose beginning was read ahead, or still is: the reading goroutine owns buf and
// err until it closes ahead. Close ends that reading, because it closes the body below.
type keptBody struct {
	body  io.ReadCloser
	ahead chan struct{} // closed when reading ahead has ended
	buf   bytes.Buffer  // what was read ahead and not yet handed out
	err   error         // what ended the reading ahead; nil: there is more in body

	once   sync.Once // closes body: at its end, when the response is dropped, or when the caller closes it
	closed error     // what closing body returned
}

// read reads ahead. One byte more than keepBytes tells a longer body from one of just that length.
func (k *keptBody) read() {
	defer close(k.ahead)
	if _, k.err = io.CopyN(&k.buf, k.body, keepBytes); k.err != nil {
		return
	}
	var more [1]byte
	n, err := k.body.Read(more[:])
	k.buf.Write(more[:n])
	k.err = err
}

// Read hands out what was read ahead, then what ended that, or the rest of the body.
func (k *keptBody) Read(p []byte) (int, error) {
	<-k.ahead
	switch {
	case k.buf.Len() > 0:
		return k.buf.Read(p)
	case k.err != nil:
		return 0, k.err
	}
	return k.body.Read(p)
}

// Close closes the body below once, whoever asks first, and returns what that returned.
func (k *keptBody) Close() error {
	k.once.Do(func() { k.closed = k.body.Close() })
	return k.closed
}
