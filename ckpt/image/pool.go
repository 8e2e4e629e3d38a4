// SPDX-License-Identifier: Apache-2.0

package image

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pool has the buffers from which chunks are written past the page cache, and lends them to who fills one.
//
// They are in huge pages where the kernel has some. A disk takes a request as a list of pieces that are each in one place
// of physical memory, and takes only so many: from pages of 4 KiB a request of a virtio disk is 1 MiB long, with 254
// pieces. From huge pages one of 4 MiB has two: such a disk has 512 MiB after 0.55 s that it has after 0.68 s else, most of
// which is its own flush (BenchmarkDirect).
//
// The buffer that came back last is lent first: its pages are there, and where the disk keeps up few are ever touched.
type pool struct {
	area   []byte        // all buffers; nil where each has memory of its own
	size   int           // of a buffer
	all    int           // how many there are
	tokens chan struct{} // one for each idle buffer: who has taken it may take one
	mu     sync.Mutex
	idle   []*buffer
}

// buffer is memory into which a job is read. It goes back when all that is written of it has been.
type buffer struct {
	p    []byte // begins at a page; nil until it is lent for the first time
	refs atomic.Int32
	home *pool
}

const hugePage = 2 << 20

// fill makes n buffers of so many bytes, a multiple of PageSize.
func (l *pool) fill(n, size int) {
	l.size, l.all, l.tokens = size, n, make(chan struct{}, n)
	// Not Go's memory: its collector returns what it frees page by page, and may take huge pages apart for it.
	var places []byte
	if area, err := unix.Mmap(-1, 0, n*size+hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err == nil {
		l.area = area
		places = area[-uintptr(unsafe.Pointer(&area[0]))%hugePage:][:n*size]
		_ = unix.Madvise(places, unix.MADV_HUGEPAGE) // small pages do, too
	}
	for range n {
		b := &buffer{home: l}
		if places != nil {
			b.p, places = places[:size:size], places[size:]
		}
		l.put(b)
	}
}

func (l *pool) put(b *buffer) {
	l.mu.Lock()
	l.idle = append(l.idle, b)
	l.mu.Unlock()
	l.tokens <- struct{}{}
}

// take waits until a buffer is idle, and lends it. The borrower gives it back with drop.
func (l *pool) take() *buffer {
	<-l.tokens
	l.mu.Lock()
	last := len(l.idle) - 1
	b := l.idle[last]
	l.idle = l.idle[:last]
	l.mu.Unlock()
	if b.p == nil {
		p := make([]byte, l.size+PageSize)
		b.p = p[-uintptr(unsafe.Pointer(&p[0]))%PageSize:][:l.size]
	}
	b.refs.Store(1)
	return b
}

func (b *buffer) drop() {
	if b.refs.Add(-1) == 0 {
		b.home.put(b)
	}
}

// empty gives the memory back. A pool of which a buffer is still lent keeps it: that is a leak, the other way a crash.
func (l *pool) empty() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.area != nil && len(l.idle) == l.all {
		_ = unix.Munmap(l.area)
		l.area, l.idle = nil, nil
	}
}
