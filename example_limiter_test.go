package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-throttle/throttle"
)

func ExampleBucket() {
	b := throttle.NewBucket(0.1, 3) // one unit in 10 seconds, and 3 at the start
	fmt.Println(b.Allow(), b.AllowN(2), b.Allow())
	wait, err := b.Take(context.Background(), 1)
	fmt.Println(wait.Round(time.Second), err)
	// Output:
	// true true false
	// 10s <nil>
}

// Wait takes the place of rate.Limiter's. Callers go in order, and one who leaves costs nothing. A caller who
// cannot start before the deadline learns at once how long it would take.
func ExampleBucket_Wait() {
	b := throttle.NewBucket(0.1, 2)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for range 3 {
		err := b.Wait(ctx)
		var e *throttle.Error
		if errors.As(err, &e) {
			fmt.Println("would take", e.Wait.Round(time.Second))
			continue
		}
		fmt.Println("go", err)
	}
	// Output:
	// go <nil>
	// go <nil>
	// would take 10s
}

// Cancel gives back all units of a reservation that is not needed.
func ExampleBucket_Reserve() {
	b := throttle.NewBucket(1, 1)
	first, second := b.Reserve(1), b.Reserve(5)
	fmt.Println(first.Delay(), second.Delay().Round(time.Second))
	second.Cancel()
	fmt.Println(b.Reserve(1).Delay().Round(time.Second))
	// Output:
	// 0s 1s
	// 1s
}

// A Leaky has no burst: units start one interval apart.
func ExampleLeaky() {
	l := throttle.NewLeaky(0.1)
	for range 2 {
		wait, _ := l.Take(context.Background(), 1)
		fmt.Println(wait.Round(time.Second))
	}
	// Output:
	// 0s
	// 10s
}

func ExampleFixedWindow() {
	w := throttle.NewFixedWindow(2, time.Hour) // the hour starts with the first unit
	for range 3 {
		wait, _ := w.Take(context.Background(), 1)
		fmt.Println(wait.Round(time.Minute))
	}
	// Output:
	// 0s
	// 0s
	// 1h0m0s
}

func ExampleSlidingWindow() {
	w := throttle.NewSlidingWindow(2, time.Hour) // at most 2 in any hour
	for range 3 {
		wait, _ := w.Take(context.Background(), 1)
		fmt.Println(wait.Round(time.Minute))
	}
	// Output:
	// 0s
	// 0s
	// 1h0m0s
}

// Two limits hold at once. Nothing is taken from either while one of them asks for a wait.
func ExampleAll() {
	even, perHour := throttle.NewBucket(0.1, 1), throttle.NewSlidingWindow(300, time.Hour)
	both := throttle.All(even, perHour)
	for range 2 {
		wait, err := both.Take(context.Background(), 1)
		fmt.Println(wait.Round(time.Second), err)
	}
	// Output:
	// 0s <nil>
	// 10s <nil>
}

func ExampleParseLimit() {
	for _, s := range []string{"10/s", "100/1m burst 20", "5000/h sliding", "100/s window", "5/s even", "ten/s"} {
		l, err := throttle.ParseLimit(s)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%T\n", l)
	}
	// Output:
	// *throttle.Bucket
	// *throttle.Bucket
	// *throttle.SlidingWindow
	// *throttle.FixedWindow
	// *throttle.Leaky
	// throttle: ParseLimit("ten/s"): units "ten" is not a plain number above 0
}
