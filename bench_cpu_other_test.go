//go:build !unix

package throttle_test

import "time"

var cpuStart = time.Now()

// cpuTime is the time that has passed, where the system does not tell what this process has used.
func cpuTime() time.Duration { return time.Since(cpuStart) }
