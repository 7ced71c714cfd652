package usage

import (
	"encoding/binary"
	"slices"
	"strings"
)

// A finder looks for the first place in a text where one of several words may stand. It looks for one piece of
// each word, all of one length, which are chosen so that a few pieces do for all words: "_tokens" for
// prompt_tokens, input_tokens and cached_tokens, for example.
//
// Each place where a piece stands covers a pair of neighbours at one of the places 0, 6, 12 and so on, if
// pieces have 7 bytes. So only these pairs are looked at. A table says for each pair in which pieces it stands,
// and where; for most pairs that is nowhere. An example: "_tokens" begins at 10, so the pair at 12 is "to", which
// the table knows as the third and fourth byte of "_tokens". The whole piece is then compared, from 10 on.
type finder struct {
	size  int               // bytes of a piece, at most 8
	mask  uint64            // of as many bytes
	pairs []pair            // pairs[0] is not used
	table [tableSize]uint16 // by the hash of a pair: the first of pairs with it; 0: none
}

// A pair is two neighbouring bytes of a piece.
type pair struct {
	piece uint64 // its bytes, the first one lowest
	at    int32  // where the pair stands in piece
	next  uint16 // the next pair with the same hash; 0: none
}

const (
	pieceSize = 7 // unless a word is shorter
	tableSize = 1 << 12
)

// hash tells most pairs of letters apart. Pairs that it does not tell apart cost a comparison, not a mistake.
func hash(pair uint16) uint16 { return (pair<<5 ^ pair>>8) % tableSize }

// find makes a finder of words. Each of them must have at least two bytes.
func find(words []string) finder {
	f := finder{size: pieceSize, pairs: make([]pair, 1)}
	for _, w := range words {
		f.size = min(f.size, len(w))
	}
	f.mask = 1<<(8*f.size) - 1
	for _, piece := range cover(words, f.size) {
		bits := little([]byte(piece))
		for i := 1; i < f.size; i++ {
			first := &f.table[hash(uint16(bits>>(8*i-8)))]
			f.pairs = append(f.pairs, pair{bits, int32(i - 1), *first})
			*first = uint16(len(f.pairs) - 1)
		}
	}
	return f
}

// cover returns pieces so that each word has one of them: always the piece that most of the words without one
// have, and of several the first.
func cover(words []string, size int) (pieces []string) {
	for words = slices.Clone(words); len(words) > 0; {
		best, most := "", 0
		for _, w := range words {
			for i := 0; i+size <= len(w); i++ {
				n := 0
				for _, other := range words {
					if strings.Contains(other, w[i:i+size]) {
						n++
					}
				}
				if n > most {
					best, most = w[i:i+size], n
				}
			}
		}
		pieces = append(pieces, best)
		words = slices.DeleteFunc(words, func(w string) bool { return strings.Contains(w, best) })
	}
	return pieces
}

// in returns where a piece begins in b, one of those that come first; -1 if there is none.
func (f *finder) in(b []byte) int {
	step := f.size - 1
	for i := 0; i+1 < len(b); i += step {
		for p := f.table[hash(binary.LittleEndian.Uint16(b[i:i+2]))]; p > 0; p = f.pairs[p].next {
			pair := &f.pairs[p]
			from := i - int(pair.at)
			if from >= 0 && from+8 <= len(b) {
				if (binary.LittleEndian.Uint64(b[from:])^pair.piece)&f.mask == 0 {
					return from
				}
			} else if from >= 0 && from+f.size <= len(b) && little(b[from:from+f.size]) == pair.piece {
				return from
			}
		}
	}
	return -1
}

// little returns up to 8 bytes as a number, the first one lowest.
func little(b []byte) (n uint64) {
	for i, c := range b {
		n |= uint64(c) << (8 * i)
	}
	return n
}
