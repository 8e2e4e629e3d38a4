// SPDX-License-Identifier: Apache-2.0

package written

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/pagemap"
	"github.com/libckpt/libckpt/internal/userfault"
)

// ErrDevice says that a device is open which may write to memory that the kernel does not see written.
var ErrDevice = errors.New("a device may write to memory by itself")

// Tracker follows this process's memory. Its methods are called by one goroutine at a time.
type Tracker struct {
	fd      int
	pages   *os.File
	cuts    uint64           // how often Cut was called; what it tells is relative to the cut before
	current bool             // the last cut protected all that it was to protect
	huge    []pagemap.Extent // huge pages that the last cut protected, but for those in pieces
	pieces  []pagemap.Extent // what were such pages until they were written; see Mend
}

// Open begins to follow; nothing is protected before the first Cut. The error says what the kernel lacks.
func Open() (*Tracker, error) {
	fd, err := userfault.OpenAsync()
	if err != nil {
		return nil, err
	}
	pages, err := os.Open("/proc/self/pagemap")
	if err == nil {
		none := pagemap.Query{Start: 0, End: 4096, Any: pagemap.Present}
		if err = pagemap.Scan(pages, none, func(pagemap.Extent, pagemap.Category) {}); err == nil {
			return &Tracker{fd: fd, pages: pages}, nil
		}
		err = fmt.Errorf("PAGEMAP_SCAN, which Linux 6.7 has: %w", errors.Join(err, pages.Close()))
	}
	return nil, errors.Join(err, unix.Close(fd))
}

// Close ends it; nothing is protected any more.
func (t *Tracker) Close() error { return errors.Join(unix.Close(t.fd), t.pages.Close()) }

// FD is the descriptor with whose end all protection ends.
func (t *Tracker) FD() int { return t.fd }

// Mark stands for a Cut. The zero value stands for none.
type Mark uint64

const hasData = pagemap.Present | pagemap.Swapped

// Cut has the kernel note, from now on, what is written to the private anonymous memory of list, and returns the pages
// there that were not written since the cut of mark since: nil if that was not the last one. All threads of the program
// are stopped; the new mark is that of this cut.
//
// A protected huge page that is written becomes many small ones, which makes the program slower until Mend has made one of them again. So those
// are protected only in calm memory, which was the same in the last two images, and only whole; the others count as written, and so does what
// waits for Mend.
//
// Fresh must be asked before what Cut returned is relied on.
func (t *Tracker) Cut(list, calm []pagemap.Extent, since Mark) (unwritten []pagemap.Extent, mark Mark, err error) {
	known := since != 0 && since == Mark(t.cuts) && t.current
	t.cuts++
	t.current = false
	if err := devices(); err != nil {
		return nil, 0, err
	}
	if err := t.findPieces(); err != nil {
		return nil, 0, err
	}
	t.huge = nil
	for _, e := range list {
		same, err := t.protect(e, calm)
		if err != nil {
			return nil, 0, fmt.Errorf("memory %#x-%#x: %w", e.Start, e.End, err)
		}
		unwritten = append(unwritten, same...)
	}
	slices.SortFunc(t.huge, func(a, b pagemap.Extent) int { return cmp.Compare(a.Start, b.Start) })
	t.current = true
	if !known {
		unwritten = nil
	}
	return unwritten, Mark(t.cuts), nil
}

