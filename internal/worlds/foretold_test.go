package worlds

import (
	"errors"
	"slices"
	"time"

	"github.com/go-throttle/throttle"
)

func isTooLong(err error) bool { return errors.Is(err, throttle.ErrWaitTooLong) }

// predictions judges what was foretold: it comes true within 5 % or a unit if nobody has come or left meanwhile, no key
// has become live or dead, and nobody has changed a limit or a gate.
func (o *oracle) predictions() {
	started := map[*call]int64{}
	for _, e := range o.log {
		if e.kind == starts {
			started[e.c] = e.at
		}
	}
	for i, e := range o.log {
		o.now = e.at
		due, at := e.at+e.val, int64(-1)
		what := "when it began to wait (Hooks.Waiting)"
		switch e.kind {
		case foretold:
			if e.val <= 0 || o.manyCame(e) {
				continue
			}
			if s, ok := started[e.c]; ok {
				at = s
			}
		case predicted:
			if e.val < 0 || o.keys[e.key].spec.meter >= 0 { // what its calls are to hold is not said
				continue
			}
			what = "by Predict"
			if s, ok := started[e.c]; ok {
				at = s
			}
		case until:
			due, what = e.val, "by Explain's Until"
			for _, later := range o.log[i:] {
				if later.kind == starts && later.key == e.key {
					at = later.at
					break
				}
			}
		default:
			continue
		}
		if at < 0 || o.disturbed(i, at) {
			continue
		}
		o.claims["predict"]++
		if off := max(at-due, due-at); off > o.tolerance(e.key, due-e.at)+int64(slack) {
			id := 0
			if e.c != nil {
				id = e.c.id
			}
			o.found("predict", "a call of key %d (call %d) was foretold to wait for %v %s, and waits for %v; the key pays %s", e.key, id, time.Duration(due-e.at), what, time.Duration(at-e.at), o.payees(e.key))
		}
	}
}

// manyCame reports whether another call has come at the moment of an event.
func (o *oracle) manyCame(e event) bool {
	return slices.ContainsFunc(o.log, func(x event) bool { return x.at == e.at && x.kind == arrives && x.c != e.c })
}

// disturbed reports whether anything but starts and answers has happened after event i until a moment.
func (o *oracle) disturbed(i int, end int64) bool {
	probe, started := o.log[i].kind == predicted, map[int]int{}
	for _, e := range o.log[i+1:] {
		if e.at > end {
			break
		}
		switch e.kind {
		case starts: // of a key that is back in its turn
			if started[e.key]++; e.key != o.log[i].key && started[e.key] > o.room[o.log[i].at][e.key] {
				return true
			}
		case arrives:
			if !probe || e.c != o.log[i].c {
				return true
			}
		case leaves, paused, resumed, setRate:
			return true
		case answers:
			m := o.keys[e.key].spec.meter
			if e.val == neither || e.val == unknown || e.val == bad && m >= 0 && o.accounts[m].back { // units come back
				return true
			}
		}
	}
	return slices.ContainsFunc(o.flips, func(at int64) bool { return at >= o.log[i].at && at <= end })
}

func (o *oracle) tolerance(key int, wait int64) int64 {
	s := o.keys[key].spec
	step := time.Duration(0)
	for _, i := range s.pays {
		if a := o.accounts[i]; a.kind != bucket || a.rate > 0 {
			step = max(step, a.step())
		}
	}
	return max(int64(step), wait/20)
}

func (o *oracle) payees(key int) (names []string) {
	for _, i := range o.keys[key].spec.pays {
		names = append(names, o.accounts[i].name)
	}
	return names
}
