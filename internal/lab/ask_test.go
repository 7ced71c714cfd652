package lab_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/throttletest"
)

// This file has quotas of which nothing is left, and one call that asks whether there is.

// A scripted upstream answers the n-th request, which arrives at, by a function. Each takes 20 ms.
type scripted struct {
	mu     sync.Mutex
	begun  time.Time
	at     []time.Duration // when they arrived
	refuse int             // how many were refused
	answer func(n int, at time.Duration, req *http.Request) *http.Response
}

func (s *scripted) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	if s.begun.IsZero() {
		s.begun = time.Now()
	}
	at := time.Since(s.begun)
	s.at = append(s.at, at)
	resp := s.answer(len(s.at), at, req)
	if resp.StatusCode >= 400 {
		s.refuse++
	}
	s.mu.Unlock()
	time.Sleep(20 * time.Millisecond)
	return resp, nil
}

// between is how many requests arrived from a moment until another.
func (s *scripted) between(from, to time.Duration) (n int) {
	for _, at := range s.at {
		if from <= at && at < to {
			n++
		}
	}
	return n
}

// crowd makes a call by each of n callers at once, and returns how many were served.
func crowd(ctx context.Context, rt http.RoundTripper, n int, url string) (served int) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range n {
		wg.Go(func() {
			if code, err := get(ctx, rt, url); err == nil && code == http.StatusOK {
				mu.Lock()
				served++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return served
}

// A Retry-After that is over before the reset wins: one call asks, and if something is left the others follow it.
func TestRetryAfterBeforeTheReset(t *testing.T) {
	for _, status := range []int{429, 403} {
		for _, callers := range []int{1, 4, 100} {
			for name, field := range map[string]func(time.Time) []string{
				"epoch": func(end time.Time) []string { return []string{"RateLimit-Reset", strconv.FormatInt(end.Unix(), 10)} },
				"delta": func(end time.Time) []string {
					return []string{"RateLimit-Reset", strconv.Itoa(int(time.Until(end).Seconds()))}
				},
				"named": func(end time.Time) []string {
					return []string{"X-RateLimit-Resource", "core", "RateLimit-Reset", strconv.Itoa(int(time.Until(end).Seconds()))}
				},
				"window": func(end time.Time) []string {
					return []string{"RateLimit-Policy", "5000;w=3600", "RateLimit-Reset", strconv.Itoa(int(time.Until(end).Seconds()))}
				},
			} {
				t.Run(fmt.Sprint(status, "/", callers, "/", name), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						end := time.Now().Add(50 * time.Minute)
						s := &scripted{answer: func(n int, at time.Duration, req *http.Request) *http.Response {
							fields := append([]string{"RateLimit-Limit", "5000"}, field(end)...)
							if at < 29*time.Second {
								return answer(req, status, append(fields, "RateLimit-Remaining", "0", "Retry-After", "30")...)
							}
							return answer(req, 200, append(fields, "RateLimit-Remaining", "4000")...)
						}}
						tr := &throttle.Transport{Base: s}
						if served := crowd(t.Context(), tr, callers, "http://a.test/"); served != callers {
							t.Errorf("%d of %d served", served, callers)
						}
						if d := time.Since(s.begun); d > 33*time.Second {
							t.Errorf("served after %v", d)
						}
						time.Sleep(5 * time.Second)
						if served := crowd(t.Context(), tr, 1, "http://a.test/"); served != 1 {
							t.Error("a later call is not served")
						}
						if d := time.Since(s.begun); d > 40*time.Second {
							t.Errorf("the later call has waited: %v", d)
						}
					})
				})
			}
		}
	}
}

// If the call that asks is refused with nothing left, the reset holds: it is not tried every 30 s, and not by everybody.
func TestRetryAfterTooShort(t *testing.T) {
	for _, status := range []int{429, 403} {
		for _, callers := range race.Pick([]int{1, 4}, []int{1, 4, 100}) {
			t.Run(fmt.Sprint(status, "/", callers), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					end := time.Now().Add(50 * time.Minute)
					s := &scripted{answer: func(n int, at time.Duration, req *http.Request) *http.Response {
						fields := []string{"RateLimit-Limit", "5000", "RateLimit-Reset", strconv.FormatInt(end.Unix(), 10)}
						if time.Now().Before(end) {
							return answer(req, status, append(fields, "RateLimit-Remaining", "0", "Retry-After", "30")...)
						}
						return answer(req, 200, "RateLimit-Limit", "5000", "RateLimit-Remaining", "4999", "RateLimit-Reset", strconv.FormatInt(end.Add(time.Hour).Unix(), 10))
					}}
					tr := &throttle.Transport{Base: s}
					for time.Now().Before(end.Add(time.Minute)) {
						crowd(t.Context(), tr, callers, "http://a.test/")
						time.Sleep(10 * time.Second)
					}
					if n := s.between(time.Second, 50*time.Minute); n != 1 {
						t.Errorf("%d asked, want 1: %v", n, s.at[:min(len(s.at), 20)])
					}
					if n := s.between(50*time.Minute, 51*time.Minute); n < 5*callers {
						t.Errorf("%d sent in the minute after the reset", n)
					}
				})
			})
		}
	}
}

