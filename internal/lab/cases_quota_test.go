package lab_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/throttletest"
)

// This file has what users have met with advertised quotas: where they hold, how long, and how fast they are used.

// onceEach calls url at an even rate for d, each call by itself, and returns how many were served.
func onceEach(t *testing.T, rt http.RoundTripper, url string, gap, d time.Duration) (served int) {
	done := make(chan int, d/gap+1)
	calls := 0
	for begin := time.Now(); time.Since(begin) < d; time.Sleep(gap) {
		calls++
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), d)
			defer cancel()
			if code, err := get(ctx, rt, url); err == nil && code == http.StatusOK {
				done <- 1
			} else {
				done <- 0
			}
		}()
	}
	for range calls {
		served += <-done
	}
	return served
}

// quick is a Base that answers after a round trip of 50 ms, with the header that advert says.
func quick(advert func(req *http.Request) []string) http.RoundTripper {
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		time.Sleep(50 * time.Millisecond)
		return answer(req, http.StatusOK, advert(req)...), nil
	})
}

// A quota of log-ins holds neither other routes nor another host under the same Key.
func TestQuotaHoldsItsOwnRoutes(t *testing.T) {
	for name, url := range map[string]string{"route": "http://a.test/data", "host": "http://b.test/auth"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				left := 5
				tr := &throttle.Transport{Key: func(*http.Request) string { return "one" }, Base: quick(func(req *http.Request) []string {
					if req.URL.Host+req.URL.Path != "a.test/auth" {
						return nil
					}
					left--
					return []string{"Ratelimit-Policy", `"login";q=5;w=900`, "Ratelimit", `"login";r=` + string(rune('0'+left)) + `;t=900`}
				})}
				if _, err := get(t.Context(), tr, "http://a.test/auth"); err != nil {
					t.Fatal(err)
				}
				start, d := time.Now(), race.Pick(5*time.Minute, time.Hour)
				if got, want := onceEach(t, tr, url, 50*time.Millisecond, d), 20*int(d.Seconds()); got != want || time.Since(start) > d+time.Second {
					t.Errorf("%d of %d calls served in %v", got, want, time.Since(start))
				}
			})
		})
	}
}

// Calls that wait when a quota is advertised wait by their own routes.
func TestWaitingCallsMoveWithTheirRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{Base: quick(func(req *http.Request) []string {
			if !strings.HasPrefix(req.URL.Path, "/auth") {
				return nil
			}
			return []string{"Ratelimit-Policy", `"login";q=5;w=900`, "Ratelimit", `"login";r=4;t=900`}
		})}
		start, done := time.Now(), make(chan error)
		for i := range 100 {
			path := "/data"
			if i == 0 {
				path = "/auth"
			}
			go func() {
				_, err := get(context.Background(), tr, "http://a.test"+path)
				done <- err
			}()
			time.Sleep(time.Microsecond)
		}
		for range 100 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("took %v", d)
		}
	})
}

// One error page among 30,000 answers advertises that nothing is left: it is outvoted by what follows.
func TestEdgePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		tr := &throttle.Transport{Base: quick(func(*http.Request) []string {
			if n.Add(1) == 100 {
				return []string{"X-Ratelimit-Limit", "1", "X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "1"}
			}
			return nil
		})}
		start := time.Now()
		onceEach(t, tr, "http://a.test/", 20*time.Millisecond, 30*time.Second)
		if d := time.Since(start); d > 31*time.Second {
			t.Errorf("50/s for 30 s took %v", d)
		}
	})
}

