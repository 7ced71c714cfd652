package fleet

import (
	"crypto/sha256"
	"encoding/binary"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// systemClock counts from the start of the machine (CLOCK_BOOTTIME), time asleep included. Its id is that of the start and of
// the time namespace, which may have an offset of its own. Where nothing tells them it is the wall clock.
func systemClock() (clock, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if _, ok := sinceStart(); err != nil || len(boot) == 0 || !ok {
		return wallClock(), nil
	}
	space, _ := os.Readlink("/proc/self/ns/time") // "": a kernel without them
	sum := sha256.Sum256(append(boot, space...))
	id := binary.LittleEndian.Uint64(sum[:])
	return clock{id, func() moment {
		now, _ := sinceStart()
		return moment{id, clockStart + now, time.Now().UnixMicro()}
	}}, nil
}

func sinceStart() (us int64, ok bool) {
	const bootTime = 7 // CLOCK_BOOTTIME of clock_gettime(2)
	var t syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, bootTime, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano() / 1000, errno == 0
}
