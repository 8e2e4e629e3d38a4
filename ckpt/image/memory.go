// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

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
	pid      int
	mem      *os.File
	presence *presence
	slow     atomic.Bool // process_vm_readv is forbidden here
}

var _ Memory = (*ProcessMemory)(nil)

// OpenProcess opens the memory of process pid. It needs the permission to trace that process, which a
// process has for a child of the same user.
func OpenProcess(pid int) (*ProcessMemory, error) { return openProcess(pid, strconv.Itoa(pid)) }

// OpenSelf opens the memory of this process.
func OpenSelf() (*ProcessMemory, error) { return openProcess(os.Getpid(), "self") }

func openProcess(pid int, name string) (*ProcessMemory, error) {
	mem, err := os.Open("/proc/" + name + "/mem")
	if err != nil {
		return nil, fmt.Errorf("memory of process %s: %w", name, err)
	}
	pm, err := openPresence("/proc/" + name + "/pagemap")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("page map of process %s: %w", name, err), mem.Close())
	}
	return &ProcessMemory{pid: pid, mem: mem, presence: pm}, nil
}

// Close closes the process's files.
func (m *ProcessMemory) Close() error { return errors.Join(m.mem.Close(), m.presence.close()) }

// ReadAt implements Memory. It also reads pages without access rights (PROT_NONE).
//
// process_vm_readv copies once and locks the process's mappings once for many pages; a file of /proc copies twice and
// locks them for each page, on which two readers wait for each other: 1 GiB takes two of them 0.08 s and 0.13 s. But only
// the file reads all pages, and only the file is of this memory: a number may be that of another process when this one
// has ended. So the file reads what the call does not, and a byte after it, which it cannot from a memory that is gone.
func (m *ProcessMemory) ReadAt(p []byte, addr uint64) error {
	n := 0
	if len(p) >= leastAtOnce && !m.slow.Load() {
		n = m.readAtOnce(p, addr)
	}
	if n == len(p) {
		n-- // the byte
	}
	_, err := m.mem.ReadAt(p[n:], int64(addr)+int64(n))
	return err
}

// leastAtOnce is how much is worth a second system call.
const leastAtOnce = 16 << 10

// readAtOnce returns how many bytes it has read, from the first on.
func (m *ProcessMemory) readAtOnce(p []byte, addr uint64) int {
	here := []unix.Iovec{{Base: &p[0], Len: uint64(len(p))}}
	there := []unix.RemoteIovec{{Base: uintptr(addr), Len: len(p)}}
	n, err := unix.ProcessVMReadv(m.pid, here, there, 0)
	if err == unix.EPERM || err == unix.ENOSYS {
		m.slow.Store(true)
	}
	return max(n, 0)
}

// Present implements Memory.
func (m *ProcessMemory) Present(start, end uint64) ([]Extent, error) {
	return m.presence.present(start, end)
}

// sliceMemory is the content of one region that was copied beforehand.
type sliceMemory struct {
	start uint64
	data  []byte
}

func (m sliceMemory) ReadAt(p []byte, addr uint64) error {
	copy(p, m.data[addr-m.start:])
	return nil
}

func (m sliceMemory) Present(start, end uint64) ([]Extent, error) {
	return []Extent{{Start: start, End: end}}, nil
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
