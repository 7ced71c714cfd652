package fleet

import (
	"context"
	"fmt"
	"testing"
)

// BenchmarkFileProcesses is an exchange with a file that so many processes use at the same time, as fast as they can: the time
// that each takes of the file.
//
//	go test -run '^$' -bench BenchmarkFile ./fleet
func BenchmarkFileProcesses(b *testing.B) {
	if _, err := systemClock(); err != nil {
		b.Skip("skipped: ", err)
	}
	for _, processes := range []int{1, 50} {
		b.Run(fmt.Sprint("processes=", processes), func(b *testing.B) {
			c := &children{t: b, job: job{Path: newPath(b), Exchanges: (b.N + processes - 1) / processes}}
			for range processes {
				c.all = append(c.all, c.start())
			}
			for _, p := range c.all {
				c.works(p)
			}
			b.ResetTimer()
			for _, p := range c.all {
				p.in.Close()
			}
			for _, p := range c.all {
				<-p.done
			}
		})
	}
}

// BenchmarkFile is an exchange with a file that so many members use, one after the other, in one process.
func BenchmarkFile(b *testing.B) {
	for _, members := range []int{1, 50} {
		b.Run(fmt.Sprint("members=", members), func(b *testing.B) {
			f, err := OpenFile(newPath(b))
			if err != nil {
				b.Skip("skipped: ", err)
			}
			defer f.Close()
			ctx := context.Background()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := f.Exchange(ctx, "x", ask(fmt.Sprint(i%members), uint64(i+1), 1000, 10, 1, 5)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
