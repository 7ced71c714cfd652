package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/go-throttle/throttle/fleet/store"
)

// asUser runs f as another user is seen by the file system. It needs root.
func asUser(t *testing.T, uid int, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skipped: only root can be another user")
	}
	runtime.LockOSThread() // the user is one of the thread
	defer runtime.UnlockOSThread()
	defer syscall.Setfsuid(0)
	if err := syscall.Setfsuid(uid); err != nil {
		t.Fatal(err)
	}
	f()
}

// enterable lets any user enter a directory of the test.
func enterable(t *testing.T, dir string) string {
	t.Helper()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestFileUsers: another user is told why the file is not for him, until the owner lets him.
func TestFileUsers(t *testing.T) {
	const nobody = 65534
	dir := enterable(t, t.TempDir())
	path := filepath.Join(dir, "limits")
	mine := openAt(t, path, moment{1, 1 << 50, 0})
	take(t, mine, "x", ask("root", 1, 10, 1, 1, 0))
	asUser(t, nobody, func() {
		if f, err := OpenFile(path); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("a file of another user: %v, %v", f, err)
		}
		if f, err := OpenFile(filepath.Join(dir, "new")); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("a directory of another user: %v, %v", f, err)
		}
	})
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	asUser(t, nobody, func() {
		f := openAt(t, path, moment{1, 1 << 50, 0})
		if got := take(t, f, "x", ask("nobody", 1, 10, 1, 1, 0)); got.Members != 2 {
			t.Errorf("two users: %+v", got)
		}
		// The file goes, and no other one can be made: the limits go on without.
		if err := os.Remove(path); !errors.Is(err, fs.ErrPermission) {
			t.Error(err)
		}
	})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	asUser(t, nobody, func() {
		f := &File{path: path, clock: wallClock(), turn: make(chan struct{}, 1), buf: make([]byte, slotSize)}
		if _, err := f.Exchange(context.Background(), "x", ask("nobody", 2, 10, 1, 1, 0)); !errors.Is(err, fs.ErrPermission) || errors.Is(err, store.ErrLimit) {
			t.Errorf("the file is gone, and the directory another user's: %v", err)
		}
	})
}

// TestFileFullDisk: on a full disk limits that are in the file go on, and those that are not are refused alone.
func TestFileFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("skipped: no small disk can be mounted: ", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	path := filepath.Join(dir, "limits")
	f := openAt(t, path, moment{1, 1 << 50, 0})
	defer f.Close()
	in := 0
	for ; in < 100; in++ {
		if _, err := f.Exchange(t.Context(), fmt.Sprint(in), ask("a", 1, 10, 1, 1, 0)); err != nil {
			if !errors.Is(err, store.ErrLimit) || !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("a full disk: %v", err)
			}
			break
		}
	}
	if in < 5 || in > 16 {
		t.Errorf("%d limits of 16 KB on a disk of 256 KB", in)
	}
	for seq := range uint64(100) { // and as many members as there can be
		for i := range in {
			if got := take(t, f, fmt.Sprint(i), ask(fmt.Sprint(seq), 1, 10, 1, 1, 0)); got.Members < 2 && seq > 0 {
				t.Fatalf("limit %d: %+v", i, got)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "big"), make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if _, err := OpenFile(filepath.Join(dir, "new")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("no room for a file: %v", err)
	}
}
