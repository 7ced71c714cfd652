package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-throttle/throttle"
)

// shape is what the table has to know about a limit and a Limiter does not say: how long a number of calls
// takes under it.
type shape struct {
	units  float64       // so many units
	per    time.Duration // in so much time
	burst  int           // so many at once, after a pause
	window bool          // the units come back together at the end of a window, not one by one
}

// parseShape reads a limit in the shortest form that a throttle.Limit prints, whichever way it was written.
func parseShape(limit string) (shape, error) {
	var l throttle.Limit
	if err := l.UnmarshalText([]byte(limit)); err != nil {
		return shape{}, err
	}
	fields := strings.Fields(l.String())
	units, per, _ := strings.Cut(fields[0], "/")
	s := shape{burst: 1}
	var err error
	if s.units, err = strconv.ParseFloat(units, 64); err != nil {
		return shape{}, err
	}
	if s.per, err = parsePeriod(per); err != nil {
		return shape{}, err
	}
	if !(s.units > 0) {
		return shape{}, fmt.Errorf("a limit of %q admits no call", limit)
	}
	switch {
	case len(fields) == 3: // burst b
		s.burst, err = strconv.Atoi(fields[2])
	case len(fields) == 2 && fields[1] != "even": // window, sliding
		s.burst, s.window = int(s.units), true
	}
	return s, err
}

// parsePeriod reads the time after the slash as throttle.ParseLimit does: it asks for the rate of one unit in
// that time.
func parsePeriod(text string) (time.Duration, error) {
	one, err := throttle.ParseLimit("1/" + text + " even")
	if err != nil {
		return 0, err
	}
	return time.Duration(math.Round(1e9 / float64(one.(*throttle.Leaky).Limit()))), nil
}

// rate is the limit in calls a second.
func (s shape) rate() float64 { return s.units / s.per.Seconds() }

// ideal is the shortest time in which the limit admits so many calls, with its whole burst at the start.
func (s shape) ideal(calls int) time.Duration {
	late := max(0, calls-s.burst) // calls that cannot go at once
	if s.window {
		windows := (late + s.burst - 1) / s.burst
		return time.Duration(windows) * s.per
	}
	return time.Duration(float64(late) / s.rate() * float64(time.Second))
}
