package throttle

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/go-throttle/throttle/internal/queue"
)

// A Group runs tasks whose goroutines start only when their turn in a [Queue]
// has come: a million tasks that wait need no million goroutines. Otherwise it is
// an errgroup.Group: the first error cancels the context of the rest, and Wait
// returns it. A running task holds one of the queue's MaxInFlight slots.
type Group struct {
	q   *queue.Queue
	ctx context.Context
	eg  *errgroup.Group

	tasks   sync.WaitGroup // waiting and running
	failed  sync.Once
	listen  sync.Once // to foreign limiters, from the first asking until Wait ends
	stop    func()    // ends that
	unwatch func() bool
	waiting map[*queue.Waiter]*task // guarded by the queue's lock
}

// A task is one call of Go.
type task struct {
	queue.Order
	ctx  context.Context
	fn   func(context.Context) error
	line *queue.Line // where it waits
	stop func() bool // ends the watch on ctx; nil if the group's own watch is enough
}

// NewGroup returns a Group over q, and the context that its first error, or the
// end of Wait, cancels.
func NewGroup(ctx context.Context, q *Queue) (*Group, context.Context) {
	eg, ctx := errgroup.WithContext(ctx)
	g := &Group{q: &q.q, ctx: ctx, eg: eg, waiting: map[*queue.Waiter]*task{}}
	g.unwatch = context.AfterFunc(ctx, g.leaveAll)
	return g, ctx
}

// Go puts a task into the line and returns at once. When its turn comes, fn runs
// in a goroutine of its own, with ctx, cancelled also with the group's and when fn
// returns: tasks that start tasks give them the group's. Cost and
// priority come from ctx. A task that the queue refuses, or whose ctx ends while
// it waits, does not run, and its error is the group's. So with a MaxWaiting, a
// group of more tasks fails: leave it 0.
func (g *Group) Go(ctx context.Context, fn func(context.Context) error) {
	g.tasks.Add(1)
	v := ctxValue(ctx)
	t := &task{Order: queue.Order{Waiter: queue.Waiter{Cost: v.cost, Prio: v.prio, Wants: queue.WantsSlot | queue.TakesTime}}, ctx: ctx, fn: fn}
	g.join(t)
}

// Wait blocks until all tasks have ended, and returns the first error.
func (g *Group) Wait() error {
	g.tasks.Wait()
	g.unwatch()
	g.listen.Do(func() {}) // nobody will begin any more
	if g.stop != nil {
		g.stop()
		g.q.AskAnew() // others may wait that must listen for themselves now
	}
	return g.eg.Wait()
}

// join starts the task, refuses it or puts it into the line.
func (g *Group) join(t *task) {
	g.q.Room.Mu.Lock()
	defer g.q.Room.Mu.Unlock()
	err := t.ctx.Err()
	if err == nil {
		err = g.ctx.Err()
	}
	if err != nil {
		g.fail(g.q.ErrorOf(0, 0, err))
		return
	}
	l, w, err := g.q.Admit(t.ctx, &t.Order, time.Now(), func(w *queue.Waiter, err error) { g.settled(t, w, err) })
	switch {
	case err != nil:
		g.fail(err)
	case w == nil:
		g.start(t, nil)
	case w.State <= queue.Asking:
		if t.line == nil { // else settled has set it
			t.line = l
		}
		g.waiting[w] = t
		if own := t.ctx.Done(); own != nil && own != g.ctx.Done() {
			t.stop = context.AfterFunc(t.ctx, func() { g.leave(w, t.ctx.Err()) })
		}
	}
}

// settled is what the line calls, under its lock, when it is the task's turn or
// it must go.
func (g *Group) settled(t *task, w *queue.Waiter, err error) {
	t.line = g.q.Line
	if w.State == queue.Asking { // one asks at a time, so this is one goroutine for the whole line
		go g.ask(t, w)
		return
	}
	delete(g.waiting, w)
	if t.stop != nil {
		t.stop()
	}
	if w.State == queue.Refused {
		g.fail(err)
		return
	}
	t.Fill(w)
	g.start(t, w)
}

// start runs a task that has been granted; w is nil if it did not wait.
func (g *Group) start(t *task, w *queue.Waiter) {
	g.eg.Go(func() error {
		defer g.tasks.Done()
		if w != nil && (t.ctx.Err() != nil || g.ctx.Err() != nil) {
			return g.giveUp(t, w)
		}
		defer g.q.FinishTask(t.ctx, &t.Order)
		ctx, cancel := g.bound(t.ctx)
		defer cancel()
		return t.fn(ctx)
	})
}

// bound returns ctx, cancelled also with the group's.
func (g *Group) bound(ctx context.Context) (context.Context, func()) {
	if ctx.Done() == g.ctx.Done() {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.ctx, func() { cancel(context.Cause(g.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// ask plays the head: it asks the foreign limiters for a task.
func (g *Group) ask(t *task, w *queue.Waiter) {
	g.listen.Do(func() { g.stop = g.q.WatchForeign() })
	ctx, cancel := g.bound(t.ctx)
	defer cancel()
	t.line.AskFor(ctx, w, nil)
	if ctx.Err() != nil { // it ended while w was asking, when w could not leave
		g.leave(w, ctx.Err())
	}
}

// giveUp returns a grant that came when the task's ctx had ended.
func (g *Group) giveUp(t *task, w *queue.Waiter) error {
	ctx := t.ctx
	if ctx.Err() == nil {
		ctx = g.ctx
	}
	return t.line.Abandon(ctx, w)
}

// fail ends a task that did not run. Only the first error counts, so the others
// need no goroutine to report theirs.
func (g *Group) fail(err error) {
	g.failed.Do(func() { g.eg.Go(func() error { return err }) })
	g.tasks.Done()
}

// leave takes one task, whose ctx has ended, out of the line.
func (g *Group) leave(w *queue.Waiter, err error) {
	g.q.Room.Mu.Lock()
	defer g.q.Room.Mu.Unlock()
	if t := g.waiting[w]; t != nil && g.leaveLocked(w, t, err) {
		t.line.GoOn(time.Now())
	}
}

// leaveAll takes all out that wait when the group's context ends.
func (g *Group) leaveAll() {
	g.q.Room.Mu.Lock()
	defer g.q.Room.Mu.Unlock()
	var l *queue.Line
	for w, t := range g.waiting {
		if g.leaveLocked(w, t, g.ctx.Err()) {
			l = t.line
		}
	}
	if l != nil {
		l.GoOn(time.Now())
	}
}

// leaveLocked leaves a task alone whose asking is under way: ask sees to it.
func (g *Group) leaveLocked(w *queue.Waiter, t *task, err error) bool {
	if w.State != queue.Waiting {
		return false
	}
	t.line.Leave(w, queue.Refused, g.q.GaveUp(w, err, time.Now()))
	return true
}
