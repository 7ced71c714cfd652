package scenario

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/throttletest"
)

// A stage is one run: an upstream, a client before it, and callers.
type stage struct {
	ctx    context.Context
	cancel context.CancelFunc
	server *throttletest.Server
	pool   *http.Transport // connections to it; nil in a bubble
	doer   client.Doer
	urgent func(context.Context) context.Context
	wg     sync.WaitGroup // calls

	watching sync.WaitGroup // until ctx ends
}

// begin starts an upstream and a client. The run ends with end.
func begin(ctx context.Context, c client.Client, o Options, config config, job client.Job) (*stage, error) {
	s := &stage{server: config.server(o.Seed), urgent: c.Urgent}
	if o.Virtual {
		s.server.Elapsed() // from here on
		job.Base = s.server
	} else {
		if err := s.server.Start(); err != nil {
			return nil, err
		}
		s.pool = &http.Transport{MaxIdleConnsPerHost: 1 << 16, DisableCompression: true}
		job.Base = s.pool
	}
	var err error
	if c.Name == OracleName {
		s.doer = newOracle(s.server, config, job.Base, o.Virtual)
	} else if s.doer, err = c.Start(job); err != nil {
		s.server.Close()
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s, nil
}

// call makes one call and reads its answer to the end.
func (s *stage) call(ctx context.Context, id, caller int) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL(), nil)
	if err != nil {
		panic(err) // the URL is our own
	}
	mark(req, id, caller)
	resp, err := s.doer.Do(req)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}

// backlog has workers make calls 0 to n-1, each as soon as its last one has ended, and waits until
// all are done or the run is until old.
func (s *stage) backlog(n, workers int, until time.Duration) {
	stop := time.AfterFunc(until-s.server.Elapsed(), s.cancel)
	defer stop.Stop()
	var next atomic.Int64
	for w := range workers {
		s.wg.Go(func() {
			for s.ctx.Err() == nil {
				id := int(next.Add(1)) - 1
				if id >= n {
					return
				}
				begun := time.Now()
				s.call(s.ctx, id, w)
				if time.Since(begun) == 0 {
					time.Sleep(time.Millisecond) // a call refused at once would stop a bubble's clock
				}
			}
		})
	}
	s.wg.Wait()
}

// arrivals has senders make calls that become due at such moments, in order. A call for which no
// sender is free waits for one. It returns when all calls have ended or the run is until old.
func (s *stage) arrivals(due []time.Duration, senders int, until time.Duration) {
	stop := time.AfterFunc(until-s.server.Elapsed(), s.cancel)
	defer stop.Stop()
	work := make(chan int, len(due))
	for w := range senders {
		s.wg.Go(func() {
			for id := range work {
				s.call(s.ctx, id, w)
			}
		})
	}
	for i, d := range due {
		time.Sleep(d - s.server.Elapsed())
		work <- i
	}
	close(work)
	s.wg.Wait()
}

// end closes all and returns the ledger.
func (s *stage) end() throttletest.Ledger {
	s.cancel()
	s.wg.Wait()
	s.watching.Wait()
	if c, ok := s.doer.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
	if c, ok := s.doer.(io.Closer); ok {
		_ = c.Close()
	}
	s.server.Close()
	if s.pool != nil {
		s.pool.CloseIdleConnections()
	}
	return s.server.Ledger()
}

// evenly are the moments at which n calls a second become due, for so long.
func evenly(n int, from, length time.Duration) []time.Duration {
	due := make([]time.Duration, int(float64(n)*length.Seconds()))
	for i := range due {
		due[i] = from + time.Duration(i)*time.Second/time.Duration(n)
	}
	return due
}

// ideal is when calls would be admitted at best.
func ideal(config config, due []time.Duration) []time.Duration {
	arrive := make([]time.Duration, len(due))
	for i, d := range due {
		arrive[i] = d + config.latency.Min
	}
	return config.ideal(arrive)
}

const bin = 100 * time.Millisecond

// traffic draws a ledger in bins, until a moment.
func traffic(config config, l throttletest.Ledger, until time.Duration) *Traffic {
	t := &Traffic{Bin: bin}
	for i := range int((until + bin - 1) / bin) {
		from := time.Duration(i) * bin
		tally := l.Between(from, from+bin).Tally()
		t.Accepted = append(t.Accepted, tally.Admitted)
		t.Throttled = append(t.Throttled, tally.Throttled)
		t.Failed = append(t.Failed, tally.Failed)
		if len(config.limits) > 0 {
			t.Limit = append(t.Limit, config.rateAt(from+bin/2)*bin.Seconds())
		}
	}
	return t
}

// Metrics that many scenarios have.
var (
	quotaUsed = Metric{"quota_used", "quota used", "%", +1, 1}
	throttled = Metric{"throttled", "throttled", "", -1, 0}
	attempts  = Metric{"attempts", "attempts per call", "", -1, 3}
	delivered = Metric{"delivered", "delivered", "%", +1, 1}
	times     = Metric{"time", "time / ideal", "", -1, 2}
)

func percent(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}

// knows fits clients that keep a limit that they know, and those that do nothing at all, to show what that
// does.
func knows(c client.Client) bool { return c.Limits || !c.Retries }

// resends fits clients that send a failed call again, and those that do nothing at all.
func resends(c client.Client) bool { return (c.Retries || !c.Limits) && !c.Told }

// both fits clients that do both, and those that do nothing at all.
func both(c client.Client) bool { return c.Limits == c.Retries }

// limits fits clients that keep a limit that they know.
func limits(c client.Client) bool { return c.Limits }

// A sender sends at once.
type sender struct{ client.Job }

func (s sender) Do(req *http.Request) (*http.Response, error) { return s.Base.RoundTrip(req) }
