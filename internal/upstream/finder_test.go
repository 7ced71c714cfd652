package upstream

import (
	"math"
	"testing"
	"time"
)

// held is a finder that holds 100/s from zero on, for so many seconds.
func held(hold float64) *finder {
	return &finder{phase: holding, w: 100, top: 100, since: zero, next: zero, lastCut: zero, hold: hold,
		keep: 0.88, gain: 0.3, usual: 1, accepted: true, cuts: 1, window: math.Inf(1)}
}

func in(f *finder, change func(*finder)) *finder {
	change(f)
	return f
}

// A first throttled answer begins a ramp from 20/s, or from what was served for longer; after a large first burst the
// window that it suggests is held at once, for five pauses.
func TestFirstThrottledAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		burst, window, flow float64
		phase               findPhase
		rate, hold          float64
	}{
		"nothing known":           {10, math.Inf(1), 0, ramping, 20, 0},
		"served for longer":       {10, math.Inf(1), 60, ramping, 60, 0},
		"served less":             {10, math.Inf(1), 5, ramping, 20, 0},
		"a bucket's burst":        {84, 1, 0, ramping, 20, 0},
		"a window":                {100, 1, 0, holding, 95, 10},
		"a window, just":          {80, 0.95, 0, holding, 80, 10},
		"a window of two seconds": {400, 2, 60, holding, 190, 10},
	} {
		f := newFinder(zero, firstThrottle{until: at(2), burst: c.burst, window: c.window, servedRate: c.flow})
		if f.phase != c.phase || !near(f.rate(at(2)), c.rate) || f.hold != c.hold || f.short != (c.phase == holding) || c.phase == holding && f.top != f.w {
			t.Errorf("%s: phase %d at %v a second for %v s; short %v of %v", name, f.phase, f.rate(at(2)), f.hold, f.short, f.top)
		}
		if !f.next.Equal(at(2)) || !f.since.Equal(at(2)) || !f.lastCut.Equal(zero) || f.pause != 2 || f.keep != 0.88 || f.gain != 0.3 || f.throttled != 1 || f.usual != 1 {
			t.Errorf("%s: next after %v, from %v, pause %v", name, f.next.Sub(zero), f.since.Sub(zero), f.pause)
		}
	}
}

// A ramp doubles in 160 ms, a probe in 5 s, a hold stays; when it is over a probe begins.
func TestPhases(t *testing.T) {
	for name, c := range map[string]struct {
		f    *finder
		at   float64
		rate float64
	}{
		"ramp":                   {&finder{from: 20, double: 0.16, since: zero}, 0.32, 80},
		"ramp, before it begins": {&finder{from: 20, double: 0.16, since: at(1)}, 0.32, 20},
		"ramp, for ever":         {&finder{from: 20, double: 0.16, since: zero}, 1e6, 20 * math.Exp2(40)},
		"hold":                   {held(10), 9.9, 100},
		"probe":                  {in(held(0), func(f *finder) { f.phase = probing }), 10, 400},
		"probe, for ever":        {in(held(0), func(f *finder) { f.phase = probing }), 1e6, 100 * math.Exp2(40)},
	} {
		if got := c.f.rate(at(c.at)); !near(got, c.rate) {
			t.Errorf("%s: %v a second, want %v", name, got, c.rate)
		}
	}
	for _, short := range []bool{false, true} {
		f := in(held(10), func(f *finder) { f.throttled, f.short = 5, short })
		if f.rate(at(9.99)); f.phase != holding || f.throttled != 5 {
			t.Errorf("short %v: phase %d before its end", short, f.phase)
		}
		rate, usual := f.rate(at(10)), 1+0.3*4
		if short {
			usual = 1
		}
		if rate != 100 || f.phase != probing || !f.since.Equal(at(10)) || f.throttled != 0 || !near(f.usual, usual) {
			t.Errorf("short %v: %v a second in phase %d from %v, %v throttled, usually %v", short, rate, f.phase, f.since.Sub(zero), f.throttled, f.usual)
		}
		if got := f.rate(at(9)); got != 100 {
			t.Errorf("sent in the hold before: at %v", got)
		}
		if got := f.rate(at(15)); !near(got, 200) {
			t.Errorf("sent in the probe: at %v", got)
		}
	}
}

