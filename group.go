package throttle

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/go-throttle/throttle/internal/queue"
)

// A Group runs tasks in goroutines that start only when their turn in a [Queue] has come: a million
// waiting tasks need no million goroutines. Otherwise it is an errgroup.Group: the first error cancels the
// context of the others, and Wait returns it. A running task holds one of the queue's MaxInFlight slots. Calls of a
// [Transport] wait in its own lines: to make a million, bound their goroutines, as CrawlAll in examples/recipes does.
// The methods of a Group are safe for concurrent use; make it with [NewGroup].
type Group struct {
	tasks *queue.Tasks
	eg    *errgroup.Group
}

// NewGroup returns a Group over q. The context that it returns is derived from ctx, and is cancelled by the
// first error or when Wait returns.
func NewGroup(ctx context.Context, q *Queue) (*Group, context.Context) {
	eg, ctx := errgroup.WithContext(ctx)
	return &Group{queue.NewTasks(ctx, q.q, eg.Go), eg}, ctx
}

// Go puts a task into the line and returns at once. When its turn comes, fn runs in a goroutine of its own;
// its ctx is derived from the one given here, and also ends with the group's and when fn returns. Cost and
// priority come from ctx. A task that the queue refuses, or whose ctx ends while it waits, does not run,
// and its error is the group's: leave MaxWaiting 0 for a group of many tasks. A task that starts further
// tasks must give them the group's context, not its own.
func (g *Group) Go(ctx context.Context, fn func(context.Context) error) {
	g.tasks.Go(ctx, &ctxValue(ctx).want, fn)
}

// Wait blocks until every task has run or left the line, and returns the first error.
func (g *Group) Wait() error {
	g.tasks.Wait()
	return g.eg.Wait()
}
