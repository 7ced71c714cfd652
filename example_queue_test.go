package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-throttle/throttle"
)

// A Queue limits jobs that are not HTTP.
func ExampleQueue() {
	q := throttle.NewQueue(throttle.NewBucket(100, 1), throttle.QueueOptions{MaxInFlight: 2})
	for i := range 3 {
		err := q.Do(context.Background(), func(context.Context) error {
			fmt.Println("job", i)
			return nil
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// job 0
	// job 1
	// job 2
}

// A closed gate stops all calls. One that may not wait so long fails at once.
func ExampleQueue_Pause() {
	q := throttle.NewQueue(throttle.NewBucket(100, 1), throttle.QueueOptions{MaxWait: time.Second})
	q.Pause(time.Hour)
	fmt.Println(errors.Is(q.Wait(context.Background()), throttle.ErrWaitTooLong))
	q.Resume()
	fmt.Println(q.Wait(context.Background()))
	// Output:
	// true
	// <nil>
}

// A task has a goroutine only while it runs, so a million waiting tasks need no million goroutines.
func ExampleGroup() {
	ctx := context.Background()
	g, ctx := throttle.NewGroup(ctx, throttle.NewQueue(throttle.NewLeaky(1000), throttle.QueueOptions{MaxInFlight: 1}))
	sum := 0
	for i := range 10 {
		g.Go(ctx, func(context.Context) error {
			sum += i // MaxInFlight is 1
			return nil
		})
	}
	fmt.Println(g.Wait(), sum)
	// Output: <nil> 45
}

// A user waits for the page and nobody for the report. So the page goes first, though it was added second.
func ExampleWithPriority() {
	q := throttle.NewQueue(throttle.NewBucket(1000, 1), throttle.QueueOptions{MaxInFlight: 1})
	q.Pause(time.Hour) // so that both are in line
	g, ctx := throttle.NewGroup(context.Background(), q)
	task := func(name string) func(context.Context) error {
		return func(context.Context) error {
			fmt.Println(name)
			return nil
		}
	}
	g.Go(ctx, task("nightly report"))
	g.Go(throttle.WithPriority(ctx, 1), task("a user's page"))
	q.Resume()
	fmt.Println(g.Wait())
	// Output:
	// a user's page
	// nightly report
	// <nil>
}

// This call costs seven units.
func ExampleWithCost() {
	b := throttle.NewBucket(1, 10)
	q := throttle.NewQueue(b, throttle.QueueOptions{})
	fmt.Println(q.Wait(throttle.WithCost(context.Background(), 7)))
	fmt.Printf("%.0f left\n", b.Tokens())
	// Output:
	// <nil>
	// 3 left
}
