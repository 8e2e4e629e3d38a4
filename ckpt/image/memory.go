// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/libckpt/libckpt/internal/pagemap"
)

// Extent is a range of addresses, in whole pages.
type Extent = pagemap.Extent

// Memory is where the content of regions comes from. Several goroutines may call its methods at the same
// time.
type Memory interface {
	// ReadAt fills p with the content from addr on, or fails.
	ReadAt(p []byte, addr uint64) error
	// Present returns the ranges of pages between start and end that hold data of their own, in
	// ascending order. The other pages are zero, or those of the file where one is mapped.
	Present(start, end uint64) ([]Extent, error)
}

// ProcessMemory is the memory of a process. The memory must not change while it is read: either the process
// is stopped, or the caller owns the memory that it reads.
type ProcessMemory struct {
	mem      *os.File
	presence *presence
}

var _ Memory = (*ProcessMemory)(nil)

// OpenProcess opens the memory of process pid. It needs the permission to trace that process, which a
// process has for a child of the same user.
func OpenProcess(pid int) (*ProcessMemory, error) { return openProcess(strconv.Itoa(pid)) }

// OpenSelf opens the memory of this process.
func OpenSelf() (*ProcessMemory, error) { return openProcess("self") }

func openProcess(pid string) (*ProcessMemory, error) {
	mem, err := os.Open("/proc/" + pid + "/mem")
	if err != nil {
		return nil, fmt.Errorf("memory of process %s: %w", pid, err)
	}
	pm, err := openPresence("/proc/" + pid + "/pagemap")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("page map of process %s: %w", pid, err), mem.Close())
	}
	return &ProcessMemory{mem: mem, presence: pm}, nil
}

// Close closes the process's files.
func (m *ProcessMemory) Close() error { return errors.Join(m.mem.Close(), m.presence.close()) }

// ReadAt implements Memory. It also reads pages without access rights (PROT_NONE). process_vm_readv would not, and would give a frozen
// copy pages of its own (docs/rationale.md).
func (m *ProcessMemory) ReadAt(p []byte, addr uint64) error {
	_, err := m.mem.ReadAt(p, int64(addr))
	return err
}

// Present implements Memory.
func (m *ProcessMemory) Present(start, end uint64) ([]Extent, error) {
	return m.presence.present(start, end)
}

// Copied is memory that was copied beforehand: pieces in ascending order, of whole pages. Between them there are zeros.
type Copied []Piece

// Piece is what was at an address.
type Piece struct {
	Start uint64
	Data  []byte
}

var _ Memory = Copied{}

// CopiedAt is one piece.
func CopiedAt(start uint64, data []byte) Copied { return Copied{{start, data}} }

func (p *Piece) extent() Extent { return Extent{Start: p.Start, End: p.Start + uint64(len(p.Data))} }

// from is the index of the first piece that ends behind addr.
func (c Copied) from(addr uint64) int {
	i, _ := slices.BinarySearchFunc(c, addr, func(p Piece, a uint64) int {
		if p.extent().End <= a {
			return -1
		}
		return 1
	})
	return i
}

// ReadAt implements Memory.
func (c Copied) ReadAt(p []byte, addr uint64) error {
	clear(p)
	end := addr + uint64(len(p))
	for i := c.from(addr); i < len(c) && c[i].Start < end; i++ {
		e := c[i].extent()
		from, to := max(e.Start, addr), min(e.End, end)
		copy(p[from-addr:to-addr], c[i].Data[from-e.Start:])
	}
	return nil
}

// Present implements Memory.
func (c Copied) Present(start, end uint64) (list []Extent, err error) {
	for i := c.from(start); i < len(c) && c[i].Start < end; i++ {
		e := c[i].extent()
		list = append(list, Extent{Start: max(e.Start, start), End: min(e.End, end)})
	}
	return list, nil
}

// check says what is wrong with the pieces for a region.
func (c Copied) check(r *Region) error {
	held := make([]Extent, len(c))
	for i := range c {
		held[i] = c[i].extent()
	}
	return checkHeld(held, r)
}

// checkHeld says what is wrong with a list of the pages of a region that hold data.
func checkHeld(list []Extent, r *Region) error {
	last := r.Start
	for _, e := range list {
		if e.Start < last || e.End <= e.Start || e.End > r.End || e.Start%PageSize != 0 || e.End%PageSize != 0 {
			return fmt.Errorf("region %v: data given for 0x%x-0x%x", r, e.Start, e.End)
		}
		last = e.End
	}
	return nil
}

// covers tells whether the ascending list holds any page of the range.
func covers(list []Extent, start, end uint64) bool {
	i, _ := slices.BinarySearchFunc(list, start, func(e Extent, a uint64) int {
		if e.End <= a {
			return -1
		}
		return 1
	})
	return i < len(list) && list[i].Start < end
}
