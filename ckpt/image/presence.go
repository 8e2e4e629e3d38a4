// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/pagemap"
)

// presence finds the pages of a process that hold data of their own, with the ioctl PAGEMAP_SCAN
// (Linux 6.7) or, where the kernel lacks it, by reading /proc/PID/pagemap.
type presence struct {
	f    *os.File
	scan atomic.Int32 // one of scan*: what the kernel understands, as far as known
}

const (
	scanGuards = iota // the ioctl, guard pages told apart (tried first)
	scanPlain         // the ioctl without guard pages
	scanNone          // no such ioctl
)

func openPresence(path string) (*presence, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &presence{f: f}, nil
}

func (m *presence) close() error { return m.f.Close() }

func (m *presence) present(start, end uint64) ([]Extent, error) {
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

func (m *presence) ioctl(start, end uint64, mode int32) ([]Extent, error) {
	q := pagemap.Query{Start: start, End: end, Not: pagemap.Zero, Any: pagemap.Present | pagemap.Swapped, Tell: pagemap.Present | pagemap.Swapped}
	if mode == scanGuards {
		q.Not |= pagemap.Guard
	}
	var list []Extent
	err := pagemap.Scan(m.f, q, func(e Extent, _ pagemap.Category) { list = pagemap.Append(list, e) })
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Bits of an entry of /proc/PID/pagemap.
const (
	entryPresent = 1 << 63
	entrySwapped = 1 << 62
	entryGuard   = 1 << 58 // Linux 6.15
)

func (m *presence) walk(start, end uint64) ([]Extent, error) {
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
				list = pagemap.Append(list, Extent{Start: at, End: at + PageSize})
			}
			at += PageSize
		}
	}
	return list, nil
}
