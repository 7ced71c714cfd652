package fleet

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/go-throttle/throttle/fleet/store"
)

// File is a [store.Store] in one file, for the processes of one machine: programs that are started again and again, cron jobs,
// agents. It needs no server. A program starts where the last one stopped: units that are used and pauses outlast
// processes and reboots. Make it with [OpenFile]. It is safe for concurrent use and must not be copied.
//
// It keeps the law of [Memory]. The processes take turns by a lock on the file (flock), for some tens of microseconds, and the
// kernel takes the lock from a process that ends. One that is killed in the middle of a write leaves what was there before; after
// a power cut a limit that cannot be read starts with an empty bucket. A pause that one process hears of reaches the others with
// their next exchange, at most [Options].Validity later. Times count from the start of the machine, so setting the clock changes
// nothing; a restart takes as long as the clock says, or no time if it was set back.
//
// The file grows to 16 MB at most, with holes: a limit takes 16 KB on the disk. It has places for about 900 limits. A limit
// that has been full for a minute gives its place to another one. If there is none, the error of Exchange matches
// store.ErrLimit, as it does on a full disk for limits that are not in the file yet. A limit remembers the last 150 or so
// processes of a minute; more share it too, with less ahead for each.
//
// The file belongs to who makes it, with mode 0600. If several users share it, such as a cron job and a program, make an empty
// file before the first run that all of them can read and write. If it is removed, the processes go on with a new one, and what
// they carry heals its limits.
type File struct {
	path    string
	clock   clock
	breaker store.Breaker
	turn    chan struct{} // holds one token while a goroutine has the turn; the rest belongs to it

	file   *os.File // nil: not open
	info   fs.FileInfo
	headed bool // its first line was checked
	closed bool
	buf    []byte // a slot
}

// How a goroutine comes to the file. There are two locks, taken in this order and given back in the other:
//
//	turn    of the File, because a process may have several goroutines at one handle, which flock does not part
//	flock   of the file, among handles: those of other processes, and of other Files of this one
//
// Why flock: it belongs to the handle, and the kernel drops it when the last copy of that is closed, by kill -9 too. A lock by
// fcntl belongs to the process: two Files of one path would not exclude each other, and closing one would open the other's
// lock. It is asked for without waiting, again and again: a wait for it does not end with ctx, and would hand the lock to
// a process that still has to be woken, which on a busy machine takes longer than a hundred exchanges.
//
//	killed between lock and unlock    the kernel unlocks; slots.go says what is in the file
//	stopped between them              others wait until their ctx ends, and go on without the store. When it goes on
//	                                  it still has the lock
//	removed or replaced meanwhile     who has the lock looks whether the path still leads to its file, and opens
//	                                  the new one if not. So who opens late and who opened early meet
//	Close, Exchange                   the turn says who is first; after Close Exchange fails

// OpenFile returns the File of that path, and makes it if there is none, but no directory. It does not wait. It fails if the file
// cannot be read and written by this user ([fs.ErrPermission]), has no directory ([fs.ErrNotExist]), is something else, or is on
// a file system without locks, and on systems other than Linux and macOS with an error that matches [errors.ErrUnsupported]. What
// goes wrong later is an error of the store: [Options].Mode says how calls go on, and [Limiter.Stats] has it in Err.
func OpenFile(path string) (*File, error) {
	c, err := systemClock()
	if err != nil {
		return nil, fmt.Errorf("throttle: fleet.OpenFile: %w", err)
	}
	return openFile(path, c)
}

func openFile(path string, c clock) (*File, error) {
	path, err := filepath.Abs(path)
	f := &File{path: path, clock: c, turn: make(chan struct{}, 1), buf: make([]byte, slotSize)}
	if err == nil {
		err = f.probe()
	}
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w (each user of the limits needs to be able to read and write the file)", err)
	}
	if err != nil {
		f.drop()
		return nil, fmt.Errorf("throttle: fleet.OpenFile: %w", err)
	}
	return f, nil
}

// probe opens the file, and looks whether it can be locked and what it is. It does not wait: if another process has the lock, that
// one may be about to write the first line.
func (f *File) probe() error {
	if err := f.openPath(); err != nil {
		return err
	}
	ok, err := f.tryLock()
	if err != nil {
		return err
	}
	if ok {
		defer unlock(f.file)
	}
	if ok || f.info.Size() >= int64(len(firstLine)) {
		return f.head(f.info.Size())
	}
	return nil
}

// Close closes the file. Its limiters go on as without a store, so close them before. It waits for an Exchange that is under
// way. A second call does nothing. A program may end without it.
func (f *File) Close() error {
	f.turn <- struct{}{}
	defer func() { <-f.turn }()
	f.closed = true
	return f.drop()
}

