package throttle

import (
	"bytes"
	"io"
	"sync"
	"time"
)

const (
	keepBytes = 16 << 10               // of a body are read ahead, so that its connection is free
	keepTime  = 100 * time.Millisecond // and for so long
)

// slotBody is a body that holds an in-flight slot.
type slotBody struct {
	io.ReadCloser
	ended func()
}

func (b *slotBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.ended()
	}
	return n, err
}

func (b *slotBody) Close() error {
	defer b.ended()
	return b.ReadCloser.Close()
}

// keptBody is a body of which the beginning has been, or is being, read ahead.
type keptBody struct {
	body  io.ReadCloser
	ahead chan struct{} // closed when buf and err are there
	buf   bytes.Buffer
	err   error // what ended the reading ahead; nil: there was more

	once   sync.Once // closes body: at its end, when the answer is dropped, or when its caller closes it
	closed error     // what Close has returned
}

func (k *keptBody) read() {
	defer close(k.ahead)
	if _, k.err = io.CopyN(&k.buf, k.body, keepBytes); k.err != nil {
		return
	}
	var more [1]byte // tells a body of just that length from a longer one
	n, err := k.body.Read(more[:])
	k.buf.Write(more[:n])
	k.err = err
}

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

func (k *keptBody) Close() error {
	k.once.Do(func() { k.closed = k.body.Close() })
	return k.closed
}
