package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-throttle/throttle/throttletest"
)

// A story is one run: what happens to the members, and what the upstream saw meanwhile.
type story struct {
	cfg      config
	job      job // of every member, but for its name
	place    place
	upstream *throttletest.Server

	mu     sync.Mutex
	all    []*member // in the order of their start
	phases []phase   // those that have begun
}

// A phase is a part of the story. Times are of the upstream's clock.
type phase struct {
	title    string
	from, to time.Duration // to is 0 until the phase is over
	trips    uint64        // to the store, before it, and then in it
}

// The modes of fleet.Stats that occur here.
const (
	shared = "shared"
	alone  = "alone" // the store does not answer
)

// whose reads for the ledger which process a call is of.
func whose(r *http.Request) (process, call string) { return r.URL.Query().Get("process"), "" }

// tell lets happen what is to happen. It ends early with ctx, or with an error when a phase does not come to its end.
func (s *story) tell(ctx context.Context, v view) error {
	third := min(3, s.cfg.processes)
	victim := fmt.Sprint(third)
	for _, step := range []struct {
		title string
		do    func() error
		until func() bool // it has happened; nil: nothing is waited for
	}{
		{fmt.Sprintf("%d processes", s.cfg.processes), s.startAll, s.everybody(shared)},
		{"process " + victim + " is killed", func() error { s.killed(victim); return nil }, nil},
		{"process " + victim + " runs again", func() error { return s.start(victim + " again") }, s.everybody(shared)},
		{"Redis hangs", func() error { s.place.stall(true); return nil }, s.everybody(alone)},
		{"Redis goes on", func() error { s.place.stall(false); return nil }, s.everybody(shared)},
	} {
		s.begin(step.title)
		v.begins(step.title)
		err := step.do()
		if err == nil {
			err = s.wait(ctx, step.until)
		}
		s.over()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("%s: %w", step.title, err)
		}
	}
	return nil
}

// begin begins a phase.
func (s *story) begin(title string) {
	trips := s.trips()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phases = append(s.phases, phase{title: title, from: s.upstream.Elapsed(), trips: trips})
}

// over ends the phase.
func (s *story) over() {
	trips := s.trips()
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.phases[len(s.phases)-1]
	p.to, p.trips = s.upstream.Elapsed(), trips-p.trips
}

// trips is how many there were to the store, as far as the members have reported them.
func (s *story) trips() (n uint64) {
	for _, m := range s.members() {
		stats, _ := m.look()
		n += stats.Trips
	}
	return n
}

// wait waits until the phase has had its time and until is true.
func (s *story) wait(ctx context.Context, until func() bool) error {
	begun := time.Now()
	for ctx.Err() == nil {
		took := time.Since(begun)
		if took >= s.cfg.each && (until == nil || until()) {
			return nil
		}
		if took > s.cfg.each+s.cfg.patience {
			return errors.New("the processes do not notice")
		}
		for _, m := range s.members() {
			if m.gone() && m.to == 0 {
				return fmt.Errorf("process %s has ended by itself", m.job.Process)
			}
		}
		rest(ctx, reportEvery/2)
	}
	return ctx.Err()
}

// start starts a member of that name.
func (s *story) start(name string) error {
	j := s.job
	j.Process = name
	from := s.upstream.Elapsed()
	m, err := s.place.start(j)
	if err != nil {
		return err
	}
	m.from = from
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, m)
	return nil
}

func (s *story) startAll() error {
	for i := range s.cfg.processes {
		if err := s.start(fmt.Sprint(i + 1)); err != nil {
			return err
		}
	}
	return nil
}

// members are those that have been started.
func (s *story) members() []*member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// killed kills a member.
func (s *story) killed(name string) {
	for _, m := range s.members() {
		if m.job.Process == name {
			m.kill()
			m.to = s.upstream.Elapsed()
		}
	}
}

// endAll lets all members end, and waits for them. One that does not end is killed.
func (s *story) endAll() {
	s.place.stall(false)
	for _, m := range s.members() {
		m.end()
	}
	for _, m := range s.members() {
		select {
		case <-m.done:
		case <-time.After(10 * time.Second):
			m.kill()
		}
	}
}

// everybody returns a func that tells whether all members that live are in that mode, and have had units in it.
func (s *story) everybody(mode string) func() bool {
	return func() bool {
		for _, m := range s.members() {
			if stats, ok := m.look(); !m.gone() && (!ok || stats.Mode != mode || stats.Used == 0 || mode == alone && stats.Alone == 0) {
				return false
			}
		}
		return true
	}
}
