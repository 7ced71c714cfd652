package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/examples/internal/console"
)

// view shows a session while it runs. Its methods may be called from any goroutine.
type view interface {
	learned(throttle.Learned)
	throttled(status int, wait time.Duration) // the upstream asks for that wait; 0: for none
	answered(over int)                        // that many calls are over
	finish()
}

func newView(s *session, out io.Writer) view {
	if s.cfg.width == nil {
		v := &lines{session: s, out: out}
		s.shownBy(v)
		return v
	}
	v := &screen{session: s, screen: console.Screen{Out: out, Width: s.cfg.width}, stop: make(chan struct{})}
	s.shownBy(v)
	v.running.Go(v.run)
	return v
}

// lines is the view in a pipe or a file: a line when a limit is learned, for the first throttled attempt and
// every tenth after it, and for every quarter of the calls.
type lines struct {
	session *session

	mu       sync.Mutex
	out      io.Writer
	attempts int // throttled
	shown    int // quarters printed
}

func (v *lines) printf(format string, args ...any) {
	text := span(time.Since(v.session.began)) + ": " + fmt.Sprintf(format, args...)
	fmt.Fprintln(v.out, console.Fill(text, v.session.cfg.columns, "  "))
}

func (v *lines) learned(l throttle.Learned) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.printf("learned from %s: %s", word(l.Source), description(l))
}

func (v *lines) throttled(status int, wait time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.attempts++; v.attempts%10 == 1 {
		text := "asks for no wait"
		if wait > 0 {
			text = "asks for a wait of " + span(wait)
		}
		v.printf("throttled attempt %d: %d, %s", v.attempts, status, text)
	}
}

func (v *lines) answered(over int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	calls := v.session.cfg.calls
	if quarters := 4 * over / calls; quarters > v.shown {
		v.shown = quarters
		v.printf("%d of %d calls", over, calls)
	}
}

func (v *lines) finish() {}

// screen is the view on a terminal: the table, drawn again and again in its place.
type screen struct {
	session *session
	screen  console.Screen
	stop    chan struct{}
	running sync.WaitGroup
}

// These do nothing: the table has everything.
func (v *screen) learned(throttle.Learned)     {}
func (v *screen) throttled(int, time.Duration) {}
func (v *screen) answered(int)                 {}

func (v *screen) run() {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		v.draw()
		select {
		case <-tick.C:
		case <-v.stop:
			return
		}
	}
}

// draw replaces the last drawing by a new one.
func (v *screen) draw() {
	v.screen.Draw(func(out io.Writer, columns int) { _ = v.session.print(out, columns) }) // a buffer takes everything
}

// finish removes the drawing, because the final table follows.
func (v *screen) finish() {
	close(v.stop)
	v.running.Wait()
	v.screen.Erase()
}
