//go:build linux || darwin

package fleet_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet"
)

// A program that is started again and again holds one limit over all of its runs, those at the same time and those after
// one another.
func ExampleOpenFile() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "limits") // in a program: in os.UserCacheDir, for example
	for run := range 3 {
		file, err := fleet.OpenFile(path)
		if err != nil {
			log.Fatal(err)
		}
		shared := fleet.New(file, "api.example.com", 100, 5, fleet.Options{})
		queue := throttle.NewQueue(shared, throttle.QueueOptions{})
		for range 4 { // the first one of the second run uses up the burst
			if err := queue.Wait(context.Background()); err != nil {
				fmt.Println(err)
			}
		}
		fmt.Println("run", run+1, "used", shared.Stats().Used)
		shared.Close() // gives back what is not used
		file.Close()
	}
	// Output:
	// run 1 used 4
	// run 2 used 4
	// run 3 used 4
}
