// SPDX-License-Identifier: Apache-2.0

package regions

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// Block says which part of an array that is spread over all ranks a region holds: elements First to First+Count of
// Whole in each dimension, the last one running fastest. Without dimensions all ranks have the same.
type Block struct {
	Whole   []uint64 `json:"whole"`
	First   []uint64 `json:"first"`
	Count   []uint64 `json:"count"`
	Element uint64   `json:"element"` // bytes
}

// MaxDims bounds the dimensions of a block.
const MaxDims = 8

// Check says what is wrong with the block of a region of that many bytes.
func (b *Block) Check(bytes uint64) error {
	if len(b.First) != len(b.Whole) || len(b.Count) != len(b.Whole) || len(b.Whole) > MaxDims {
		return fmt.Errorf("a block has 0 to %d dimensions", MaxDims)
	}
	if len(b.Whole) == 0 {
		return nil
	}
	if b.Element == 0 {
		return errors.New("an element of a block has 0 bytes")
	}
	for d := range b.Whole {
		if b.First[d] > b.Whole[d] || b.Count[d] > b.Whole[d]-b.First[d] {
			return fmt.Errorf("dimension %d: %d elements from element %d on are not in an array of %d", d, b.Count[d], b.First[d], b.Whole[d])
		}
	}
	if _, ok := volume(b.Whole, b.Element); !ok {
		return errors.New("the array has more than 2^64 bytes")
	}
	if n, _ := volume(b.Count, b.Element); n != bytes {
		return fmt.Errorf("the block has %d bytes, and the region %d", n, bytes)
	}
	return nil
}

func volume(count []uint64, element uint64) (uint64, bool) {
	n := element
	for _, c := range count {
		hi, lo := bits.Mul64(n, c)
		if hi != 0 {
			return 0, false
		}
		n = lo
	}
	return n, true
}

// Same tells whether both are blocks of one array.
func (b *Block) Same(o *Block) bool {
	return b != nil && o != nil && slices.Equal(b.Whole, o.Whole) && (len(b.Whole) == 0 || b.Element == o.Element)
}

// Replicated tells whether all ranks have the same content.
func (b *Block) Replicated() bool { return b != nil && len(b.Whole) == 0 }

// bounds of what two blocks have in common; empty: nothing.
func (b *Block) common(o *Block) (first, count []uint64, some bool) {
	first, count = make([]uint64, len(b.Whole)), make([]uint64, len(b.Whole))
	for d := range b.Whole {
		from, to := max(b.First[d], o.First[d]), min(b.First[d]+b.Count[d], o.First[d]+o.Count[d])
		if from >= to {
			return nil, nil, false
		}
		first[d], count[d] = from, to-from
	}
	return first, count, true
}

// Piece is bytes that two blocks have in common and that follow each other in both: offsets in each.
type Piece struct{ To, From, Bytes uint64 }

// Pieces calls each for the bytes of b that o has, too. It stops at the first error.
func (b *Block) Pieces(o *Block, each func(Piece) error) error {
	first, count, some := b.common(o)
	if !some {
		return nil
	}
	// Trailing dimensions that both have in full are one run.
	run, last := b.Element, len(count)-1
	for ; last >= 0; last-- {
		run *= count[last]
		if count[last] != b.Count[last] || count[last] != o.Count[last] {
			break
		}
	}
	outer := max(last, 0) // dimensions before this one are counted through
	at := slices.Clone(first)
	for {
		if err := each(Piece{b.offset(at), o.offset(at), run}); err != nil {
			return err
		}
		d := outer - 1
		for ; d >= 0; d-- {
			if at[d]++; at[d] < first[d]+count[d] {
				break
			}
			at[d] = first[d]
		}
		if d < 0 {
			return nil
		}
	}
}

// offset is where an element of the array is in the block.
func (b *Block) offset(at []uint64) uint64 {
	n := uint64(0)
	for d := range at {
		n = n*b.Count[d] + at[d] - b.First[d]
	}
	return n * b.Element
}

// Cover says why the blocks, one a rank, are not the whole array, each element once.
func Cover(blocks []*Block) error {
	type owned struct {
		rank int
		b    *Block
	}
	var all []owned
	sum := uint64(0)
	for rank, b := range blocks {
		if n, _ := volume(b.Count, 1); n > 0 {
			all, sum = append(all, owned{rank, b}), sum+n
		}
	}
	slices.SortFunc(all, func(a, b owned) int { return compare(a.b.First[0], b.b.First[0]) })
	for i, a := range all {
		for _, o := range all[i+1:] {
			if o.b.First[0] >= a.b.First[0]+a.b.Count[0] {
				break
			}
			if _, _, some := a.b.common(o.b); some {
				return fmt.Errorf("the blocks of ranks %d and %d overlap", min(a.rank, o.rank), max(a.rank, o.rank))
			}
		}
	}
	if whole, _ := volume(blocks[0].Whole, 1); sum != whole {
		return fmt.Errorf("the blocks of all ranks have %d elements of the array's %d", sum, whole)
	}
	return nil
}