// A server whose clock is hours or a day ahead advertises resets that are as late.
func TestClockAhead(t *testing.T) {
	for _, ahead := range []time.Duration{2 * time.Hour, 13 * time.Hour, 24 * time.Hour} {
		for _, k := range []throttletest.Kind{throttletest.Fixed, throttletest.FixedFirst, throttletest.Sliding} {
			t.Run(fmt.Sprintf("%v/%s", ahead, k), func(t *testing.T) {
				if ahead != 13*time.Hour || k != throttletest.Fixed {
					race.Long(t)
				}
				synctest.Test(t, func(t *testing.T) {
					s := newSim(advertisedTrip, 1, throttletest.Limit{Kind: k, N: 100, Per: 10 * time.Second})
					s.Advertise.Dialect, s.NoDate, s.Skew = throttletest.XEpoch, true, ahead
					s.run(t, 5*time.Minute, simWorkers, s.client(0))
					for from := time.Duration(0); from < 5*time.Minute; from += 20 * time.Second {
						if n := s.Ledger().Between(from, from+20*time.Second).Tally(); n.Admitted == 0 {
							t.Errorf("nothing served from %v on", from)
						}
					}
					s.result(0, 5*time.Minute).want(t, 0.7, 0.05)
				})
			})
		}
	}
}

// A reset that is hours away may well be right. Then the quota lasts until it, and nothing is throttled.
func TestResetHoursAway(t *testing.T) {
	for _, k := range []throttletest.Kind{throttletest.Fixed, throttletest.Bucket} {
		t.Run(string(k), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const d = 20 * time.Hour
				s := newSim(advertisedTrip, 1, throttletest.Limit{Kind: k, N: 2000, Per: d, Burst: 2000})
				s.Advertise.Dialect, s.NoDate = throttletest.XEpoch, true
				s.run(t, d, simWorkers, s.client(0))
				s.result(0, d).want(t, 0.98, 0.01)
				if late := s.Ledger().Between(d/2, d).Tally().Admitted; late < 200 {
					t.Errorf("%d calls in the second half", late)
				}
			})
		})
	}
}

// Units that come back once, well before a reset that is hours away, do not show that the reset is wrong.
func TestUnitsBackBeforeAResetHoursAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const per = 4 * time.Hour
		s := newSim(advertisedTrip, 1, throttletest.Limit{Kind: throttletest.Fixed, N: 1000, Per: per})
		s.Advertise.Dialect, s.NoDate = throttletest.XEpoch, true
		s.Advertise.Edit = func(st throttletest.State) throttletest.State {
			if at := s.Elapsed(); 10*time.Minute < at && at < per {
				st.Remaining += 5
			}
			return st
		}
		s.run(t, 4*per, 8, s.client(0))
		for from := time.Duration(0); from < 4*per; from += per {
			if n := s.Ledger().Between(from, from+per).Tally().Admitted; n < 950 {
				t.Errorf("%d served from %v on", n, from)
			}
		}
		if n := s.Ledger().Between(per/2, per).Tally().Admitted; n < 40 {
			t.Errorf("%d served in the second half of the first window", n)
		}
	})
}

// A call that asks a quota whose window is not known, and has no answer for long, stops the others for a moment only.
func TestSlowCallThatAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(advertisedTrip, 1, throttletest.Limit{Kind: throttletest.Fixed, N: 1, Per: 31 * 24 * time.Hour})
		s.Advertise.Dialect = throttletest.XEpoch
		var sent atomic.Int64
		c := s.client(0).(*throttle.Transport)
		base := c.Base
		c.Base = roundTrip(func(req *http.Request) (*http.Response, error) {
			if sent.Add(1) == firstCalls+1 {
				time.Sleep(10 * time.Minute)
			}
			return base.RoundTrip(req)
		})
		s.run(t, 5*time.Minute, simWorkers, c)
		if n := sent.Load(); n < firstCalls+4 || n > firstCalls+16 {
			t.Errorf("%d sent in five minutes", n)
		}
	})
}

// firstCalls may be in flight to an upstream that has not answered yet.
const firstCalls = 4

// What is advertised now and then, or by throttled answers alone, holds as well. In the second case it lapses, at first
// after two windows or ten seconds, and the calls in flight are throttled that tell of it again.
func TestAdvertisedNowAndThen(t *testing.T) {
	for name, advert := range map[string]throttletest.Advert{
		"every 10th": {Dialect: throttletest.Draft08, Every: 10},
		"throttled":  {Dialect: throttletest.Draft08, Throttled: true},
	} {
		for _, per := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
			t.Run(name+"/"+per.String(), func(t *testing.T) {
				if per > time.Second {
					race.Long(t)
				}
				d := race.Pick(time.Minute, 5*time.Minute)
				overSeeds(t, 1, func(t *testing.T, seed uint64) result {
					s := newSim(advertisedTrip, seed, throttletest.Limit{Kind: throttletest.Fixed, N: int(100 * per / time.Second), Per: per})
					s.Advertise = advert
					s.run(t, d, simWorkers, s.client(0))
					return s.result(0, d)
				}).want(t, 0.94, 0.01)
			})
		}
	}
}

