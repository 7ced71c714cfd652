//go:build !linux && !darwin

package fleet

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

func systemClock() (clock, error) {
	return clock{}, fmt.Errorf("on Linux and macOS only, not on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func tryLock(*os.File) (bool, error) { return false, errors.ErrUnsupported }

func unlock(*os.File) {}

func noRoom(error) bool { return false }
