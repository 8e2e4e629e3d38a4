// SPDX-License-Identifier: Apache-2.0

package table

import (
	"fmt"
	"sync/atomic"

	"github.com/libckpt/libckpt/collclock"
)

// Sizes and constants of include/ckpt/clock.h.
const (
	PageClocks  = 1024
	headerMagic = 0x314b434f4c435043
	headerSize  = 24
	version     = 1
)

// Clock is ckpt_clock.
type Clock struct {
	call, ret, lim, open uint64
}

// Page is one page of clocks.
type Page [PageClocks]Clock

// Header is ckpt_clocks.
type Header struct {
	magic          uint64
	version, bytes uint32
	pages          *atomic.Pointer[Page]
}

// Table is all clocks of a process. One lock of the caller guards its methods; C reads without.
type Table struct {
	pages []atomic.Pointer[Page] // what C sees
	used  int                    // pages
	free  []uint32
	next  uint32
}

// New lays a table out: head and directory (which must not be empty) are in memory that stays in place,
// is zeroed and seen by C. The directory bounds how many pages there can be.
func New(head *Header, directory []atomic.Pointer[Page]) *Table {
	*head = Header{magic: headerMagic, version: version, bytes: headerSize, pages: &directory[0]}
	return &Table{pages: directory}
}

// Full tells that Add needs a page first.
func (t *Table) Full() bool { return len(t.free) == 0 && int(t.next) == t.used*PageClocks }

// Grow adds a page, in memory that stays in place and is seen by C.
func (t *Table) Grow(page *Page) error {
	if t.used == len(t.pages) {
		return fmt.Errorf("collective clocks: all %d pages are in use", len(t.pages))
	}
	t.pages[t.used].Store(page)
	t.used++
	return nil
}

// Add gives out a clock that counts from 0. There must be room (see Full).
func (t *Table) Add() (uint32, error) {
	if t.Full() {
		return 0, fmt.Errorf("collective clocks: the table is full at %d; Grow it first", t.next)
	}
	var index uint32
	if n := len(t.free); n > 0 {
		index, t.free = t.free[n-1], t.free[:n-1]
	} else {
		index = t.next
		t.next++
	}
	*t.at(index) = Clock{}
	return index, nil
}

// Remove takes a clock back. Nobody may use its index any more.
func (t *Table) Remove(index uint32) { t.free = append(t.free, index) }

func (t *Table) at(index uint32) *Clock {
	return &t.pages[index/PageClocks].Load()[index%PageClocks]
}

// Count reads one clock. Only after Raise is it sure to have every call that did not see the pending
// word.
func (t *Table) Count(index uint32, id collclock.ID) collclock.Count {
	c := t.at(index)
	// RET before CALL: a call in between then looks as if it were inside, never as if it had returned
	// without being made.
	ret := atomic.LoadUint64(&c.ret)
	return collclock.Count{Clock: id, Ret: ret, Open: atomic.LoadUint64(&c.open), Call: atomic.LoadUint64(&c.call)}
}

// Gated counts an always-gated call, which C does not count, and returns its number.
func (t *Table) Gated(index uint32) uint64 { return atomic.AddUint64(&t.at(index).call, 1) }

// Permit lets a thread that waits in C go on with call k.
func (t *Table) Permit(index uint32, k uint64) { atomic.StoreUint64(&t.at(index).lim, k) }

// Raise does what collclock.Raise asks for before the counters may be read: the pending word, then
// the fence on all threads of the process, membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED). If the fence
// fails, the word is cleared again and nothing may be read.
func Raise(pending *uint32, fence func() error) error {
	atomic.StoreUint32(pending, 1)
	if err := fence(); err != nil {
		atomic.StoreUint32(pending, 0)
		return fmt.Errorf("collective clocks: fence on all threads: %w", err)
	}
	return nil
}

// Lower clears the pending word.
func Lower(pending *uint32) { atomic.StoreUint32(pending, 0) }
