//go:build !unix

package micro

import "time"

// cpuTime is unknown here.
func cpuTime() time.Duration { return 0 }
