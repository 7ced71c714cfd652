// Package body is what stands around the body of a response: it sees it pass, and changes no byte of it.
//
//	kept.go  the beginning of an answer that a retry may replace
//	slot.go  something is given back at the end, such as an in-flight slot
//	tab.go   what the body says it has cost settles what was held for it
//	bill.go  the same by hand
//
// Wrappers are put around each other in any order. Each closes what is below it once for each Close of its own, and none
// starts a goroutine but Keep, whose goroutines end with the reading and the closing.
package body

import (
	"errors"
	"io"
	"sync"
	"time"
)

const (
	keepBytes = 16 << 10               // the most that Keep reads of a body
	keepTime  = 100 * time.Millisecond // the longest that it reads, and the longest that it waits for Close
	leastTime = keepTime / 10          // what remains of it, however long somebody has read before
)

// ErrCut ends a body of which only the beginning was kept.
var ErrCut = errors.New("throttle: body cut: a retry needed what it held")

// Keep reads the beginning of a body that is handed out only if no later attempt gets a better one, and closes it, so that it
// holds nothing while the retry waits: keepBytes at most, for keepTime at most, of which spent has passed. What it returns
// yields these bytes, and then what the body ended with, or ErrCut if there was more.
//
// An example: a 503 with a page of 2 KiB is read and closed at once. The retry uses its connection, and if that fails too,
// the caller of the last one reads the page from memory. Of a page of 1 MB the caller reads 16 KiB and gets ErrCut.
//
// # Races
//
//	reading, its time is over          under mu: what add is told first is the end, and no later byte is kept
//	reading, the ctx ends              net/http ends the body, and that error is what comes after the bytes
//	Read, Close                        Close may come while a Read blocks, and ends it, as with every body of net/http. A Read
//	                                   that blocks all the same leaves its goroutine behind, and nobody waits for it
//	Close blocks                       nobody waits for it for longer than keepTime. Its goroutine ends with it
//	the retry, the reader of the copy  neither begins before Keep has returned
//	Read or Close panics               its caller does, as without a goroutine; if nobody waits any more, nobody
func Keep(body io.ReadCloser, spent time.Duration) io.ReadCloser {
	k := new(kept)
	within(max(leastTime, keepTime-spent), func() { k.read(body) })
	k.add(nil, ErrCut)
	within(keepTime, func() { body.Close() })
	return k
}

// within runs f, and waits for its end, but no longer than that.
func within(most time.Duration, f func()) {
	ended, timer := make(chan any, 1), time.NewTimer(most)
	defer timer.Stop()
	go func() {
		defer func() { ended <- recover() }()
		f()
	}()
	select {
	case p := <-ended:
		if p != nil {
			panic(p)
		}
	case <-timer.C:
	}
}

// A kept is the beginning of a body. It is read from after it has ended, so only add needs mu.
type kept struct {
	mu  sync.Mutex
	buf []byte
	err error // what comes after buf; nil: it has not ended
}

// read reads until the end.
func (k *kept) read(body io.Reader) {
	p := make([]byte, 2<<10)
	for {
		n, err := body.Read(p)
		if k.add(p[:n], err) {
			return
		}
	}
}

// add adds what a Read has returned, and reports whether that, or something before it, is the end.
func (k *kept) add(p []byte, err error) (ended bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return true
	}
	if k.buf, k.err = append(k.buf, p...), err; len(k.buf) > keepBytes {
		k.buf, k.err = k.buf[:keepBytes], ErrCut
	}
	return k.err != nil
}

// Read implements io.Reader.
func (k *kept) Read(p []byte) (n int, err error) {
	if len(k.buf) == 0 {
		return 0, k.err
	}
	n = copy(p, k.buf)
	k.buf = k.buf[n:]
	return n, nil
}

// Close implements io.Closer. The body was closed before.
func (k *kept) Close() error { return nil }
