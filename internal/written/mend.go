// SPDX-License-Identifier: Apache-2.0

package written

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/pagemap"
	"github.com/libckpt/libckpt/internal/userfault"
)

// hugePage is the size of one, in bytes.
const hugePage = 2 << 20

// Mend makes one huge page again of what was one until a cut protected it and the program wrote to it, and says whether
// there may be more. A program takes 3 to 5 % longer for a word of each page while they are small
// (bench/results/tracking.md). It takes 0.35 to 0.5 ms, for which calls of the program that change its memory
// wait; so nobody should ask for many at once. What it gave up counts as written.
func (t *Tracker) Mend() (more bool, err error) {
	if len(t.pieces) == 0 {
		if err := t.findPieces(); err != nil || len(t.pieces) == 0 {
			return false, err
		}
	}
	e := pagemap.Extent{Start: t.pieces[0].Start, End: t.pieces[0].Start + hugePage}
	if t.pieces[0].Start = e.End; t.pieces[0].Start == t.pieces[0].End {
		t.pieces = t.pieces[1:]
	}
	// The kernel joins no pages of which one is protected. Between the steps the program may have mapped something else there, or
	// nothing: then one of them fails, or it is not all there.
	if err := userfault.Unprotect(t.fd, e.Start, hugePage); err != nil {
		return true, nil
	}
	small := uint64(0)
	q := pagemap.Query{Start: e.Start, End: e.End, Not: pagemap.Huge, All: pagemap.Allowed | pagemap.Present}
	if err := pagemap.Scan(t.pages, q, func(e pagemap.Extent, _ pagemap.Category) { small += e.End - e.Start }); err != nil {
		return false, fmt.Errorf("memory %#x-%#x: %w", e.Start, e.End, err)
	}
	if small == hugePage {
		// Without a free huge page they stay small.
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(e.Start), hugePage, unix.MADV_COLLAPSE)
		if errors.Is(errno, unix.ENOMEM) || errors.Is(errno, unix.EAGAIN) {
			return false, nil
		}
	}
	return true, nil
}

// Huge tells whether there are, or were, huge pages that are protected, so that Mend may have something to do.
func (t *Tracker) Huge() bool { return len(t.huge)+len(t.pieces) > 0 }

// findPieces moves what is no huge page any more, since it was written, from huge to pieces.
func (t *Tracker) findPieces() error {
	var found []pagemap.Extent
	for _, e := range t.huge {
		q := pagemap.Query{Start: e.Start, End: e.End, Not: pagemap.Huge, All: pagemap.Allowed | pagemap.Written, Any: hasData}
		err := pagemap.Scan(t.pages, q, func(w pagemap.Extent, _ pagemap.Category) {
			w.Start, w.End = w.Start&^(hugePage-1), (w.End+hugePage-1)&^(hugePage-1)
			if n := len(found); n > 0 && found[n-1].End > w.Start { // another page of the same huge one
				w.Start = found[n-1].End
			}
			if w.Start < w.End {
				found = pagemap.Append(found, w)
			}
		})
		if err != nil {
			return fmt.Errorf("memory %#x-%#x: %w", e.Start, e.End, err)
		}
	}
	if len(found) == 0 {
		return nil
	}
	var rest []pagemap.Extent
	for _, e := range t.huge {
		rest = append(rest, without(e, found)...)
	}
	t.huge = rest
	t.pieces = append(t.pieces, found...)
	slices.SortFunc(t.pieces, func(a, b pagemap.Extent) int { return cmp.Compare(a.Start, b.Start) })
	t.pieces = joined(t.pieces)
	return nil
}

// overlap is the part of an ascending list that lies within e.
func overlap(list []pagemap.Extent, e pagemap.Extent) (out []pagemap.Extent) {
	i, _ := slices.BinarySearchFunc(list, e.Start, func(have pagemap.Extent, at uint64) int {
		if have.End <= at {
			return -1
		}
		return 1
	})
	for ; i < len(list) && list[i].Start < e.End; i++ {
		out = append(out, pagemap.Extent{Start: max(list[i].Start, e.Start), End: min(list[i].End, e.End)})
	}
	return out
}

// without is e without an ascending list.
func without(e pagemap.Extent, list []pagemap.Extent) (out []pagemap.Extent) {
	for _, c := range overlap(list, e) {
		if e.Start < c.Start {
			out = append(out, pagemap.Extent{Start: e.Start, End: c.Start})
		}
		e.Start = c.End
	}
	if e.Start < e.End {
		out = append(out, e)
	}
	return out
}

// joined is an ascending list with neighbours made one.
func joined(list []pagemap.Extent) (out []pagemap.Extent) {
	for _, e := range list {
		out = pagemap.Append(out, e)
	}
	return out
}
