package fleet_test

import (
	"context"
	"fmt"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet"
)

// Two processes, here in one program, share a limit through a store. Units are waited for in a queue's line; a
// Transport does the same with HTTP calls.
func Example() {
	store := new(fleet.Memory) // or throttleredis.New(client)
	for _, process := range []string{"a", "b"} {
		shared := fleet.New(store, "api.example.com", 100, 10, fleet.Options{})
		queue := throttle.NewQueue(shared, throttle.QueueOptions{})
		for range 3 {
			if err := queue.Wait(context.Background()); err != nil {
				fmt.Println(err)
			}
		}
		fmt.Println(process, "used", shared.Stats().Used)
		shared.Close() // gives back what is not used
	}
	// Output:
	// a used 3
	// b used 3
}

// A process keeps a limit of its own beside the shared one. A call takes from both or from none.
func ExampleNew_twoLevels() {
	shared := fleet.New(new(fleet.Memory), "api.example.com", 100, 10, fleet.Options{})
	defer shared.Close()
	own := throttle.NewBucket(50, 2)
	queue := throttle.NewQueue(throttle.All(own, shared), throttle.QueueOptions{})
	for range 5 {
		if err := queue.Wait(context.Background()); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("used of the shared limit:", shared.Stats().Used)
	// Output:
	// used of the shared limit: 5
}