// Breaker returns what the limiters of this store have in common. [New] asks for it; programs do not.
func (f *File) Breaker() *store.Breaker { return &f.breaker }

// Exchange implements [store.Store], for package fleet; programs do not call it. It fails if ctx ends before the file's lock is
// free, for a limit that cannot be, and with what the file system says.
func (f *File) Exchange(ctx context.Context, name string, r store.Request) (store.Reply, error) {
	replies, err := f.ExchangeAll(ctx, []string{name}, []store.Request{r})
	if err != nil {
		return store.Reply{}, err
	}
	return replies[0], nil
}

// ExchangeAll is Exchange for several limits in one step, see [store.Store].
func (f *File) ExchangeAll(ctx context.Context, names []string, rs []store.Request) ([]store.Reply, error) {
	for i := range rs {
		if err := rs[i].Check(); err != nil {
			return nil, err
		}
	}
	replies, err := f.exchange(ctx, names, rs)
	if err != nil {
		return nil, fmt.Errorf("throttle: the limits in %s: %w", f.path, err)
	}
	return replies, nil
}

// exchange is the turn of one exchange: all limits are read, or get their places, before any of them changes, and
// nothing is granted that is not written.
func (f *File) exchange(ctx context.Context, names []string, rs []store.Request) (replies []store.Reply, err error) {
	if err := f.enter(ctx); err != nil {
		return nil, err
	}
	defer f.leave()
	at := f.clock.now()
	var slots []*slot
	for _, name := range names {
		s, err := f.find(keyOf(name), at, slots)
		if err != nil {
			return nil, err
		}
		slots = append(slots, s)
	}
	grants, latest := make([]grant, len(rs)), 0.0
	for i, r := range rs {
		r.Member = memberOf(r.Member)
		slots[i].cut(at.now, &r)
		grants[i] = slots[i].begin(at.now, &r)
		latest = max(latest, grants[i].wait)
	}
	for i := range rs {
		replies = append(replies, grants[i].end(&rs[i], latest))
		if err := f.write(slots[i], at); err != nil {
			return nil, err
		}
	}
	return replies, nil
}

// enter takes both locks, and opens the file if it has to.
func (f *File) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case f.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := f.open(ctx)
	if err != nil {
		<-f.turn
	}
	return err
}

// leave gives both back.
func (f *File) leave() {
	unlock(f.file)
	<-f.turn
}

// open returns with the lock of the file that the path leads to, or with an error and without.
func (f *File) open(ctx context.Context) error {
	for !f.closed {
		if f.file == nil {
			if err := f.openPath(); err != nil {
				return err
			}
		}
		if err := f.lock(ctx); err != nil {
			return err
		}
		info, err := os.Stat(f.path)
		if err == nil && os.SameFile(info, f.info) {
			if err = f.head(info.Size()); err != nil {
				unlock(f.file)
			}
			return err
		}
		f.drop() // and with it the lock
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fs.ErrClosed
}

// drop closes the file, if it is open.
func (f *File) drop() error {
	if f.file == nil {
		return nil
	}
	file := f.file
	f.file, f.headed = nil, false
	return file.Close()
}

// openPath opens what the path leads to, or makes it. O_CREATE alone would fail in a directory like /tmp for a file of another
// user, whatever its mode (fs.protected_regular of Linux).
func (f *File) openPath() (err error) {
	var file *os.File
	for range 10 { // as others may make and remove it at the same time
		file, err = os.OpenFile(f.path, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			file, err = os.OpenFile(f.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		}
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%s is a link to a file that does not exist", f.path)
	}
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", f.path)
	}
	if err != nil {
		file.Close()
		return err
	}
	f.file, f.info = file, info
	return nil
}

// lock waits for the lock of the file.
func (f *File) lock(ctx context.Context) error {
	for gap := 50 * time.Microsecond; ; gap = min(2*gap, 2*time.Millisecond) {
		if ok, err := f.tryLock(); ok || err != nil {
			return err
		}
		time.Sleep(gap/2 + rand.N(gap))
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("another process has the lock: %w", err)
		}
	}
}

// tryLock locks the file, and reports false if another handle has the lock.
func (f *File) tryLock() (ok bool, err error) {
	if ok, err = tryLock(f.file); err != nil {
		err = fmt.Errorf("%s cannot be locked: %w", f.path, err)
	}
	return ok, err
}

// keyOf is what a limit is found by.
func keyOf(name string) (k key) {
	sum := sha256.Sum256([]byte(name))
	return key(sum[:len(k)])
}

// memberOf is the name of a member in the file.
func memberOf(member string) string {
	sum := sha256.Sum256([]byte(member))
	return string(sum[:memberSize])
}
