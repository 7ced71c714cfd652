package fleet

import (
	"crypto/sha256"
	"encoding/binary"
	"syscall"
	"time"
)

// systemClock counts from the start of the machine. The kernel tells the moment of the start by the wall clock, and moves it
// when that is set; so the difference does not jump. Where it tells nothing it is the wall clock.
func systemClock() (clock, error) {
	session, err := syscall.Sysctl("kern.bootsessionuuid")
	if err != nil || session == "" || started() == 0 {
		return wallClock(), nil
	}
	sum := sha256.Sum256([]byte(session))
	id := binary.LittleEndian.Uint64(sum[:])
	return clock{id, func() moment {
		for {
			start := started()
			wall := time.Now().UnixMicro()
			if start == started() { // the clock was not set between the two
				return moment{id, clockStart + wall - start, wall}
			}
		}
	}}, nil
}

// started is when the machine was started, in µs of the wall clock.
func started() int64 {
	text, err := syscall.Sysctl("kern.boottime")
	if err != nil {
		return 0
	}
	return timeval(text)
}