// Starts are spaced at the rate, 5 ms of a late timer are caught up with; what nobody used is left out, and
// raises nothing.
func TestIdleTimeIsLeftOut(t *testing.T) {
	for name, c := range map[string]struct {
		phase             findPhase
		at                float64
		n                 int
		next, since, idle float64
	}{
		"in time":          {holding, 1, 1, 1.01, 0, 0},
		"three units":      {holding, 1, 3, 1.03, 0, 0},
		"5 ms late":        {holding, 1.005, 1, 1.01, 0, 0},
		"6 ms late":        {holding, 1.006, 1, 1.011, 0, 0.006},
		"early":            {holding, 0.9, 1, 1.01, 0, 0},
		"idle in a hold":   {holding, 2, 1, 2.005, 0, 1},
		"idle in a probe":  {probing, 2, 1, 2.005, 1, 1},
		"idle in a ramp":   {ramping, 2, 1, 2.005, 1, 1},
		"idle from before": {probing, 1.5, 1, 1.505, 0.5, 0.5},
	} {
		f := held(99)
		f.phase, f.next, f.from = c.phase, at(1), 100
		rate := f.rate(at(c.at))
		f.take(c.n, at(c.at))
		if c.phase != holding {
			c.next += 1/rate - 0.01
		}
		if (f.next.Sub(at(c.next))).Abs() > 2 || !f.since.Equal(at(c.since)) || !near(f.idle, c.idle) && f.idle != c.idle {
			t.Errorf("%s: next after %v, from %v, %v s idle; want %v", name, f.next.Sub(zero), f.since.Sub(zero), f.idle, c)
		}
	}
	f := held(99)
	f.phase, f.since, f.next = probing, at(3), at(1)
	if f.take(1, at(3.5)); !f.since.Equal(at(3.5)) {
		t.Errorf("a probe begins at the latest now, at %v", f.since.Sub(zero))
	}
	f = held(99)
	f.w = 1e-9
	if f.take(1, zero); f.step != time.Hour {
		t.Errorf("at most an hour between two starts: %v", f.step)
	}
	f = held(99)
	f.take(1, at(0.001))
	next := f.next
	f.take(2, at(0.02))
	f.undo()
	if f.undo(); f.next.Sub(next) > 5*time.Millisecond || f.next.Before(next) {
		t.Errorf("an undone start leaves the next after %v, want %v", f.next.Sub(zero), next.Sub(zero))
	}
}

// What is accepted counts since the last cut, and in its epoch; of the first burst it counts for that.
func TestAccepted(t *testing.T) {
	for name, c := range map[string]struct {
		f                 func(f *finder)
		current           bool
		units, now, burst float64
		accepted, holds   bool
	}{
		"current":              {func(*finder) {}, true, 3, 3, 30, true, false},
		"of the first burst":   {func(*finder) {}, false, 0, 0, 33, false, false},
		"a window shows":       {func(f *finder) { f.burst = 82 }, false, 0, 0, 85, false, true},
		"an old one, later":    {func(f *finder) { f.accepted = true }, false, 3, 0, 30, true, false},
		"after a cut":          {func(f *finder) { f.cuts = 1 }, false, 3, 0, 30, false, false},
		"current, after a cut": {func(f *finder) { f.cuts = 1 }, true, 3, 3, 30, true, false},
	} {
		f := in(newFinder(zero, firstThrottle{until: at(1), burst: 30, window: 1}), c.f)
		f.accept(3, at(2), c.current)
		if f.units != c.units || f.current != c.now || f.burst != c.burst || f.accepted != c.accepted || (f.phase == holding) != c.holds {
			t.Errorf("%s: %v units, %v in this epoch, burst %v, accepted %v, phase %d", name, f.units, f.current, f.burst, f.accepted, f.phase)
		}
	}
}