// rare are quotas that are advertised so rarely that they lapse.
var rare = []struct {
	limit  throttletest.Limit
	advert throttletest.Advert
	most   float64 // throttled; 10, 8 and 6 % if each is forgotten after ten seconds
}{
	{throttletest.Limit{Kind: throttletest.Fixed, N: 3, Per: 5 * time.Second}, throttletest.Advert{Dialect: throttletest.Draft08, Throttled: true}, 0.05},
	{throttletest.Limit{Kind: throttletest.Bucket, N: 2, Burst: 2, Per: time.Second}, throttletest.Advert{Dialect: throttletest.Draft08, Every: 30}, 0.03},
	{throttletest.Limit{Kind: throttletest.Sliding, N: 10, Per: 10 * time.Second}, throttletest.Advert{Dialect: throttletest.Draft06, Throttled: true}, 0.04},
}

// A quota that lapses and comes back the same is kept for longer.
func TestRarelyAdvertised(t *testing.T) {
	for i, c := range rare {
		t.Run(fmt.Sprintf("%d/%s", i, c.limit.Kind), func(t *testing.T) {
			overSeeds(t, race.Pick(2, 4), func(t *testing.T, seed uint64) result {
				s := newSim(advertisedTrip, seed, c.limit)
				s.Advertise = c.advert
				s.run(t, 15*time.Minute, 8, s.client(0))
				return s.result(0, 15*time.Minute)
			}).want(t, 0.9, c.most)
		})
	}
}

// However often it has come back: if it is not repeated any more it is gone after a minute, and some windows if only
// throttled answers advertise it.
func TestRareQuotaIsForgotten(t *testing.T) {
	for i, c := range rare {
		t.Run(fmt.Sprintf("%d/%s", i, c.limit.Kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lifted atomic.Bool
				s := newSim(advertisedTrip, 1, c.limit)
				s.Advertise = c.advert
				free := quick(func(*http.Request) []string { return nil })
				client := s.client(0).(*throttle.Transport)
				limited := client.Base
				client.Base = roundTrip(func(req *http.Request) (*http.Response, error) {
					if lifted.Load() {
						return free.RoundTrip(req)
					}
					return limited.RoundTrip(req)
				})
				s.run(t, 15*time.Minute, 8, client)
				lifted.Store(true)
				if d := s.finish(t, client, 8, 160*60); d > 2*time.Minute+10*time.Second+8*c.limit.Per {
					t.Errorf("160 calls a second for a minute took %v", d)
				}
			})
		})
	}
}

// Where four times as much is advertised as accepted, now and then, the 429s between are explained by no quota: a search begins.
func TestTooMuchAdvertisedNowAndThen(t *testing.T) {
	for _, c := range []struct {
		limit throttletest.Limit
		least float64 // used
		most  float64 // throttled; 24 and 28 % if a quota explains them that another answer has advertised
	}{
		{throttletest.Limit{Kind: throttletest.Bucket, N: 5, Burst: 2, Per: time.Second}, 0.85, 0.03},
		{throttletest.Limit{Kind: throttletest.Sliding, N: 10, Per: 10 * time.Second}, 0.75, 0.09},
	} {
		t.Run(string(c.limit.Kind), func(t *testing.T) {
			overSeeds(t, race.Pick(1, 4), func(t *testing.T, seed uint64) result {
				s := newSim(advertisedTrip, seed, c.limit)
				s.Advertise.Dialect, s.Advertise.Every = throttletest.Draft08, 30
				s.Advertise.Edit = func(st throttletest.State) throttletest.State {
					st.Limit, st.Remaining = 4*st.Limit, 4*st.Remaining
					return st
				}
				s.run(t, 15*time.Minute, 8, s.client(0))
				return s.result(0, 15*time.Minute)
			}).want(t, c.least, c.most)
		})
	}
}

