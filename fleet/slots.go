package fleet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"

	"github.com/go-throttle/throttle/fleet/store"
)

// This file is where limits are in the file of a File.
//
//	0        the first line, and nothing
//	4 KB     slot 0: copy 0, copy 1, 8 KB each
//	20 KB    slot 1
//	...      slot 1023
//
// A copy is
//
//	checksum of what follows, length of the state, number of the write, key of the limit, state (see record.go)
//
// A limit is in one of the eight slots from that of its key on, in the first one that was free when it came. A slot that
// was used is never unused again, so a search ends at the first one that never was.
//
// # Writes
//
// A write goes into the copy that does not count, and from then on it counts, because its number is the next one. Who is killed
// in the middle leaves a copy whose checksum is wrong, and the other one counts as before. That one says what was granted up
// to then: the answer of the write that was cut has reached nobody.
//
//	copies             the slot
//	zeros, zeros       was never used
//	one or two right   holds the limit of the later one
//	no right one       is lost: the disk, or another hand. A limit that may have been there starts with an empty bucket

const (
	firstLine  = "throttle: the limits of a fleet, version 1\n"
	headSize   = 4096
	copySize   = 8192
	slotSize   = 2 * copySize
	mostLimits = 1024
	ways       = 8 // slots that a limit may be in

	copyHead  = 32
	stateSize = copySize - copyHead
)

// A key is what the file knows of a limit's name.
type key [16]byte

// A slot is one that was read, and its limit.
type slot struct {
	*state        // nil: never used, or lost
	key    key    // of the limit
	index  int    // which one
	half   int    // the copy that counts
	number uint64 // of its write
	lost   bool
}

// errFull is the error for a limit that finds no place.
var errFull = fmt.Errorf("%w: the limits in its places are all in use", store.ErrLimit)

// head checks the first line of a file of that size, once for each file that is opened, or writes it.
func (f *File) head(size int64) error {
	if f.headed && size > 0 {
		return nil
	}
	line := make([]byte, len(firstLine))
	if _, err := f.file.ReadAt(line, 0); err != nil && err != io.EOF {
		return err
	}
	switch text := strings.TrimRight(string(line), "\x00"); {
	case text == firstLine:
		f.headed = true
		return nil
	case strings.HasPrefix(firstLine, text): // new, cut by kill -9, or zeros, which a power cut may leave
		_, err := f.file.WriteAt([]byte(firstLine), 0)
		f.headed = err == nil
		return err
	}
	return errors.New(f.path + " holds something else than the limits of a fleet, or those of another version")
}

// find returns the slot of a limit, which is a new one if need be. The slots in taken are those of other limits, though it
// is not written yet.
func (f *File) find(k key, at moment, taken []*slot) (*slot, error) {
	var free *slot
	lost := false
	first := int(binary.LittleEndian.Uint16(k[:]))
	for i := range ways {
		index := (first + i) % mostLimits
		if slices.ContainsFunc(taken, func(t *slot) bool { return t.index == index }) {
			continue
		}
		s, err := f.read(index, at)
		if err != nil {
			return nil, err
		}
		if s.state != nil && s.key == k {
			return s, nil
		}
		if free == nil && (s.state == nil || s.idle(at.now)) {
			free = s
		}
		if lost = lost || s.lost; s.state == nil && !s.lost {
			break
		}
	}
	if free == nil {
		return nil, errFull
	}
	return free, f.claim(free, k, at, lost)
}

// claim makes a free slot that of a new limit, whose bucket is full; if its state may be lost it is empty. A slot that was
// never used is written in full: later writes then find their room on the disk, however full that is.
func (f *File) claim(s *slot, k key, at moment, lost bool) error {
	if s.state == nil && !s.lost {
		clear(f.buf)
		_, err := f.file.WriteAt(f.buf, s.offset(0))
		if noRoom(err) {
			return fmt.Errorf("%w: %w", store.ErrLimit, err)
		}
		if err != nil {
			return err
		}
	}
	s.key, s.state = k, new(state)
	if lost {
		s.next = at.now
	}
	return nil
}

// offset is where a copy of the slot is in the file.
func (s *slot) offset(half int) int64 {
	return headSize + int64(s.index)*slotSize + int64(half)*copySize
}

// read reads the slot of that index. What is behind the end of the file counts as zeros.
func (f *File) read(index int, at moment) (*slot, error) {
	s := &slot{index: index}
	n, err := f.file.ReadAt(f.buf, s.offset(0))
	if err != nil && err != io.EOF {
		return nil, err
	}
	clear(f.buf[n:])
	first, second := f.buf[:copySize], f.buf[copySize:]
	later := 0 // numbers are compared as those of TCP, so that there is a next one after any
	if int64(binary.LittleEndian.Uint64(second[8:])-binary.LittleEndian.Uint64(first[8:])) > 0 {
		later = 1
	}
	for _, half := range [...]int{later, 1 - later} {
		if s.take(half, f.buf[half*copySize:][:copySize], at) {
			break
		}
	}
	return s, nil
}

// take lets a copy count if it is right.
func (s *slot) take(half int, b []byte, at moment) bool {
	if [copyHead]byte(b) == [copyHead]byte{} {
		return false
	}
	s.lost = true
	size := binary.LittleEndian.Uint32(b[4:])
	if size > stateSize || crc32.Checksum(b[4:copyHead+size], castagnoli) != binary.LittleEndian.Uint32(b) {
		return false
	}
	state, err := decode(b[copyHead:copyHead+size], at)
	if err != nil {
		return false
	}
	s.state, s.key, s.half, s.lost = state, key(b[16:copyHead]), half, false
	s.number = binary.LittleEndian.Uint64(b[8:])
	return true
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// write writes the limit of a slot into its other copy.
func (f *File) write(s *slot, at moment) error {
	b := f.buf[:copyHead+len(s.encode(f.buf[copyHead:copyHead], at))]
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-copyHead))
	binary.LittleEndian.PutUint64(b[8:], s.number+1)
	copy(b[16:], s.key[:])
	binary.LittleEndian.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	_, err := f.file.WriteAt(b, s.offset(1-s.half))
	return err
}
