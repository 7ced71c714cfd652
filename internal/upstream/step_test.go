package upstream

import (
	"testing"

	"github.com/go-throttle/throttle/internal/step"
)

// holdFlight shows s throttled answers that all leave 20 in flight, and served ones that take 1 s and 3 s in turns.
func holdFlight(s *State, from float64) {
	s.find().flight = new(flight)
	for i := range 4 {
		sent := from + 10*float64(i)
		s.flight().Observe(&step.Sight{Throttled: true, Level: 21, InFlight: 20, Sent: at(sent), Now: at(sent + 0.1)})
		for _, took := range []float64{1, 3} {
			s.flight().Observe(&step.Sight{Level: 5, InFlight: 4, Sent: at(sent + 1), Now: at(sent + 1 + took)})
		}
	}
}

// While a number in flight is held the search for a rate rests: it holds nobody, and what starts does not raise its rate. If the hold
// ends it goes on where it was.
func TestSearchRestsWhileANumberIsHeld(t *testing.T) {
	s := newState(0)
	s.Start(0, 1, zero, zero)
	s.Observe(&Answer{Outcome: Throttled, Status: 429, Cost: 1, Sent: zero, InFlight: 1}, at(0.05))
	s.Resume(at(0.06))
	before, ok := s.search().Held(at(0.06))
	if holdFlight(s, 1); !ok || !s.holdsFlight() {
		t.Fatalf("a search: %v, a hold: %v; want both", ok, s.holdsFlight())
	}
	for i := range 10000 {
		now := at(50 + float64(i)/100)
		if next := s.searching().Next(); next.After(now) {
			t.Fatalf("a call waits for the search until %v", next)
		}
		s.Start(0, 1, now, now)
	}
	s.found.flight = nil
	if held, ok := s.search().Held(at(150)); !ok || held > 2*before {
		t.Errorf("held %v/s before, and %v/s after", before, held)
	}
}

// What is on trial is not named; a hold bounds what may be in flight.
func TestFlightOnTrial(t *testing.T) {
	s := newState(0)
	holdFlight(s, 1)
	if most := s.MostInFlight(at(50)); most != 20 || len(s.Learned(at(50))) > 0 || len(s.flightNews()) > 0 {
		t.Errorf("%d may be in flight, learned %+v; want 20 and nothing", most, s.Learned(at(50)))
	}
}
