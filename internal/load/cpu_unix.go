//go:build unix

package load

import (
	"syscall"
	"time"
)

// cpuTime is what this process has used, of user and system time.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return -1
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