// Alone on 100 per 10 s, nothing is throttled in any window.
func TestLastUnitOfAWindow(t *testing.T) {
	for _, d := range []string{"draft-06", "draft-08"} {
		for _, k := range []throttletest.Kind{throttletest.Fixed, throttletest.FixedFirst} {
			t.Run(d+"/"+string(k), func(t *testing.T) {
				length := race.Pick(2*time.Minute, 5*time.Minute)
				overSeeds(t, 1, func(t *testing.T, seed uint64) result {
					s := newSim(advertisedTrip, seed, throttletest.Limit{Kind: k, N: 100, Per: 10 * time.Second})
					s.Advertise.Dialect = dialectOf(d)
					s.run(t, length, simWorkers, s.client(0))
					return s.result(0, length)
				}).want(t, map[throttletest.Kind]float64{throttletest.Fixed: 0.98, throttletest.FixedFirst: 0.97}[k], 0)
			})
		}
	}
}

// hourly is an upstream as GitHub's: 5,000 an hour.
func hourly(seed uint64) *sim {
	s := newSim(trip{45 * time.Millisecond, 55 * time.Millisecond}, seed, throttletest.Limit{Kind: throttletest.Fixed, N: 5000, Per: time.Hour, Name: "core"})
	s.Advertise.Dialect = throttletest.GitHub
	return s
}

// finish makes n calls by workers and returns how long they took.
func (s *sim) finish(t *testing.T, rt http.RoundTripper, workers, n int) time.Duration {
	ctx, cancel := context.WithCancel(t.Context())
	start, before := time.Now(), s.calls.Load()
	wait := s.load(ctx, t, roundTrip(func(req *http.Request) (*http.Response, error) {
		resp, err := rt.RoundTrip(req)
		if s.calls.Load() >= before+int64(n)-1 {
			cancel()
		}
		return resp, err
	}), workers, s.URL())
	wait()
	return time.Since(start)
}

// A fresh quota of an hour is there to be used: a job of a fifth of it takes a moment.
func TestJobInAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hourly(1)
		if d := s.finish(t, s.client(0), simWorkers, 1000); d > time.Minute {
			t.Errorf("1,000 of 5,000 calls an hour took %v", d)
		} else {
			t.Log(d)
		}
	})
}

// A job of four hours uses the whole quota, is never throttled, and leaves something for calls beside it.
func TestCallsBesideALongJob(t *testing.T) {
	hours := race.Pick(1, 3) // and one that is not full
	for prio, most := range race.Pick([]time.Duration{time.Minute}, []time.Duration{time.Minute, 5 * time.Second}) {
		synctest.Test(t, func(t *testing.T) {
			s := hourly(1)
			client := s.client(0)
			var slowest time.Duration
			ctx, cancel := context.WithCancel(throttle.WithPriority(t.Context(), prio))
			beside := make(chan bool)
			go func() {
				defer close(beside)
				for ctx.Err() == nil {
					start := time.Now()
					if _, err := get(ctx, client, s.URL()); err == nil {
						slowest = max(slowest, time.Since(start))
					}
					time.Sleep(time.Minute)
				}
			}()
			d := s.finish(t, client, simWorkers, (hours+1)*(5000-60))
			cancel()
			<-beside
			for h := time.Duration(0); h < time.Duration(hours)*time.Hour; h += time.Hour {
				if r := s.result(h, h+time.Hour); r.used < 0.99 || r.Throttled > 0 {
					t.Errorf("hour from %v: %v", h, r)
				}
			}
			if slowest > most {
				t.Errorf("priority %d: a call beside it waited %v, want at most %v", prio, slowest, most)
			}
			t.Logf("priority %d: %v in all, the slowest call beside it %v", prio, d, slowest)
		})
	}
}

