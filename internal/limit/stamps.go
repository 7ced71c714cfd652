package limit

import "slices"

// stamps is a queue of moments in order, as nanoseconds since a base that its owner keeps. It takes 8 to
// 16 bytes for each one in use.
type stamps struct {
	buf  []int64
	head int // buf[head:] are in use
}

// live is the stamps in use; it shares their memory.
func (s *stamps) live() []int64 { return s.buf[s.head:] }

// len is how many are in use.
func (s *stamps) len() int { return len(s.buf) - s.head }

// search returns the number of stamps below stamp.
func (s *stamps) search(stamp int64) int {
	i, _ := slices.BinarySearch(s.live(), stamp)
	return i
}

// push adds k equal stamps. When the memory is full and more than an eighth of it is free at the front,
// the stamps are moved there instead of to a larger one. That costs at most 8 moves for each stamp pushed.
func (s *stamps) push(stamp int64, k int) {
	if len(s.buf)+k > cap(s.buf) && s.head > max(k, len(s.buf)/8) {
		s.buf, s.head = s.buf[:copy(s.buf, s.live())], 0
	}
	for range k {
		s.buf = append(s.buf, stamp)
	}
}

// drop removes the k oldest. Memory that is less than a quarter in use is given up.
func (s *stamps) drop(k int) {
	s.head += k
	if cap(s.buf) > 64 && s.len() < cap(s.buf)/4 {
		s.buf, s.head = append([]int64(nil), s.live()...), 0
	}
}

// cut removes up to k stamps from number i on and returns how many there were.
func (s *stamps) cut(i int, k int64) int64 {
	k = min(k, int64(s.len()-i))
	s.buf = slices.Delete(s.buf, s.head+i, s.head+i+int(k))
	return k
}
