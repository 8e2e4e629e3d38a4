// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pagemap finds the pages of a process that hold data of their own, with the ioctl PAGEMAP_SCAN
// (Linux 6.7) or, where the kernel lacks it, by reading /proc/PID/pagemap.
type pagemap struct {
	f    *os.File
	scan atomic.Int32 // one of scan*: what the kernel understands, as far as known
}

const (
	scanGuards = iota // the ioctl, guard pages told apart (tried first)
	scanPlain         // the ioctl without guard pages
	scanNone          // no such ioctl
)

// From linux/fs.h; x/sys/unix does not have them.
const (
	ioctlPagemapScan = 0xc0606610 // PAGEMAP_SCAN
	pagePresent      = 1 << 3     // PAGE_IS_PRESENT
	pageSwapped      = 1 << 4     // PAGE_IS_SWAPPED
	pageZero         = 1 << 5     // PAGE_IS_PFNZERO: the shared page of zeros
	pageGuard        = 1 << 8     // PAGE_IS_GUARD: MADV_GUARD_INSTALL, cannot be read
)

// pmScanArg is struct pm_scan_arg.
type pmScanArg struct {
	size, flags, start, end, walkEnd  uint64
	vec, vecLen, maxPages             uint64
	inverted, mask, anyOf, returnMask uint64
}

// pageRegion is struct page_region.
type pageRegion struct{ start, end, categories uint64 }

func openPagemap(path string) (*pagemap, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &pagemap{f: f}, nil
}

func (m *pagemap) close() error { return m.f.Close() }

func (m *pagemap) present(start, end uint64) ([]Extent, error) {
	for {
		mode := m.scan.Load()
		if mode == scanNone {
			return m.walk(start, end)
		}
		list, err := m.ioctl(start, end, mode)
		if err == nil {
			return list, nil
		}
		// An unknown category is EINVAL, an unknown ioctl is ENOTTY.
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTTY) {
			return nil, fmt.Errorf("%s: pages of 0x%x-0x%x: %w", m.f.Name(), start, end, err)
		}
		m.scan.CompareAndSwap(mode, mode+1)
	}
}

func (m *pagemap) ioctl(start, end uint64, mode int32) ([]Extent, error) {
	var list []Extent
	vec := make([]pageRegion, 256)
	not := uint64(pageZero)
	if mode == scanGuards {
		not |= pageGuard
	}
	for start < end {
		arg := pmScanArg{
			size:       uint64(unsafe.Sizeof(pmScanArg{})),
			start:      start,
			end:        end,
			vec:        uint64(uintptr(unsafe.Pointer(&vec[0]))),
			vecLen:     uint64(len(vec)),
			inverted:   not,
			mask:       not,
			anyOf:      pagePresent | pageSwapped,
			returnMask: pagePresent | pageSwapped,
		}
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, m.f.Fd(), ioctlPagemapScan,
			uintptr(unsafe.Pointer(&arg)))
		runtime.KeepAlive(vec)
		if errno == unix.EINTR || errno == unix.EAGAIN {
			continue
		}
		if errno != 0 {
			return nil, errno
		}
		for _, r := range vec[:n] {
			list = appendExtent(list, Extent{r.start, r.end})
		}
		if arg.walkEnd <= start { // should not happen, and would make an endless loop
			return nil, unix.EIO
		}
		start = arg.walkEnd
	}
	return list, nil
}

// Bits of an entry of /proc/PID/pagemap.
const (
	entryPresent = 1 << 63
	entrySwapped = 1 << 62
	entryGuard   = 1 << 58 // Linux 6.15
)

func (m *pagemap) walk(start, end uint64) ([]Extent, error) {
	var list []Extent
	buf := make([]byte, 64<<10)
	for at := start; at < end; {
		want := min(uint64(len(buf)), (end-at)/PageSize*8)
		n, err := m.f.ReadAt(buf[:want], int64(at/PageSize*8))
		if n < 8 {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("%s: pages from 0x%x on: %w", m.f.Name(), at, err)
		}
		for i := 0; i+8 <= n; i += 8 {
			e := binary.LittleEndian.Uint64(buf[i:])
			if e&(entryPresent|entrySwapped) != 0 && e&entryGuard == 0 {
				list = appendExtent(list, Extent{at, at + PageSize})
			}
			at += PageSize
		}
	}
	return list, nil
}