// Eight processes with 32 workers each share 1,000 per 10 s.
func TestFleetOnALongWindow(t *testing.T) {
	jain, d := 1.0, race.Pick(time.Minute, 5*time.Minute)
	r := overSeeds(t, 1, func(t *testing.T, seed uint64) result {
		f := newFleet("draft-08", throttletest.Limit{Kind: throttletest.Fixed, N: 1000, Per: 10 * time.Second}, seed)
		f.run(t, d, simWorkers, f.clients...)
		jain = min(jain, f.jain(8, 0, d))
		return f.result(0, d)
	})
	if t.Logf("Jain's index %.3f", jain); jain < 0.98 {
		t.Error("want at least 0.98")
	}
	r.want(t, 0.99, 0.005)
}

// WindowFactor 1 spaces evenly from the start.
func TestWindowFactor(t *testing.T) {
	for factor, most := range map[float64]time.Duration{1: 13 * time.Minute, 2: 5 * time.Second, 8: 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := hourly(1)
			d := s.finish(t, &throttle.Transport{Base: s.port(0), WindowFactor: factor}, simWorkers, 1000)
			if d > most || factor == 1 && d < 11*time.Minute {
				t.Errorf("%v: 1,000 of 5,000 calls an hour took %v", factor, d)
			}
		})
	}
}

// Windows whose length nobody advertises, with resets in whole seconds: hardly anything is throttled.
func TestWindowOfUnknownLength(t *testing.T) {
	for per, used := range map[time.Duration]float64{time.Second: 0.95, 2 * time.Second: 0.85, 5 * time.Second: 0.95, 10 * time.Second: 0.95, 30 * time.Second: 0.97} {
		t.Run(per.String(), func(t *testing.T) {
			if per > time.Second {
				race.Long(t)
			}
			d := race.Pick(time.Minute, 5*time.Minute)
			overSeeds(t, 1, func(t *testing.T, seed uint64) result {
				s := newSim(advertisedTrip, seed, throttletest.Limit{Kind: throttletest.Fixed, N: int(100 * per / time.Second), Per: per, Phase: 370 * time.Millisecond})
				s.Advertise.Dialect = throttletest.XEpoch
				s.run(t, d, simWorkers, s.client(0))
				return s.result(0, d)
			}).want(t, used, 0.01)
		})
	}
}

// A route that is always throttled with Retry-After: 60 holds itself, and its neighbours go on. When a neighbour is
// throttled too, all wait.
func TestRetryAfterOfOneRoute(t *testing.T) {
	for name, limiter := range map[string]throttle.Limiter{"no limit": nil, "100/s": throttle.NewBucket(100, 10)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var strict bool
				var sent int
				tr := &throttle.Transport{Limiter: limiter, Retry: throttle.Retry{MaxAttempts: 2, MaxPause: -1}, Base: roundTrip(func(req *http.Request) (*http.Response, error) {
					time.Sleep(50 * time.Millisecond)
					switch {
					case req.URL.Path == "/heavy":
						sent++
						return answer(req, http.StatusTooManyRequests, "Retry-After", "60"), nil
					case strict:
						strict = false
						return answer(req, http.StatusTooManyRequests, "Retry-After", "60"), nil
					}
					return answer(req, http.StatusOK), nil
				})}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
				go func() {
					for time.Sleep(time.Second); ctx.Err() == nil; time.Sleep(time.Second) {
						get(ctx, tr, "http://a.test/heavy")
					}
				}()
				served, begin := 0, time.Now()
				each := func(d time.Duration) (served int) {
					for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(450 * time.Millisecond) {
						if code, err := get(ctx, tr, "http://a.test/light"); err == nil && code == http.StatusOK {
							served++
						}
					}
					return served
				}
				served = each(time.Hour)
				if want := int(time.Since(begin) / (500 * time.Millisecond)); served < want*9/10 {
					t.Errorf("%d of %d calls of the neighbour served", served, want)
				}
				if sent > 62 {
					t.Errorf("%d calls of the route itself sent in an hour", sent)
				}
				strict, begin = true, time.Now()
				if n := each(time.Minute); n > 10 || time.Since(begin) < time.Minute {
					t.Errorf("%d calls served although a neighbour was throttled", n)
				}
				cancel()
				time.Sleep(2 * time.Minute)
			})
		})
	}
}