// A quota that one throttled answer alone advertises is dropped by three answers in a row that are served without it after the time that it
// named. A second one keeps it.
func TestQuotaOfOneRefusal(t *testing.T) {
	for _, refusals := range []int{1, 2} {
		for _, callers := range race.Pick([]int{1, 4}, []int{1, 4, 100}) {
			for name, wait := range map[string][]string{"reset": nil, "retry-after": {"Retry-After", "60"}} {
				t.Run(fmt.Sprint(refusals, "/", callers, "/", name), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := &scripted{answer: func(n int, at time.Duration, req *http.Request) *http.Response {
							if 10 < n && n <= 10+refusals {
								return answer(req, 429, append(wait, "RateLimit-Limit", "100", "RateLimit-Remaining", "0", "RateLimit-Reset", "3600")...)
							}
							return answer(req, 200)
						}}
						tr := &throttle.Transport{Base: s, Retry: throttle.Retry{MaxAttempts: 1}}
						for s.begun.IsZero() || time.Since(s.begun) < 2*time.Hour {
							crowd(t.Context(), tr, callers, "http://a.test/")
							time.Sleep(10 * time.Second)
						}
						held := time.Hour + 3*time.Minute
						if wait != nil {
							held = 4 * time.Minute
						}
						n, want := s.between(held, 2*time.Hour), callers*int((2*time.Hour-held).Seconds()-10)*9/100
						if refusals == 1 && n < want {
							t.Errorf("%d sent from %v on, want %d", n, held, want)
						}
						if refusals == 2 && wait == nil && callers > 1 && n > 300 { // for one alone the second one comes after the reset
							t.Errorf("%d sent from %v on, of 100 an hour", n, held)
						}
						if n := s.between(5*time.Minute, 59*time.Minute); wait == nil && n > 0 {
							t.Errorf("%d sent before the reset", n)
						}
					})
				})
			}
		}
	}
}

// An upstream whose clock is hours ahead and that sends no Date holds a key for two of its windows, or a minute if it says no window, and not
// until its reset. So does one whose clock is behind.
func TestSpentWithAWrongClock(t *testing.T) {
	for i, ahead := range []time.Duration{3 * time.Hour, -3 * time.Hour, 30 * time.Hour, -24 * time.Hour, -time.Hour, 90 * time.Minute, 12 * time.Hour, 23 * time.Hour} {
		if i >= race.Pick(2, 8) {
			break
		}
		for _, dialect := range []string{"x-epoch", "window"} {
			for _, per := range []time.Duration{10 * time.Second, time.Minute} {
				for _, callers := range []int{1, 32} {
					t.Run(fmt.Sprint(ahead, "/", dialect, "/", per, "/", callers), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							s := newSim(advertisedTrip, 1, throttletest.Limit{Kind: throttletest.Fixed, N: 10, Per: per})
							s.NoDate, s.Skew = true, ahead
							s.Advertise.Dialect = throttletest.XEpoch
							if dialect == "window" {
								s.Advertise.Dialect = func(h http.Header, states []throttletest.State, now time.Time) {
									throttletest.XEpoch(h, states, now)
									h.Set("X-Ratelimit-Window", strconv.Itoa(int(per.Seconds())))
								}
							}
							for range 10 { // a stranger has spent it
								get(t.Context(), s.port(1), s.URL())
							}
							s.run(t, 10*time.Minute, callers, s.client(0))
							longest, last := time.Duration(0), time.Duration(0)
							for _, a := range s.Ledger() {
								if a.Verdict == throttletest.Admitted {
									longest, last = max(longest, a.At-last), a.At
								}
							}
							longest = max(longest, 10*time.Minute-last)
							if most := max(time.Minute, 2*per) + 2*per + time.Second; longest > most {
								t.Errorf("nothing served for %v, want %v at most", longest, most)
							}
						})
					})
				}
			}
		}
	}
}
