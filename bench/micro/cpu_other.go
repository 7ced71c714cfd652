//go:build !unix

package micro

import "time"

// CPUTime is unknown here: 0.
func CPUTime() time.Duration { return 0 }
