package throttle_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-throttle/throttle"
)

// Jobs before a database whose queries take 10 ms each for every other one that runs. Nine of ten are to be done within 0.2 s, so
// some 20 run at once in the end.
func ExampleAdaptive() {
	inVirtualTime(func() {
		q := throttle.NewQueue(nil, throttle.QueueOptions{
			InFlight: &throttle.Adaptive{Target: 0.2, Least: 4, Most: 64},
		})
		g, ctx := throttle.NewGroup(context.Background(), q)
		for range 2000 {
			g.Go(ctx, func(context.Context) error {
				time.Sleep(10 * time.Millisecond * time.Duration(q.Stats().InFlight)) // a query
				return nil
			})
		}
		err := g.Wait()
		most := q.Stats().MaxInFlight
		fmt.Println(err, 16 <= most && most <= 24)
	})
	// Output: <nil> true
}

// A crawler that leaves a third of its CPU time to others, on each of its hosts. The signal is one, the bounds are those of hosts.
func ExampleCPU() {
	client := &http.Client{Transport: &throttle.Transport{
		Base:  api(),
		Queue: throttle.QueueOptions{InFlight: &throttle.Adaptive{Load: throttle.CPU(), Target: 0.67, Least: 1, Most: 20}},
	}}
	resp, err := client.Get("http://api.example.com/")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode)
	// Output: 200
}

// A pool of one's own follows the replication lag of a database, in seconds. The lag is too long at once.
func ExampleAdaptive_Bound() {
	pool := &throttle.Adaptive{Load: func() float64 { return 4.2 }, Target: 1, Least: 5, Most: 50}
	inUse := 1 // now, this one included
	fmt.Println("the pool may have", pool.Bound(inUse, 0))
	// Output: the pool may have 40
}

// A producer slows down, to 10 messages a second at the least, while the consumers' line is longer than 5 s.
func ExampleQueue_Age() {
	consumers := throttle.NewQueue(throttle.NewBucket(50, 1), throttle.QueueOptions{})
	producer := &throttle.Adaptive{Load: consumers.Age, Target: 5, Least: 10, Most: 200}
	messages := throttle.NewQueue(producer.Rate(1), throttle.QueueOptions{})
	fmt.Println(messages.Wait(context.Background()))
	// Output: <nil>
}
