package plumbing

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync"

	"github.com/go-throttle/throttle"
)

// A backfill goes through a database without crowding out the pages that people wait for: both share a Queue, and the
// pages have priority. MaxInFlight bounds the statements that run at once, and the bucket those of each second.
func Example_sql() {
	fakeDB := &database{}
	db := sql.OpenDB(fakeDB)
	defer db.Close()

	q := throttle.NewQueue(throttle.NewBucket(5000, 50), throttle.QueueOptions{MaxInFlight: 2})
	exec := func(ctx context.Context, query string, args ...any) error {
		return q.Do(ctx, func(ctx context.Context) error {
			_, err := db.ExecContext(ctx, query, args...)
			return err
		})
	}
	page := throttle.WithPriority(context.Background(), 1)

	backfill, ctx := throttle.NewGroup(context.Background(), q)
	for id := range 30 {
		backfill.Go(ctx, func(ctx context.Context) error { // starts when the queue lets it
			_, err := db.ExecContext(ctx, "UPDATE items SET price = price * 100 WHERE id = ?", id)
			return err
		})
	}
	fmt.Println("page:", exec(page, "UPDATE visits SET n = n + 1"))
	fmt.Println("backfill:", backfill.Wait())
	fmt.Println(fakeDB)
	// Output:
	// page: <nil>
	// backfill: <nil>
	// 31 statements, never more than 2 at once: true
}

// A database counts the statements that it executes.
type database struct {
	mu               sync.Mutex
	now, most, done  int
	driver.Connector // nothing else is called
}

func (d *database) Connect(context.Context) (driver.Conn, error) { return &conn{db: d}, nil }
func (d *database) Driver() driver.Driver                        { return nil }

type conn struct {
	driver.Conn // nothing else is called
	db          *database
}

func (c *conn) Close() error { return nil }

func (c *conn) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	c.db.count(1)
	defer c.db.count(-1)
	return driver.RowsAffected(1), nil
}

func (d *database) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprint(d.done, " statements, never more than 2 at once: ", d.most <= 2)
}

func (d *database) count(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now += n
	d.most = max(d.most, d.now)
	if n < 0 {
		d.done++
	}
}
