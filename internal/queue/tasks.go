package queue

import (
	"context"
	"sync"
	"time"
)

// Tasks are calls of a queue that wait in its line without a goroutine each. Where another waiter has a
// channel, a task's has the task (extra.task), and the line's timer starts its goroutine.
//
// A task leaves the line in one of these ways, each under the lock:
//
//	settled, granted   its goroutine starts; if a ctx has ended meanwhile, it gives the grant back
//	settled, refused   its error is the error of all; so it is if its ctx ends, or that of all tasks
//
// The end of a ctx and the task's turn may come at the same time. Whoever has the lock first settles the task. If that is
// its turn, leave finds that it does not wait any more, and start sees the end of the ctx.
type Tasks struct {
	q       *Queue
	ctx     context.Context
	spawn   func(func() error) // starts a goroutine and collects its error
	left    sync.WaitGroup     // tasks that wait or run
	failed  sync.Once
	unwatch func() bool
}

// A task is one call of Go.
type task struct {
	of    *Tasks
	order order
	ctx   context.Context
	fn    func(context.Context) error
	stop  func() // ends the watch on its ctx
}

// NewTasks returns Tasks that end with ctx. spawn must start a goroutine that runs its argument, and
// must not block.
func NewTasks(ctx context.Context, q *Queue, spawn func(func() error)) *Tasks {
	g := &Tasks{q: q, ctx: ctx, spawn: spawn}
	g.unwatch = context.AfterFunc(ctx, func() { g.leave(ctx, nil) })
	return g
}

// Go puts a task into the line and returns at once.
func (g *Tasks) Go(ctx context.Context, want *Want, fn func(context.Context) error) {
	g.left.Add(1)
	t := &task{of: g, order: g.q.order(want, wantsSlot|takesTime), ctx: ctx, fn: fn}
	t.order.task = t
	g.q.common.come()
	t.join()
}

// Wait blocks until all tasks have ended, or have been refused.
func (g *Tasks) Wait() {
	g.left.Wait()
	g.unwatch()
}

// join starts the task, refuses it, or puts it into the line. There it is watched: it leaves when its ctx ends, or when it has
// waited for as long as it may. Tasks with the group's own ctx need no watch each.
//
// An example: 10,000 tasks at 100/s. Each waits as two small values and no goroutine; every 10 ms the
// line's timer has the next one's goroutine started. Only the tasks that run have stacks.
func (t *task) join() {
	g, q := t.of, t.of.q
	q.common.mu.Lock()
	defer q.common.mu.Unlock()
	waits, cancel := t.order.bound(t.ctx, q)
	t.stop = cancel
	if ctx := t.ended(); ctx != nil {
		t.settled(nil, q.errorOf(0, 0, endOf(ctx)))
		return
	}
	switch w, err := q.arriveLocked(t.ctx, &t.order); {
	case w == nil:
		t.settled(nil, err)
	case w.state == waiting && waits.Done() != nil && waits.Done() != g.ctx.Done():
		unwatch := context.AfterFunc(waits, func() { g.leave(waits, w) })
		t.stop = func() { unwatch(); cancel() }
	}
}

// ended is the ctx of the task, or of all, if it has ended.
func (t *task) ended() context.Context {
	for _, ctx := range []context.Context{t.ctx, t.of.ctx} {
		if ctx.Err() != nil {
			return ctx
		}
	}
	return nil
}

// settled is called under the lock when it is the task's turn, or the task is refused because of err. w is nil if it has not
// waited. Only the first error counts, so a goroutine reports that one alone.
//
// It must not block and takes no lock. spawn may be errgroup's Go without a limit: starting a
// goroutine is all it does.
func (t *task) settled(w *waiter, err error) {
	g := t.of
	t.stop()
	if err == nil {
		g.spawn(func() error { return t.run(w) })
		return
	}
	g.failed.Do(func() { g.spawn(func() error { return err }) })
	g.left.Done()
}

// run runs a task that has been granted. A grant that came when a ctx had ended is undone.
func (t *task) run(w *waiter) error {
	g := t.of
	defer g.left.Done()
	if w != nil {
		if ctx := t.ended(); ctx != nil {
			return g.q.abandon(ctx, w)
		}
		t.order.fill(w)
	}
	ctx, cancel := g.bound(t.ctx)
	defer cancel()
	return g.q.runTask(t.ctx, ctx, &t.order, t.fn)
}

// runTask calls fn with ctx for a call that has a slot, and finishes it. of is the call's own ctx.
func (q *Queue) runTask(of, ctx context.Context, o *order, fn func(context.Context) error) (err error) {
	ok := false
	defer func() { q.finishTask(of, o, ok) }()
	err = fn(ctx)
	ok = err == nil
	return err
}

// finishTask is finish of a call that held a slot while its task ran, and measures how long that took. ok: its task has
// returned without an error.
func (q *Queue) finishTask(ctx context.Context, o *order, ok bool) {
	q.change(func(now time.Time) {
		q.timedLocked(o.now, now, ok)
		q.releaseLocked(now)
		trip, err := now.Sub(o.now), ctx.Err()
		if err != nil && err != context.DeadlineExceeded {
			trip = 0
		}
		q.up.Finish(o.epoch, trip, err != nil, now)
	})
}

// bound returns ctx, cancelled also with the group's.
func (g *Tasks) bound(ctx context.Context) (context.Context, func()) {
	if ctx.Done() == g.ctx.Done() {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.ctx, func() { cancel(context.Cause(g.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// leave takes w, whose ctx has ended, out of the line if it waits there; nil: all tasks. The line goes on once, after all have
// left, so no task of the group is granted and then given up in between.
func (g *Tasks) leave(ctx context.Context, w *waiter) {
	g.q.common.mu.Lock()
	defer g.q.common.mu.Unlock()
	l := g.q.line
	if l == nil {
		return
	}
	leave, now := []*waiter{w}, time.Now()
	if w == nil {
		leave = l.waiters()
	}
	for _, w := range leave {
		if t := w.also().task; w.state == waiting && t != nil && t.of == g {
			l.leave(w, refused, g.q.gaveUpLocked(w, endOf(ctx), now))
		}
	}
	l.goOn(now)
}
