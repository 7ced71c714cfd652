package throttletest_test

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/throttletest"
)

// TestService: requests come at such moments, and are answered at such others.
func TestService(t *testing.T) {
	const s = time.Second
	work := throttletest.Span{Min: s}
	for name, c := range map[string]*struct {
		service  throttletest.Service
		come     []time.Duration
		change   time.Duration // when
		to       func(*throttletest.Service)
		answered []time.Duration
	}{
		"free":                     {throttletest.Service{Work: work}, []time.Duration{0, 0, s / 2}, 0, nil, []time.Duration{s, s, s * 3 / 2}},
		"a pool of 1":              {throttletest.Service{Work: work, Workers: 1}, []time.Duration{0, s / 2, 5 * s}, 0, nil, []time.Duration{s, 2 * s, 6 * s}},
		"a pool of 2":              {throttletest.Service{Work: work, Workers: 2}, []time.Duration{0, 0, 0, s / 2}, 0, nil, []time.Duration{s, s, 2 * s, 2 * s}},
		"shared by 2":              {throttletest.Service{Work: work, Workers: 1, Share: true}, []time.Duration{0, s / 2}, 0, nil, []time.Duration{s * 3 / 2, 2 * s}},
		"2 on 2 cores":             {throttletest.Service{Work: work, Workers: 2, Share: true}, []time.Duration{0, 0}, 0, nil, []time.Duration{s, s}},
		"3 on 2 cores":             {throttletest.Service{Work: work, Workers: 2, Share: true}, []time.Duration{0, 0, 0}, 0, nil, []time.Duration{s * 3 / 2, s * 3 / 2, s * 3 / 2}},
		"collapse":                 {throttletest.Service{Work: work, Workers: 1, Share: true, Loss: 1}, []time.Duration{0, 0}, 0, nil, []time.Duration{4 * s, 4 * s}},
		"half is others'":          {throttletest.Service{Work: work, Workers: 2, Share: true, Others: 0.5}, []time.Duration{0, 0}, 0, nil, []time.Duration{2 * s, 2 * s}},
		"half is others', for one": {throttletest.Service{Work: work, Workers: 2, Share: true, Others: 0.5}, []time.Duration{0}, 0, nil, []time.Duration{s}},
		"stall": {throttletest.Service{Work: work, Others: 1}, []time.Duration{0}, 3 * s,
			func(s *throttletest.Service) { s.Others = 0 }, []time.Duration{4 * s}},
		"stall begins": {throttletest.Service{Work: work}, []time.Duration{0, 0}, s / 2,
			func(s *throttletest.Service) { s.Others = 0.5 }, []time.Duration{s * 3 / 2, s * 3 / 2}},
		"fewer workers": {throttletest.Service{Work: work, Workers: 2}, []time.Duration{0, 0, 0}, s / 2,
			func(s *throttletest.Service) { s.Workers = 1 }, []time.Duration{s * 3 / 2, s * 3 / 2, s * 5 / 2}},
		"more workers": {throttletest.Service{Work: work, Workers: 1}, []time.Duration{0, 0}, s / 2,
			func(s *throttletest.Service) { s.Workers = 2 }, []time.Duration{s, s * 3 / 2}},
		"other work": {throttletest.Service{Work: work}, []time.Duration{0, s}, s / 2,
			func(s *throttletest.Service) { s.Work.Min *= 3 }, []time.Duration{s, 4 * s}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := &c.service
				server := &throttletest.Server{Handler: service}
				var all sync.WaitGroup
				answered := make([]time.Duration, len(c.come))
				if c.to != nil {
					time.AfterFunc(c.change, func() { service.Change(c.to) })
				}
				begun := time.Now()
				for i, at := range c.come {
					time.Sleep(at - time.Since(begun))
					all.Go(func() {
						if status, _ := get(t, server, server.URL()); status != http.StatusOK {
							t.Error(status)
						}
						answered[i] = time.Since(begun)
					})
					synctest.Wait()
				}
				all.Wait()
				want(t, "answered", answered, c.answered)
			})
		})
	}
}

