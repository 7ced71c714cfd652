package body

import (
	"errors"
	"io"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A source is a body that yields size bytes, pace apart, then end; nil: it blocks until it is closed, or for ever.
type source struct {
	size  int
	pace  time.Duration
	end   error
	deaf  bool // Close does not end a Read
	close func() error

	closed *atomic.Int32
	done   chan struct{}
}

func (s *source) Read(p []byte) (int, error) {
	if time.Sleep(s.pace); s.size > 0 {
		if s.pace > 0 {
			p = p[:1]
		}
		n := min(s.size, len(p))
		s.size -= n
		return n, nil
	}
	switch {
	case s.end != nil:
		return 0, s.end
	case s.deaf:
		select {}
	}
	<-s.done
	return 0, io.ErrClosedPipe
}

func (s *source) Close() error {
	if s.closed.Add(1) == 1 {
		close(s.done)
	}
	if s.close != nil {
		return s.close()
	}
	return nil
}

// TestKeep: whatever a body is like, it is closed once before Keep returns, or is being closed, and what was read of it, 16 KiB at
// most in 100 ms, is there, with the reason why it ends.
func TestKeep(t *testing.T) {
	const ms = time.Millisecond
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		source
		bytes int
		err   error // after the bytes; nil: io.EOF
		took  time.Duration
	}{
		"empty":                   {source: source{end: io.EOF}},
		"1 byte":                  {source: source{size: 1, end: io.EOF}, bytes: 1},
		"16 KiB":                  {source: source{size: keepBytes, end: io.EOF}, bytes: keepBytes},
		"16 KiB, then nothing":    {source: source{size: keepBytes}, bytes: keepBytes, err: ErrCut, took: keepTime},
		"16 KiB + 1":              {source: source{size: keepBytes + 1, end: io.EOF}, bytes: keepBytes, err: ErrCut},
		"10 MB":                   {source: source{size: 10e6, end: io.EOF}, bytes: keepBytes, err: ErrCut},
		"slow":                    {source: source{size: 100, pace: 21 * ms, end: io.EOF}, bytes: 4, err: ErrCut, took: keepTime},
		"slow, and in time":       {source: source{size: 3, pace: 20 * ms, end: io.EOF}, bytes: 3, took: 80 * ms},
		"cut":                     {source: source{size: 10, end: io.ErrUnexpectedEOF}, bytes: 10, err: io.ErrUnexpectedEOF},
		"endless":                 {source: source{size: math.MaxInt}, bytes: keepBytes, err: ErrCut},
		"blocks until Close":      {source: source{}, err: ErrCut, took: keepTime},
		"Close fails":             {source: source{size: 1, end: io.EOF, close: func() error { return broken }}, bytes: 1},
		"Close blocks":            {source: source{size: 1, end: io.EOF, close: func() error { time.Sleep(time.Hour); return nil }}, bytes: 1, took: keepTime},
		"Read and Close block":    {source: source{close: func() error { time.Sleep(time.Hour); return nil }}, err: ErrCut, took: 2 * keepTime},
		"bytes after it was over": {source: source{size: 2, pace: 60 * ms, end: io.EOF, deaf: true}, bytes: 1, err: ErrCut, took: keepTime},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, begun := &c.source, time.Now()
			s.done, s.closed = make(chan struct{}), new(atomic.Int32)
			k := Keep(s, 0)
			if took := time.Since(begun); took != c.took {
				t.Errorf("%s: it took %v, want %v", name, took, c.took)
			}
			got, err := io.ReadAll(k)
			if len(got) != c.bytes || err != c.err {
				t.Errorf("%s: %d bytes and %v, want %d and %v", name, len(got), err, c.bytes, c.err)
			}
			want := c.err
			if want == nil {
				want = io.EOF
			}
			if n, err := k.Read(make([]byte, 1)); n != 0 || err != want {
				t.Errorf("%s: after the end %d, %v", name, n, err)
			}
			if err := k.Close(); err != nil || s.closed.Load() != 1 {
				t.Errorf("%s: %v, closed %d times", name, err, s.closed.Load())
			}
			time.Sleep(2 * time.Hour) // all goroutines have to end
		})
	}
}

// TestKeepPanics: what panics in a body reaches who keeps it, who has begun no goroutine himself.
func TestKeepPanics(t *testing.T) {
	for _, s := range []io.ReadCloser{
		struct {
			io.Reader
			io.Closer
		}{}, // panics in Read
		&source{end: io.EOF, close: func() error { panic("close") }, done: make(chan struct{}), closed: new(atomic.Int32)},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%T: no panic", s)
				}
			}()
			Keep(s, 0)
		}()
	}
}