// protect protects one range, and returns what was not written there.
func (t *Tracker) protect(e pagemap.Extent, calm []pagemap.Extent) (same []pagemap.Extent, err error) {
	// Of each page the kernel says in one step whether it was written, and protects it: a write in between would be lost.
	take := func(e pagemap.Extent, c pagemap.Category) {
		if c&pagemap.Written == 0 {
			same = append(same, e)
		}
	}
	if err := t.protectPages(e, calm, take); err != nil {
		return nil, err
	}
	slices.SortFunc(same, func(a, b pagemap.Extent) int { return cmp.Compare(a.Start, b.Start) })
	same = joined(same)

	// Mappings that were made since the last cut are not followed yet. This finds them without looking at pages.
	all := pagemap.Query{Start: e.Start, End: e.End, Not: pagemap.Allowed, Any: hasData, MustAllow: true}
	nobody := func(pagemap.Extent, pagemap.Category) {}
	if err := pagemap.Scan(t.pages, all, nobody); err == nil {
		return same, nil
	} else if !errors.Is(err, unix.EPERM) {
		return nil, err
	}
	var added []pagemap.Extent
	all.MustAllow = false
	if err := pagemap.Scan(t.pages, all, func(e pagemap.Extent, _ pagemap.Category) { added = append(added, e) }); err != nil {
		return nil, err
	}
	switch err := userfault.Register(t.fd, e.Start, e.End-e.Start, userfault.Writes); {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EINVAL):
		return same, nil // it is another's, whose pages may still be missing, or of a kind that cannot be followed
	case err != nil:
		return nil, fmt.Errorf("userfaultfd: %w", err)
	}
	for _, a := range added {
		if err := t.protectPages(a, calm, nobody); err != nil {
			return nil, err
		}
	}
	return same, nil
}

// protectPages protects what is followed in a range already, and calls take for it: small pages first, then huge ones.
func (t *Tracker) protectPages(within pagemap.Extent, calm []pagemap.Extent, take func(pagemap.Extent, pagemap.Category)) error {
	scan := func(e pagemap.Extent, not, all pagemap.Category, take func(pagemap.Extent, pagemap.Category)) error {
		return pagemap.Scan(t.pages, pagemap.Query{Start: e.Start, End: e.End, Not: not, All: all | pagemap.Allowed, Any: hasData,
			Tell: pagemap.Written, Protect: true}, take)
	}
	for _, e := range without(within, t.pieces) {
		if err := scan(e, pagemap.Huge, 0, take); err != nil {
			return err
		}
	}
	took := func(e pagemap.Extent, c pagemap.Category) {
		t.huge = append(t.huge, e)
		take(e, c)
	}
	for _, c := range overlap(calm, within) {
		// The kernel makes small pages of a huge one to protect a part of it.
		c.Start, c.End = (c.Start+hugePage-1)&^(hugePage-1), c.End&^(hugePage-1)
		if c.Start >= c.End {
			continue
		}
		for _, e := range without(c, t.pieces) {
			if err := scan(e, 0, pagemap.Huge, took); err != nil {
				return err
			}
		}
	}
	return nil
}

// Fresh returns what of list, the answer of the cut with that mark, was not written since. A write between that cut and the copy of the memory
// that an image is made from is in the copy; so pages that were written are not what they were.
func (t *Tracker) Fresh(list []pagemap.Extent, mark Mark) ([]pagemap.Extent, error) {
	if mark != Mark(t.cuts) || !t.current {
		return nil, errors.New("another cut was made since")
	}
	var out []pagemap.Extent
	for _, e := range list {
		q := pagemap.Query{Start: e.Start, End: e.End, Not: pagemap.Written, All: pagemap.Allowed, Any: hasData}
		if err := pagemap.Scan(t.pages, q, func(e pagemap.Extent, _ pagemap.Category) { out = pagemap.Append(out, e) }); err != nil {
			return nil, fmt.Errorf("memory %#x-%#x: %w", e.Start, e.End, err)
		}
	}
	return out, nil
}

// harmless are devices that do not write to memory but in a call.
var harmless = []string{"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts/", "shm/", "console", "userfaultfd", "hugepages/"}

// devices refuses while a device is open that this package does not know: an adapter with remote access to memory, or
// a graphics card, writes to pages that are registered with it, and the kernel does not notice. Likewise io_uring.
func devices() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, d := range open {
		to, err := os.Readlink("/proc/self/fd/" + d.Name())
		if err != nil {
			continue // that of the directory itself
		}
		if to == "anon_inode:[io_uring]" || strings.HasPrefix(to, "anon_inode:[infiniband") {
			return fmt.Errorf("%w: %s", ErrDevice, to)
		}
		if name, ok := strings.CutPrefix(to, "/dev/"); ok && !slices.ContainsFunc(harmless, func(h string) bool {
			return name == h || strings.HasSuffix(h, "/") && strings.HasPrefix(name, h) || strings.HasPrefix(name, "tty")
		}) {
			return fmt.Errorf("%w: %s", ErrDevice, to)
		}
	}
	return nil
}
