// Package body is what stands around the body of a response: it sees it pass, and changes no byte of it.
//
//	kept.go  the beginning is read ahead, so that the connection can be used for a retry
//	slot.go  something is given back at the end, such as an in-flight slot
//	tab.go   what the body says it has cost settles what was held for it
//	bill.go  the same by hand
//
// Wrappers are put around each other in any order. Each closes what is below it once for each Close of its own, and none
// starts a goroutine but Keep, whose goroutine ends with the reading.
package body

import (
	"bytes"
	"io"
	"sync"
	"time"
)

const (
	keepBytes = 16 << 10               // the most that Keep reads of a body
	keepTime  = 100 * time.Millisecond // the longest that Keep waits for it
)

// Keep reads a body ahead that is handed out only if no later attempt gets a better one, so that its connection can be used
// meanwhile. It reads keepBytes within keepTime. A longer or slower body stays open; the reader of what Keep returns gets
// what was read ahead and then the rest.
//
// An example: a 503 with a page of 2 KiB is read and closed at once. The retry uses its connection, and if that fails too,
// the caller of the last one reads the page from memory.
func Keep(body io.ReadCloser) io.ReadCloser {
	k := &kept{body: body, ahead: make(chan struct{})}
	go k.read()
	timer := time.NewTimer(keepTime)
	defer timer.Stop()
	select {
	case <-k.ahead:
		if k.err == io.EOF {
			k.Close()
		}
	case <-timer.C:
	}
	return k
}

// A kept is a body whose beginning was read ahead, or still is: the reading goroutine owns buf and err until it closes ahead.
// Close ends that reading, because it closes the body below.
type kept struct {
	body  io.ReadCloser
	ahead chan struct{} // closed when reading ahead has ended
	buf   bytes.Buffer  // what was read ahead and not yet handed out
	err   error         // what ended the reading ahead; nil: there is more in body

	once   sync.Once // closes body: at its end, when the response is dropped, or when the caller closes it
	closed error     // what closing body returned
}

// read reads ahead. One byte more than keepBytes tells a longer body from one of just that length.
func (k *kept) read() {
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
func (k *kept) Read(p []byte) (int, error) {
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
func (k *kept) Close() error {
	k.once.Do(func() { k.closed = k.body.Close() })
	return k.closed
}
