package queue

import (
	"context"
	"sync"
	"time"
)

// Tasks are calls of a queue that wait in its line without a goroutine each. Where another waiter has a
// channel, a task has a function (extra.left, here settledLocked), and the line's timer starts its goroutine.
//
// A task leaves the line in one of these ways, each under the lock, and is then no longer in waiting:
//
//	settled, granted   its goroutine starts; if a ctx has ended meanwhile, it gives the grant back
//	settled, refused   its error is the error of all
//	leave              its ctx has ended, or that of all tasks
type Tasks struct {
	q     *Queue
	ctx   context.Context
	spawn func(func() error) // starts a goroutine and collects its error

	left    sync.WaitGroup // tasks that wait or run
	failed  sync.Once
	unwatch func() bool
	waiting map[*waiter]*task // guarded by the lock of q
}

// A task is one call of Go.
type task struct {
	order order
	ctx   context.Context
	fn    func(context.Context) error
	line  *lineup         // where it waits
	waits context.Context // while it waits: ctx, or less
	stop  func()          // ends waits, and the watch on it
}

// NewTasks returns Tasks that end with ctx. spawn must start a goroutine that runs its argument, and
// must not block.
func NewTasks(ctx context.Context, q *Queue, spawn func(func() error)) *Tasks {
	g := &Tasks{q: q, ctx: ctx, spawn: spawn, waiting: map[*waiter]*task{}}
	g.unwatch = context.AfterFunc(ctx, g.leaveAll)
	return g
}

// Go puts a task into the line and returns at once.
func (g *Tasks) Go(ctx context.Context, want *Want, fn func(context.Context) error) {
	g.left.Add(1)
	g.join(&task{order: g.q.order(want, wantsSlot|takesTime), ctx: ctx, fn: fn})
}

// Wait blocks until all tasks have ended, or have been refused.
func (g *Tasks) Wait() {
	g.left.Wait()
	g.unwatch()
}

// join starts the task, refuses it, or puts it into the line.
//
// An example: 10,000 tasks at 100/s. Each waits as two small values and no goroutine; every 10 ms the
// line's timer has the next one's goroutine started. Only the tasks that run have stacks.
func (g *Tasks) join(t *task) {
	g.q.common.mu.Lock()
	defer g.q.common.mu.Unlock()
	for _, ctx := range []context.Context{t.ctx, g.ctx} {
		if ctx.Err() != nil {
			g.fail(g.q.errorOf(0, 0, endOf(ctx)))
			return
		}
	}
	if !g.q.common.staysLocked(&t.order) {
		g.q.trouble().refused++
		g.fail(g.q.errorOf(0, 0, g.q.common.Errors.Closed))
		return
	}
	t.waits, t.stop = t.order.bound(t.ctx, g.q)
	l, w, err := g.q.admitLocked(t.ctx, &t.order, time.Now(), func(w *waiter, err error) { g.settledLocked(t, w, err) })
	switch {
	case err != nil:
		t.stop()
		g.fail(err)
	case w == nil:
		t.stop()
		g.start(t, nil)
	case w.state == waiting: // otherwise settledLocked has dealt with it already
		t.line = l
		g.waiting[w] = t
		g.watch(t, w)
	}
}

// watch takes w out of the line when its ctx ends, or when it has waited for as long as it may. Tasks with the
// group's own ctx need no watch each: leaveAll is one for all of them.
func (g *Tasks) watch(t *task, w *waiter) {
	if own := t.waits.Done(); own != nil && own != g.ctx.Done() {
		stop, cancel := context.AfterFunc(t.waits, func() { g.leave(w, endOf(t.waits)) }), t.stop
		t.stop = func() { stop(); cancel() }
	}
}

// settledLocked is what the line calls, under the lock, when it is the task's turn or the task must leave.
//
// It must not block and takes no lock. g.spawn may be errgroup's Go without a limit: starting a
// goroutine is all it does.
func (g *Tasks) settledLocked(t *task, w *waiter, err error) {
	t.line = g.q.line
	delete(g.waiting, w)
	t.stop()
	if w.state == refused {
		g.fail(err)
		return
	}
	t.order.fill(w)
	g.start(t, w)
}

// start runs a task that has been granted. w is nil if the task did not wait.
func (g *Tasks) start(t *task, w *waiter) {
	g.spawn(func() error {
		defer g.left.Done()
		if w != nil && (t.ctx.Err() != nil || g.ctx.Err() != nil) {
			return g.giveUp(t, w)
		}
		defer g.q.finishTask(t.ctx, &t.order)
		ctx, cancel := g.bound(t.ctx)
		defer cancel()
		return t.fn(ctx)
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

// giveUp returns a grant that came when the task's ctx had ended.
// It is abandon of a waiter that was granted: slot and units go back, and the next in line is looked
// at.
func (g *Tasks) giveUp(t *task, w *waiter) error {
	ctx := t.ctx
	if ctx.Err() == nil {
		ctx = g.ctx
	}
	return t.line.abandon(ctx, w)
}

// fail ends a task that did not run. Only the first error counts, so a goroutine reports that one alone.
func (g *Tasks) fail(err error) {
	g.failed.Do(func() { g.spawn(func() error { return err }) })
	g.left.Done()
}

// leave takes one task, whose ctx has ended, out of the line.
//
// The end of ctx and the task's turn may come at the same time. Whoever has the lock first takes the
// task out of waiting, and the other one finds it gone: leave does nothing then, and start sees the end
// of ctx.
func (g *Tasks) leave(w *waiter, err error) {
	g.q.common.mu.Lock()
	defer g.q.common.mu.Unlock()
	if t := g.waiting[w]; t != nil && g.leaveLocked(w, t, err) {
		t.line.goOn(time.Now())
	}
}

// leaveAll takes all out that wait when the group's context ends.
// The line goes on once, after all have left, so no task of the group is granted and then given up in
// between.
func (g *Tasks) leaveAll() {
	g.q.common.mu.Lock()
	defer g.q.common.mu.Unlock()
	var l *lineup
	for w, t := range g.waiting {
		if g.leaveLocked(w, t, endOf(g.ctx)) {
			l = t.line
		}
	}
	if l != nil {
		l.goOn(time.Now())
	}
}

// leaveLocked takes t out of the line if it waits there, and reports whether it did.
func (g *Tasks) leaveLocked(w *waiter, t *task, err error) bool {
	if w.state != waiting {
		return false
	}
	t.line.leave(w, refused, g.q.gaveUpLocked(w, err, time.Now()))
	return true
}
