// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/libckpt/libckpt/ckpt/image"
)

// protectedSection is where an image says what its rank's program had named, by numbers of its own.
const protectedSection = "protected"

// protectedRegion is memory that a program has named (docs/image-sections.md).
type protectedRegion struct {
	ID    int             `json:"id"`
	Bytes uint64          `json:"bytes"`
	At    uint64          `json:"at"`
	Block *protectedBlock `json:"block"`
}

// protectedBlock is the part of a distributed array that the region is.
type protectedBlock struct {
	Whole   []int64 `json:"whole"`
	First   []int64 `json:"first"`
	Count   []int64 `json:"count"`
	Element uint64  `json:"element"`
}

// shape is the dimensions for an array whose elements have that size; nil: the region is no such array.
func (b *protectedBlock) shape(element, bytes uint64) []int {
	if b == nil || len(b.Count) == 0 || b.Element != element {
		return nil
	}
	var out []int
	all := element
	for _, n := range b.Count {
		if n < 1 || uint64(n) > math.MaxInt64/all {
			return nil
		}
		all *= uint64(n)
		out = append(out, int(n))
	}
	if all != bytes {
		return nil
	}
	return out
}

// protectedOf reads what is named in an image; false: its program named nothing in this way.
func protectedOf(f *image.File) ([]protectedRegion, bool, error) {
	b, err := f.Section(protectedSection)
	if errors.Is(err, image.ErrNoSection) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	var s struct {
		Version int               `json:"version"`
		Regions []protectedRegion `json:"regions"`
	}
	bad := func(err error) ([]protectedRegion, bool, error) {
		return nil, false, fmt.Errorf("%s: section %q: %w", f.Name(), protectedSection, err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return bad(err)
	}
	if s.Version != 1 {
		return bad(fmt.Errorf("has version %d, this libckpt reads 1", s.Version))
	}
	for _, r := range s.Regions {
		if r.At > math.MaxInt64 || r.Bytes > math.MaxInt64-r.At {
			return bad(fmt.Errorf("region %d of %d bytes at 0x%x is in no image", r.ID, r.Bytes, r.At))
		}
		if r.Bytes > 0 {
			if err := covered(f, piece{start: r.At, end: r.At + r.Bytes}); err != nil {
				return bad(fmt.Errorf("region %d: %w", r.ID, err))
			}
		}
	}
	return s.Regions, true, nil
}

// piecesOf are the regions that have bytes.
func piecesOf(list []protectedRegion) (out []piece) {
	for _, r := range list {
		if r.Bytes > 0 {
			out = append(out, piece{name: fmt.Sprintf("region %d", r.ID), start: r.At, end: r.At + r.Bytes, file: fmt.Sprintf("id-%d", r.ID), block: r.Block})
		}
	}
	return out
}
