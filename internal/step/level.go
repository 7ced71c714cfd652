package step

import "math/bits"

// A Level stands for how many attempts were in flight, in one byte, because each waiting call has one: exactly up to 128, and beyond that
// in steps of a thirty-second of the next lower power of two, up to 2,016. 0: it is not known.
//
// Example: 128 is level 128, 129 to 132 are level 129, 257 to 264 level 161, and all from 1,985 on 255.
type Level uint8

const (
	exact   = 128  // levels that stand for one number each
	steps   = 32   // levels of each octave above
	highest = 2016 // the most that has a level of its own
)

// LevelOf returns the level of n attempts in flight.
func LevelOf(n int) Level {
	if 0 <= n && n <= exact { // this part is inlined
		return Level(n)
	}
	return levelAbove(n)
}

func levelAbove(n int) Level {
	if n = min(n, highest); n < 0 {
		return 0
	}
	octave := bits.Len(uint(n-1)) - 8 // 129 to 256: 0
	return Level(exact + steps*octave + ((n-1)>>(octave+2) - steps) + 1)
}

// Most is the most attempts of that level.
func (l Level) Most() int {
	if l <= exact {
		return int(l)
	}
	octave, rest := int(l-exact-1)/steps, int(l-exact-1)%steps
	return (steps + rest + 1) << (octave + 2)
}