// One event cuts once: of a current epoch, when something was accepted since, and where no time is advertised not
// within four round trips or three units of the last.
func TestOneCutAnEvent(t *testing.T) {
	for name, c := range map[string]struct {
		f                   func(f *finder)
		now, srtt           float64
		current, advertised bool
		want                bool
	}{
		"a new event":             {func(*finder) {}, 1, 0.05, true, false, true},
		"an old epoch":            {func(*finder) {}, 1, 0.05, false, false, false},
		"nothing accepted":        {func(f *finder) { f.accepted = false }, 1, 0.05, true, true, false},
		"within four round trips": {func(*finder) {}, 0.199, 0.05, true, false, false},
		"after four round trips":  {func(*finder) {}, 0.2, 0.05, true, false, true},
		"within three units":      {func(*finder) {}, 0.029, 0, true, false, false},
		"after three units":       {func(*finder) {}, 0.03, 0, true, false, true},
		"within, but advertised":  {func(*finder) {}, 0.01, 0.05, true, true, true},
		"within, but in a probe":  {func(f *finder) { f.phase = probing }, 0.01, 0.05, true, false, true},
	} {
		f := in(held(99), func(f *finder) { f.units, f.current, f.idle = 50, 40, 0.001; c.f(f) })
		phase := f.phase
		cut := f.throttle(at(c.now-0.005), at(c.now), at(c.now+2), c.current, c.advertised, span(c.srtt))
		if cut != c.want || f.throttled != 1 {
			t.Errorf("%s: cut %v, %v throttled", name, cut, f.throttled)
		}
		if cut && (f.phase != holding || !f.lastCut.Equal(at(c.now)) || f.units != 0 || f.idle != 0 || f.accepted || f.cuts != 2 || f.w >= 100 && phase == holding) {
			t.Errorf("%s: phase %d at %v, last cut %v, %v units, %v idle, accepted %v, %d cuts", name, f.phase, f.w, f.lastCut.Sub(zero), f.units, f.idle, f.accepted, f.cuts)
		}
		if !cut && (f.cuts != 1 || f.w != 100 || f.units != 50 || !f.lastCut.Equal(zero)) {
			t.Errorf("%s: %d cuts, at %v, %v units", name, f.cuts, f.w, f.units)
		}
		current, pause := 40.0, 0.0
		if c.current {
			current, pause = 0, 2
		}
		if f.current != current || !near(f.pause, pause) && f.pause != pause || !f.since.Equal(at(c.now+2)) || !f.next.Equal(at(c.now+2)) {
			t.Errorf("%s: %v in the epoch, pause %v, from %v, next after %v", name, f.current, f.pause, f.since.Sub(zero), f.next.Sub(zero))
		}
	}
	f := held(99)
	f.phase, f.since = probing, at(0.5)
	if f.throttle(at(0.6), at(1), at(3), false, true, 0); !f.since.Equal(at(0.5)) || !f.next.Equal(at(3)) {
		t.Errorf("a stale answer moves a probe to %v, next after %v", f.since.Sub(zero), f.next.Sub(zero))
	}
	f = held(99)
	f.next = at(9)
	if f.throttle(at(0.6), at(1), at(1), true, true, 0); !f.since.Equal(zero) || !f.next.Equal(at(9)) {
		t.Errorf("a throttled answer that closes nothing: from %v, next after %v", f.since.Sub(zero), f.next.Sub(zero))
	}
	f = held(99)
	f.w, f.short = 0.1, true
	if f.throttle(at(0.6), at(100), at(101), true, true, 0); f.w != leastRate || f.hold != 50 {
		t.Errorf("%v a second for %v s, want no less than %v, for five units", f.w, f.hold, leastRate)
	}
}

