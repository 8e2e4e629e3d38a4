// SPDX-License-Identifier: Apache-2.0

package vid

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	headerBytes    = 4096
	directoryBytes = pagesPerKind * 8
	pageBytes      = pageSlots * unsafe.Sizeof(slot{})
	// MinWindow is the smallest window that Open accepts: header, directories, one page of each kind.
	MinWindow = headerBytes + kinds*(directoryBytes+stagger) + kinds*(pageBytes+stagger)

	// A processor's first cache keeps eight or twelve of the lines that are at the same place of their 4 KiB. Directories and
	// pages begin with what is used most, so each begins at another place, and has stagger bytes more for that: about 5 ns of an
	// exchange of messages.
	stagger   = 4096
	lineBytes = 64
)

// lineOfDirectory and lineOfPage are where of 4 KiB the directory and the pages of a kind begin. The header has the
// first lines. Of a page the first lines have the null handle and predefined objects, or, as Predefined slots are twice
// 4 KiB, the first ids that are given out.
func lineOfDirectory(k Kind) uintptr { return 5 + uintptr(k) }

func lineOfPage(k Kind) uintptr {
	switch k {
	case Comm:
		return 22
	case Request:
		return 28
	case Op:
		return 34
	case Datatype:
		return 44
	}
	return uintptr(k) * 4
}

// window is the reserved memory and its allocator: blocks of powers of two from 64 bytes up, each
// size with a list of freed blocks. The kernel gives memory on first touch.
type window struct {
	base  unsafe.Pointer
	bytes uintptr
	next  uintptr // offset of the first byte never given out
	freed [64][]uintptr
}

// reserve maps bytes of memory at addr exactly, or anywhere when addr is 0.
func reserve(addr, bytes uintptr) (window, error) {
	flags := unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE
	if addr != 0 {
		flags |= unix.MAP_FIXED_NOREPLACE
	}
	p, err := unix.MmapPtr(-1, 0, unsafe.Add(nil, addr), bytes, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return window{}, fmt.Errorf("vid: cannot reserve %d MiB of tables at %#x: %w", bytes>>20, addr, err)
	}
	if addr != 0 && uintptr(p) != addr { // kernels before 4.17 take the address as a hint
		_ = unix.MunmapPtr(p, bytes)
		return window{}, fmt.Errorf("vid: cannot reserve %d MiB of tables at %#x: the place is taken", bytes>>20, addr)
	}
	return window{base: p, bytes: bytes}, nil
}

func (w *window) release() error {
	if w.base == nil {
		return nil
	}
	err := unix.MunmapPtr(w.base, w.bytes)
	w.base = nil
	if err != nil {
		return fmt.Errorf("vid: cannot unmap the tables: %w", err)
	}
	return nil
}

// at returns the address of offset off of the window.
func (w *window) at(off uintptr) unsafe.Pointer { return unsafe.Add(w.base, off) }

// offset is the inverse of at.
func (w *window) offset(p uintptr) uintptr { return p - uintptr(w.base) }

func sizeClass(n uintptr) int { return max(6, bits.Len64(uint64(n-1))) }

// alloc returns the offset of n bytes of zeroed memory.
func (w *window) alloc(n uintptr) (uintptr, error) {
	c := sizeClass(n)
	size := uintptr(1) << c
	if l := w.freed[c]; len(l) > 0 {
		off := l[len(l)-1]
		w.freed[c] = l[:len(l)-1]
		clear(unsafe.Slice((*byte)(w.at(off)), size))
		return off, nil
	}
	if size > w.bytes-w.next {
		return 0, w.full()
	}
	off := w.next
	w.next += size
	return off, nil
}

func (w *window) full() error {
	return fmt.Errorf("vid: the window of %d MiB for virtual ids is full", w.bytes>>20)
}

func (w *window) dealloc(off, n uintptr) {
	c := sizeClass(n)
	w.freed[c] = append(w.freed[c], off)
}

// format writes the header and the first page of every kind into a fresh window.
func (w *window) format() error {
	h := w.header()
	h.magic, h.version, h.bytes = tablesMagic, tablesVersion, uint32(unsafe.Sizeof(header{}))
	for k := range uintptr(kinds) {
		h.pages[k] = uintptr(w.at(headerBytes + k*(directoryBytes+stagger) + lineOfDirectory(Kind(k))*lineBytes))
	}
	w.next = headerBytes + kinds*(directoryBytes+stagger)
	for k := range kinds {
		if err := w.addPage(Kind(k), 0); err != nil {
			return err
		}
		w.slot(MakeID(Kind(k), 0)).generation = 1
	}
	return nil
}

func (w *window) header() *header { return (*header)(w.base) }

func (w *window) directory(k Kind) *[pagesPerKind]uintptr {
	return (*[pagesPerKind]uintptr)(unsafe.Add(nil, w.header().pages[k]))
}

// addPage makes page n of kind k. C may be reading the directory.
func (w *window) addPage(k Kind, n int) error {
	const size = pageBytes + stagger
	if size > w.bytes-w.next {
		return w.full()
	}
	atomic.StoreUintptr(&w.directory(k)[n], uintptr(w.at(w.next+lineOfPage(k)*lineBytes)))
	w.next += size
	return nil
}

// slot returns the slot of id, whose page must exist.
func (w *window) slot(id ID) *slot {
	i := id.Index()
	page := w.offset(w.directory(id.Kind())[i/pageSlots])
	return (*slot)(w.at(page + uintptr(i%pageSlots)*unsafe.Sizeof(slot{})))
}

// push puts slots first to last of kind k, all of them free, on the list that C takes ids from.
func (w *window) push(k Kind, first, last uint32) {
	list := &w.header().free[k]
	for i := first; i < last; i++ {
		w.slot(MakeID(k, i)).extra = uint64(i + 1)
	}
	end := w.slot(MakeID(k, last))
	for {
		head := atomic.LoadUint64(list)
		atomic.StoreUint64(&end.extra, head&indexMask)
		if atomic.CompareAndSwapUint64(list, head, (head>>28+1)<<28|uint64(first)) {
			return
		}
	}
}
