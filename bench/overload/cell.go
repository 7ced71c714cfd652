package main

import (
	"context"
	"crypto/sha256"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"
)

// A Case is a server and what comes to it.
type Case struct {
	Name string
	Can  float64                        // requests a second that it can serve
	Rate func(at time.Duration) float64 // requests a second that come
	Do   func(context.Context)          // what a request needs
}

const (
	works    = 5 * time.Millisecond
	patience = time.Second // then the client leaves
	pool     = 10
	holds    = 20 * time.Millisecond
	waits    = 300 * time.Millisecond
)

// Cases are those that are measured. Each must run in a process of its own, because averages of the CPU's use remember the last one.
func Cases() []Case {
	cores := float64(runtime.GOMAXPROCS(0)) / works.Seconds()
	rounds := calibrate()
	var all []Case
	for _, c := range []struct {
		name string
		load float64
	}{{"CPU, 0.8 ×", 0.8}, {"CPU, 1.2 ×", 1.2}, {"CPU, 2 ×", 2}, {"CPU, 4 ×", 4}} {
		all = append(all, Case{Name: c.name, Can: cores, Rate: steadily(c.load * cores), Do: func(context.Context) { burn(rounds) }})
	}
	places := make(chan struct{}, pool)
	return append(all,
		Case{Name: "pool of 10, 2 ×", Can: pool / holds.Seconds(), Rate: steadily(2 * pool / holds.Seconds()), Do: func(ctx context.Context) {
			select {
			case places <- struct{}{}:
				time.Sleep(holds)
				<-places
			case <-ctx.Done():
			}
		}},
		Case{Name: "I/O of 300 ms, idle", Can: 1000, Rate: func(at time.Duration) float64 {
			if at/time.Second/3%2 == 0 {
				return 60
			}
			return 600
		}, Do: func(context.Context) { time.Sleep(waits) }})
}

func steadily(rate float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return rate }
}

// burn needs a core.
func burn(rounds int) {
	var sum [32]byte
	for range rounds {
		sum = sha256.Sum256(sum[:])
	}
	runtime.KeepAlive(sum)
}

// calibrate finds out how many rounds take 5 ms: by the shortest of some tries, because others use the machine too.
func calibrate() int {
	const some = 10_000
	least := time.Hour
	for range 20 {
		start := time.Now()
		burn(some)
		least = min(least, time.Since(start))
	}
	return int(some * works / least)
}

// A Row is what became of the requests.
type Row struct {
	Case, Peer string
	InTime     float64       // share of what can be served in time, in percent
	Refused    float64       // share of all, in percent
	P50, P99   time.Duration // of what was served in time
}

// warm is how long what comes does not count.
const warm = 5 * time.Second

// Measure has requests come for so long. They do not wait for each other, and count from when they should have come, which is when their
// clients began to wait. It returns while some may still be under way: end the process.
func Measure(c Case, p Peer, length time.Duration) Row {
	h := p.New(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { c.Do(r.Context()) }))
	var mu sync.Mutex
	var took []time.Duration
	came, refused, can := 0, 0, 0.
	start := time.Now()
	for at := time.Duration(0); at < length; {
		time.Sleep(at - time.Since(start))
		begun, counts := start.Add(at), at >= min(warm, length/2) && at < length-patience
		every := time.Duration(float64(time.Second) / c.Rate(at))
		if counts {
			came, can = came+1, can+min(1, c.Can*every.Seconds())
		}
		go func() {
			ctx, leave := context.WithCancel(context.Background())
			defer leave()
			timer := time.AfterFunc(patience-time.Since(begun), leave)
			defer timer.Stop()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
			if err != nil {
				panic(err) // the URL is ours
			}
			w := answer{header: http.Header{}}
			h.ServeHTTP(&w, r)
			mu.Lock()
			defer mu.Unlock()
			switch d := time.Since(begun); {
			case !counts:
			case w.status != 0:
				refused++
			case d <= patience && ctx.Err() == nil:
				took = append(took, d)
			}
		}()
		at += every
	}
	mu.Lock()
	defer mu.Unlock()
	row := Row{Case: c.Name, Peer: p.Name, InTime: 100 * float64(len(took)) / can, Refused: 100 * float64(refused) / float64(came)}
	if n := len(took); n > 0 {
		slices.Sort(took)
		row.P50, row.P99 = took[n/2], took[n*99/100]
	}
	return row
}

// An answer is a ResponseWriter that keeps the status, 0 if the handler has written none.
type answer struct {
	header http.Header
	status int
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) Write(p []byte) (int, error) { return len(p), nil }
func (a *answer) WriteHeader(status int)      { a.status = status }
