//go:build linux || darwin

package fleet

import (
	"errors"
	"os"
	"syscall"
)

// tryLock locks a file for this handle, and reports whether it could: it does not wait for who has the lock.
func tryLock(f *os.File) (bool, error) {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch err {
		case nil:
			return true, nil
		case syscall.EINTR:
			continue
		case syscall.EWOULDBLOCK:
			return false, nil
		}
		return false, os.NewSyscallError("flock", err)
	}
}

func unlock(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) } // an open file that is locked: it cannot fail

// noRoom reports whether a write has failed for want of room.
func noRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
