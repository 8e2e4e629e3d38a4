// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A pair as capi/verbs/back.h has it: from, to, posted, first, how many lengths, failed, got; then the lengths.
const (
	pairBytes   = 40
	pairTo      = 4
	pairLengths = 24
)

// ErrTold says that what a rank tells of its queue pairs cannot be read.
var ErrTold = errors.New("what is told of queue pairs is damaged")

// For gives what is told to one rank, of all that Turn has told: by the numbers of queue pairs, whose upper byte is
// their owner's rank.
func For(rank int, told []byte) ([]byte, error) {
	var out []byte
	for len(told) > 0 {
		if len(told) < pairBytes {
			return nil, fmt.Errorf("%w: %d bytes at the end", ErrTold, len(told))
		}
		n := pairBytes + 4*uint64(binary.LittleEndian.Uint32(told[pairLengths:]))
		if n > uint64(len(told)) {
			return nil, fmt.Errorf("%w: a pair of %d bytes in %d", ErrTold, n, len(told))
		}
		if int(binary.LittleEndian.Uint32(told[pairTo:])>>16) == rank {
			out = append(out, told[:n]...)
		}
		told = told[n:]
	}
	return out, nil
}

// Word is what a rank says in a turn.
type Word struct {
	Left int    `json:"left,omitempty"`
	Why  string `json:"why,omitempty"`
	Told []byte `json:"told,omitempty"`
	Over bool   `json:"over,omitempty"` // it gives up
}

// In is what the words of a turn say to a rank.
func In(rank int, words []Word) ([]byte, error) {
	var in []byte
	for from, w := range words {
		b, err := For(rank, w.Told)
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", from, err)
		}
		in = append(in, b...)
	}
	return in, nil
}

// Dry tells whether nobody has anything left. All ranks find the same.
func Dry(words []Word) bool {
	for _, w := range words {
		if w.Left > 0 {
			return false
		}
	}
	return true
}

// GivenUp tells whether a rank gives up; then all do.
func GivenUp(words []Word) bool {
	for _, w := range words {
		if w.Over {
			return true
		}
	}
	return false
}
