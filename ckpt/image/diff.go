// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"slices"
)

// Difference is what changed from one image to another. Sizes are in bytes of memory, counted in
// pages.
type Difference struct {
	Same     uint64 // data in both images, equal
	Changed  uint64 // data in at least one image, in regions of both, not equal
	Added    uint64 // in regions that only the second image has
	Removed  uint64 // in regions that only the first image has
	Sections []SectionChange
}

type differ struct {
	Difference
	each func(Extent, Change) // nil: nobody wants to know
}

func (d *differ) count(e Extent, c Change) {
	*[...]*uint64{&d.Same, &d.Changed, &d.Added, &d.Removed}[c] += e.End - e.Start
	if d.each != nil {
		d.each(e, c)
	}
}

// SectionChange names a section that differs; a length of -1 stands for a section that an image lacks.
type SectionChange struct {
	Name          string
	Before, After int64
}

// Change says what became of a range of memory from one image to another.
type Change uint8

// The fields of Difference, for ranges.
const (
	Same Change = iota
	Changed
	Added
	Removed
)

// Diff compares two images by content, however each of them is cut and compressed. Only ranges whose
// digests differ are read.
func Diff(ctx context.Context, a, b *File) (Difference, error) { return DiffEach(ctx, a, b, nil) }

// DiffEach is Diff, and tells of each range with data what became of it, in order of address.
func DiffEach(ctx context.Context, a, b *File, each func(e Extent, c Change)) (Difference, error) {
	d := differ{each: each}
	d.sections(a, b)
	for _, w := range windows(a, b) {
		if ctx.Err() != nil {
			return d.Difference, context.Cause(ctx)
		}
		if err := d.window(a, b, w); err != nil {
			return d.Difference, err
		}
	}
	return d.Difference, nil
}

func (d *Difference) sections(a, b *File) {
	byName := map[string]*SectionChange{}
	sums := map[string]Sum{}
	var order []string
	for _, s := range a.sections {
		byName[s.name], sums[s.name] = &SectionChange{s.name, s.bytes, -1}, s.sum
		order = append(order, s.name)
	}
	same := map[string]bool{}
	for _, s := range b.sections {
		c, ok := byName[s.name]
		if !ok {
			c = &SectionChange{s.name, -1, -1}
			byName[s.name] = c
			order = append(order, s.name)
		}
		c.After = s.bytes
		same[s.name] = ok && sums[s.name] == s.sum
	}
	for _, name := range order {
		if !same[name] {
			d.Sections = append(d.Sections, *byName[name])
		}
	}
}

// windows returns the ranges in which either image has chunks. Where the chunks of both have the same
// bounds, each chunk is a range of its own.
func windows(a, b *File) []Extent {
	var cuts []Extent
	for _, f := range []*File{a, b} {
		for i := range f.chunks {
			cuts = append(cuts, Extent{Start: f.chunks[i].Addr, End: f.chunks[i].End()})
		}
	}
	slices.SortFunc(cuts, func(x, y Extent) int {
		if x.Start != y.Start {
			if x.Start < y.Start {
				return -1
			}
			return 1
		}
		return 0
	})
	var out []Extent
	for _, c := range cuts {
		if n := len(out); n > 0 && c.Start < out[n-1].End {
			out[n-1].End = max(out[n-1].End, c.End)
		} else {
			out = append(out, c)
		}
	}
	return out
}

// window compares one range.
func (d *differ) window(a, b *File, w Extent) error {
	if x, y := a.chunkAt(w), b.chunkAt(w); x != nil && y != nil && x.Content == y.Content {
		d.count(w, Same)
		return nil
	}
	// A range may be long when chunks of the two images overlap in a chain, so it is read piece by piece.
	const piece = 1 << 20
	p, q := make([]byte, piece), make([]byte, piece)
	for at := w.Start; at < w.End; at += piece {
		n := min(piece, w.End-at)
		if err := a.ReadAt(p[:n], at); err != nil {
			return err
		}
		if err := b.ReadAt(q[:n], at); err != nil {
			return err
		}
		for i := uint64(0); i < n; i += PageSize {
			x, y := p[i:i+PageSize], q[i:i+PageSize]
			page := Extent{Start: at + i, End: at + i + PageSize}
			switch inA, inB := a.hasRegion(at+i), b.hasRegion(at+i); {
			case !inA:
				d.count(page, Added)
			case !inB:
				d.count(page, Removed)
			case !bytes.Equal(x, y):
				d.count(page, Changed)
			case !isZero(x):
				d.count(page, Same)
			}
		}
	}
	return nil
}

// chunkAt returns the chunk that covers exactly this range, or nil.
func (f *File) chunkAt(w Extent) *Chunk {
	i, ok := slices.BinarySearchFunc(f.chunks, w.Start, func(c Chunk, a uint64) int {
		if c.Addr < a {
			return -1
		} else if c.Addr > a {
			return 1
		}
		return 0
	})
	if ok && f.chunks[i].End() == w.End && f.chunks[i].Kind != KindZero {
		return &f.chunks[i]
	}
	return nil
}

// hasRegion tells whether a region covers the page at addr.
func (f *File) hasRegion(addr uint64) bool {
	i, _ := slices.BinarySearchFunc(f.regions, addr, func(r Region, a uint64) int {
		if r.End <= a {
			return -1
		}
		return 1
	})
	return i < len(f.regions) && f.regions[i].Start <= addr
}