// TestServiceLeaves: a client that leaves makes room, from the line and from what gets on, and is not answered.
func TestServiceLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &throttletest.Server{Handler: &throttletest.Service{Workers: 1, Work: throttletest.Span{Min: time.Second}}}
		begun := time.Now()
		ask := func(patience time.Duration) (took time.Duration, err error) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, "GET", server.URL(), nil)
			_, err = server.RoundTrip(req)
			return time.Since(begun), err
		}
		var all sync.WaitGroup
		for _, c := range []struct {
			patience, took time.Duration
			fails          bool
		}{{700 * ms, 700 * ms, true}, {300 * ms, 300 * ms, true}, {time.Hour, 1700 * ms, false}} {
			all.Go(func() {
				if took, err := ask(c.patience); took != c.took || (err != nil) != c.fails {
					t.Errorf("after %v, %v; want %v", took, err, c.took)
				}
			})
			synctest.Wait()
		}
		all.Wait()
	})
}

// TestServiceConserves: whatever comes, changes and leaves, no more work is done than there was time for, and what stays is done.
func TestServiceConserves(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			workers := 1 + r.IntN(5)
			service := &throttletest.Service{Workers: workers, Share: r.IntN(2) == 0, Work: throttletest.Span{Min: 100 * ms}}
			begun, n := time.Now(), 10+r.IntN(50)
			var all sync.WaitGroup
			left := 0
			for range n {
				time.Sleep(time.Duration(r.IntN(50)) * ms)
				ctx, cancel := context.WithCancel(t.Context())
				if r.IntN(5) == 0 {
					left++
					time.AfterFunc(time.Duration(r.IntN(100))*ms, cancel)
				}
				all.Go(func() {
					defer cancel()
					service.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx))
				})
				if r.IntN(10) == 0 {
					service.Change(func(s *throttletest.Service) { s.Others = r.Float64() / 2 })
				}
			}
			service.Change(func(s *throttletest.Service) { s.Others = 0 })
			all.Wait()
			took := time.Since(begun)
			if least := time.Duration(n-left) * 100 * ms / time.Duration(workers); took < least {
				t.Errorf("seed %d: %d requests after %v, by %d workers", seed, n-left, took, workers)
			}
			if most := time.Duration(n) * 250 * ms; took > most {
				t.Errorf("seed %d: %d requests only after %v", seed, n, took)
			}
		})
	}
}

// TestServiceSpan: the means and shares of random times are what the fields say.
func TestServiceSpan(t *testing.T) {
	for name, c := range map[string]struct {
		span   throttletest.Span
		mean   time.Duration
		median time.Duration
	}{
		"exponential": {throttletest.Span{Mean: time.Second}, time.Second, 693 * ms},
		"lognormal":   {throttletest.Span{Mean: time.Second, Sigma: 0.5}, time.Second, 882 * ms},
		"shifted":     {throttletest.Span{Min: time.Second, Mean: time.Second, Sigma: 0.5}, 2 * time.Second, 1882 * ms},
		"slow":        {throttletest.Span{Min: 100 * ms, Slow: 0.1, SlowBy: 10}, 190 * ms, 100 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			const n = 2000
			service := &throttletest.Service{Work: c.span, Seed: 1}
			took := make([]time.Duration, n)
			var all sync.WaitGroup
			for i := range took {
				all.Go(func() {
					begun := time.Now()
					service.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
					took[i] = time.Since(begun)
				})
			}
			all.Wait()
			slices.Sort(took)
			var sum time.Duration
			for _, d := range took {
				sum += d
			}
			near := func(a, b time.Duration) bool { return math.Abs(float64(a-b)) < 0.05*float64(b) }
			if mean, median := sum/n, took[n/2]; !near(mean, c.mean) || !near(median, c.median) {
				t.Errorf("%s: mean %v, median %v, want %v, %v", name, mean, median, c.mean, c.median)
			}
		})
	}
}

// TestServiceNonsense: a field that cannot be is said to whoever sends a request.
func TestServiceNonsense(t *testing.T) {
	for want, s := range map[string]*throttletest.Service{
		"negative Workers -1":   {Workers: -1},
		"Loss -1":               {Workers: 1, Share: true, Loss: -1},
		"a Loss without Share":  {Workers: 1, Loss: 1},
		"Others 2 is not a":     {Others: 2},
		"Work: negative: Min -": {Work: throttletest.Span{Min: -1}},
		"Slow of 2 is not a":    {Work: throttletest.Span{Slow: 2}},
		"Sigma -1":              {Work: throttletest.Span{Sigma: -1}},
	} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%d %s, want %s", w.Code, w.Body, want)
		}
	}
}