// A hold lasts until what a throttled answer costs is 1 % of what is sent, and 4.5 % of its time; a short one ten units
// and half a second, or five closings; none longer than two minutes or five closings.
func TestHoldLasts(t *testing.T) {
	for name, c := range map[string]struct {
		w, usual, cost float64
		short          bool
		want           float64
	}{
		"for an answer":        {100, 1, 0.01, false, 1},
		"for fewer":            {100, 0.2, 0.01, false, 1},
		"for three":            {100, 3, 0.01, false, 3},
		"for a closing":        {100, 1, 1, false, 1 / 0.045},
		"two minutes":          {0.5, 1, 1, false, 120},
		"a long closing":       {100, 1, 40, false, 200},
		"short":                {100, 1, 0.01, true, 0.5},
		"short, ten units":     {5, 1, 0.01, true, 2},
		"short, ten seconds":   {0.5, 1, 0.01, true, 10},
		"short, five closings": {100, 1, 1, true, 5},
	} {
		f := &finder{w: c.w, usual: c.usual, short: c.short}
		if f.plan(c.cost); !near(f.hold, c.want) {
			t.Errorf("%s: %v s, want %v", name, f.hold, c.want)
		}
	}
	f := held(1)
	f.throttle(at(0.99), at(1), at(3), true, true, span(0.1))
	if want := 2 / 0.045; !near(f.hold, want) {
		t.Errorf("closed for 2 s: held for %v s, want %v", f.hold, want)
	}
	f = held(1)
	f.throttle(at(0.99), at(1), at(1), true, true, span(0.1))
	if want := 0.1 / 0.045; !near(f.hold, want) {
		t.Errorf("not closed: held for %v s, want %v: a round trip's", f.hold, want)
	}
}

// A window that was supposed begins later by what was throttled of the first burst, at most a quarter of the pause.
func TestFirstBurstCountsLonger(t *testing.T) {
	for name, c := range map[string]struct {
		f    func(f *finder)
		want float64
	}{
		"throttled a tenth": {func(f *finder) { f.throttled, f.burst = 10, 90 }, 0.2},
		"throttled most":    {func(f *finder) { f.throttled, f.burst = 90, 10 }, 0.5},
		"after a cut":       {func(f *finder) { f.throttled, f.burst, f.cuts = 10, 90, 1 }, 0},
		"no window":         {func(f *finder) { f.throttled, f.burst, f.phase = 10, 90, ramping }, 0},
	} {
		f := in(&finder{phase: holding, pause: 2}, c.f)
		if got := f.weight(); got != span(c.want) {
			t.Errorf("%s: %v, want %v s", name, got, c.want)
		}
	}
	f := newFinder(zero, firstThrottle{until: at(1), burst: 100, window: 1})
	if f.throttle(at(-0.1), at(0.1), at(1.1), false, true, 0); (f.next.Sub(at(1.1)) - span(2.0/102)).Abs() > 2 {
		t.Errorf("next after %v", f.next.Sub(zero))
	}
}

