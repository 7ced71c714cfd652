package micro

import (
	"runtime"
	"strings"
)

func memory() (m runtime.MemStats) {
	for range 3 { // the profile is two collections behind
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m
}

// ownBytes counts the live bytes that the functions of a prefix and what they called have allocated, without
// what the runtime needs to park a goroutine. Only what is allocated at MemProfileRate 1 is seen.
func ownBytes(prefix string) (sum float64) {
	n, _ := runtime.MemProfile(nil, false)
	records := make([]runtime.MemProfileRecord, n+1000)
	n, ok := runtime.MemProfile(records, false)
	if !ok {
		panic("micro: the heap profile outgrew its buffer")
	}
	for _, r := range records[:n] {
		if isOwn(r.Stack(), prefix) {
			sum += float64(r.InUseBytes())
		}
	}
	return sum
}

func isOwn(stack []uintptr, prefix string) bool {
	frames := runtime.CallersFrames(stack)
	for {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.acquireSudog":
			return false
		case strings.HasPrefix(f.Function, prefix):
			return true
		case !more:
			return false
		}
	}
}
