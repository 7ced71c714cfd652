package inbound

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
)

// A tripper is a handler as a RoundTripper, with a round trip of 4 ms, in virtual time. It counts.
type tripper struct {
	h    http.Handler
	sent *atomic.Int64
}

func (w tripper) RoundTrip(r *http.Request) (*http.Response, error) {
	w.sent.Add(1)
	time.Sleep(2 * time.Millisecond)
	rec := httptest.NewRecorder()
	w.h.ServeHTTP(rec, r)
	time.Sleep(2 * time.Millisecond)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	resp := rec.Result()
	resp.Request = r
	return resp, nil
}

// An outcome is what processes with a Transport each have got from an overloaded server.
type outcome struct {
	goodput  float64 // answers within 1 s, of what the server can do, or of all calls if they are fewer
	high     float64 // of the calls of the higher priority, a tenth of all, that were answered so
	attempts float64 // for each call
}

// callThrough has so many processes call a machine that can do 400 requests a second, at so many times that, for some time, of which
// the last part counts.
func callThrough(t *testing.T, processes int, load float64, refused http.Handler) (o outcome) {
	const length, from = 20 * time.Second, 4 * time.Second
	synctest.Test(t, func(t *testing.T) {
		m, busy := newMachine(), &Overload{Priority: byPrio, Refused: refused}
		busy.source = &made{runnable: m.runnable(busy), latency: -1}
		h := busy.Handler(m)
		var calls, sent atomic.Int64
		var ok, all [2]atomic.Int64
		var done, senders sync.WaitGroup
		for p := range processes {
			tr := &throttle.Transport{Base: tripper{h, &sent}}
			call := func(prio int, counts bool) {
				ctx, cancel := context.WithTimeout(throttle.WithPriority(context.Background(), prio), time.Second)
				defer cancel()
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://a/", nil)
				r.Header.Set("Prio", fmt.Sprint(prio))
				resp, err := tr.RoundTrip(r)
				if err == nil {
					resp.Body.Close()
				}
				if counts {
					all[prio].Add(1)
				}
				if counts && err == nil && resp.StatusCode == http.StatusOK {
					ok[prio].Add(1)
				}
			}
			senders.Go(func() {
				rng, start := rand.New(rand.NewPCG(uint64(p), 77)), time.Now()
				for time.Since(start) < length {
					time.Sleep(time.Duration(rng.ExpFloat64() / (400 * load / float64(processes)) * float64(time.Second)))
					calls.Add(1)
					prio, counts := 0, time.Since(start) > from
					if rng.IntN(10) == 0 {
						prio = 1
					}
					done.Go(func() { call(prio, counts) })
				}
			})
		}
		senders.Wait()
		done.Wait()
		good, came := float64(ok[0].Load()+ok[1].Load()), float64(all[0].Load()+all[1].Load())
		o = outcome{
			goodput: good / min(400*(length-from).Seconds(), came), high: float64(ok[1].Load()) / float64(all[1].Load()),
			attempts: float64(sent.Load()) / float64(calls.Load()),
		}
		time.Sleep(time.Hour) // for what the Transports still have to end
	})
	return o
}

// TestOverloadAnswers compares the answers that a Transport in front may get: it takes 503 for an outage, 529 for trouble of the moment, 429
// for a limit to be found, and stops all calls, of every priority, until a time that is named.
func TestOverloadAnswers(t *testing.T) {
	race.Long(t)
	answer := func(status int, after string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if after != "" {
				w.Header().Set("Retry-After", after)
			}
			w.WriteHeader(status)
		})
	}
	for _, load := range []float64{1.2, 4} {
		for _, n := range []int{1, 4, 16} {
			ours := callThrough(t, n, load, nil)
			t.Logf("%v × from %d processes, 503: %+v", load, n, ours)
			if ours.goodput < 0.25 || ours.attempts > 1.4 {
				t.Errorf("%v × from %d processes: %+v", load, n, ours)
			}
			for _, c := range []struct {
				status int
				after  string
			}{{529, ""}, {429, ""}, {503, "1"}} {
				t.Logf("%v × from %d processes, %d %s: %+v", load, n, c.status, c.after, callThrough(t, n, load, answer(c.status, c.after)))
			}
		}
	}
}
