package throttletest

import (
	"container/heap"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// A Service is an http.Handler that takes time, and more of it the more it has to do: an upstream that has no limit, but is not
// able to do everything at once. Use it as Server.Handler, in virtual time, or in an http.Server.
//
//	Service{Work: Span{Mean: 50 * time.Millisecond}}  // free: nobody delays anybody
//	Service{Workers: 10, Work: ...}                   // a pool of 10, in front of which the others wait
//	Service{Workers: 16, Share: true, Work: ...}      // 16 cores, for which all requests compete
//	Service{Workers: 16, Share: true, Loss: 0.05, Work: ...} // the same, which collapses: at 26 requests they do what 11 cores do
//
// A request whose client leaves is given up. Set the fields before the first use, and later by Change. A Service is safe for
// concurrent use, and must not be copied.
type Service struct {
	Workers int     // requests that get on at full speed at once; 0: any number
	Share   bool    // beyond that all get on more slowly, equally (processor sharing). False: they wait, first come first served
	Loss    float64 // with Share: what each request beyond Workers costs, as a share: with n of them 1/(1 + Loss·n) of the work gets done
	Others  float64 // the share of all this that others use, from 0 to 1. At 1 nothing gets on: a stall, a deploy
	Work    Span    // how long a request takes at full speed

	Handler http.Handler // answers when that is done; nil: 200 without a body
	Seed    uint64       // of all that is random: the n-th request takes the same time at full speed

	mu   sync.Mutex
	rng  *rand.Rand
	busy tasks   // get on, all at the same speed
	line []*task // wait, the oldest first
	at   time.Time
	done float64     // by each that gets on, in ns, until at. It begins anew when nothing gets on
	next *time.Timer // for when the first of busy is done
}

// A task is one request. It is in busy or in line until it is done or its client leaves, so whoever has the lock decides which of
// the two comes first.
type task struct {
	work  float64 // ns at full speed
	due   float64 // in busy: what done will be when it is done
	index int     // in busy, or -1
	over  chan struct{}
}

// ServeHTTP implements http.Handler. It answers 500 if a field has an impossible value.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, err := s.enter()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	select {
	case <-t.over:
	case <-r.Context().Done():
		s.leave(t)
		return
	}
	if s.Handler != nil {
		s.Handler.ServeHTTP(w, r)
	}
}

// Change calls f, which may set all fields but Handler and Seed, as of now: a new Work for the requests that come later, the others for
// those that are there, too. f must not call other methods.
func (s *Service) Change(f func(*Service)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advanceLocked()
	f(s)
	s.settleLocked()
}

// enter takes a request in.
func (s *Service) enter() (*task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(); err != nil {
		return nil, err
	}
	if s.rng == nil {
		s.rng = rand.New(rand.NewPCG(s.Seed, 2))
	}
	s.advanceLocked()
	t := &task{work: float64(s.Work.draw(s.rng)), index: -1, over: make(chan struct{})}
	s.line = append(s.line, t)
	s.settleLocked()
	return t, nil
}

// leave gives a request up, unless it is done.
func (s *Service) leave(t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advanceLocked()
	if t.index >= 0 {
		heap.Remove(&s.busy, t.index)
	} else if i := slices.Index(s.line, t); i >= 0 {
		s.line = slices.Delete(s.line, i, i+1)
	}
	s.settleLocked()
}

// check says what is wrong with the fields.
func (s *Service) check() error {
	switch err := s.Work.check(); {
	case err != nil:
		return fmt.Errorf("throttletest: Service.Work: %w", err)
	case s.Workers < 0 || !(s.Loss >= 0) || !(0 <= s.Others && s.Others <= 1):
		return fmt.Errorf("throttletest: Service: negative Workers %d or Loss %v, or Others %v is not a share", s.Workers, s.Loss, s.Others)
	case s.Loss > 0 && !s.Share:
		return errors.New("throttletest: Service: a Loss without Share")
	}
	return nil
}

// speed is that of each of n requests that get on.
func (s *Service) speed(n int) float64 {
	all := float64(s.Workers) * (1 - s.Others)
	if s.Workers == 0 {
		return 1 - s.Others
	}
	return min(1, all/float64(n)) / (1 + s.Loss*float64(max(0, n-s.Workers)))
}

// beginLocked lets those get on for whom there is room. After a change of Workers more may be busy than that: they share what there is.
func (s *Service) beginLocked() {
	for len(s.line) > 0 && (s.Share || s.Workers == 0 || len(s.busy) < s.Workers) {
		t := s.line[0]
		s.line[0], s.line = nil, s.line[1:]
		if len(s.busy) == 0 {
			s.done = 0
		}
		t.due = s.done + t.work
		heap.Push(&s.busy, t)
	}
}

// settleLocked lets begin what can, and sets the timer.
func (s *Service) settleLocked() {
	s.beginLocked()
	switch {
	case len(s.busy) == 0 || s.speed(len(s.busy)) == 0:
		if s.next != nil {
			s.next.Stop()
		}
	case s.next == nil:
		s.next = time.AfterFunc(s.first(), func() { s.Change(func(*Service) {}) })
	default:
		s.next.Reset(s.first())
	}
}

// first is how long it takes until the first of busy is done. A tenth of a nanosecond is an error of the reckoning.
func (s *Service) first() time.Duration {
	return time.Duration(min(math.MaxInt64/2, math.Ceil((s.busy[0].due-s.done)/s.speed(len(s.busy))-0.1)))
}

// advanceLocked lets happen what was due by now. With each request that is done the others get faster, and the next in the line begins at
// that moment, however late this is.
func (s *Service) advanceLocked() {
	for now := time.Now(); ; {
		d, to := now.Sub(s.at), now
		ends := len(s.busy) > 0 && s.speed(len(s.busy)) > 0 && s.first() <= d
		if ends {
			to = s.at.Add(s.first())
		}
		if len(s.busy) > 0 {
			s.done += float64(to.Sub(s.at)) * s.speed(len(s.busy))
		}
		if s.at = to; !ends {
			return
		}
		s.done = s.busy[0].due
		close(heap.Pop(&s.busy).(*task).over)
		s.beginLocked()
	}
}

// tasks is a heap: who is done first is first.
type tasks []*task

func (b tasks) Len() int           { return len(b) }
func (b tasks) Less(i, j int) bool { return b[i].due < b[j].due }
func (b tasks) Swap(i, j int) {
	b[i], b[j] = b[j], b[i]
	b[i].index, b[j].index = i, j
}

func (b *tasks) Push(x any) {
	t := x.(*task)
	t.index = len(*b)
	*b = append(*b, t)
}

func (b *tasks) Pop() any {
	t := (*b)[len(*b)-1]
	(*b)[len(*b)-1] = nil
	*b = (*b)[:len(*b)-1]
	t.index = -1
	return t
}
