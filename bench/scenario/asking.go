package scenario

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/throttletest"
)

// An asking is a run of workers, and what came of it.
type asking struct {
	server *throttletest.Server
	doer   client.Doer
	ledger throttletest.Ledger

	mu    sync.Mutex
	calls []span // from when they were wanted
}

type span struct{ begin, end time.Duration }

// workers call until the run is so old, and wait for their last answers.
func (k *asking) workers(ctx context.Context, n int, until time.Duration) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for ctx.Err() == nil && k.server.Elapsed() < until {
				k.call()
			}
		})
	}
	all.Wait()
}

// burst makes calls that nobody waits for.
func (k *asking) burst(ctx context.Context, until time.Duration) {
	var all sync.WaitGroup
	for at := time.Duration(0); at < until && ctx.Err() == nil; {
		time.Sleep(at - k.server.Elapsed())
		all.Go(k.call)
		if at%(30*second) < 25*second {
			at += second / 20
		} else {
			at += second / 400
		}
	}
	all.Wait()
}

func (k *asking) call() {
	req, err := http.NewRequest(http.MethodGet, k.server.URL(), nil)
	if err != nil {
		panic(err) // the URL is our own
	}
	begin := k.server.Elapsed()
	resp, err := k.doer.Do(req)
	if err != nil {
		time.Sleep(time.Millisecond) // a call refused at once would stop a bubble's clock
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	end := k.server.Elapsed()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls = append(k.calls, span{begin, end})
}

// ended is how many calls were answered between two moments.
func (k *asking) ended(from, to time.Duration) (n int) {
	for _, a := range k.ledger {
		if from <= a.Answered && a.Answered < to {
			n++
		}
	}
	return n
}

// inFlight is how many were at the upstream between two moments, in the mean.
func (k *asking) inFlight(from, to time.Duration) float64 {
	var sum time.Duration
	for _, a := range k.ledger {
		sum += max(0, min(a.Answered, to)-max(a.Sent, from))
	}
	return sum.Seconds() / (to - from).Seconds()
}

// wait is what 99 of 100 calls took that were wanted between two moments, the wait before the upstream included.
func (k *asking) wait(from, to time.Duration) time.Duration {
	var took []time.Duration
	for _, c := range k.calls {
		if from <= c.begin && c.begin < to {
			took = append(took, c.end-c.begin)
		}
	}
	return quantile(took, 0.99)
}

// usual is what nine of ten calls took at the upstream that were answered between two moments.
func (k *asking) usual(from, to time.Duration) time.Duration {
	var took []time.Duration
	for _, a := range k.ledger {
		if from <= a.Answered && a.Answered < to {
			took = append(took, a.Answered-a.Sent)
		}
	}
	return quantile(took, 0.9)
}

func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[int(q*float64(len(all)))]
}

const courseBin = 5 * time.Second

// bins are how many calls were answered in each bin.
func (k *asking) bins(length time.Duration) []int {
	n := make([]int, length/courseBin)
	for _, a := range k.ledger {
		if i := int(a.Answered / courseBin); i < len(n) {
			n[i]++
		}
	}
	return n
}