// What a throttled answer makes of the rate: below the ramp's and below what was accepted; the share of a probe's that
// is known to hold.
func TestCut(t *testing.T) {
	probe := func(f *finder) { f.phase, f.row = probing, 2 }
	for name, c := range map[string]struct {
		f          func(f *finder)
		rs         float64
		advertised bool
		w          float64
		good, keep float64
		gain       float64
		short      bool
	}{
		"ramp":                        {func(f *finder) { f.phase, f.units = ramping, 200 }, 200, false, 95, 0, 0.88, 0.3, true},
		"ramp, much accepted":         {func(f *finder) { f.phase, f.units = ramping, 2000 }, 200, false, 140, 0, 0.88, 0.3, true},
		"probe":                       {probe, 105, false, 100, 100, 0.9115, 0.3, false},
		"probe, far":                  {probe, 150, false, 0.9115 * 150, 100, 0.9115, 0.3, false},
		"probe, hardly begun":         {probe, 100.5, false, 0.99 * 100.5, 100, 0.9115, 0.3, false},
		"probe, just begun":           {probe, 100, false, 99, 100, 0.9115, 0.3, false},
		"probe, sent before":          {probe, 99, false, 98, 100, 0.9115, 0.3, false},
		"probe, after a short hold":   {func(f *finder) { probe(f); f.short = true }, 110, false, 100, 0, 0.88, 0.3, false},
		"probe, cautious":             {func(f *finder) { probe(f); f.gain = 0.1 }, 110, false, 100, 100, 0.88 + 0.1*0.105, 0.13, false},
		"probe, all that may be kept": {func(f *finder) { probe(f); f.keep = 0.99 }, 110, false, 0.99 * 110, 100, 0.99, 0.3, false},
	} {
		f := in(held(99), c.f)
		f.cut(c.rs, at(2), c.advertised)
		if !near(f.w, c.w) || f.good != c.good || !near(f.keep, c.keep) || !near(f.gain, c.gain) || f.short != c.short {
			t.Errorf("%s: %v a second, good %v, keep %v, gain %v, short %v", name, f.w, f.good, f.keep, f.gain, f.short)
		}
		if f.short == false && (f.row != 0 || f.top != f.w) || f.short && name[0] == 'r' && f.throttled != 1 {
			t.Errorf("%s: row %d, top %v, throttled %v", name, f.row, f.top, f.throttled)
		}
	}
}

// After an advertised pause the burst has come back: where a ramp is throttled says the rate above which it was
// emptied.
func TestRampAfterAdvertisedPause(t *testing.T) {
	for name, c := range map[string]struct {
		burst, pause, units, since, rs float64
		want                           float64
	}{
		"accepted, less the burst": {90, 1000, 300, 2, 300, 0.95 * 210 / 2},
		"most was the burst":       {90, 1000, 100, 0.5, 200, 0.95 * 50 / 0.5},
		"the burst in the pause":   {90, 0.6, 100, 0.5, 300, 0.95 * 150},
		"no more than accepted":    {90, 0.3, 100, 0.5, 300, 0.95 * 200},
		"no more than the ramp's":  {10, 100, 100, 0.5, 200, 0.7 * 200},
		"what the ramp crossed":    {10, 100, 10, 0.5, 200, 0.95 * crossed(200, 10, 0.16)},
	} {
		f := &finder{from: 20, double: 0.16, burst: c.burst, pause: c.pause, units: c.units, since: at(1 - c.since), lastCut: at(-9)}
		if f.cut(c.rs, at(1), true); !near(f.w, c.want) {
			t.Errorf("%s: %v a second, want %v", name, f.w, c.want)
		}
	}
	tau := 0.16 / math.Ln2
	for _, rate := range []float64{5, 50, 150} {
		burst := tau * (200 - rate - rate*math.Log(200/rate))
		if got := crossed(200, burst, 0.16); math.Abs(got-rate) > 1e-4 {
			t.Errorf("a ramp to 200 that empties %v has crossed %v, want %v", burst, got, rate)
		}
	}
}

