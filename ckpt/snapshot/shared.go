// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/internal/sparse"
)

// ofOthers tells whether the content of a region is of more than this process.
func ofOthers(r *image.Region) bool {
	return r.Flags&image.FlagShared != 0 && r.Flags&image.FlagNoData == 0
}

// FindShared sets which pages of the shared regions hold data, and returns how much that is. The caller has stopped the program.
// Files that are mapped are opened and closed: the thread that does it has a table of descriptors of its own, or the process loses
// its POSIX locks on them.
func FindShared(regions []image.Region) (bytes uint64, err error) {
	var finder *sparse.Finder
	for i := range regions {
		r := &regions[i]
		if !ofOthers(r) {
			continue
		}
		r.Held = []image.Extent{{Start: r.Start, End: r.End}}
		if finder == nil && r.Bytes() >= sparse.Least {
			if finder, err = sparse.New(); err != nil {
				return 0, fmt.Errorf("shared mapping %s: which pages hold data: %w", r, err)
			}
		}
		if finder != nil {
			if r.Held = finder.Held(r.Start, r.End); r.Held == nil {
				r.Held = []image.Extent{}
			}
		}
		for _, e := range r.Held {
			bytes += e.End - e.Start
		}
	}
	return bytes, nil
}

// CopyShared copies what FindShared has found to room. A frozen child shares these regions with the running program, so the copy
// cannot wait. There may be much: room is not Go's heap, which would end the process when there is no more.
func CopyShared(regions []image.Region, room func(bytes int) ([]byte, error)) error {
	var self *image.ProcessMemory
	for i := range regions {
		r := &regions[i]
		if !ofOthers(r) {
			continue
		}
		if self == nil {
			m, err := image.OpenSelf()
			if err != nil {
				return err
			}
			defer m.Close()
			self = m
		}
		if err := copyRegion(self, r, room); err != nil {
			return fmt.Errorf("shared mapping %s: %w", r, err)
		}
	}
	return nil
}

// DropShared forgets the copies.
func DropShared(regions []image.Region) {
	for i := range regions {
		if ofOthers(&regions[i]) {
			regions[i].Copied = nil
		}
	}
}

func copyRegion(self *image.ProcessMemory, r *image.Region, room func(bytes int) ([]byte, error)) error {
	bytes := 0
	for _, e := range r.Held {
		bytes += int(e.End - e.Start)
	}
	all, err := room(bytes)
	if err != nil {
		return err
	}
	r.Copied = make(image.Copied, len(r.Held))
	for i, e := range r.Held {
		n := e.End - e.Start
		r.Copied[i] = image.Piece{Start: e.Start, Data: all[:n:n]}
		all = all[n:]
		if err := self.ReadAt(r.Copied[i].Data, e.Start); err == nil {
			continue
		}
		if err := readPages(self, &r.Copied[i]); err != nil {
			return err
		}
	}
	return nil
}

// readPages copies memory up to the end of its file: what lies behind that cannot be read, by the program either. An error says that
// it is another page that cannot.
func readPages(self *image.ProcessMemory, p *image.Piece) error {
	ended := false
	for at := 0; at < len(p.Data); at += image.PageSize {
		page := p.Data[at:][:image.PageSize]
		err := self.ReadAt(page, p.Start+uint64(at))
		switch {
		case err == nil && ended:
			return fmt.Errorf("0x%x can be read, and what is before it cannot", p.Start+uint64(at))
		case err != nil && at == 0 && !behindEnd(p.Start):
			return err
		case err != nil:
			clear(page)
			ended = true
		}
	}
	return nil
}

// behindEnd tells whether a page lies behind the end of its file, where who reads it gets SIGBUS: the kernel, asked to read it in,
// says EFAULT, and something else of what cannot be read in for another reason. Linux before 5.14 cannot be asked.
func behindEnd(addr uint64) bool {
	_, _, e := unix.Syscall(unix.SYS_MADVISE, uintptr(addr), image.PageSize, unix.MADV_POPULATE_READ)
	return e == unix.EFAULT
}
