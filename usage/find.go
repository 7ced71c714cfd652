package usage

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// This file finds the bytes that a scanner must stop at, eight at a time.
//
// An example: 0x22 is a quote. In the eight bytes of `ab"}],"x` XOR eight quotes the third and the seventh are 0, so zero marks them, and
// the number of bits below the first mark, 23, says that it is in the third.

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// zero marks the bytes of v that are 0 (v^('"'*ones) has a 0 where v has a quote) by their highest bit, the first of them for certain ("Bit Twiddling
// Hacks", Determine if a word has a zero byte).
func zero(v uint64) uint64 { return (v - ones) &^ v & highs }

// nearby is how far near looks.
const nearby = 16

// near returns how far behind p[i] the first quote is; nearby or more if it is not that near, or p ends before. Most names and many strings
// are so short that this is faster than closing. The quote may be escaped: then a backslash stands before it.
func near(p []byte, i int) int {
	if i > len(p)-nearby {
		return nearby
	}
	q := (*[nearby]byte)(p[i:])
	if found := zero(binary.LittleEndian.Uint64(q[:8]) ^ '"'*ones); found != 0 {
		return bits.TrailingZeros64(found) / 8
	}
	return 8 + bits.TrailingZeros64(zero(binary.LittleEndian.Uint64(q[8:])^'"'*ones))/8
}

// closing returns where a string ends that goes on at p[i]: at the first quote that is not escaped; len(p) if there is none. Escapes
// that do not stand before a quote, as in a text of many lines, are not looked at.
func closing(p []byte, i int) int {
	for begin := i; ; i++ {
		n := bytes.IndexByte(p[i:], '"')
		if n < 0 {
			return len(p)
		}
		if i += n; i == begin || p[i-1] != '\\' || !escaped(p[begin:i]) {
			return i
		}
	}
}

// escaped reports whether the byte behind b, which is of a string, is escaped: it follows an odd number of backslashes.
func escaped(b []byte) bool {
	return (len(b)-len(bytes.TrimRight(b, `\`)))%2 == 1
}

// blank returns where white space ends that begins at p[i], if there is any. RFC 7464 has a separator before each document, 0x1e.
func blank(p []byte, i int) int {
	for i < len(p) && p[i] <= ' ' && uint64(1)<<p[i]&(1<<' '|1<<'\n'|1<<'\r'|1<<'\t'|1<<0x1e) != 0 {
		i++
	}
	return i
}

// bracket returns where the first quote or bracket stands in p from i on; len(p) if there is none. A bracket and the
// brace of its kind differ in one bit, so setting it makes two comparisons enough for four.
func bracket(p []byte, i int) int {
	for ; len(p)-i >= 8; i += 8 {
		v := binary.LittleEndian.Uint64(p[i:])
		w := v | 0x20*ones
		if found := zero(v^('"'*ones)) | zero(w^('{'*ones)) | zero(w^('}'*ones)); found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(p); i++ {
		switch p[i] {
		case '"', '{', '}', '[', ']':
			return i
		}
	}
	return i
}

// base64Alone reports whether b has only what base64 has, by either alphabet, and the escapes of it in JSON: \/, \n between
// lines, \u002B.
func base64Alone(b []byte) bool {
	for _, c := range b {
		if c|0x20-'a' >= 26 && c-'0' >= 10 && c != '+' && c != '/' && c != '=' && c != '-' && c != '_' && c != '\\' {
			return false
		}
	}
	return true
}