// What a throttled answer makes of a rate that was held: two bracket it if no time is advertised; else it goes down by what
// the epoch says, twice as far for each in a row, back to the last that was held in full.
func TestLower(t *testing.T) {
	for name, c := range map[string]struct {
		f          func(f *finder)
		acc        float64
		advertised bool
		w, keep    float64
		row        int
		good       float64
		short      bool
	}{
		"bracketed":                     {func(f *finder) { f.units = 20 }, 90, false, 0.985 * 90, 0.88 * 0.9, 0, 0, false},
		"bracketed, low":                {func(f *finder) { f.units = 20 }, 10, false, 50, 0.88 * 0.9, 0, 0, true},
		"bracketed, high":               {func(f *finder) { f.units = 20 }, 200, false, 99, 0.88 * 0.99, 0, 0, false},
		"too few":                       {func(f *finder) { f.units, f.current = 19, 100 }, 50, false, 96, 0.88 * 0.96, 0, 0, false},
		"advertised":                    {func(f *finder) { f.units, f.current = 99, 100 }, 50, true, 96, 0.88 * 0.96, 0, 0, false},
		"advertised, many in the epoch": {func(f *finder) { f.units, f.current = 99, 4000 }, 50, true, 99, 0.88 * 0.99, 0, 0, false},
		"advertised, few":               {func(f *finder) { f.current = 5 }, 50, true, 80, 0.88 * 0.9, 0, 0, false},
		"advertised, none":              {func(*finder) {}, 50, true, 80, 0.88 * 0.9, 0, 0, false},
		"advertised, accepted":          {func(*finder) {}, 95, true, 0.98 * 95, 0.88 * 0.931, 0, 0, false},
		"advertised, all accepted":      {func(*finder) {}, 200, true, 99, 0.88 * 0.99, 0, 0, false},
		"soon again, many in the epoch": {func(f *finder) { f.hold, f.current = 30, 4000 }, 50, true, 98, 0.88 * 0.98, 1, 0, false},
		"in full, lower than before":    {func(f *finder) { f.current, f.top = 100, 120 }, 50, true, 96, 0.88 * 0.96, 0, 0, false},
		"as good":                       {func(f *finder) { f.hold, f.current, f.good = 100, 100, 100 }, 50, true, 92, 0.88 * 0.92, 1, 100, false},
		"soon again":                    {func(f *finder) { f.hold, f.current = 30, 100 }, 50, true, 92, 0.88 * 0.92, 1, 0, false},
		"soon again, twice":             {func(f *finder) { f.hold, f.current, f.row, f.good = 100, 100, 1, 95 }, 50, true, 84, 0.88, 2, 0, false},
		"soon again, often":             {func(f *finder) { f.hold, f.current, f.row = 100, 100, 3 }, 50, true, 68, 0.88, 3, 0, true},
		"soon again, few":               {func(f *finder) { f.hold, f.row = 100, 3 }, 50, true, 60, 0.88, 3, 0, true},
		"after a short hold":            {func(f *finder) { f.short, f.current = true, 100 }, 50, true, 92, 0.88 * 0.92, 1, 0, false},
		"back to the good one":          {func(f *finder) { f.hold, f.current, f.good = 100, 100, 97 }, 50, true, 97, 0.88 * 0.97, 1, 97, false},
		"nearly as good":                {func(f *finder) { f.hold, f.current, f.good = 100, 100, 99.9 }, 50, true, 99.5, 0.88 * 0.995, 1, 99.9, false},
		"a worse one":                   {func(f *finder) { f.hold, f.current, f.good = 100, 100, 80 }, 50, true, 92, 0.88 * 0.92, 1, 80, false},
		"a better one":                  {func(f *finder) { f.hold, f.current, f.good = 100, 100, 120 }, 50, true, 92, 0.88 * 0.92, 1, 120, false},
		"in full, good":                 {func(f *finder) { f.current, f.good = 100, 98 }, 50, true, 96, 0.88 * 0.96, 0, 98, false},
		"keep at least":                 {func(f *finder) { f.keep = 0.61 }, 50, true, 80, 0.6, 0, 0, false},
		"far below the top":             {func(f *finder) { f.hold, f.current, f.top = 100, 100, 123 }, 50, true, 92, 0.88 * 0.92, 1, 0, true},
		"a quarter below":               {func(f *finder) { f.hold, f.current, f.top = 100, 100, 122 }, 50, true, 92, 0.88 * 0.92, 1, 0, false},
		"half of the hold":              {func(f *finder) { f.hold, f.current, f.row = 20, 100, 1 }, 50, true, 96, 0.88 * 0.96, 0, 0, false},
	} {
		f := in(held(10), c.f)
		top := f.top
		if f.lower(c.acc, at(10), c.advertised); c.row == 0 {
			top = 100
		}
		if !near(f.w, c.w) || !near(f.keep, c.keep) || f.row != c.row || f.good != c.good || f.short != c.short || f.top != top || f.gain != 0.15 {
			t.Errorf("%s: %v a second, keep %v, row %d, good %v, short %v of %v, gain %v; want %+v", name, f.w, f.keep, f.row, f.good, f.short, f.top, f.gain, c)
		}
	}
	f := in(held(10), func(f *finder) { f.gain = 0.04 })
	if f.lower(50, at(10), true); f.gain != 0.03 {
		t.Errorf("gain %v, want at least 0.03", f.gain)
	}
	// The time in which nobody used it is left out.
	f = in(held(0.5), func(f *finder) { f.units, f.idle = 72, 0.2 })
	if f.cut(100, at(1), false); !near(f.w, 0.985*90) {
		t.Errorf("72 in 1 s, 0.2 s of it idle: %v a second, want 98.5 %% of 90", f.w)
	}
}

// Calls that were sent together may arrive in any order: what was sent right after the first throttled one,
// and was accepted, belongs to the burst that met it, and says nothing of the rate that came after.
func TestFirstBurstInAnyOrder(t *testing.T) {
	for name, c := range map[string]struct {
		after        float64 // seconds from the throttled call to the accepted one
		burst, units float64
	}{
		"before":        {-0.001, 6, 0},
		"with it":       {0.0025, 6, 0},
		"later":         {0.0026, 5, 1},
		"in the search": {0.2, 5, 1},
	} {
		f := newFinder(at(0.12), firstThrottle{
			until: at(0.14), burst: 5, window: math.Inf(1), servedRate: 60,
			opened: zero, sent: 8, served: 5, srtt: 20 * time.Millisecond,
		})
		f.throttle(at(0.1), at(0.12), at(0.14), false, false, 0)
		if f.accept(1, at(0.1+c.after), false); f.burst != c.burst || f.units != c.units {
			t.Errorf("%s: %v of the burst, %v after it; want %v, %v", name, f.burst, f.units, c.burst, c.units)
		}
	}
}

// Where the first throttled answer meets a reopening and the bucket cannot have filled since, what was accepted up to
// the second is the rate, to half a unit; the rest of the first second is held so low that it sees 1.02 of it.
func TestReopeningPaysItsBurstBack(t *testing.T) {
	first := firstThrottle{
		until: at(0.12), burst: 320, window: math.Inf(1), servedRate: 60,
		opened: zero, sent: 20, served: 18, srtt: 20 * time.Millisecond,
	}
	search := func(closed float64) *finder {
		r := first
		r.until = at(0.1 + closed)
		f := newFinder(at(0.1), r)
		f.throttle(at(0.09), at(0.1), r.until, false, false, 0)
		for i := range 25 { // 100/s from the throttled call on, as they would be accepted
			at := at(0.11 + 0.01*float64(i))
			f.take(1, at)
			f.accept(1, at, true)
		}
		f.throttle(at(0.34), at(0.35), at(0.37), true, false, 20*time.Millisecond)
		return f
	}
	f := search(0.02)
	if want := 25.5 / 0.25; !near(f.measured, want) || !near(f.w, (1.02*want-45)/0.65) || !near(f.hold, 0.65-0.02) {
		t.Errorf("found %v, holds %v for %v s", f.measured, f.w, f.hold)
	}
	if f := search(0.1); f.measured != 0 { // so long that the bucket may have filled
		t.Errorf("found %v after a closing in which the burst may have come back", f.measured)
	}
}
